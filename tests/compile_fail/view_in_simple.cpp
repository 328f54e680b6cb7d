// expect: simple<T> takes plain data without raw pointers
// With MISUSE defined, this program must not compile, because a span holds an address, which is valid in one process
// only.
#include <crossdock/crossdock.hpp>

#include <array>
#include <span>

struct frame {
#ifdef MISUSE
  std::span<float> values;
#else
  std::array<float, 16> values;
#endif
};

void use(crossdock::region& r) { r.simple<frame>("f").values[0] = 1; }
