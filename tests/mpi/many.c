/* One of many ranks on a host: it publishes a series of its own, observes its neighbour's, and ends when its last version is in a
 * checkpoint.   many CHECKPOINTS */

#include <crossdock.h>
#include <dirent.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void ok(crossdock_status status, const char *what)
{
    if (status != CROSSDOCK_OK) {
        fprintf(stderr, "%s: %s\n", what, crossdock_error_message());
        exit(3);
    }
}
#define OK(call) ok((call), #call)

static int checkpoints(const char *folder)
{
    int count = 0;
    DIR *entries = opendir(folder);
    struct dirent *entry;
    while (entries && (entry = readdir(entries))) count += entry->d_name[0] != '.';
    if (entries) closedir(entries);
    return count;
}

int main(int count, char **words)
{
    MPI_Init(&count, &words);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);

    crossdock_session *session;
    OK(crossdock_session_connect(NULL, &session));
    char name[128];
    OK(crossdock_ranked_name("many", -1, name, sizeof name));
    crossdock_variable u = {"u", "f64", 1, CROSSDOCK_ORDER_C, {1000}, {0}, NULL, 0};
    crossdock_publisher *mine;
    double *x;
    OK(crossdock_publisher_open(session, name, &u, 1, NULL, 0, NULL, &mine));
    OK(crossdock_publisher_memory(mine, "u", (void **)&x, NULL));
    int other = (rank + 1) % ranks;
    crossdock_observer *observer;
    crossdock_series_version *version;
    for (int round = 1; round <= 3; round++) {
        for (int i = 0; i < 1000; i++) x[i] = round * 1000 + rank;
        OK(crossdock_publisher_publish(mine, NULL, 0, NULL));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const void *data;
    snprintf(name, sizeof name, "many/%d", other);
    OK(crossdock_observer_open(session, name, 60000, &observer));
    OK(crossdock_observer_latest(observer, &version));
    OK(crossdock_series_version_data(version, "u", &data, NULL));
    double seen = ((const double *)data)[999];
    if (seen != 3000 + other) {
        fprintf(stderr, "rank %d sees %g of rank %d\n", rank, seen, other);
        MPI_Abort(MPI_COMM_WORLD, 4);
    }
    /* No rank publishes any more, and each observer holds its version, until rank 0 sees the checkpoint of all ranks. */
    if (rank == 0) {
        for (int tenths = 0; checkpoints(words[1]) == 0; tenths++) {
            usleep(100000);
            if (tenths == 600) MPI_Abort(MPI_COMM_WORLD, 5);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    crossdock_series_version_unref(version);
    crossdock_observer_unref(observer);
    crossdock_publisher_unref(mine);
    crossdock_session_unref(session);
    printf("rank %d of %d is done\n", rank, ranks);
    MPI_Finalize();
    return 0;
}
