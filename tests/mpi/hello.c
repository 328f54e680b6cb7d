/* Sends data between all ranks. Then each rank prints one line about itself. The first argument says how the program ends. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char block[1 << 20], far[4 << 20];

int main(int count, char **words) {
    int rank, size, near;
    char host[256] = "", folder[1024] = "";
    MPI_Comm neighbours;
    const char *how = count > 1 ? words[1] : "", *variable = getenv("CROSSDOCK_TEST");

    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &neighbours);
    MPI_Comm_size(neighbours, &near);
    gethostname(host, sizeof host - 1);
    if (!getcwd(folder, sizeof folder)) return 1;
    if (rank == 0) memset(block, 7, sizeof block);
    MPI_Bcast(block, sizeof block, MPI_CHAR, 0, MPI_COMM_WORLD);
    /* This message is large, because ranks on the same host read large messages directly from each other's memory. */
    memset(far, rank + 1, sizeof far);
    MPI_Sendrecv_replace(far, sizeof far, MPI_CHAR, (rank + 1) % size, 0, (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    int good = block[sizeof block - 1] == 7 && far[sizeof far - 1] == (rank + size - 1) % size + 1;
    printf("rank=%d size=%d host=%s near=%d good=%d uid=%d home=%s folder=%s variable=%s\n", rank, size, host, near, good,
           (int)getuid(), getenv("HOME") ? getenv("HOME") : "", folder, variable ? variable : "");
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1 && !strcmp(how, "exit")) exit(3);
    if (rank == 1 && !strcmp(how, "abort")) MPI_Abort(MPI_COMM_WORLD, 5);
    if (rank == 1 && !strcmp(how, "kill")) raise(SIGKILL);
    if (!strcmp(how, "sleep")) sleep(120);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
