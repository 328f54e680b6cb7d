// Listing 8 with low-level communication: the message goes through shared memory. Either program may start first, but
// both must run at the same time, because a port ends with the last program that uses it.
#include <crossdock/crossdock.hpp>

#include <string>

namespace dhmem = crossdock;

int main(int, char** argv) {
  const std::string part = argv[2], id = argv[1];
  dhmem::Dhmem dhmem("listing8-" + id);

  if (part == "first") {
    // send data
    dhmem::Port port =
        dhmem.port("n_port-" + id, dhmem::producer, dhmem::low_level);
    int& n = dhmem.simple<int>("my_n");
    n = 8;
    port.send(n);
    (void)port.reclaim<int>();  // the next cell was never used, so no handle comes back
    return 0;
  }
  // receive data
  dhmem::Port port =
      dhmem.port("n_port-" + id, dhmem::consumer, dhmem::low_level);
  int& n = port.recv<int>();
  const bool good = n == 8;
  dhmem::remove_region("listing8-" + id);
  dhmem::remove_port("n_port-" + id);
  return good ? 0 : 1;
}
