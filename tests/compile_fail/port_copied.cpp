// expect: use of deleted function
// With MISUSE defined, this program must not compile, because an end of a port has one owner, so it must not be copied.
#include <crossdock/crossdock.hpp>

#include <utility>

void use(crossdock::region& r) {
  auto p = r.port("p", crossdock::producer);
#ifdef MISUSE
  auto q = p;
#else
  auto q = std::move(p);
#endif
  q.send(r.simple<int>("n"));
}
