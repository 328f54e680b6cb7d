// expect: plain data without raw pointers
// With MISUSE defined, this program must not compile, because a pointer is valid in one process only.
#include <crossdock/crossdock.hpp>

std::size_t use(crossdock::item& frame) {
#ifdef MISUSE
  return frame.as<int*>().size();
#else
  return frame.as<int>().size();
#endif
}
