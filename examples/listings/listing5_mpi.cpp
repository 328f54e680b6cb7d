// Listing 5: MPI sends a handle like a number.
#include <crossdock/mpi.hpp>

#include <string>

namespace dhmem = crossdock;

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const MPI_Comm comm = MPI_COMM_WORLD;
  const int dest = 1, src = 0, tag = 0;
  int rank = 0, wrong = 0;
  MPI_Comm_rank(comm, &rank);
  dhmem::Dhmem dhmem(std::string("listing5-") + argv[1]);

  if (rank == src) {
    // producer
    int& n = dhmem.simple<int>("my_n");
    n = 42;
    dhmem::handle h = dhmem.save(n);
    MPI_Send(&h, 1, MPI_DHMEM_HANDLE, dest, tag, comm);
    MPI_Barrier(comm);
  } else {
    // consumer
    dhmem::handle h;
    MPI_Recv(&h, 1, MPI_DHMEM_HANDLE, src, tag, comm,
             MPI_STATUS_IGNORE);
    int& n = dhmem.load<int>(h);
    wrong = n != 42;
    MPI_Barrier(comm);
    dhmem::remove_region(std::string("listing5-") + argv[1]);
  }
  MPI_Finalize();
  return wrong;
}
