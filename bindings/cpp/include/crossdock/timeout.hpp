// Timeouts. No call of this library waits for ever; every call that waits has a timeout.
#pragma once

#include <crossdock.h>

#include <chrono>
#include <cstdint>
#include <limits>

namespace crossdock {

/// How long a call may wait. Any std::chrono duration converts to it. The default is 60 s.
class timeout {
 public:
  constexpr timeout() noexcept = default;

  /// A duration is rounded up to whole milliseconds, so that a short wait does not become a poll. Negative durations do
  /// not wait.
  template <class Rep, class Period>
  constexpr timeout(std::chrono::duration<Rep, Period> d) noexcept {
    using wide = std::chrono::duration<double, std::milli>;
    if (d <= d.zero()) {
      ms_ = 0;
    } else if (wide(d).count() >= 9e15) {  // 285 000 years; a longer time would not fit
      ms_ = INT64_C(9000000000000000);
    } else {
      ms_ = std::chrono::ceil<std::chrono::duration<std::int64_t, std::milli>>(d).count();
    }
  }

  /// The timeout in milliseconds, for the C functions.
  constexpr std::int64_t milliseconds() const noexcept { return ms_; }

 private:
  std::int64_t ms_ = CROSSDOCK_WAIT;
};

/// The timeout of a call that does not wait. If the object does not exist or no message is ready, the result is
/// status::not_yet (ports) or status::not_found (names).
inline constexpr timeout no_wait{std::chrono::seconds(0)};
/// The timeout of a call for which the program gives none: 60 s.
inline constexpr timeout default_wait{};

}  // namespace crossdock
