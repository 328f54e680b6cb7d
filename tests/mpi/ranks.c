/* A rank of an MPI task in a workflow. It has a series of its own, an item and the region of the task, and reads the
 * series of all ranks. */

#include <crossdock.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void ok(crossdock_status status, const char *what)
{
    if (status != CROSSDOCK_OK) {
        fprintf(stderr, "%s: %s\n", what, crossdock_error_message());
        exit(3);
    }
}
#define OK(call) ok((call), #call)

int main(int count, char **words)
{
    MPI_Init(&count, &words);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);

    crossdock_session *session;
    OK(crossdock_session_connect(NULL, &session));
    char name[128], key[64];
    OK(crossdock_ranked_name("field", -1, name, sizeof name));

    crossdock_variable u = {"u", "f64", 1, CROSSDOCK_ORDER_C, {1000}, {0}, NULL, 0};
    crossdock_publisher *field;
    double *x;
    OK(crossdock_publisher_open(session, name, &u, 1, NULL, 0, NULL, &field));
    OK(crossdock_publisher_memory(field, "u", (void **)&x, NULL));
    for (int i = 0; i < 1000; i++) x[i] = rank + 1;
    OK(crossdock_publisher_publish(field, NULL, 0, NULL));

    crossdock_region *region;
    OK(crossdock_region_open(session, "frames", CROSSDOCK_OPEN_OR_CREATE, 1 << 20, 10000, &region));
    crossdock_item *item;
    snprintf(key, sizeof key, "part/%d", rank);
    OK(crossdock_item_create(session, key, 4096, NULL, &item));
    MPI_Barrier(MPI_COMM_WORLD);

    double sum = 0;
    for (int other = 0; other < ranks; other++) {
        crossdock_observer *observer;
        crossdock_series_version *version;
        const void *data;
        snprintf(name, sizeof name, "field/%d", other);
        OK(crossdock_observer_open(session, name, 10000, &observer));
        OK(crossdock_observer_latest(observer, &version));
        OK(crossdock_series_version_data(version, "u", &data, NULL));
        sum += ((const double *)data)[999];
        crossdock_series_version_unref(version);
        crossdock_observer_unref(observer);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    printf("rank %d of %d sees %g\n", rank, ranks, sum);
    fflush(stdout);
    if (count > 1 && !strcmp(words[1], "sleep")) sleep(600);
    if (count > 1 && !strcmp(words[1], "die") && rank == 1) abort();
    MPI_Barrier(MPI_COMM_WORLD);
    OK(crossdock_item_destroy(item));
    crossdock_item_unref(item);
    crossdock_region_unref(region);
    crossdock_publisher_unref(field);
    crossdock_session_unref(session);
    MPI_Finalize();
    return 0;
}
