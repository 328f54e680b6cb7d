// expect: deleted|copy
// With MISUSE defined, this program must not compile, because an item has one owner, so only one variable may refer
// to it.
#include <crossdock/crossdock.hpp>

#include <utility>

void use(crossdock::item& frame) {
#ifdef MISUSE
  crossdock::item other = frame;
#else
  crossdock::item other = std::move(frame);
#endif
  (void)other.size();
}
