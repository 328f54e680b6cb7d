/* Runs the tests of the C suite, one for each row of ../conformance.md. Each test runs in a process of its own, so that
 * a crash makes only this test fail. */
#ifndef SUITE_H
#define SUITE_H

#include <crossdock.h>
#include <stdbool.h>

#include "peer.h"

/* The function of the test of one row. It runs in the first process of the test (role "") and in each of its other
 * processes (peers). */
typedef void row_function(const char *role, const char *argument);

typedef struct row {
    const char *id;
    const char *claim;
    row_function *run;
} row;

extern const row region_rows[], error_rows[], port_rows[], series_rows[], item_rows[], file_rows[];

enum { MIB = 1 << 20 };

/* Makes a name for an object of this test: "c-4711/r4", or with a letter "c-4711/r4b". The suffixes "", "b" and "c"
 * have one static buffer each. */
const char *name_of(const char *suffix);
/* The session of this process, as the task "test", or as "peer" in a peer. Each call gives the same session. */
crossdock_session *session(void);
/* Opens the region of this test (16 MiB), or creates it. The region is removed when the test ends. */
crossdock_region *region(void);
crossdock_region *region_named(const char *suffix, crossdock_mode mode, uint64_t size);
/* Opens one end of the port of this test. The port is removed when the test ends. */
crossdock_port *port_open(crossdock_end end, crossdock_pattern pattern, uint32_t capacity);

_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void skip(const char *why);

/* Starts another process (peer) of this test. `argument` may be NULL. */
int start(const char *role, const char *argument);
void tell(int peer, const char *line);
void expect(int peer, const char *line);
/* Checks that the peer ends by itself with exit status 0. */
void ends_well(int peer);

/* Checks that the message of the last error contains the text. */
void says(const char *text);

void handle_to_text(crossdock_handle handle, char text[33]);
crossdock_handle handle_of_text(const char *text);

void want(crossdock_status wanted, crossdock_status got, const char *call, int line);
#define WANT(status, call) want(status, call, #call, __LINE__)
#define OK(call) WANT(CROSSDOCK_OK, call)
#define CHECK(condition) ((condition) ? (void)0 : fail("line %d: not so: %s", __LINE__, #condition))
#define EQUAL(a, b)                                                                                                    \
    do {                                                                                                               \
        long long a_ = (long long)(a), b_ = (long long)(b);                                                            \
        if (a_ != b_)                                                                                                  \
            fail("line %d: %s is %lld, not %lld", __LINE__, #a, a_, b_);                                               \
    } while (0)

#endif
