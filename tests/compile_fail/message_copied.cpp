// expect: use of deleted function
// With MISUSE defined, this program must not compile, because a message is released once, so it must not be copied.
#include <crossdock/crossdock.hpp>

#include <utility>

int use(crossdock::port& p) {
  auto m = p.receive<int>();
#ifdef MISUSE
  auto second = m;
#else
  auto second = std::move(m);
#endif
  return *second;
}
