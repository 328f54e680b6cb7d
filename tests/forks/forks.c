/* Forks while other threads use the library: each child opens a session of its own and must finish its work within a
 * deadline.
 *
 *   forks CHILDREN SOCKET
 *
 * A child has one thread. A lock that another thread of the parent held at the fork stays locked in the child for ever.
 * So no call of a child may need a lock in inherited memory. */
#define _GNU_SOURCE
#include <crossdock.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { DEADLINE = 60, AT_ONCE = 4, N = 1024 };

static crossdock_connect_options options = CROSSDOCK_CONNECT_OPTIONS_INIT;
static crossdock_session *session;
static crossdock_region *heap;
static atomic_int over;
static crossdock_observer *watched;
static atomic_int *told; /* in memory that children share */
static atomic_ulong rounds[7];

static void must(const char *call, crossdock_status status)
{
    if (status == CROSSDOCK_OK)
        return;
    fprintf(stderr, "forks: process %d: %s: %s: %s\n", getpid(), call, crossdock_status_name(status), crossdock_error_message());
    _exit(4);
}
#define MUST(call) must(#call, call)

static void *allocates(void *count)
{
    while (!over) {
        void *blocks[20];
        for (int i = 0; i < 20; i++)
            MUST(crossdock_allocate(heap, 64u + 40u * (unsigned)i, 8, &blocks[i]));
        for (int i = 0; i < 20; i++)
            MUST(crossdock_deallocate(heap, blocks[i]));
        ++*(atomic_ulong *)count;
    }
    return NULL;
}

static void *attaches(void *count)
{
    while (!over) {
        crossdock_region *region;
        crossdock_vector *vector;
        MUST(crossdock_region_open(session, "other", CROSSDOCK_OPEN_OR_CREATE, 1 << 20, -1, &region));
        MUST(crossdock_vector_open(region, "v", "u64", CROSSDOCK_OPEN_OR_CREATE, -1, &vector));
        MUST(crossdock_region_unref(region));
        ++*(atomic_ulong *)count;
    }
    return NULL;
}

static void *connects(void *count)
{
    while (!over) {
        crossdock_session *own;
        crossdock_region *region;
        MUST(crossdock_session_connect(&options, &own));
        MUST(crossdock_region_open(own, "heap", CROSSDOCK_OPEN_OR_CREATE, 64 << 20, -1, &region));
        MUST(crossdock_region_unref(region));
        MUST(crossdock_session_close(own));
        MUST(crossdock_session_unref(own));
        ++*(atomic_ulong *)count;
    }
    return NULL;
}

static void *publishes(void *count)
{
    crossdock_variable u = {"u", "u64", 1, CROSSDOCK_ORDER_C, {N}, {0}, NULL, 0};
    while (!over) {
        crossdock_publisher *publisher;
        uint64_t *data;
        MUST(crossdock_publisher_open(session, "series", &u, 1, NULL, 0, NULL, &publisher));
        MUST(crossdock_publisher_memory(publisher, "u", (void **)&data, NULL));
        for (int round = 0; round < 20 && !over; round++) {
            data[round] = (uint64_t)round;
            MUST(crossdock_publisher_publish(publisher, NULL, 0, NULL));
        }
        MUST(crossdock_publisher_end(publisher));
        MUST(crossdock_publisher_unref(publisher));
        MUST(crossdock_series_remove(session, "series"));
        ++*(atomic_ulong *)count;
    }
    return NULL;
}

static void *sends(void *count)
{
    crossdock_port_options small = {CROSSDOCK_ONE_TO_ONE, 8, 0};
    while (!over) {
        crossdock_port *in, *out;
        crossdock_message m = CROSSDOCK_MESSAGE_INIT;
        MUST(crossdock_port_open(session, "port", CROSSDOCK_PRODUCER, &small, -1, &out));
        MUST(crossdock_port_open(session, "port", CROSSDOCK_CONSUMER, &small, -1, &in));
        MUST(crossdock_port_send(out, &m, 0, -1));
        MUST(crossdock_port_receive(in, -1, &m));
        MUST(crossdock_port_release(in, &m));
        MUST(crossdock_port_close(out)), MUST(crossdock_port_close(in));
        MUST(crossdock_port_unref(out)), MUST(crossdock_port_unref(in));
        ++*(atomic_ulong *)count;
    }
    return NULL;
}

static void *shares(void *count)
{
    while (!over) {
        crossdock_session *shared;
        MUST(crossdock_session_default(&shared));
        MUST(crossdock_session_unref(shared));
        ++*(atomic_ulong *)count;
    }
    return NULL;
}

/* A thread that is nearly always inside a call of one observer. */
static void *watches(void *count)
{
    while (!over) {
        crossdock_series_version *version;
        crossdock_status status = crossdock_observer_next(watched, 20, &version);
        if (status != CROSSDOCK_TIMED_OUT)
            must("crossdock_observer_next", status == CROSSDOCK_OK ? CROSSDOCK_INVALID : status);
        ++*(atomic_ulong *)count;
    }
    return NULL;
}

/* A child that uses its parent's observer nevertheless must get an answer and not wait. */
static void misuse(void)
{
    crossdock_series_version *version;
    crossdock_status status = crossdock_observer_next(watched, CROSSDOCK_NO_WAIT, &version);
    if (status == CROSSDOCK_OK)
        must("the parent's observer in a child", CROSSDOCK_INVALID);
    atomic_fetch_add(told, 1);
}

/* The work of a child: it uses every kind of object in a session of its own. Every second child uses the default
 * session of the process. */
static void child(int number)
{
    alarm(DEADLINE);
    crossdock_session *own;
    crossdock_region *region, *mine;
    void *block, *at;
    uint64_t capacity;
    char name[40];
    if (number % 16 == 2)
        misuse();
    MUST(number % 2 ? crossdock_session_connect(&options, &own) : crossdock_session_default(&own));
    MUST(crossdock_region_open(own, "heap", CROSSDOCK_OPEN_OR_CREATE, 64 << 20, -1, &region));
    MUST(crossdock_allocate(region, 800, 8, &block));
    memset(block, number, 800);
    MUST(crossdock_region_base(region, &at, &capacity));
    MUST(crossdock_allocate_at(at, 100, 8, &at));
    MUST(crossdock_deallocate(region, at));
    MUST(crossdock_deallocate(region, block));
    if (number % 4 == 1) {
        crossdock_vector *vector;
        crossdock_item *item;
        crossdock_publisher *publisher;
        crossdock_variable u = {"u", "u64", 1, CROSSDOCK_ORDER_C, {N}, {0}, NULL, 0};
        snprintf(name, sizeof name, "child-%d", number);
        MUST(crossdock_region_open(own, name, CROSSDOCK_CREATE_ONLY, 1 << 20, -1, &mine));
        MUST(crossdock_vector_open(mine, "v", "u64", CROSSDOCK_CREATE_ONLY, -1, &vector));
        MUST(crossdock_vector_resize(mine, vector, 8, 1000));
        MUST(crossdock_item_create(own, name, 4096, NULL, &item));
        MUST(crossdock_item_destroy(item));
        MUST(crossdock_item_unref(item));
        MUST(crossdock_publisher_open(own, name, &u, 1, NULL, 0, NULL, &publisher));
        MUST(crossdock_publisher_publish(publisher, NULL, 0, NULL));
        MUST(crossdock_publisher_end(publisher));
        MUST(crossdock_publisher_unref(publisher));
        MUST(crossdock_series_remove(own, name));
        MUST(crossdock_region_unref(mine));
        MUST(crossdock_region_remove(own, name));
    }
    MUST(crossdock_region_unref(region));
    MUST(crossdock_session_close(own));
    _exit(0);
}

static int failed;

static void reap(void)
{
    int status;
    pid_t pid = wait(&status);
    if (pid > 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0)) {
        failed++;
        fprintf(stderr, "forks: child %d ended by %s %d\n", pid, WIFSIGNALED(status) ? "signal" : "status",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    int children = atoi(argv[1]);
    setenv("CROSSDOCK_SOCKET", argv[2], 1);
    options.private_daemon = 0, options.timeout_ms = 1000 * DEADLINE / 2;
    MUST(crossdock_session_connect(&options, &session));
    MUST(crossdock_region_open(session, "heap", CROSSDOCK_OPEN_OR_CREATE, 64 << 20, -1, &heap));
    crossdock_publisher *still;
    crossdock_variable u = {"u", "u64", 1, CROSSDOCK_ORDER_C, {N}, {0}, NULL, 0};
    MUST(crossdock_publisher_open(session, "watched", &u, 1, NULL, 0, NULL, &still));
    MUST(crossdock_observer_open(session, "watched", -1, &watched));
    told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (told == MAP_FAILED) {
        perror("forks: mmap");
        return 1;
    }
    void *(*work[])(void *) = {allocates, attaches, connects, publishes, sends, shares, watches};
    enum { THREADS = sizeof work / sizeof *work };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work[i], &rounds[i]);
    for (int i = 0; i < children && !failed; i++) {
        /* The forks happen at different moments of the work of the threads. */
        nanosleep(&(struct timespec){0, (i * 7919 % 500) * 1000}, NULL);
        pid_t pid = fork();
        if (pid == 0)
            child(i);
        if (pid < 0) {
            perror("forks: fork");
            return 1;
        }
        if (i >= AT_ONCE - 1)
            reap();
    }
    for (int i = 0; i < AT_ONCE - 1; i++)
        reap();
    over = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    fprintf(stderr, "forks: threads' rounds: %lu %lu %lu %lu %lu %lu %lu; %d children had an answer from their parent's observer\n",
            rounds[0], rounds[1], rounds[2], rounds[3], rounds[4], rounds[5], rounds[6], *told);
    if (!failed && *told < (children + 13) / 16) {
        fprintf(stderr, "forks: too few of them\n");
        failed = 1;
    }
    printf("c: %d passed, %d failed\n", !failed, !!failed);
    return failed ? 1 : 0;
}
