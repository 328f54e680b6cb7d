// A program of somebody else's: knows nothing of crossdock but where it is installed. What the first run left, the next finds.
#include <crossdock/crossdock.hpp>

#include <cstdio>

int main() {
  crossdock::region region(crossdock::open_or_create, "consumer", 1 << 20);
  auto& counts = region.container<crossdock::map<crossdock::string, crossdock::vector<double>>>("counts");
  counts["runs"].push_back(1.5);
  std::printf("c++ %zu %s\n", counts["runs"].size(), crossdock_version_string());
}
