// expect: ignoring
// (compiled with -Werror=unused-result) A failure that nobody looks at is lost.
#include <crossdock/crossdock.hpp>

bool use(crossdock::region& r) {
#ifdef MISUSE
  r.try_remove("n");
  return true;
#else
  return static_cast<bool>(r.try_remove("n"));
#endif
}
