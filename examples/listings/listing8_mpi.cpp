// Listing 8 as printed in the paper: the message, which is the handle, travels by MPI.
#include <crossdock/mpi.hpp>

#include <string>

namespace dhmem = crossdock;

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, wrong = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const std::string region = std::string("listing8-mpi-") + argv[1];
  {
    dhmem::Dhmem dhmem(region);
    if (rank == 0) {
      // send data
      dhmem::Port port =
          dhmem.port("n_port", dhmem::producer, dhmem::mpi);
      int& n = dhmem.simple<int>("my_n");
      n = 8;
      port.send(n);
      MPI_Barrier(MPI_COMM_WORLD);
    } else {
      // receive data
      dhmem::Port port =
          dhmem.port("n_port", dhmem::consumer, dhmem::mpi);
      int& n = port.recv<int>();
      wrong = n != 8;
      MPI_Barrier(MPI_COMM_WORLD);
      dhmem::remove_region(region);
    }
  }
  MPI_Finalize();
  return wrong;
}
