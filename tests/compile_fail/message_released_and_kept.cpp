// expect: discards qualifiers|passing
// release() takes the message away: it must be written std::move(m).release(), so that using it later is seen to be wrong.
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
