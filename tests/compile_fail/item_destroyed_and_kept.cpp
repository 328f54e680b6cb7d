// expect: discards qualifiers|passing|rvalue
// As transfer.
#include <crossdock/crossdock.hpp>

#include <utility>

void use(crossdock::item& frame) {
#ifdef MISUSE
  frame.destroy();
#else
  std::move(frame).destroy();
#endif
}
