// expect: a version is bytes
// What an element points to is not in the version.
#include <crossdock/crossdock.hpp>

#include <string>

crossdock::variable use() {
#ifdef MISUSE
  return crossdock::variable::of<std::string>("names", {10});
#else
  return crossdock::variable::of<double>("names", {10});
#endif
}
