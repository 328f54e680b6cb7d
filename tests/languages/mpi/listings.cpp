// Listings 1, 2, 5 and 8 of the Dhmem paper, between two ranks. The code is as printed, with the missing declarations
// added.
#include <crossdock/mpi.hpp>

#include <cstdio>
#include <cstdlib>

namespace dhmem = crossdock;
using dhmem::create_only, dhmem::open_only;

static MPI_Comm comm;
static int failed;

static void check(bool so, const char* claim) {
  std::printf("%s %s\n", so ? "ok" : "FAILED", claim);
  failed += !so;
}

// Rank 0 writes, and rank 1 reads.
static void listing_1(int rank, const std::string& name) {
  const int VSIZE = 1000;
  if (rank == 0) {
    dhmem::Dhmem dhmem(name);
    int& n = dhmem.simple<int>("my_n");
    n = 123;
    auto& v = dhmem.container<dhmem::vector<int>>("v");
    v.resize(VSIZE);
    v[VSIZE - 1] = 7;
    dhmem::handle h = dhmem.save(v);
    MPI_Send(&h, 1, MPI_DHMEM_HANDLE, 1, 0, comm);
    MPI_Barrier(comm);
  } else {
    dhmem::Dhmem dhmem(name);
    dhmem::handle h;
    MPI_Recv(&h, 1, MPI_DHMEM_HANDLE, 0, 0, comm, MPI_STATUS_IGNORE);
    auto& v = dhmem.load<dhmem::vector<int>>(h);
    check(v.size() == VSIZE && v[VSIZE - 1] == 7 && dhmem.simple<int>("my_n") == 123, "M5 listing 1");
    MPI_Barrier(comm);
  }
}

static void listing_2(int mpi_rank, const std::string& name) {
  if (mpi_rank == 0) {
    dhmem::Dhmem dhmem(create_only, name, 65536);
    MPI_Barrier(comm);
    MPI_Barrier(comm);
  } else {
    MPI_Barrier(comm);
    dhmem::Dhmem dhmem(open_only, name);
    check(dhmem.capacity() >= 65536, "M6 listing 2");
    MPI_Barrier(comm);
  }
}

static void listing_5(int rank, dhmem::Dhmem& dhmem) {
  const int dest = 1, src = 0, tag = 9;
  if (rank == 0) {
    int& n = dhmem.simple<int>("listing_5");
    n = 55;
    dhmem::handle h = dhmem.save(n);
    MPI_Send(&h, 1, MPI_DHMEM_HANDLE, dest, tag, comm);
  } else {
    dhmem::handle h;
    MPI_Recv(&h, 1, MPI_DHMEM_HANDLE, src, tag, comm, MPI_STATUS_IGNORE);
    int& n = dhmem.load<int>(h);
    check(n == 55, "M7 listing 5");
  }
}

static void listing_8(int rank, dhmem::Dhmem& dhmem) {
  if (rank == 0) {
    dhmem::Port port = dhmem.port("n_port", dhmem::producer, dhmem::mpi);
    int& n = dhmem.simple<int>("listing_8");
    n = 88;
    port.send(n);
    MPI_Barrier(comm);
  } else {
    dhmem::Port port = dhmem.port("n_port", dhmem::consumer, dhmem::mpi);
    int& n = port.recv<int>();
    check(n == 88, "M8 listing 8");
    MPI_Barrier(comm);
  }
}

int main(int count, char** arguments) {
  MPI_Init(&count, &arguments);
  comm = MPI_COMM_WORLD;
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  const std::string prefix = arguments[1];
  try {
    listing_1(rank, prefix + "/l1");
    listing_2(rank, prefix + "/l2");
    dhmem::Dhmem dhmem(prefix + "/l5");
    listing_5(rank, dhmem);
    listing_8(rank, dhmem);
    MPI_Barrier(comm);
    if (rank == 0) {
      for (const char* name : {"/l1", "/l2", "/l5"}) dhmem::remove_region(prefix + name);
    }
  } catch (const dhmem::error& e) {
    std::printf("FAILED rank %d: %s\n", rank, e.what());
    std::fflush(stdout);
    MPI_Abort(comm, 1);
  }
  MPI_Finalize();
  return failed != 0;
}
