// expect: assignment of read-only
// With MISUSE defined, this program must not compile, because a version never changes, so its elements cannot be
// written.
#include <crossdock/crossdock.hpp>

double use(const crossdock::observer& o) {
  const auto v = o.latest();
  const auto u = v.span<double>("u");
#ifdef MISUSE
  u[0] = 1;
#endif
  return u[0];
}
