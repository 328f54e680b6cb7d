// expect: std:: containers point into their own process
// With MISUSE defined, this program must not compile: a std:: container points into one process, even if the container
// is in a struct in a crossdock::vector.
#include <crossdock/crossdock.hpp>

#include <string>

struct entry {
#ifdef MISUSE
  std::string name;
#else
  crossdock::string name;
#endif
  int value;
};

void use(crossdock::region& r) { r.container<crossdock::vector<entry>>("entries").emplace_back(); }
