// expect: plain data without raw pointers
// A pointer is valid in one process only.
#include <crossdock/crossdock.hpp>

std::size_t use(crossdock::item& frame) {
#ifdef MISUSE
  return frame.as<int*>().size();
#else
  return frame.as<int>().size();
#endif
}
