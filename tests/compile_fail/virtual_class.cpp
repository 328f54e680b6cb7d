// expect: std:: containers point into their own process
// An object with virtual functions holds the address of a table that lies elsewhere in every process.
#include <crossdock/crossdock.hpp>

struct shape {
  explicit shape(crossdock::allocator<void> a) : corners(a) {}
#ifdef MISUSE
  virtual ~shape() = default;
#endif
  crossdock::vector<double> corners;
};

void use(crossdock::region& r) { r.container<shape>("s").corners.push_back(1); }
