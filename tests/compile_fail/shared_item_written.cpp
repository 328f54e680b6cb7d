// expect: read-only|const
// With MISUSE defined, this program must not compile, because an item that is shared for reading cannot be written.
#include <crossdock/crossdock.hpp>

void use(crossdock::shared_item& frame) {
#ifdef MISUSE
  frame.as<int>()[0] = 1;
#else
  (void)frame.as<int>()[0];
#endif
}
