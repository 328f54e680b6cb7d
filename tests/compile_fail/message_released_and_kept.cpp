// expect: discards qualifiers|passing
// With MISUSE defined, this program must not compile:
// release() must be written std::move(m).release(), so that the compiler finds a later use of m.
#include <crossdock/crossdock.hpp>

#include <utility>

void use(crossdock::port& p) {
  auto m = p.receive<int>();
#ifdef MISUSE
  m.release();
#else
  std::move(m).release();
#endif
}
