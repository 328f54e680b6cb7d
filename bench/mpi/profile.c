/* Measures the start of an MPI job, as its slowest rank sees it: the seconds in MPI_Init, in the first broadcast and in
 * the first barrier. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int count, char **words) {
    int rank, value = 1;
    double took[3], slowest[3], at = now();

    MPI_Init(&count, &words);
    took[0] = now() - at;
    at = now();
    MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
    took[1] = now() - at;
    at = now();
    MPI_Barrier(MPI_COMM_WORLD);
    took[2] = now() - at;
    MPI_Reduce(took, slowest, 3, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) printf("%.9f %.9f %.9f\n", slowest[0], slowest[1], slowest[2]);
    MPI_Finalize();
    return 0;
}
