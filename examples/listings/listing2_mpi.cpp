// Listing 2: one rank creates the region, and the other ranks open it.
#include <crossdock/mpi.hpp>

#include <string>

namespace dhmem = crossdock;
using dhmem::create_only;
using dhmem::open_only;

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const MPI_Comm comm = MPI_COMM_WORLD;
  const std::string my_shm = std::string("my_shm-") + argv[1];
  int mpi_rank = 0;
  MPI_Comm_rank(comm, &mpi_rank);

  if (mpi_rank == 0) {
    dhmem::Dhmem dhmem(create_only, my_shm, 65536);
    MPI_Barrier(comm);
    MPI_Barrier(comm);  // a rank that has not opened the region yet must be able to find it
    dhmem::remove_region(my_shm);
  } else {
    MPI_Barrier(comm);
    dhmem::Dhmem dhmem(open_only, my_shm);
    MPI_Barrier(comm);
  }
  MPI_Finalize();
}
