// expect: simple<T> takes plain data without raw pointers
// An atomic that is too large for the processor hides a lock of this process alone.
#include <crossdock/crossdock.hpp>

#include <atomic>

#ifdef MISUSE
struct counters {
  long a, b, c;
};
#else
using counters = long;
#endif

void use(crossdock::region& r) { r.simple<std::atomic<counters>>("c").store({}); }
