// expect: no matching function for call to
// Every container lives in a region, and is made with the region's allocator.
#include <crossdock/crossdock.hpp>

std::size_t use([[maybe_unused]] crossdock::region& r) {
#ifdef MISUSE
  crossdock::vector<int> v;
#else
  crossdock::vector<int> v(r);
#endif
  return v.size();
}
