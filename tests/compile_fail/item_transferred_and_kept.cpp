// expect: discards qualifiers|passing|rvalue
// With MISUSE defined, this program must not compile:
// transfer() must be written std::move(x).transfer(to), so that the compiler finds a later use of x.
#include <crossdock/crossdock.hpp>

#include <utility>

void use(crossdock::item& frame) {
#ifdef MISUSE
  frame.transfer("detect/1");
#else
  std::move(frame).transfer("detect/1");
#endif
}
