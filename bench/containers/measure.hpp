// Medians with spread, as lines of JSON.
#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

namespace bench {

/// Processor time of this thread: other programs of a busy machine cost caches, but are not counted.
struct clock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<clock>;
  static constexpr bool is_steady = true;
  static time_point now() noexcept {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return time_point(std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec));
  }
};

/// The compiler must not know that nobody looks at it.
template <class T>
void keep(const T& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

template <class Clock, class Duration>
double ns_since(std::chrono::time_point<Clock, Duration> begin) {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

struct summary {
  double median, low, high;  // nanoseconds an operation; low and high are the quartiles
};

inline summary summarise(std::vector<double> all) {
  std::ranges::sort(all);
  return {all[all.size() / 2], all[all.size() / 4], all[all.size() * 3 / 4]};
}

inline void print(const std::string& id, const std::string& what, const std::string& who, const summary& s) {
  std::printf("{\"id\": \"%s\", \"what\": \"%s\", \"who\": \"%s\", \"ns\": %.3f, \"low\": %.3f, \"high\": %.3f}\n", id.c_str(), what.c_str(), who.c_str(), s.median, s.low,
              s.high);
  std::fflush(stdout);
}

}  // namespace bench
