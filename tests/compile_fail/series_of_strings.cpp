// expect: a version is bytes
// With MISUSE defined, this program must not compile, because a version would contain only the strings' pointers, not
// their characters.
#include <crossdock/crossdock.hpp>

#include <string>

crossdock::variable use() {
#ifdef MISUSE
  return crossdock::variable::of<std::string>("names", {10});
#else
  return crossdock::variable::of<double>("names", {10});
#endif
}
