/* One worker of the soak test, in C: heap blocks, a vector, a port, a series and an item, with a checksum in every payload.
 *
 *   worker NUMBER SECONDS
 *
 * Workers come in pairs, 2k and 2k+1: the first produces what the second takes. Either may be killed, stopped and
 * started again at any time, and so may the daemon. Calls may fail with the errors that this causes. Wrong bytes end
 * the worker with status 3, every other failure with status 4. Each second the worker prints its number of rounds and
 * the longest round in milliseconds. */
#define _GNU_SOURCE
#include <crossdock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKS = 100, LARGEST = 300, N = 4096, ITEM = 50000, SHORT = 200, WAIT = 10000, SLOW = 4 };

static unsigned number, half;
static char task[32], peer[32], vector_name[32], records_name[32], port_name[32], series_name[32], item_name[32];
static crossdock_session *session;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void wrong(const char *what, uint64_t seen, uint64_t wanted)
{
    printf("WRONG %s: %llx where %llx was written\n", what, (unsigned long long)seen, (unsigned long long)wanted);
    exit(3);
}

/* Tells whether the status is an expected one: it can come from kills, stops and restarts of processes, or from a lack
 * of room. A session must outlive all of these, so the error that a session is over is not expected. */
static int explained(crossdock_status status)
{
    switch (status) {
    case CROSSDOCK_NOT_YET: case CROSSDOCK_TIMED_OUT: case CROSSDOCK_CLOSED: case CROSSDOCK_PEER_DIED:
    case CROSSDOCK_NOT_FOUND: case CROSSDOCK_EXISTS: case CROSSDOCK_NO_SPACE: case CROSSDOCK_BUSY:
        return 1;
    case CROSSDOCK_DISCONNECTED:
        return !strstr(crossdock_error_message(), "cannot be made again");
    default:
        return 0;
    }
}

/* The time at which the last call ended. */
static double mark;

/* Tells whether the call succeeded. An unexpected error ends the worker. If the call took several seconds, a line is
 * printed. */
static int works(const char *call, crossdock_status status)
{
    double began = mark;
    mark = now();
    if (mark - began > SLOW)
        printf("SLOW %.1f s: %s: %s\n", mark - began, call, status ? crossdock_error_message() : "OK");
    if (status == CROSSDOCK_OK)
        return 1;
    if (!explained(status)) {
        printf("UNEXPLAINED %s: %s: %s\n", call, crossdock_status_name(status), crossdock_error_message());
        exit(4);
    }
    return 0;
}
#define WORKS(call) works(#call, call)

static uint64_t mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void fill(uint64_t *words, size_t count, uint64_t stamp)
{
    for (size_t i = 0; i < count; i++)
        words[i] = mix(stamp + i);
}

static void check(const char *what, const uint64_t *words, size_t count, uint64_t stamp)
{
    for (size_t i = 0; i < count; i++)
        if (words[i] != mix(stamp + i))
            wrong(what, words[i], mix(stamp + i));
}

/* ---- heap and vector */

/* A block without a name, with a checksum. The record of the block is in an ndarray of the region. If the worker is
 * killed, the next worker of this number finds the block by its record, checks it and replaces it. So no block is lost. */
struct record {
    crossdock_handle handle; /* {0, 0} if there is no block yet */
    uint64_t count, stamp;
};
enum { RECORD_WORDS = sizeof(struct record) / 8 };

static crossdock_region *region;
static crossdock_ndarray *records;
static crossdock_vector *vector;
/* A prepared block. It stays here if the block cannot be put into a record now, and is used in the next round. */
static void *prepared;
static uint64_t prepared_count;

static int open_records(void)
{
    uint64_t words = BLOCKS * RECORD_WORDS;
    /* A worker of this number may have been killed while it wrote a record. `heal` finishes or undoes that write. */
    return records || (WORKS(crossdock_region_heal(region, NULL)) &&
                       WORKS(crossdock_ndarray_open(region, records_name, "u64", CROSSDOCK_ORDER_C, 1, &words,
                                                    CROSSDOCK_OPEN_OR_CREATE, WAIT, &records)));
}

/* Checks one block and replaces it by a new one, in one step. */
static void block_round(uint64_t round)
{
    if (!open_records())
        return;
    struct record *record = (struct record *)crossdock_ndarray_data(records) + mix(round) % BLOCKS;
    crossdock_object old = {0};
    if (record->handle.segment) {
        if (!WORKS(crossdock_handle_load(region, record->handle, NULL, &old)))
            return;
        check("heap block", old.address, record->count, record->stamp);
    }
    if (!prepared) {
        prepared_count = 1 + mix(round + 1) % LARGEST;
        if (!WORKS(crossdock_prepare(region, 8 * prepared_count, 8, &prepared)))
            return;
    }
    struct record fresh = {.count = prepared_count, .stamp = mix(round * 1000 + number)};
    if (!WORKS(crossdock_handle_save(region, prepared, &fresh.handle)))
        return;
    fill(prepared, fresh.count, fresh.stamp);
    if (WORKS(crossdock_replace(region, record, (uint64_t *)&fresh, RECORD_WORDS, prepared, old.address)))
        prepared = NULL;
}

static void heap_round(uint64_t round)
{
    if (!region && !WORKS(crossdock_region_open(session, "heap", CROSSDOCK_OPEN_OR_CREATE, 256u << 20, -1, &region)))
        return;
    block_round(round);
    if (!vector && !WORKS(crossdock_vector_open(region, vector_name, "i64", CROSSDOCK_OPEN_OR_CREATE, WAIT, &vector)))
        return;
    /* The first element is the number from which the others were computed, or 0 while they are being written. */
    uint64_t *words = crossdock_vector_data(vector);
    if (vector->size > 1 && words[0])
        check("vector", words + 1, vector->size - 1, words[0]);
    size_t size = 2 + mix(round + 2) % 5000;
    if (vector->size > 0)
        ((volatile uint64_t *)words)[0] = 0;
    if (!WORKS(crossdock_vector_resize(region, vector, 8, size)))
        return;
    words = crossdock_vector_data(vector);
    fill(words + 1, size - 1, round | 1);
    __atomic_store_n(words, round | 1, __ATOMIC_RELEASE);
}

/* ---- port */

static crossdock_port *port;
static uint64_t sent, received, from;

static void port_round(void)
{
    crossdock_port_options options = {CROSSDOCK_ONE_TO_ONE, 8, 1};
    crossdock_end end = half ? CROSSDOCK_CONSUMER : CROSSDOCK_PRODUCER;
    if (!port && !WORKS(crossdock_port_open(session, port_name, end, &options, SHORT, &port)))
        return;
    crossdock_message m = CROSSDOCK_MESSAGE_INIT;
    uint64_t body[2];
    crossdock_status status;
    if (!half) {
        m.tag = (uint64_t)getpid() << 32 | (sent + 1), m.inline_length = sizeof body;
        body[0] = m.tag, body[1] = mix(m.tag);
        memcpy(m.inline_bytes, body, sizeof body);
        status = crossdock_port_send(port, &m, 0, SHORT);
        sent += status == CROSSDOCK_OK;
        works("send", status);
    } else {
        status = crossdock_port_receive(port, SHORT, &m);
        if (works("receive", status)) {
            memcpy(body, m.inline_bytes, sizeof body);
            if (body[0] != m.tag || body[1] != mix(m.tag))
                wrong("message", body[1], mix(m.tag));
            /* Each message of a producer must arrive exactly once, and in the order of sending. */
            if (m.tag >> 32 == from && (uint32_t)m.tag != received + 1)
                wrong("order of messages", (uint32_t)m.tag, received + 1);
            from = m.tag >> 32, received = (uint32_t)m.tag;
            works("release", crossdock_port_release(port, &m));
        }
    }
    if (status == CROSSDOCK_CLOSED || status == CROSSDOCK_DISCONNECTED) {
        crossdock_port_close(port), crossdock_port_unref(port);
        port = NULL, from = 0;
    }
}

/* ---- series */

static crossdock_publisher *publisher;
static crossdock_observer *observer;

static void series_round(uint64_t round)
{
    if (!half) {
        crossdock_variable u = {"u", "i64", 1, CROSSDOCK_ORDER_C, {N}, {0}, NULL, 0};
        if (!publisher && !WORKS(crossdock_publisher_open(session, series_name, &u, 1, NULL, 0, NULL, &publisher)))
            return;
        void *data;
        if (!WORKS(crossdock_publisher_memory(publisher, "u", &data, NULL)))
            return;
        fill(data, N, round);
        crossdock_attribute stamp = CROSSDOCK_I64_ATTRIBUTE("stamp", (int64_t)round);
        uint64_t sequence;
        works("publish", crossdock_publisher_publish(publisher, &stamp, 1, &sequence));
        return;
    }
    crossdock_series_version *version;
    if (!observer && !WORKS(crossdock_observer_open(session, series_name, SHORT, &observer)))
        return;
    crossdock_status status = crossdock_observer_next(observer, SHORT, &version);
    if (works("next", status)) {
        crossdock_value stamp;
        const void *data;
        if (WORKS(crossdock_series_version_attribute(version, "stamp", &stamp)) &&
            WORKS(crossdock_series_version_data(version, "u", &data, NULL)))
            check("version", data, N, (uint64_t)stamp.number.i64);
        crossdock_series_version_unref(version);
    } else if (status != CROSSDOCK_TIMED_OUT && status != CROSSDOCK_NOT_YET) {
        crossdock_observer_unref(observer);
        observer = NULL;
    }
}

/* ---- item: the first worker of the pair hands it to the second one, which destroys it */

static void item_round(uint64_t round)
{
    crossdock_item *item;
    void *data;
    uint64_t size;
    crossdock_status status = half ? crossdock_item_access(session, item_name, SHORT, &item)
                                   : crossdock_item_create(session, item_name, ITEM, NULL, &item);
    if (!half && status == CROSSDOCK_EXISTS) /* the last round has not handed the item on */
        status = crossdock_item_access(session, item_name, CROSSDOCK_NO_WAIT, &item);
    if (!works("create or access", status))
        return;
    if (WORKS(crossdock_item_data(item, &data, &size))) {
        uint64_t *words = data;
        if (!half) {
            fill(words + 1, ITEM / 8 - 1, round | 1);
            words[0] = round | 1;
            works("transfer", crossdock_item_transfer(item, peer));
        } else {
            if (size != ITEM)
                wrong("size of the item", size, ITEM);
            check("item", words + 1, ITEM / 8 - 1, words[0]);
            works("destroy", crossdock_item_destroy(item));
        }
    }
    crossdock_item_unref(item);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    number = (unsigned)atoi(argv[1]), half = number % 2;
    double until = now() + atof(argv[2]);
    snprintf(task, sizeof task, "w%u", number), snprintf(peer, sizeof peer, "w%u", number ^ 1);
    snprintf(vector_name, sizeof vector_name, "v%u", number);
    snprintf(records_name, sizeof records_name, "blocks%u", number);
    snprintf(port_name, sizeof port_name, "p%u", number / 2);
    snprintf(series_name, sizeof series_name, "s%u", number / 2);
    snprintf(item_name, sizeof item_name, "i%u", number / 2);
    setvbuf(stdout, NULL, _IOLBF, 0);
    crossdock_connect_options options = CROSSDOCK_CONNECT_OPTIONS_INIT;
    options.task = task, options.private_daemon = 0, options.timeout_ms = WAIT;
    mark = now();
    while (!WORKS(crossdock_session_connect(&options, &session))) {
        if (now() > until)
            return 0;
        usleep(20000);
    }
    double told = now(), longest = 0;
    uint64_t rounds = 0, round = mix((uint64_t)getpid()) >> 2;
    while (now() < until) {
        double began = mark = now();
        heap_round(round), port_round(), series_round(round), item_round(round);
        round++, rounds++;
        if (now() - began > longest)
            longest = now() - began;
        if (now() - told > 1) {
            printf("%llu %.3f\n", (unsigned long long)rounds, 1000 * longest);
            told = now(), longest = 0;
        }
    }
    printf("DONE %llu\n", (unsigned long long)rounds);
    return 0;
}
