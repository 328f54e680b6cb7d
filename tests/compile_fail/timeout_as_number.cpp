// expect: cannot convert .int. to
// With MISUSE defined, this program must not compile, because a bare number has no unit.
#include <crossdock/crossdock.hpp>

using namespace std::chrono_literals;

int use(crossdock::port& p) {
#ifdef MISUSE
  return p.recv<int>(100);
#else
  return p.recv<int>(100ms);
#endif
}
