// Listing 3: shared primitive variables. Two processes run it: `first` sets the variables, and `second` finds the same
// values.
#include <crossdock/crossdock.hpp>

#include <string>

namespace dhmem = crossdock;

int main(int, char** argv) {
  const std::string part = argv[2];
  dhmem::Dhmem dhmem(std::string("listing3-") + argv[1]);

  int& n = dhmem.simple<int>("my_n");
  n = 3 * n + 1;  // can be used like any other integer

  struct S { int i; int j; int k; };
  S& s = dhmem.simple<S>("my_s");
  auto& arr = dhmem.simple<float[512]>("my_arr");

  if (part == "first") {
    s.i = 1; s.j = 2; s.k = 3;
    arr[0] = 1;
    return n == 1 ? 0 : 1;  // the initial value was 0
  }
  dhmem::remove_region(std::string("listing3-") + argv[1]);
  return n == 4 && s.i == 1 && s.j == 2 && s.k == 3 && arr[0] == 1 && arr[511] == 0 ? 0 : 1;
}
