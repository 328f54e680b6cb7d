/* Tests MPI_CROSSDOCK_HANDLE in C, in a program of two files (the second file is datatype_other.c). */
#include <crossdock_mpi.h>
#include <stdio.h>
#include <string.h>

MPI_Datatype type_of_the_other_file(void);

static int failed;

static void check(int so, const char *claim)
{
    printf("%s %s\n", so ? "ok" : "FAILED", claim);
    failed += !so;
}

int main(int count, char **arguments)
{
    int rank, size;
    MPI_Aint lower, extent;
    crossdock_handle handles[3] = {{1, 64}, {UINT64_MAX, 1}, {7, UINT64_C(1) << 63}}, got[3];
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Type_size(MPI_CROSSDOCK_HANDLE, &size);
    MPI_Type_get_extent(MPI_DHMEM_HANDLE, &lower, &extent);
    if (rank == 0) {
        check(size == 16 && lower == 0 && extent == 16, "M1 a handle is 16 bytes to MPI");
        check(MPI_CROSSDOCK_HANDLE == type_of_the_other_file(), "M2 all files of a program have the same datatype");
        MPI_Send(handles, 3, MPI_CROSSDOCK_HANDLE, 1, 5, MPI_COMM_WORLD);
    } else if (rank == 1) {
        MPI_Recv(got, 3, MPI_DHMEM_HANDLE, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(memcmp(got, handles, sizeof got) == 0, "M3 handles arrive as they were sent");
    }
    MPI_Finalize();
    if (rank == 0)
        check(crossdock_mpi_handle_type_state == 0, "M4 MPI_Finalize frees the datatype");
    return failed != 0;
}
