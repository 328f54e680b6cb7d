// An allocator that gives the containers in a region memory of that region.
#pragma once

#include <crossdock/construct.hpp>
#include <crossdock/detail/relative.hpp>
#include <crossdock/detail/tsan.hpp>
#include <crossdock/error.hpp>
#include <crossdock/offset_ptr.hpp>

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace crossdock {

class region;

/// A standard allocator of eight bytes that may itself lie in shared memory: it stores only the distance to its
/// region's header. A container always keeps the allocator with which it was made (assignment and swap do not exchange
/// allocators), because the container's elements must lie in the container's own region. Elements that are made through
/// the allocator get the allocator as well.
///
/// allocate throws crossdock::error: no_space, or not_found if the region is not mapped in this process. Thread-safe.
template <class T>
class allocator {
 public:
  using value_type = T;
  using pointer = offset_ptr<T>;
  using const_pointer = offset_ptr<const T>;
  using void_pointer = offset_ptr<void>;
  using const_void_pointer = offset_ptr<const void>;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;
  using propagate_on_container_copy_assignment = std::false_type;
  using propagate_on_container_move_assignment = std::false_type;
  using propagate_on_container_swap = std::false_type;
  using is_always_equal = std::false_type;
  template <class U>
  struct rebind {
    using other = allocator<U>;
  };

  /// `header` is the address at which the region is mapped, as region::base() returns it.
  explicit allocator(const void* header) noexcept : region_(detail::relative(&region_, header)) {}
  allocator(const region& r) noexcept;  // NOLINT: a region converts to its allocator
  allocator(const allocator& other) noexcept : allocator(other.base()) {}
  template <class U>
  allocator(const allocator<U>& other) noexcept : allocator(other.base()) {}
  allocator& operator=(const allocator& other) noexcept {
    region_ = detail::relative(&region_, other.base());
    return *this;
  }

  pointer allocate(size_type n)
    requires(!std::is_void_v<T>)
  {
    return pointer(raw_allocate(n));
  }
  void deallocate(const pointer& p, size_type) noexcept
    requires(!std::is_void_v<T>)
  {
    raw_deallocate(p.get());
  }

  /// Works like allocate, but returns a plain pointer, for containers that store their links in a form of their own.
  T* raw_allocate(size_type n, std::size_t align = 1)
    requires(!std::is_void_v<T>)
  {
    if (n > static_cast<size_type>(PTRDIFF_MAX) / sizeof(T)) {
      throw error(status::no_space, "no region has room for that many elements");
    }
    void* address = nullptr;
    detail::check(crossdock_allocate_at(base(), n * sizeof(T), std::max({alignof(T), align, std::size_t{8}}), &address));
    detail::take_over(address);
    return static_cast<T*>(address);
  }
  /// Never throws. If a block cannot be freed (because its region was unmapped, another member corrupted the region, or
  /// a member that is stopped has the region's lock), the block stays allocated.
  void raw_deallocate(const void* p) noexcept {
    detail::hand_over(p);
    (void)crossdock_deallocate_at(base(), const_cast<void*>(p));
  }

  /// Constructs an object, and passes this allocator to the constructor if it takes an allocator.
  template <class U, class... Args>
  void construct(U* place, Args&&... args) {
    detail::construct_in(allocator<void>(*this), place, std::forward<Args>(args)...);
  }

  /// The address of the region in this process.
  const void* base() const noexcept { return detail::resolve(region_); }

  template <class U>
  friend bool operator==(const allocator& a, const allocator<U>& b) noexcept {
    return a.base() == b.base();
  }

 private:
  detail::relative_word region_;
};

static_assert(sizeof(allocator<int>) == 8 && std::is_standard_layout_v<allocator<int>>, "an allocator is one self-relative word");

}  // namespace crossdock
