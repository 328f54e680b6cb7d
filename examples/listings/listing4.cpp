// Listing 4: shared data structures, and a struct that passes the allocator on to the containers in it.
#include <crossdock/crossdock.hpp>

#include <string>

namespace dhmem = crossdock;

struct S {
  S(dhmem::allocator<void> alloc)
      : v1(alloc), v2(alloc) {}
  dhmem::vector<int> v1, v2;
};

int main(int, char** argv) {
  const std::string part = argv[2];
  dhmem::Dhmem dhmem(std::string("listing4-") + argv[1]);

  dhmem::vector<int>& v =
      dhmem.container<dhmem::vector<int>>("my_v");
  v.push_back(5);  // allocates more shared memory

  S& s = dhmem.container<S>("my_s");
  s.v1.push_back(5);

  if (part == "first") return v.size() == 1 && s.v1.size() == 1 ? 0 : 1;
  for (int i = 0; i < 10'000; ++i) s.v2.push_back(i);
  const bool good = v.size() == 2 && v[0] == 5 && s.v1.size() == 2 && s.v2[9'999] == 9'999;
  dhmem.remove("my_s");
  dhmem::remove_region(std::string("listing4-") + argv[1]);
  return good ? 0 : 1;
}
