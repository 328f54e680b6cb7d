// expect: read-only|const
// Nobody writes what is shared for reading.
#include <crossdock/crossdock.hpp>

void use(crossdock::shared_item& frame) {
#ifdef MISUSE
  frame.as<int>()[0] = 1;
#else
  (void)frame.as<int>()[0];
#endif
}
