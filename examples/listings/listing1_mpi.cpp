// Listing 1: a vector is handed to another task by a handle instead of being sent. The comments show lines of the
// paper: "-" is a line before the change, and "+" is the paper's line where this program differs from it.
#include <crossdock/mpi.hpp>

#include <cstdio>
#include <string>

namespace dhmem = crossdock;

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const MPI_Comm comm = MPI_COMM_WORLD;
  const int VSIZE = 100'000;
  int rank = 0;
  MPI_Comm_rank(comm, &rank);

  dhmem::Dhmem dhmem(std::string("shmem_namespace-") + argv[1]);  // + dhmem::Dhmem dhmem("shmem_namespace");
  int wrong = 0;
  if (rank == 0) {
    int& n = dhmem.simple<int>("my_n");  // - int n;
    n = 123;
    auto& v = dhmem.container<dhmem::vector<int>>("v");  // - std::vector<int> v;
    v.resize(VSIZE);
    for (int i = 0; i < VSIZE; ++i) v[i] = i;
    dhmem::handle h = dhmem.save(v);
    MPI_Send(&h, 1, MPI_DHMEM_HANDLE, 1, 0, comm);  // - MPI_Send(v.data(), VSIZE, MPI_INT, 1, 0, comm);
    MPI_Barrier(comm);
  } else {
    dhmem::handle h;
    MPI_Recv(&h, 1, MPI_DHMEM_HANDLE, 0, 0, comm, MPI_STATUS_IGNORE);  // - MPI_Recv(v.data(), VSIZE, MPI_INT, 0, 0, …);
    auto& v = dhmem.load<dhmem::vector<int>>(h);
    for (int i = 0; i < VSIZE; ++i) wrong += v[i] != i;
    wrong += dhmem.simple<int>("my_n") != 123;
    MPI_Barrier(comm);
    dhmem::remove_region(std::string("shmem_namespace-") + argv[1]);
  }
  MPI_Finalize();
  return wrong != 0;
}
