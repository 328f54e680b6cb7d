// expect: std:: containers point into their own process
// With MISUSE defined, this program must not compile, because a std:: container in a struct in a vector also points
// into one process.
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
