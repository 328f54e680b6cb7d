// A pointer that survives being mapped at another address: it stores how far its target is from itself.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <type_traits>

namespace crossdock {

/// Self-relative pointer: eight bytes, address = address of the offset_ptr + value. Null is the value 1, because 0 is a
/// pointer to itself, as the head of an empty ring of nodes has. Copying re-computes the value, so an offset_ptr must not
/// be copied byte by byte. Use it for links between objects of one region; a link into another region is a handle.
template <class T>
class offset_ptr {
  static constexpr std::int64_t null = 1;
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
  offset_ptr(const offset_ptr& other) noexcept { set(other.get()); }
  template <class U>
    requires converts<U>
  offset_ptr(const offset_ptr<U>& other) noexcept {
    set(other.get());
  }
  template <class U>
    requires(!converts<U> && requires(U* u) { static_cast<T*>(u); })
  explicit offset_ptr(const offset_ptr<U>& other) noexcept {
    set(static_cast<T*>(other.get()));
  }
  offset_ptr& operator=(const offset_ptr& other) noexcept { return (set(other.get()), *this); }
  offset_ptr& operator=(T* p) noexcept { return (set(p), *this); }

  T* get() const noexcept { return offset_ == null ? nullptr : target(); }
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
  explicit operator bool() const noexcept { return offset_ != null; }
  bool operator!() const noexcept { return offset_ == null; }

  /// For std::pointer_traits and boost::intrusive::pointer_traits.
  static offset_ptr pointer_to(std::conditional_t<std::is_void_v<T>, char, T>& r) noexcept { return offset_ptr(std::addressof(r)); }

  offset_ptr& operator+=(difference_type n) noexcept { return (set(get() + n), *this); }
  offset_ptr& operator-=(difference_type n) noexcept { return (set(get() - n), *this); }
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
  friend offset_ptr operator+(const offset_ptr& p, difference_type n) noexcept { return offset_ptr(p.get() + n); }
  friend offset_ptr operator+(difference_type n, const offset_ptr& p) noexcept { return offset_ptr(p.get() + n); }
  friend offset_ptr operator-(const offset_ptr& p, difference_type n) noexcept { return offset_ptr(p.get() - n); }
  friend difference_type operator-(const offset_ptr& a, const offset_ptr& b) noexcept { return a.get() - b.get(); }
  friend bool operator==(const offset_ptr& a, const offset_ptr& b) noexcept { return a.get() == b.get(); }
  friend std::strong_ordering operator<=>(const offset_ptr& a, const offset_ptr& b) noexcept { return std::compare_three_way{}(a.get(), b.get()); }

 private:
  // What the compiler cannot know, and is told: no object lies at address 0, nor one byte behind a pointer to it. Without
  // it each copy in a register would be tested for null again, and a walk through a tree takes twice as long.
  T* target() const noexcept {
    // Integers, not pointers: the two ends are different objects, between which pointer arithmetic is undefined.
    const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(this) + static_cast<std::uintptr_t>(offset_);
    if (address == 0) __builtin_unreachable();
    return reinterpret_cast<T*>(address);
  }
  void set(const volatile void* p) noexcept {
    const auto distance = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(this));
    if (distance == null) __builtin_unreachable();
    offset_ = p ? distance : null;
  }
  std::int64_t offset_ = null;
};

}  // namespace crossdock
