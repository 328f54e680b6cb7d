// expect: use of deleted function
// A message is released once, so it must not be copied.
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
