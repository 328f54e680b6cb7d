/* Tests rows S1 to S19 of the table in ../conformance.md: series. */
#define _GNU_SOURCE
#include "suite.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WAIT = 10000, U = 20 };

/* The variable u of type f64, with the shape (4,5) unless another one is given. */
static crossdock_variable u_of(uint64_t first, uint64_t second)
{
    crossdock_variable u = {"u", "f64", second ? 2 : 1, CROSSDOCK_ORDER_C, {first, second}, {0}, NULL, 0};
    return u;
}

static crossdock_publisher *publish_as(const crossdock_variable *variables, size_t count,
                                       const crossdock_series_options *options)
{
    crossdock_publisher *publisher;
    OK(crossdock_publisher_open(session(), name_of(""), variables, count, NULL, 0, options, &publisher));
    return publisher;
}

static crossdock_publisher *publish_u(void)
{
    crossdock_variable u = u_of(4, 5);
    return publish_as(&u, 1, NULL);
}

static double *memory(crossdock_publisher *publisher)
{
    void *data;
    OK(crossdock_publisher_memory(publisher, "u", &data, NULL));
    return data;
}

static void fill(crossdock_publisher *publisher, double value)
{
    double *u = memory(publisher);
    for (int i = 0; i < U; i++)
        u[i] = value;
}

static uint64_t publish(crossdock_publisher *publisher)
{
    uint64_t sequence;
    OK(crossdock_publisher_publish(publisher, NULL, 0, &sequence));
    return sequence;
}

static crossdock_observer *observe(void)
{
    crossdock_observer *observer;
    OK(crossdock_observer_open(session(), name_of(""), WAIT, &observer));
    return observer;
}

static crossdock_series_version *latest(crossdock_observer *observer)
{
    crossdock_series_version *version;
    OK(crossdock_observer_latest(observer, &version));
    return version;
}

static uint64_t number(crossdock_series_version *version)
{
    uint64_t sequence;
    OK(crossdock_series_version_sequence(version, &sequence));
    return sequence;
}

static const double *data(crossdock_series_version *version)
{
    const void *elements;
    OK(crossdock_series_version_data(version, "u", &elements, NULL));
    return elements;
}

static void shows(crossdock_series_version *version, double value)
{
    const double *u = data(version);
    for (int i = 0; i < U; i++)
        CHECK(u[i] == value);
}

static void s1_look(void)
{
    crossdock_observer *observer = observe();
    crossdock_variable_info info;
    crossdock_value value;
    uint32_t count, dimensions;
    uint64_t shape[CROSSDOCK_RANK_MAX], bytes;
    const void *elements;
    OK(crossdock_observer_variable_count(observer, &count));
    EQUAL(count, 2);
    OK(crossdock_observer_variable(observer, 0, &info));
    CHECK(!strcmp(info.name, "u") && !strcmp(info.type, "f64") && info.dimensions == 2 && info.element_size == 8);
    CHECK(info.max_shape[0] == 4 && info.max_shape[1] == 5 && info.constant_count == 1);
    OK(crossdock_observer_variable(observer, 1, &info));
    CHECK(!strcmp(info.name, "n") && !strcmp(info.type, "i32") && info.dimensions == 0);
    WANT(CROSSDOCK_NOT_FOUND, crossdock_observer_variable(observer, 2, &info));
    OK(crossdock_observer_constant(observer, "u", "dx", &value));
    CHECK(value.kind == CROSSDOCK_VALUE_F64 && value.number.f64 == 0.5);
    WANT(CROSSDOCK_NOT_FOUND, crossdock_observer_constant(observer, "u", "dy", &value));
    crossdock_series_version *version = latest(observer);
    EQUAL(number(version), 1);
    for (int i = 0; i < U; i++)
        CHECK(data(version)[i] == i);
    OK(crossdock_series_version_data(version, "n", &elements, &bytes));
    CHECK(bytes == 4 && *(const int32_t *)elements == 7);
    OK(crossdock_series_version_shape(version, "u", &dimensions, shape));
    CHECK(dimensions == 2 && shape[0] == 4 && shape[1] == 5);
    OK(crossdock_series_version_attribute(version, "step", &value));
    CHECK(value.kind == CROSSDOCK_VALUE_I64 && value.number.i64 == 3);
    OK(crossdock_series_version_attribute(version, "time", &value));
    CHECK(value.kind == CROSSDOCK_VALUE_F64 && value.number.f64 == 0.25);
    OK(crossdock_series_version_attribute(version, "note", &value));
    CHECK(value.kind == CROSSDOCK_VALUE_TEXT && !strcmp(value.text, "ab"));
    OK(crossdock_series_version_attribute_count(version, &count));
    EQUAL(count, 3);
    uint64_t when;
    OK(crossdock_series_version_time(version, &when));
    CHECK(when > UINT64_C(1700000000) * 1000000000);
    OK(crossdock_series_version_unref(version));
    OK(crossdock_observer_unref(observer));
}

static void s1(const char *role, const char *argument)
{
    (void)argument;
    if (*role) {
        s1_look();
        return;
    }
    const crossdock_attribute dx = CROSSDOCK_F64_ATTRIBUTE("dx", 0.5);
    crossdock_variable variables[] = {u_of(4, 5), {"n", "i32", 0, CROSSDOCK_ORDER_C, {0}, {0}, NULL, 0}};
    variables[0].constants = &dx;
    variables[0].constant_count = 1;
    crossdock_attribute attributes[] = {CROSSDOCK_I64_ATTRIBUTE("step", 3), CROSSDOCK_F64_ATTRIBUTE("time", 0.25),
                                        {"note", {CROSSDOCK_VALUE_TEXT, 0, {0}, "ab"}}};
    crossdock_publisher *publisher;
    void *n;
    uint64_t sequence, bytes;
    OK(crossdock_publisher_open(session(), name_of(""), variables, 2, attributes, 3, NULL, &publisher));
    OK(crossdock_publisher_memory(publisher, "n", &n, &bytes));
    EQUAL(bytes, 4);
    *(int32_t *)n = 7;
    for (int i = 0; i < U; i++)
        memory(publisher)[i] = i;
    OK(crossdock_publisher_publish(publisher, attributes, 3, &sequence));
    EQUAL(sequence, 1);
    ends_well(start("B", NULL));
    OK(crossdock_publisher_unref(publisher));
}

static void s2(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_publisher *publisher = publish_u();
    crossdock_observer *observer = observe();
    for (int i = 0; i < U; i++)
        memory(publisher)[i] = i;
    publish(publisher);
    crossdock_series_version *held = latest(observer);
    for (int k = 1; k <= 20; k++) {
        fill(publisher, 100 * k);
        publish(publisher);
    }
    for (int i = 0; i < U; i++)
        CHECK(data(held)[i] == i);
    crossdock_series_version *newest = latest(observer);
    EQUAL(number(newest), 21);
    shows(newest, 2000);
    OK(crossdock_series_version_refresh(held, NULL));
    EQUAL(number(held), 21);
    shows(held, 2000);
    OK(crossdock_series_version_unref(held));
    OK(crossdock_series_version_unref(newest));
}

static void *wait_for_version(void *observer)
{
    crossdock_series_version *version;
    OK(crossdock_observer_next(observer, WAIT, &version));
    OK(crossdock_series_version_unref(version));
    return NULL;
}

/* Checks that calls of this thread return in time while another thread waits for a version. */
static void use_beside_a_wait(crossdock_observer *observer, crossdock_publisher *publisher)
{
    pthread_t thread;
    crossdock_series_version *version;
    crossdock_series_state state;
    CHECK(pthread_create(&thread, NULL, wait_for_version, observer) == 0);
    usleep(100000);
    long long begin = peer_now_ms();
    WANT(CROSSDOCK_NOT_YET, crossdock_observer_next(observer, 0, &version));
    WANT(CROSSDOCK_TIMED_OUT, crossdock_observer_next(observer, 100, &version));
    WANT(CROSSDOCK_TIMED_OUT, crossdock_observer_each(observer, 100, &version));
    WANT(CROSSDOCK_TIMED_OUT, crossdock_observer_at(observer, 1000, 100, &version));
    OK(crossdock_observer_state(observer, &state));
    CHECK(state == CROSSDOCK_SERIES_LIVE && peer_now_ms() - begin >= 300 && peer_now_ms() - begin < 3000);
    publish(publisher);
    pthread_join(thread, NULL);
}

static void s3(const char *role, const char *argument)
{
    (void)argument;
    if (*role) {
        crossdock_publisher *publisher = publish_u();
        publish(publisher);
        tell(0, "one");
        expect(0, "two");
        usleep(200000);
        fill(publisher, 2);
        publish(publisher);
        expect(0, "end");
        return;
    }
    int b = start("B", NULL);
    expect(b, "one");
    crossdock_observer *observer = observe();
    crossdock_series_version *version = latest(observer);
    OK(crossdock_series_version_unref(version));
    long long begin = peer_now_ms();
    WANT(CROSSDOCK_TIMED_OUT, crossdock_observer_next(observer, 200, &version));
    CHECK(peer_now_ms() - begin >= 200 && peer_now_ms() - begin < 2000);
    says(name_of(""));
    WANT(CROSSDOCK_NOT_YET, crossdock_observer_next(observer, 0, &version));
    tell(b, "two");
    OK(crossdock_observer_next(observer, WAIT, &version));
    EQUAL(number(version), 2);
    shows(version, 2);
    tell(b, "end");
    ends_well(b);
}

static void s4(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_series_options options = CROSSDOCK_SERIES_OPTIONS_INIT;
    options.keep = 2;
    crossdock_variable u = u_of(4, 5);
    crossdock_publisher *publisher = publish_as(&u, 1, &options);
    crossdock_observer *observer = observe();
    crossdock_series_version *version;
    for (int k = 1; k <= 5; k++) {
        fill(publisher, k);
        publish(publisher);
    }
    for (uint64_t k = 5; k >= 3; k--) {
        OK(crossdock_observer_at(observer, k, 0, &version));
        EQUAL(number(version), k);
        shows(version, (double)k);
        OK(crossdock_series_version_unref(version));
    }
    WANT(CROSSDOCK_NOT_FOUND, crossdock_observer_at(observer, 1, 0, &version));
    WANT(CROSSDOCK_NOT_YET, crossdock_observer_at(observer, 9, 0, &version));
}

static void s5(const char *role, const char *argument)
{
    (void)argument;
    if (*role) {
        usleep(200000);
        publish(publish_u());
        expect(0, "end");
        return;
    }
    crossdock_observer *observer;
    WANT(CROSSDOCK_NOT_FOUND, crossdock_observer_open(session(), name_of(""), 0, &observer));
    long long begin = peer_now_ms();
    WANT(CROSSDOCK_TIMED_OUT, crossdock_observer_open(session(), name_of(""), 200, &observer));
    CHECK(peer_now_ms() - begin >= 200 && peer_now_ms() - begin < 2000);
    says(name_of(""));
    int b = start("B", NULL);
    observer = observe();
    tell(b, "end");
    ends_well(b);
}

static void s6(const char *role, const char *argument)
{
    (void)argument;
    if (*role) {
        publish_u();
        tell(0, "up");
        expect(0, "end");
        return;
    }
    int b = start("B", NULL);
    expect(b, "up");
    crossdock_variable u = u_of(4, 5);
    crossdock_publisher *second;
    WANT(CROSSDOCK_EXISTS, crossdock_publisher_open(session(), name_of(""), &u, 1, NULL, 0, NULL, &second));
    says(name_of(""));
    says("peer");
    tell(b, "end");
    ends_well(b);
}

/* Process B publishes three versions. It ends, or is killed, after process A has begun to observe the series. */
static crossdock_observer *after_three(const char *role, bool killed)
{
    if (*role) {
        crossdock_publisher *publisher = publish_u();
        for (int k = 1; k <= 3; k++) {
            fill(publisher, k);
            publish(publisher);
        }
        tell(0, "three");
        expect(0, "go");
        if (killed)
            peer_die();
        OK(crossdock_publisher_end(publisher));
        return NULL;
    }
    int b = start("B", NULL);
    expect(b, "three");
    crossdock_observer *observer = observe();
    tell(b, "go");
    EQUAL(peer_end(b), killed ? 128 + 9 : 0);
    crossdock_series_version *version;
    OK(crossdock_observer_next(observer, WAIT, &version));
    EQUAL(number(version), 3);
    OK(crossdock_series_version_unref(version));
    long long begin = peer_now_ms();
    WANT(killed ? CROSSDOCK_PEER_DIED : CROSSDOCK_CLOSED, crossdock_observer_next(observer, WAIT, &version));
    CHECK(peer_now_ms() - begin < 2000);
    return observer;
}

static void s7(const char *role, const char *argument)
{
    (void)argument;
    crossdock_observer *observer = after_three(role, false);
    if (!observer)
        return;
    crossdock_series_state state;
    OK(crossdock_observer_state(observer, &state));
    EQUAL(state, CROSSDOCK_SERIES_ENDED);
    observer = observe();
    crossdock_series_version *version;
    OK(crossdock_observer_next(observer, 0, &version));
    EQUAL(number(version), 3);
    shows(version, 3);
    WANT(CROSSDOCK_CLOSED, crossdock_observer_next(observer, WAIT, &version));
}

static void s8(const char *role, const char *argument)
{
    (void)argument;
    crossdock_observer *observer = after_three(role, true);
    says("peer");
    crossdock_series_state state;
    OK(crossdock_observer_state(observer, &state));
    EQUAL(state, CROSSDOCK_SERIES_DIED);
    crossdock_series_version *version = latest(observer);
    EQUAL(number(version), 3);
    shows(version, 3);
    uint64_t before, after;
    OK(crossdock_observer_id(observer, &before));
    crossdock_publisher *publisher = publish_u();
    fill(publisher, 9);
    publish(publisher);
    observer = observe();
    OK(crossdock_observer_id(observer, &after));
    CHECK(before != after);
    shows(version, 3);
    version = latest(observer);
    EQUAL(number(version), 1);
    shows(version, 9);
}

static void s9(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_publisher *publisher = publish_u();
    crossdock_observer *observer = observe();
    fill(publisher, 1);
    publish(publisher);
    OK(crossdock_publisher_begin(publisher));
    fill(publisher, 2);
    EQUAL(publish(publisher), 2);
    shows(latest(observer), 2);
    CHECK(memory(publisher)[U - 1] == 2);
    OK(crossdock_publisher_begin(publisher));
    WANT(CROSSDOCK_BUSY, crossdock_publisher_begin(publisher));
    fill(publisher, 3);
    OK(crossdock_publisher_abandon(publisher));
    WANT(CROSSDOCK_INVALID, crossdock_publisher_abandon(publisher));
    EQUAL(number(latest(observer)), 2);
    shows(latest(observer), 2);
    for (int i = 0; i < U; i++)
        CHECK(memory(publisher)[i] == 2);
}

static void s10(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_variable u = u_of(10, 0);
    u.max_shape[0] = 1000;
    crossdock_publisher *publisher = publish_as(&u, 1, NULL);
    crossdock_observer *observer = observe();
    publish(publisher);
    crossdock_series_version *first = latest(observer);
    uint64_t shape[CROSSDOCK_RANK_MAX] = {20}, bytes;
    uint32_t dimensions;
    OK(crossdock_publisher_resize(publisher, "u", shape, 1));
    shape[0] = 0;
    OK(crossdock_publisher_shape(publisher, "u", &dimensions, shape));
    CHECK(dimensions == 1 && shape[0] == 20);
    for (int i = 10; i < 20; i++)
        CHECK(memory(publisher)[i] == 0);
    memory(publisher)[19] = 5;
    publish(publisher);
    crossdock_series_version *second = latest(observer);
    const void *elements;
    OK(crossdock_series_version_shape(first, "u", &dimensions, shape));
    EQUAL(shape[0], 10);
    OK(crossdock_series_version_shape(second, "u", &dimensions, shape));
    EQUAL(shape[0], 20);
    OK(crossdock_series_version_data(second, "u", &elements, &bytes));
    EQUAL(bytes, 160);
    CHECK(data(second)[19] == 5);
    shape[0] = 1001;
    WANT(CROSSDOCK_INVALID, crossdock_publisher_resize(publisher, "u", shape, 1));
}

static void s11(const char *role, const char *argument)
{
    (void)role, (void)argument;
    enum { N = 65536, TRIES = 12 };
    crossdock_variable u = u_of(N, 0);
    crossdock_series_options options = CROSSDOCK_SERIES_OPTIONS_INIT;
    options.capacity = 5 * N * sizeof(double) / 2;
    options.full = CROSSDOCK_FULL_FAIL;
    crossdock_publisher *publisher = publish_as(&u, 1, &options);
    crossdock_observer *observer = observe();
    crossdock_series_version *held[TRIES];
    int count = 0;
    crossdock_status status = CROSSDOCK_OK;
    for (; count < TRIES && status == CROSSDOCK_OK; count++) {
        double *x = memory(publisher);
        for (int i = 0; i < N; i++)
            x[i] = count + 1;
        status = crossdock_publisher_publish(publisher, NULL, 0, NULL);
        if (status == CROSSDOCK_OK)
            held[count] = latest(observer);
    }
    EQUAL(status, CROSSDOCK_NO_SPACE);
    says(name_of(""));
    count--;
    for (int i = 0; i < count; i++) {
        CHECK(data(held[i])[N - 1] == i + 1);
        OK(crossdock_series_version_unref(held[i]));
    }
    publish(publisher);
    CHECK(data(latest(observer))[N - 1] == count + 1);
}

/* Sets all elements of u to `value`, publishes, and returns the version's number. */
static uint64_t publish_large(crossdock_publisher *publisher, int length, int value)
{
    double *x = memory(publisher);
    for (int i = 0; i < length; i++)
        x[i] = value;
    return publish(publisher);
}

static void s15(const char *role, const char *argument)
{
    (void)role, (void)argument;
    enum { N = 65536, TRIES = 12 };
    crossdock_variable u = u_of(N, 0);
    crossdock_series_options options = CROSSDOCK_SERIES_OPTIONS_INIT;
    options.capacity = 5 * N * sizeof(double) / 2;
    crossdock_publisher *publisher = publish_as(&u, 1, &options);
    crossdock_observer *observer = observe();
    crossdock_series_version *held[TRIES];
    uint64_t count = 0, withheld = 0;
    for (int k = 1; k <= TRIES; k++) {
        uint64_t given = publish_large(publisher, N, k);
        if (given == 0) {
            withheld++;
            continue;
        }
        held[count++] = latest(observer);
        EQUAL(given, count);
    }
    CHECK(withheld >= 9);
    crossdock_publisher_statistics statistics;
    OK(crossdock_publisher_statistics_get(publisher, &statistics));
    EQUAL(statistics.withheld, withheld);
    EQUAL(statistics.no_space, 0);
    for (uint64_t i = 0; i < count; i++) {
        CHECK(data(held[i])[N - 1] == i + 1);
        OK(crossdock_series_version_unref(held[i]));
    }
    EQUAL(publish(publisher), count + 1);
    CHECK(data(latest(observer))[N - 1] == TRIES);
    OK(crossdock_publisher_end(publisher));
    OK(crossdock_publisher_unref(publisher));
    options.capacity = 0;
    options.keep = 9;
    publisher = publish_as(&u, 1, &options);
    observer = observe();
    for (int k = 1; k <= TRIES; k++)
        EQUAL(publish_large(publisher, N, k), k);
    crossdock_series_version *third;
    OK(crossdock_observer_at(observer, 3, 0, &third));
    CHECK(data(third)[0] == 3);
}

static void s16(const char *role, const char *argument)
{
    (void)role, (void)argument;
    enum { N = 65536 };
    crossdock_variable u = u_of(N, 0);
    crossdock_series_options options = CROSSDOCK_SERIES_OPTIONS_INIT;
    options.capacity = 5 * N * sizeof(double) / 2;
    options.full = CROSSDOCK_FULL_TAKE_BACK;
    crossdock_publisher *publisher = publish_as(&u, 1, &options);
    crossdock_observer *observer = observe();
    EQUAL(publish_large(publisher, N, 1), 1);
    crossdock_series_version *one = latest(observer);
    const double *read = data(one);
    CHECK(read[0] == 1 && read[N - 1] == 1);
    EQUAL(publish_large(publisher, N, 2), 2);
    crossdock_series_version *two = latest(observer);
    for (int k = 3; k <= 14; k++)
        EQUAL(publish_large(publisher, N, k), k);
    CHECK(read[0] == 1 && read[N - 1] == 1);
    CHECK(data(one) == read);
    const void *unread;
    WANT(CROSSDOCK_NOT_FOUND, crossdock_series_version_data(two, "u", &unread, NULL));
    says("take_back");
}

static void s17(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_series_options options = CROSSDOCK_SERIES_OPTIONS_INIT;
    options.keep = 2;
    crossdock_variable u = u_of(4, 5);
    crossdock_publisher *publisher = publish_as(&u, 1, &options);
    crossdock_observer *observer = observe();
    crossdock_series_version *version;
    static const uint64_t given[] = {1, 2, 3, 6, 7, 8}, missed[] = {0, 0, 0, 2, 0, 0};
    for (int i = 0; i < 6; i++) {
        if (i % 3 == 0) {
            WANT(CROSSDOCK_NOT_YET, crossdock_observer_each(observer, 0, &version));
            for (int k = 0; k < (i == 0 ? 3 : 5); k++)
                publish(publisher);
        }
        uint64_t gone = 99;
        OK(crossdock_observer_each(observer, WAIT, &version));
        EQUAL(number(version), given[i]);
        OK(crossdock_series_version_missed(version, &gone));
        EQUAL(gone, missed[i]);
        OK(crossdock_series_version_unref(version));
    }
    WANT(CROSSDOCK_TIMED_OUT, crossdock_observer_at(observer, 9, 200, &version));
}

static void s18(const char *role, const char *argument)
{
    (void)argument;
    if (*role) {
        crossdock_publisher *publisher = publish_u();
        for (int k = 1; k <= 3; k++)
            publish(publisher);
        tell(0, "three");
        expect(0, "go");
        return; /* the process ends with status 0, and does not close the publisher */
    }
    int b = start("B", NULL);
    expect(b, "three");
    crossdock_observer *observer = observe();
    tell(b, "go");
    EQUAL(peer_end(b), 0);
    crossdock_series_version *version;
    OK(crossdock_observer_next(observer, WAIT, &version));
    EQUAL(number(version), 3);
    WANT(CROSSDOCK_CLOSED, crossdock_observer_next(observer, WAIT, &version));
}

static void s19(const char *role, const char *argument)
{
    (void)argument;
    enum { N = 65536, MORE = 40 };
    if (*role) {
        crossdock_observer *observer = observe();
        crossdock_series_version *held = latest(observer), *newest;
        tell(0, "held");
        expect(0, "go");
        /* If the suite runs across nodes, a new observer waits here until the newest version has arrived on its
         * node. */
        EQUAL(number(latest(observe())), MORE + 1);
        for (int i = 0; i < N; i++)
            CHECK(data(held)[i] == 1);
        OK(crossdock_observer_next(observer, WAIT, &newest));
        EQUAL(number(newest), MORE + 1);
        CHECK(data(newest)[N - 1] == MORE + 1);
        return;
    }
    crossdock_variable u = u_of(N, 0);
    crossdock_series_options options = CROSSDOCK_SERIES_OPTIONS_INIT;
    crossdock_publisher *publisher = publish_as(&u, 1, &options);
    publish_large(publisher, N, 1);
    int b = start("B", NULL);
    expect(b, "held");
    for (int k = 2; k <= MORE + 1; k++)
        EQUAL(publish_large(publisher, N, k), k);
    crossdock_publisher_statistics statistics;
    OK(crossdock_publisher_statistics_get(publisher, &statistics));
    EQUAL(statistics.withheld, 0);
    tell(b, "go");
    EQUAL(peer_end(b), 0);
}

static void *refresh_often(void *version)
{
    const long long end = peer_now_ms() + 1000;
    while (peer_now_ms() < end)
        OK(crossdock_series_version_refresh(version, NULL));
    return NULL;
}

static void s12(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_variable u = u_of(262144, 0);
    crossdock_series_options options = CROSSDOCK_SERIES_OPTIONS_INIT;
    options.chunk = 4096;
    crossdock_publisher *publisher = publish_as(&u, 1, &options);
    crossdock_observer *observer = observe();
    publish(publisher);
    crossdock_series_version *one = latest(observer);
    memory(publisher)[100] = 1;
    OK(crossdock_publisher_touched(publisher, "u", 800, 8));
    publish(publisher);
    crossdock_series_version *two = latest(observer);
    crossdock_change changes[8];
    size_t count;
    uint64_t bytes = 0;
    bool found = false;
    OK(crossdock_series_version_diff(one, two, changes, 8, &count));
    CHECK(count >= 1 && count <= 8);
    for (size_t i = 0; i < count; i++) {
        EQUAL(changes[i].variable, 0);
        bytes += changes[i].bytes;
        found = found || (changes[i].from <= 800 && 800 < changes[i].from + changes[i].bytes);
    }
    CHECK(found && bytes <= 8192);
    use_beside_a_wait(observer, publisher);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, refresh_often, two) == 0);
    const long long end = peer_now_ms() + 1000;
    do {
        OK(crossdock_series_version_diff(two, two, changes, 8, &count));
        EQUAL(count, 0);
    } while (peer_now_ms() < end);
    pthread_join(thread, NULL);
}

static void s13(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_publisher *publisher = publish_u(), *none;
    void *place;
    WANT(CROSSDOCK_NOT_FOUND, crossdock_publisher_memory(publisher, "velocity", &place, NULL));
    says("velocity");
    crossdock_attribute step = CROSSDOCK_I64_ATTRIBUTE("step", 1);
    OK(crossdock_publisher_publish(publisher, &step, 1, NULL));
    step.value.kind = CROSSDOCK_VALUE_TEXT;
    strcpy(step.value.text, "one");
    crossdock_status status = crossdock_publisher_publish(publisher, &step, 1, NULL);
    CHECK(status == CROSSDOCK_WRONG_TYPE || status == CROSSDOCK_INVALID);
    says("step");
    crossdock_attribute note = {"note", {CROSSDOCK_VALUE_TEXT, 0, {0}, ""}};
    memset(note.value.text, 'x', sizeof note.value.text); /* no zero within its 64 bytes */
    WANT(CROSSDOCK_INVALID, crossdock_publisher_publish(publisher, &note, 1, NULL));
    WANT(CROSSDOCK_INVALID, crossdock_publisher_open(session(), name_of("b"), NULL, 0, NULL, 0, NULL, &none));
    crossdock_variable bad = u_of(4, 5);
    bad.type = "f65";
    WANT(CROSSDOCK_INVALID, crossdock_publisher_open(session(), name_of("b"), &bad, 1, NULL, 0, NULL, &none));
    says("f65");
}

static void s14(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_session *other;
    crossdock_publisher *publisher;
    crossdock_series_version *version;
    crossdock_variable u = u_of(4, 5);
    crossdock_connect_options options = CROSSDOCK_CONNECT_OPTIONS_INIT;
    options.private_daemon = 0;
    OK(crossdock_session_connect(&options, &other));
    OK(crossdock_publisher_open(other, name_of(""), &u, 1, NULL, 0, NULL, &publisher));
    fill(publisher, 1);
    CHECK(publish(publisher) == 1);
    crossdock_observer *observer = observe();
    OK(crossdock_observer_next(observer, WAIT, &version));
    OK(crossdock_series_version_unref(version));
    WANT(CROSSDOCK_BUSY, crossdock_session_close(other));
    says("series");
    fill(publisher, 2);
    CHECK(publish(publisher) == 2);
    OK(crossdock_observer_next(observer, WAIT, &version));
    shows(version, 2);
    OK(crossdock_series_version_unref(version));
    OK(crossdock_publisher_unref(publisher));
    WANT(CROSSDOCK_CLOSED, crossdock_observer_next(observer, WAIT, &version));
    OK(crossdock_session_close(other));
    OK(crossdock_session_unref(other));
    OK(crossdock_observer_unref(observer));
}

const row series_rows[] = {
    {"S1", "describe and read", s1},
    {"S2", "a version stays as it was", s2},
    {"S3", "next waits", s3},
    {"S4", "at", s4},
    {"S5", "observing waits", s5},
    {"S6", "one publisher", s6},
    {"S7", "publisher ends", s7},
    {"S8", "publisher killed", s8},
    {"S9", "begin and abandon", s9},
    {"S10", "growing variable", s10},
    {"S11", "full pool", s11},
    {"S12", "diff", s12},
    {"S13", "misuse", s13},
    {"S14", "a session is not left behind a series' back", s14},
    {"S15", "a publisher is not stopped by its observers", s15},
    {"S16", "what was taken back is an error, or stays", s16},
    {"S17", "each, and at with a deadline", s17},
    {"S18", "a normal end ends what is open", s18},
    {"S19", "a stuck observer costs one version", s19},
    {NULL, NULL, NULL},
};
