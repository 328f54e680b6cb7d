/* Tests rows P1 to P17 of the table in ../conformance.md: ports. */
#define _GNU_SOURCE
#include "suite.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT = 10000 };

static void send_tag(crossdock_port *port, uint64_t tag)
{
    crossdock_message message = CROSSDOCK_MESSAGE_INIT;
    message.tag = tag;
    OK(crossdock_port_send(port, &message, 0, WAIT));
}

static crossdock_message receive(crossdock_port *port)
{
    crossdock_message message;
    OK(crossdock_port_receive(port, WAIT, &message));
    return message;
}

/* Receives a message, releases it, and returns its tag. */
static uint64_t take(crossdock_port *port)
{
    crossdock_message message = receive(port);
    OK(crossdock_port_release(port, &message));
    return message.tag;
}

static void p1(const char *role, const char *argument)
{
    (void)argument;
    crossdock_port *port = port_open(*role ? CROSSDOCK_CONSUMER : CROSSDOCK_PRODUCER, CROSSDOCK_ONE_TO_ONE, 4);
    if (*role) {
        crossdock_message message;
        for (uint64_t i = 0; i < 1000; i++)
            EQUAL(take(port), i);
        WANT(CROSSDOCK_CLOSED, crossdock_port_receive(port, WAIT, &message));
        return;
    }
    int b = start("B", NULL);
    for (uint64_t i = 0; i < 1000; i++)
        send_tag(port, i);
    OK(crossdock_port_close(port));
    ends_well(b);
}

static void p2(const char *role, const char *argument)
{
    (void)argument;
    crossdock_port *port = port_open(*role ? CROSSDOCK_CONSUMER : CROSSDOCK_PRODUCER, CROSSDOCK_ONE_TO_ONE, 8);
    crossdock_message message = CROSSDOCK_MESSAGE_INIT;
    if (*role) {
        message = receive(port);
        CHECK(message.tag == (UINT64_C(1) << 63) + 1 && message.inline_length == 24);
        for (int i = 0; i < 24; i++)
            EQUAL(message.inline_bytes[i], i);
        OK(crossdock_port_release(port, &message));
        message = receive(port);
        CHECK(message.tag == 0 && message.inline_length == 0);
        OK(crossdock_port_release(port, &message));
        WANT(CROSSDOCK_INVALID, crossdock_port_release(port, &message));
        return;
    }
    int b = start("B", NULL);
    message.tag = (UINT64_C(1) << 63) + 1;
    message.inline_length = 24;
    for (int i = 0; i < 24; i++)
        message.inline_bytes[i] = (uint8_t)i;
    OK(crossdock_port_send(port, &message, 0, WAIT));
    send_tag(port, 0);
    message.inline_length = 25;
    WANT(CROSSDOCK_INVALID, crossdock_port_send(port, &message, 0, WAIT));
    ends_well(b);
}

static void p3(const char *role, const char *argument)
{
    (void)argument;
    crossdock_port *port = port_open(*role ? CROSSDOCK_CONSUMER : CROSSDOCK_PRODUCER, CROSSDOCK_ONE_TO_ONE, 1);
    crossdock_message message = CROSSDOCK_MESSAGE_INIT;
    if (*role) {
        crossdock_type type = {"vector<f64>", 0, 0, 0};
        crossdock_region *found;
        crossdock_object object;
        message = receive(port);
        OK(crossdock_session_load(session(), message.handle, &type, &found, &object));
        double *x = crossdock_vector_data(object.address), sum = 0;
        for (int i = 0; i < 1000; i++)
            sum += x[i];
        CHECK(sum == 500500);
        x[0] = -1;
        OK(crossdock_port_release(port, &message));
        OK(crossdock_region_unref(found));
        expect(0, "go");
        return;
    }
    crossdock_vector *v;
    OK(crossdock_vector_open(region(), "v", "f64", CROSSDOCK_CREATE_ONLY, 0, &v));
    OK(crossdock_vector_resize(region(), v, sizeof(double), 1000));
    double *x = crossdock_vector_data(v);
    for (int i = 0; i < 1000; i++)
        x[i] = i + 1;
    OK(crossdock_handle_save(region(), v, &message.handle));
    OK(crossdock_port_send(port, &message, 8000, WAIT));
    int b = start("B", NULL);
    crossdock_handle credit;
    OK(crossdock_port_reclaim(port, WAIT, &credit));
    CHECK(memcmp(&credit, &message.handle, sizeof credit) == 0);
    crossdock_port_statistics statistics;
    OK(crossdock_port_statistics_get(port, &statistics));
    EQUAL(statistics.messages, 1);
    EQUAL(statistics.bytes_handed_over, 8000);
    EQUAL(statistics.bytes_copied, 0);
    tell(b, "go");
    ends_well(b);
    EQUAL(x[0], -1);
}

static void p4(const char *role, const char *argument)
{
    (void)argument;
    crossdock_port *port = port_open(*role ? CROSSDOCK_CONSUMER : CROSSDOCK_PRODUCER, CROSSDOCK_ONE_TO_ONE, 2);
    crossdock_message message = CROSSDOCK_MESSAGE_INIT;
    if (*role) {
        message = receive(port);
        tell(0, "received");
        expect(0, "release");
        OK(crossdock_port_release(port, &message));
        tell(0, "released");
        expect(0, "end");
        return;
    }
    crossdock_handle handles[3], credit;
    const char *const names[] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++) {
        crossdock_object object;
        OK(crossdock_object_open(region(), names[i], "f64", CROSSDOCK_CREATE_ONLY, 0, &object));
        handles[i] = object.handle;
    }
    for (int i = 0; i < 2; i++) {
        message.handle = handles[i];
        OK(crossdock_port_send(port, &message, 8, CROSSDOCK_NO_WAIT));
    }
    message.handle = handles[2];
    WANT(CROSSDOCK_NOT_YET, crossdock_port_send(port, &message, 8, CROSSDOCK_NO_WAIT));
    int b = start("B", NULL);
    expect(b, "received");
    WANT(CROSSDOCK_NOT_YET, crossdock_port_send(port, &message, 8, CROSSDOCK_NO_WAIT));
    tell(b, "release");
    expect(b, "released");
    OK(crossdock_port_reclaim(port, WAIT, &credit));
    CHECK(memcmp(&credit, &handles[0], sizeof credit) == 0);
    OK(crossdock_port_send(port, &message, 8, CROSSDOCK_NO_WAIT));
    tell(b, "end");
    ends_well(b);
}

static void p5(const char *role, const char *argument)
{
    (void)argument;
    crossdock_port_options options = {CROSSDOCK_ONE_TO_ONE, 1, 0};
    crossdock_port *in, *out;
    crossdock_message message = CROSSDOCK_MESSAGE_INIT;
    if (*role) {
        out = port_open(CROSSDOCK_PRODUCER, CROSSDOCK_ONE_TO_ONE, 1);
        OK(crossdock_port_open(session(), name_of("b"), CROSSDOCK_CONSUMER, &options, 0, &in));
        tell(0, "ready");
        message = receive(in);
        expect(0, "end");
        return;
    }
    int b = start("B", NULL);
    expect(b, "ready");
    in = port_open(CROSSDOCK_CONSUMER, CROSSDOCK_ONE_TO_ONE, 1);
    OK(crossdock_port_open(session(), name_of("b"), CROSSDOCK_PRODUCER, &options, 0, &out));
    long long begin = peer_now_ms();
    WANT(CROSSDOCK_TIMED_OUT, crossdock_port_receive(in, 200, &message));
    long long took = peer_now_ms() - begin;
    CHECK(took >= 199 && took < 2000);
    says(name_of(""));
    says("peer");
    send_tag(out, 1);
    begin = peer_now_ms();
    WANT(CROSSDOCK_TIMED_OUT, crossdock_port_send(out, &message, 0, 200));
    took = peer_now_ms() - begin;
    CHECK(took >= 199 && took < 2000);
    says(name_of("b"));
    says("peer");
    tell(b, "end");
    ends_well(b);
    OK(crossdock_port_remove(session(), name_of("b")));
}

static void p6(const char *role, const char *argument)
{
    (void)argument;
    crossdock_port *port = port_open(*role ? CROSSDOCK_CONSUMER : CROSSDOCK_PRODUCER, CROSSDOCK_FAN_OUT, 8);
    if (*role) {
        tell(0, "ready");
        for (uint64_t i = 0; i < 100; i++)
            EQUAL(take(port), i);
        return;
    }
    int peers[3];
    for (int i = 0; i < 3; i++) {
        peers[i] = start("B", NULL);
        expect(peers[i], "ready");
    }
    for (uint64_t i = 0; i < 100; i++)
        send_tag(port, i);
    for (int i = 0; i < 3; i++)
        ends_well(peers[i]);
}

static void p7(const char *role, const char *argument)
{
    crossdock_port *port = port_open(*role ? CROSSDOCK_PRODUCER : CROSSDOCK_CONSUMER, CROSSDOCK_FAN_IN, 8);
    if (*role) {
        uint64_t first = strtoull(argument, NULL, 10) * 1000;
        tell(0, "ready");
        expect(0, "go");
        for (uint64_t i = 0; i < 100; i++)
            send_tag(port, first + i);
        OK(crossdock_port_close(port));
        return;
    }
    int peers[3];
    uint64_t next[3] = {0, 0, 0};
    for (int i = 0; i < 3; i++) {
        peers[i] = start("B", (const char *[]){"0", "1", "2"}[i]);
        expect(peers[i], "ready");
    }
    for (int i = 0; i < 3; i++)
        tell(peers[i], "go");
    for (int i = 0; i < 300; i++) {
        uint64_t tag = take(port);
        CHECK(tag / 1000 < 3);
        EQUAL(tag % 1000, next[tag / 1000]++);
    }
    for (int i = 0; i < 3; i++)
        ends_well(peers[i]);
    crossdock_message message;
    WANT(CROSSDOCK_CLOSED, crossdock_port_receive(port, WAIT, &message));
}

static void p8(const char *role, const char *argument)
{
    bool producer = strcmp(role, "producer") == 0;
    crossdock_port_options fan_in = {CROSSDOCK_FAN_IN, 8, 0};
    crossdock_message message;
    crossdock_status status;
    crossdock_port *came;
    if (*role) {
        crossdock_port *port = port_open(producer ? CROSSDOCK_PRODUCER : CROSSDOCK_CONSUMER, CROSSDOCK_WORK_QUEUE, 8);
        if (!producer)
            OK(crossdock_port_open(session(), name_of("b"), CROSSDOCK_PRODUCER, &fan_in, 0, &came));
        tell(0, "ready");
        expect(0, "go");
        if (producer) {
            uint64_t first = strtoull(argument, NULL, 10) * 150;
            for (uint64_t i = 0; i < 150; i++)
                send_tag(port, first + i);
            OK(crossdock_port_close(port));
            return;
        }
        /* Reports each received message to the first process of the test. */
        while ((status = crossdock_port_receive(port, WAIT, &message)) == CROSSDOCK_OK) {
            send_tag(came, message.tag);
            OK(crossdock_port_release(port, &message));
        }
        EQUAL(status, CROSSDOCK_CLOSED);
        OK(crossdock_port_close(came));
        return;
    }
    int peers[5], seen[300] = {0};
    /* This producer's end stays open until all messages have arrived. Otherwise a consumer could get CLOSED after the
     * first producer has left and before the second one has opened the port. */
    crossdock_port *keep = port_open(CROSSDOCK_PRODUCER, CROSSDOCK_WORK_QUEUE, 8);
    OK(crossdock_port_open(session(), name_of("b"), CROSSDOCK_CONSUMER, &fan_in, 0, &came));
    for (int i = 0; i < 5; i++) {
        peers[i] = start(i < 2 ? "producer" : "consumer", i == 1 ? "1" : "0");
        expect(peers[i], "ready");
    }
    for (int i = 0; i < 5; i++)
        tell(peers[i], "go");
    for (int i = 0; i < 300; i++) {
        uint64_t tag = take(came);
        CHECK(tag < 300);
        seen[tag]++;
    }
    OK(crossdock_port_close(keep));
    WANT(CROSSDOCK_CLOSED, crossdock_port_receive(came, WAIT, &message));
    for (int i = 0; i < 5; i++)
        ends_well(peers[i]);
    for (int i = 0; i < 300; i++)
        EQUAL(seen[i], 1);
    OK(crossdock_port_remove(session(), name_of("b")));
}

static void leaves(const char *role, bool killed)
{
    crossdock_port *port = port_open(*role ? CROSSDOCK_PRODUCER : CROSSDOCK_CONSUMER, CROSSDOCK_ONE_TO_ONE, 8);
    if (*role) {
        for (uint64_t i = 0; i < 3; i++)
            send_tag(port, i);
        if (killed)
            peer_die();
        OK(crossdock_port_close(port));
        return;
    }
    int b = start("B", NULL);
    EQUAL(peer_end(b), killed ? 128 + 9 : 0);
    for (uint64_t i = 0; i < 3; i++)
        EQUAL(take(port), i);
    crossdock_message message;
    long long begin = peer_now_ms();
    WANT(killed ? CROSSDOCK_PEER_DIED : CROSSDOCK_CLOSED, crossdock_port_receive(port, WAIT, &message));
    CHECK(peer_now_ms() - begin < 2000);
    if (killed)
        says("peer");
}

static void p9(const char *role, const char *argument)
{
    (void)argument;
    leaves(role, false);
}

static void p17(const char *role, const char *argument)
{
    (void)argument;
    crossdock_port *port = port_open(*role ? CROSSDOCK_PRODUCER : CROSSDOCK_CONSUMER, CROSSDOCK_ONE_TO_ONE, 8);
    if (*role) {
        for (uint64_t i = 0; i < 3; i++)
            send_tag(port, i);
        OK(crossdock_port_close(port));
        return;
    }
    for (int run = 0; run < 2; run++) {
        crossdock_message message;
        if (run == 1) {
            OK(crossdock_port_close(port));
            port = port_open(CROSSDOCK_CONSUMER, CROSSDOCK_ONE_TO_ONE, 8);
            WANT(CROSSDOCK_TIMED_OUT, crossdock_port_receive(port, 200, &message));
            says(name_of(""));
            says("no producer");
        }
        EQUAL(peer_end(start("B", NULL)), 0);
        for (uint64_t i = 0; i < 3; i++)
            EQUAL(take(port), i);
        WANT(CROSSDOCK_CLOSED, crossdock_port_receive(port, WAIT, &message));
    }
}

static void p10(const char *role, const char *argument)
{
    (void)argument;
    leaves(role, true);
}

static void p11(const char *role, const char *argument)
{
    (void)argument;
    crossdock_port *port;
    if (strcmp(role, "B") == 0) {
        port = port_open(CROSSDOCK_CONSUMER, CROSSDOCK_ONE_TO_ONE, 8);
        EQUAL(receive(port).tag, 0);
        peer_die();
    } else if (*role) {
        crossdock_port_options options = {CROSSDOCK_ONE_TO_ONE, 8, 0};
        OK(crossdock_port_open(session(), name_of(""), CROSSDOCK_CONSUMER, &options, WAIT, &port));
        for (uint64_t i = 0; i < 3; i++)
            EQUAL(take(port), i);
        return;
    }
    port = port_open(CROSSDOCK_PRODUCER, CROSSDOCK_ONE_TO_ONE, 8);
    for (uint64_t i = 0; i < 3; i++)
        send_tag(port, i);
    EQUAL(peer_end(start("B", NULL)), 128 + 9);
    ends_well(start("C", NULL));
}

static void p12(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_message message;
    crossdock_region *none;
    crossdock_port *port = port_open(CROSSDOCK_CONSUMER, CROSSDOCK_ONE_TO_ONE, 8);
    WANT(CROSSDOCK_NOT_FOUND, crossdock_region_open(session(), name_of("b"), CROSSDOCK_OPEN_ONLY, 0, 0, &none));
    long long begin = peer_now_ms();
    WANT(CROSSDOCK_NOT_YET, crossdock_port_receive(port, CROSSDOCK_NO_WAIT, &message));
    CHECK(peer_now_ms() - begin < 100);
    EQUAL(crossdock_error_status(), CROSSDOCK_NOT_FOUND);
    says(name_of("b"));
}

static void p13(const char *role, const char *argument)
{
    (void)argument;
    crossdock_port *port = port_open(*role ? CROSSDOCK_PRODUCER : CROSSDOCK_CONSUMER, CROSSDOCK_ONE_TO_ONE, 8);
    if (*role) {
        tell(0, "ready");
        expect(0, "go");
        send_tag(port, 42);
        expect(0, "end");
        return;
    }
    int b = start("B", NULL);
    expect(b, "ready");
    struct pollfd wait = {-1, POLLIN, 0};
    int ready;
    OK(crossdock_port_descriptor(port, &wait.fd));
    OK(crossdock_port_arm(port, &ready));
    EQUAL(ready, 0);
    EQUAL(poll(&wait, 1, 50), 0);
    tell(b, "go");
    EQUAL(poll(&wait, 1, 2000), 1);
    OK(crossdock_port_disarm(port));
    crossdock_message message;
    OK(crossdock_port_receive(port, CROSSDOCK_NO_WAIT, &message));
    EQUAL(message.tag, 42);
    OK(crossdock_port_release(port, &message));
    tell(b, "end");
    ends_well(b);
}

static void p14(const char *role, const char *argument)
{
    (void)argument;
    if (*role) {
        crossdock_port_options options = {CROSSDOCK_ONE_TO_ONE, 8, 0};
        crossdock_port *port;
        WANT(CROSSDOCK_BUSY, crossdock_port_open(session(), name_of(""), CROSSDOCK_PRODUCER, &options, 0, &port));
        says(name_of(""));
        tell(0, "busy");
        expect(0, "closed");
        OK(crossdock_port_open(session(), name_of(""), CROSSDOCK_PRODUCER, &options, 0, &port));
        return;
    }
    crossdock_port *port = port_open(CROSSDOCK_PRODUCER, CROSSDOCK_ONE_TO_ONE, 8);
    int b = start("B", NULL);
    expect(b, "busy");
    OK(crossdock_port_close(port));
    tell(b, "closed");
    ends_well(b);
}

static void p15(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_port *producer = port_open(CROSSDOCK_PRODUCER, CROSSDOCK_ONE_TO_ONE, 4);
    const crossdock_port_options other[] = {{CROSSDOCK_ONE_TO_ONE, 8, 0}, {CROSSDOCK_FAN_OUT, 4, 0}};
    for (int i = 0; i < 2; i++) {
        crossdock_port *port;
        WANT(CROSSDOCK_INVALID, crossdock_port_open(session(), name_of(""), CROSSDOCK_CONSUMER, &other[i], 0, &port));
        says(name_of(""));
    }
    crossdock_port *as_made;
    OK(crossdock_port_open(session(), name_of(""), CROSSDOCK_CONSUMER, NULL, 0, &as_made));
    for (uint64_t i = 0; i < 4; i++)
        send_tag(producer, i);
    const crossdock_message fifth = CROSSDOCK_MESSAGE_INIT;
    WANT(CROSSDOCK_NOT_YET, crossdock_port_send(producer, &fifth, 0, CROSSDOCK_NO_WAIT));
    for (uint64_t i = 0; i < 4; i++)
        CHECK(take(as_made) == i);
}

static void *send_thousand(void *port)
{
    for (uint64_t i = 0; i < 1000; i++)
        send_tag(port, i);
    return NULL;
}

static void p16(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_port *out = port_open(CROSSDOCK_PRODUCER, CROSSDOCK_ONE_TO_ONE, 4);
    crossdock_port *in = port_open(CROSSDOCK_CONSUMER, CROSSDOCK_ONE_TO_ONE, 4);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, send_thousand, out) == 0);
    for (uint64_t i = 0; i < 1000; i++)
        EQUAL(take(in), i);
    pthread_join(thread, NULL);
}

const row port_rows[] = {
    {"P1", "one to one, order", p1},
    {"P2", "tag and inline bytes", p2},
    {"P3", "handle", p3},
    {"P4", "credits", p4},
    {"P5", "deadline names the peer", p5},
    {"P6", "fan-out", p6},
    {"P7", "fan-in", p7},
    {"P8", "work queue", p8},
    {"P9", "producer leaves", p9},
    {"P10", "producer killed", p10},
    {"P11", "consumer killed", p11},
    {"P12", "not yet", p12},
    {"P13", "descriptor", p13},
    {"P14", "second producer", p14},
    {"P15", "options must agree", p15},
    {"P16", "threads", p16},
    {"P17", "earlier peers are history", p17},
    {0},
};
