// expect: no matching function for call to
// With MISUSE defined, this program must not compile, because every container is made with a region's allocator.
#include <crossdock/crossdock.hpp>

std::size_t use([[maybe_unused]] crossdock::region& r) {
#ifdef MISUSE
  crossdock::vector<int> v;
#else
  crossdock::vector<int> v(r);
#endif
  return v.size();
}
