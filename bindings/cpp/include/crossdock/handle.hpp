// Handles: sixteen bytes that name data for another task and that any workflow system can carry (Dhmem paper, section
// III-C).
#pragma once

#include <crossdock.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>

namespace crossdock {

/// The place of an allocation, which is the same in every process: the segment, and the distance from its start in
/// bytes. Plain data. Segment ids are never used again, so an old handle never names new data. {0, 0} names nothing.
struct handle {
  std::uint64_t segment = 0;
  std::uint64_t offset = 0;

  constexpr handle() noexcept = default;
  constexpr handle(std::uint64_t s, std::uint64_t o) noexcept : segment(s), offset(o) {}
  constexpr handle(crossdock_handle h) noexcept : segment(h.segment), offset(h.offset) {}
  constexpr operator crossdock_handle() const noexcept { return {segment, offset}; }

  constexpr explicit operator bool() const noexcept { return segment != 0; }
  friend constexpr auto operator<=>(const handle&, const handle&) noexcept = default;
};

static_assert(sizeof(handle) == 16 && alignof(handle) == 8 && std::is_trivially_copyable_v<handle> &&
                  offsetof(handle, segment) == 0 && offsetof(handle, offset) == 8,
              "a handle is laid out as crossdock_handle");

}  // namespace crossdock

template <>
struct std::hash<crossdock::handle> {
  std::size_t operator()(const crossdock::handle& h) const noexcept {
    return static_cast<std::size_t>((h.segment * UINT64_C(0x9E3779B97F4A7C15)) ^ (h.offset >> 4));
  }
};
