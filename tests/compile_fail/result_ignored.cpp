// expect: ignoring
// (compiled with -Werror=unused-result) An ignored result hides a failure.
#include <crossdock/crossdock.hpp>

bool use(crossdock::region& r) {
#ifdef MISUSE
  r.try_remove("n");
  return true;
#else
  return static_cast<bool>(r.try_remove("n"));
#endif
}
