// expect: deleted|copy
// One task owns an item, and one variable names it.
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
