// expect: discards qualifiers|passing|rvalue
// With MISUSE defined, this program must not compile:
// destroy() must be written std::move(x).destroy(), so that the compiler finds a later use of x.
#include <crossdock/crossdock.hpp>

#include <utility>

void use(crossdock::item& frame) {
#ifdef MISUSE
  frame.destroy();
#else
  std::move(frame).destroy();
#endif
}
