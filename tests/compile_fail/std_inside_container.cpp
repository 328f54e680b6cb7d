// expect: std:: containers point into their own process
// The compiler also refuses a std:: container in a struct that is the element of a vector.
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
