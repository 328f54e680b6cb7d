// expect: deleted
// With MISUSE defined, this program must not compile, because a temporary item unmaps its memory before the view can
// be used.
#include <crossdock/crossdock.hpp>

std::size_t use() {
#ifdef MISUSE
  return crossdock::item::access("frame").bytes().size();
#else
  auto frame = crossdock::item::access("frame");
  return frame.bytes().size();
#endif
}
