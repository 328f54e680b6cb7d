// expect: simple<T> takes plain data without raw pointers
// With MISUSE defined, this program must not compile, because an atomic that is too large for the CPU uses a lock
// that only this process has.
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
