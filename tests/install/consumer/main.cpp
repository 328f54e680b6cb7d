// A program outside of the project. Its build takes crossdock from the place where crossdock is installed, and not from
// the source tree. The second run of the program finds what the first run left.
#include <crossdock/crossdock.hpp>

#include <cstdio>

int main() {
  crossdock::region region(crossdock::open_or_create, "consumer", 1 << 20);
  auto& counts = region.container<crossdock::map<crossdock::string, crossdock::vector<double>>>("counts");
  counts["runs"].push_back(1.5);
  std::printf("c++ %zu %s\n", counts["runs"].size(), crossdock_version_string());
}
