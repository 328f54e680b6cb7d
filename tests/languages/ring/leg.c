/* The fifth leg of the ring, in which a vector passes through programs in five languages (README.md). */
#include <crossdock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ME = 4, PATIENCE = 30000 };

static void check(int so, const char *what)
{
    if (so)
        return;
    printf("FAILED ring c: not so: %s\n", what);
    exit(1);
}

static void ok(crossdock_status status)
{
    if (status == CROSSDOCK_OK)
        return;
    printf("FAILED ring c: %s: %s\n", crossdock_status_name(status), crossdock_error_message());
    exit(1);
}

int main(int count, char **arguments)
{
    crossdock_connect_options options = CROSSDOCK_CONNECT_OPTIONS_INIT;
    crossdock_port_options two = {CROSSDOCK_ONE_TO_ONE, 2, 0};
    const crossdock_type type = {"vector<f64>", 0, 0, 0};
    crossdock_session *session;
    crossdock_region *region = NULL;
    crossdock_port *in, *out;
    crossdock_message message;
    crossdock_handle same = {0, 0}, saved;
    char name[200];
    if (count != 3)
        return 2;
    uint64_t laps = strtoull(arguments[2], NULL, 10), told, size, capacity;
    options.task = "c";
    options.private_daemon = 0;
    ok(crossdock_session_connect(&options, &session));
    snprintf(name, sizeof name, "%s/fortran-c", arguments[1]);
    ok(crossdock_port_open(session, name, CROSSDOCK_CONSUMER, &two, CROSSDOCK_NO_WAIT, &in));
    snprintf(name, sizeof name, "%s/c-rust", arguments[1]);
    ok(crossdock_port_open(session, name, CROSSDOCK_PRODUCER, &two, CROSSDOCK_NO_WAIT, &out));
    for (uint64_t lap = 0; lap < laps; lap++) {
        crossdock_object vector;
        void *data, *base;
        ok(crossdock_port_receive(in, PATIENCE, &message));
        if (!region) {
            same = message.handle;
            ok(crossdock_session_load(session, message.handle, &type, &region, &vector));
        } else {
            ok(crossdock_handle_load(region, message.handle, &type, &vector));
        }
        ok(crossdock_handle_save(region, vector.address, &saved));
        check(memcmp(&saved, &same, sizeof same) == 0 && memcmp(&message.handle, &same, sizeof same) == 0,
              "the handle is the same");
        ok(crossdock_vector_view(region, vector.address, sizeof(double), &data, &size));
        ok(crossdock_region_base(region, &base, &capacity));
        memcpy(&told, message.inline_bytes, sizeof told);
        check(message.tag == lap && message.inline_length == 8, "the message is that of this lap");
        check(told == (uint64_t)((char *)data - (char *)base), "the elements lie where Rust put them");
        double *x = data;
        check(size == 1000 && x[ME - 1] == (double)(lap + 1) && x[ME] == (double)lap, "the leg before was there");
        x[ME] += 1;
        ok(crossdock_port_send(out, &message, size * sizeof(double), PATIENCE));
        ok(crossdock_port_release(in, &message));
    }
    crossdock_port_statistics counted;
    ok(crossdock_port_statistics_get(out, &counted));
    check(counted.messages == laps && counted.bytes_handed_over == laps * 8008, "all is counted");
    check(counted.bytes_copied == 0, "nothing was copied");
    ok(crossdock_port_unref(out));
    ok(crossdock_port_unref(in));
    ok(crossdock_region_unref(region));
    ok(crossdock_session_unref(session));
    printf("ok ring c: same handle, same elements, 0 copied\n");
    return 0;
}
