// A region, found by its address and kept mapped as long as this value exists.
#pragma once

#include <crossdock/error.hpp>

#include <cstdint>

namespace crossdock::detail {

class mapped {
 public:
  explicit mapped(const void* base) {
    check(crossdock_region_at(base, &region_));
    void* start = nullptr;
    if (auto s = crossdock_region_base(region_, &start, &capacity_); s != CROSSDOCK_OK) {
      crossdock_region_unref(region_);
      raise(s);
    }
    start_ = reinterpret_cast<std::uintptr_t>(start);
  }
  ~mapped() { crossdock_region_unref(region_); }
  mapped(const mapped&) = delete;
  mapped& operator=(const mapped&) = delete;

  crossdock_region* get() const noexcept { return region_; }
  /// Tells whether an address is in the region. The answer is false for a container on the stack that was made with
  /// the region's allocator; no other task can see such a container.
  bool contains(const void* p) const noexcept { return reinterpret_cast<std::uintptr_t>(p) - start_ < capacity_; }

 private:
  crossdock_region* region_ = nullptr;
  std::uintptr_t start_ = 0;
  std::uint64_t capacity_ = 0;
};

}  // namespace crossdock::detail
