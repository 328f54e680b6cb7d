// expect: std:: containers point into their own process
// With MISUSE defined, this program must not compile, because a virtual table lies elsewhere in every process.
#include <crossdock/crossdock.hpp>

struct shape {
  explicit shape(crossdock::allocator<void> a) : corners(a) {}
#ifdef MISUSE
  virtual ~shape() = default;
#endif
  crossdock::vector<double> corners;
};

void use(crossdock::region& r) { r.container<shape>("s").corners.push_back(1); }
