// expect: deleted
// The memory of an item that nobody keeps is gone before it can be looked at.
#include <crossdock/crossdock.hpp>

std::size_t use() {
#ifdef MISUSE
  return crossdock::item::access("frame").bytes().size();
#else
  auto frame = crossdock::item::access("frame");
  return frame.bytes().size();
#endif
}
