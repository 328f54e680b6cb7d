// expect: simple<T> takes plain data without raw pointers; use container<T> for what grows
// With MISUSE defined, this program must not compile, because no destructor runs for the object of a simple<T>, so a
// vector in it would leak.
#include <crossdock/crossdock.hpp>

void use(crossdock::region& r) {
#ifdef MISUSE
  r.simple<crossdock::vector<int>>("v").push_back(1);
#else
  r.container<crossdock::vector<int>>("v").push_back(1);
#endif
}
