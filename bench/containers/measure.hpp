// Measures the time of operations, and prints the times as lines of JSON.
#pragma once

#include <time.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

namespace bench {

/// CPU time of this thread. The time of other programs is not counted. Other programs can still slow this thread down,
/// because they evict its data from the caches.
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

/// Keeps the compiler from dropping a result that is never read.
template <class T>
void keep(const T& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

template <class Clock, class Duration>
double ns_since(std::chrono::time_point<Clock, Duration> begin) {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

/// Prints one line: what was measured, of which library, and the nanoseconds per operation of each run. The script
/// `run` makes records of these lines.
inline void print(const std::string& id, const std::string& what, const std::string& who, const std::vector<double>& runs) {
  std::printf("{\"id\": \"%s\", \"case\": \"%s\", \"who\": \"%s\", \"runs\": [", id.c_str(), what.c_str(), who.c_str());
  for (std::size_t i = 0; i < runs.size(); ++i) std::printf("%s%.3f", i ? ", " : "", runs[i]);
  std::printf("]}\n");
  std::fflush(stdout);
}

}  // namespace bench
