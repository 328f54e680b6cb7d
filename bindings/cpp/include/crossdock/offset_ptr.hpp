// A pointer that stays valid when its region is mapped at another address: it stores the distance to its target.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <type_traits>

namespace crossdock {

/// A self-relative pointer of eight bytes: address = address of the offset_ptr + value. A null pointer has the value
/// 2^62, or a value near 2^62 after it was copied. This distance is farther than any object in a process can be,
/// because addresses have at most 57 bits. The value 0 is a pointer to the offset_ptr itself, such as the head of an
/// empty ring of nodes. Copying computes a new value for the new place, so an offset_ptr must not be copied byte by
/// byte. Use it for links between objects of one region; a link into another region is a handle.
template <class T>
class offset_ptr {
  // Each address from `beyond` on means null; `null` is only the first value of a null pointer. Copying adds the
  // distance between source and copy to every value, also to that of a null pointer, whose address stays above
  // `beyond`. So copying needs no branch, and the compiler can remove the short-lived copies that containers make of
  // their links. If null were a single value, every copy would have to test for it, and a look-up in a table would take
  // three times as long as it does now.
  static constexpr std::int64_t null = std::int64_t{1} << 62;
  static constexpr std::uintptr_t beyond = std::uintptr_t{1} << 61;
  template <class U>
  static constexpr bool converts = std::is_convertible_v<U*, T*>;

 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;
  using difference_type = std::ptrdiff_t;
  using pointer = offset_ptr;
  using reference = std::add_lvalue_reference_t<T>;
  using iterator_category = std::random_access_iterator_tag;
  template <class U>
  using rebind = offset_ptr<U>;

  offset_ptr() noexcept = default;
  offset_ptr(T* p) noexcept { set(p); }
  offset_ptr(const offset_ptr& other) noexcept { point_to(other.address()); }
  template <class U>
    requires converts<U>
  offset_ptr(const offset_ptr<U>& other) noexcept {
    convert(other);
  }
  template <class U>
    requires(!converts<U> && requires(U* u) { static_cast<T*>(u); })
  explicit offset_ptr(const offset_ptr<U>& other) noexcept {
    convert(other);
  }
  offset_ptr& operator=(const offset_ptr& other) noexcept { return (point_to(other.address()), *this); }
  offset_ptr& operator=(T* p) noexcept { return (set(p), *this); }

  T* get() const noexcept { return is_null() ? nullptr : target(); }
  reference operator*() const noexcept
    requires(!std::is_void_v<T>)
  {
    return *target();
  }
  T* operator->() const noexcept { return target(); }
  reference operator[](difference_type i) const noexcept
    requires(!std::is_void_v<T>)
  {
    return target()[i];
  }
  explicit operator bool() const noexcept { return !is_null(); }
  bool operator!() const noexcept { return is_null(); }

  /// The standard function for std::pointer_traits and boost::intrusive::pointer_traits.
  static offset_ptr pointer_to(std::conditional_t<std::is_void_v<T>, char, T>& r) noexcept { return offset_ptr(std::addressof(r)); }

  offset_ptr& operator+=(difference_type n) noexcept { return (point_to(address() + bytes(n)), *this); }
  offset_ptr& operator-=(difference_type n) noexcept { return (point_to(address() - bytes(n)), *this); }
  offset_ptr& operator++() noexcept { return *this += 1; }
  offset_ptr& operator--() noexcept { return *this -= 1; }
  offset_ptr operator++(int) noexcept {
    offset_ptr before(*this);
    ++*this;
    return before;
  }
  offset_ptr operator--(int) noexcept {
    offset_ptr before(*this);
    --*this;
    return before;
  }
  friend offset_ptr operator+(const offset_ptr& p, difference_type n) noexcept { return offset_ptr(p) += n; }
  friend offset_ptr operator+(difference_type n, const offset_ptr& p) noexcept { return offset_ptr(p) += n; }
  friend offset_ptr operator-(const offset_ptr& p, difference_type n) noexcept { return offset_ptr(p) -= n; }
  friend difference_type operator-(const offset_ptr& a, const offset_ptr& b) noexcept {
    if (a.is_null() && b.is_null()) [[unlikely]] return 0;
    return static_cast<difference_type>(a.address() - b.address()) / static_cast<difference_type>(sizeof(T));
  }
  // The second pointer is tested first. In `it != end()` the second pointer is mostly null. The compiler often knows
  // this, and then only the test of the first pointer remains.
  friend bool operator==(const offset_ptr& a, const offset_ptr& b) noexcept { return b.is_null() ? a.is_null() : a.address() == b.address(); }
  friend bool operator==(const offset_ptr& p, std::nullptr_t) noexcept { return p.is_null(); }
  friend std::strong_ordering operator<=>(const offset_ptr& a, const offset_ptr& b) noexcept { return std::compare_three_way{}(a.get(), b.get()); }

 private:
  template <class U>
  friend class offset_ptr;

  bool is_null() const noexcept { return address() >= beyond; }
  // Computes with integers instead of pointers: this offset_ptr and its target are different objects, and C++ does
  // not define pointer arithmetic between different objects.
  std::uintptr_t address() const noexcept { return reinterpret_cast<std::uintptr_t>(this) + static_cast<std::uintptr_t>(offset_); }
  void point_to(std::uintptr_t address) noexcept { offset_ = static_cast<std::int64_t>(address - reinterpret_cast<std::uintptr_t>(this)); }
  // Tells the compiler that the target is not at address 0. The compiler cannot know this by itself.
  T* target() const noexcept {
    const std::uintptr_t to = address();
    if (to == 0) __builtin_unreachable();
    return reinterpret_cast<T*>(to);
  }
  void set(const volatile void* p) noexcept {
    point_to(reinterpret_cast<std::uintptr_t>(p));
    if (!p) offset_ = null;
  }
  /// Converts to a pointer to a base class, which may begin at another address than the derived class. Null stays null,
  /// whatever the distance between the two addresses.
  template <class U>
  void convert(const offset_ptr<U>& other) noexcept {
    if constexpr (std::is_void_v<T> || std::is_void_v<U> || std::is_same_v<std::remove_cv_t<T>, std::remove_cv_t<U>>) {
      point_to(other.address());
    } else {
      point_to(reinterpret_cast<std::uintptr_t>(static_cast<T*>(other.target())));
    }
  }
  static std::uintptr_t bytes(difference_type n) noexcept { return static_cast<std::uintptr_t>(n) * sizeof(T); }

  std::int64_t offset_ = null;
};

}  // namespace crossdock
