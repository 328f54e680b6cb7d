// expect: ignoring
// With MISUSE defined, this program must not compile, because an ignored result hides a failure (it is compiled with
// -Werror=unused-result).
#include <crossdock/crossdock.hpp>

bool use(crossdock::region& r) {
#ifdef MISUSE
  r.try_remove("n");
  return true;
#else
  return static_cast<bool>(r.try_remove("n"));
#endif
}
