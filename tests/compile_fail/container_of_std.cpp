// expect: std:: containers point into their own process
// With MISUSE defined, this program must not compile, because a std:: container points into the memory of one process.
#include <crossdock/crossdock.hpp>

#include <vector>

#ifdef MISUSE
using shared = std::vector<int>;
#else
using shared = crossdock::vector<int>;
#endif

void use(crossdock::region& r) { r.container<shared>("v").push_back(1); }
