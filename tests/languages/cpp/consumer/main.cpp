// A program outside of the project, which finds crossdock only where it is installed.
#include <crossdock/crossdock.hpp>

#include <cstdio>

int main() {
  crossdock::region region(crossdock::recreate, "consumer", 1 << 20);
  auto& m = region.container<crossdock::map<crossdock::string, crossdock::vector<double>>>("m");
  m["x"].push_back(1.5);
  crossdock::remove_region("consumer");
  std::printf("%zu %s\n", m.size(), crossdock_version_string());
}
