// expect: discards qualifiers|passing|rvalue
// transfer() takes the item away: it must be written std::move(x).transfer(to), so that using x later is seen to be wrong.
#include <crossdock/crossdock.hpp>

#include <utility>

void use(crossdock::item& frame) {
#ifdef MISUSE
  frame.transfer("detect/1");
#else
  std::move(frame).transfer("detect/1");
#endif
}
