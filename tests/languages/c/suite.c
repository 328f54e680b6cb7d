#define _GNU_SOURCE
#include "suite.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FAILED = 1, SKIPPED = 77, LEFT_MAX = 16 };

static char prefix[64], row_id[8];
static const char *own_role = "";
static bool is_peer;
static int report = -1; /* the pipe through which the process of a test reports why the test failed */
static crossdock_session *own;

static struct {
    bool port;
    char name[CROSSDOCK_NAME_MAX + 1];
} left[LEFT_MAX];
static int left_count;

static void remember(bool port, const char *name)
{
    for (int i = 0; i < left_count; i++)
        if (left[i].port == port && strcmp(left[i].name, name) == 0)
            return;
    if (is_peer || left_count == LEFT_MAX)
        return;
    left[left_count].port = port;
    snprintf(left[left_count++].name, sizeof left[0].name, "%s", name);
}

static _Noreturn void finish(int status)
{
    for (int i = 0; own && i < left_count; i++) {
        /* The test itself may have removed the object already. */
        if (left[i].port)
            crossdock_port_remove(own, left[i].name);
        else
            crossdock_region_remove(own, left[i].name);
    }
    crossdock_session_unref(own);
    exit(status);
}

_Noreturn void fail(const char *format, ...)
{
    char text[900];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (is_peer) {
        /* The first process of the test may fail before it reads this line, so the reason is also written to the
         * log. */
        fprintf(stderr, "%s, role %s: %s\n", row_id, own_role, text);
        parent_tell(text);
    } else if (write(report, text, strlen(text)) < 0) {
        _exit(FAILED);
    }
    finish(FAILED);
}

_Noreturn void skip(const char *why)
{
    if (write(report, why, strlen(why)) < 0)
        _exit(FAILED);
    finish(SKIPPED);
}

void want(crossdock_status wanted, crossdock_status got, const char *call, int line)
{
    if (wanted != got)
        fail("line %d: %s gave %s instead of %s%s%s", line, call, crossdock_status_name(got),
             crossdock_status_name(wanted), got ? ": " : "", got ? crossdock_error_message() : "");
}

void says(const char *text)
{
    if (!strstr(crossdock_error_message(), text))
        fail("the message does not say '%s': %s", text, crossdock_error_message());
}

const char *name_of(const char *suffix)
{
    static char names[3][96];
    char *name = names[*suffix ? *suffix - 'a' : 0];
    snprintf(name, sizeof names[0], "%s/%s%s", prefix, row_id, suffix);
    for (char *c = name + strlen(prefix); *c; c++)
        if (*c >= 'A' && *c <= 'Z')
            *c += 'a' - 'A';
    return name;
}

crossdock_session *session(void)
{
    if (!own) {
        crossdock_connect_options options = CROSSDOCK_CONNECT_OPTIONS_INIT;
        options.task = is_peer ? "peer" : "test";
        options.private_daemon = 0;
        OK(crossdock_session_connect(&options, &own));
    }
    return own;
}

crossdock_region *region_named(const char *suffix, crossdock_mode mode, uint64_t size)
{
    crossdock_region *region;
    remember(false, name_of(suffix));
    OK(crossdock_region_open(session(), name_of(suffix), mode, size, CROSSDOCK_NO_WAIT, &region));
    return region;
}

crossdock_region *region(void)
{
    static crossdock_region *one;
    if (!one)
        one = region_named("", CROSSDOCK_OPEN_OR_CREATE, 16 * MIB);
    return one;
}

crossdock_port *port_open(crossdock_end end, crossdock_pattern pattern, uint32_t capacity)
{
    crossdock_port_options options = {pattern, capacity, 0};
    crossdock_port *port;
    remember(true, name_of(""));
    OK(crossdock_port_open(session(), name_of(""), end, &options, CROSSDOCK_NO_WAIT, &port));
    return port;
}

int start(const char *role, const char *argument)
{
    int peer = peer_start(row_id, role, prefix, argument ? argument : "");
    CHECK(peer >= 0);
    return peer;
}

void tell(int peer, const char *line)
{
    CHECK((is_peer ? parent_tell(line) : peer_tell(peer, line)) == 0);
}

void expect(int peer, const char *line)
{
    if ((is_peer ? parent_expect(line) : peer_expect(peer, line)) != 0)
        fail("%s said: %s", is_peer ? "the test" : "the peer", peer_last());
}

void ends_well(int peer)
{
    int status = peer_end(peer);
    if (status != 0) {
        /* Reads the rest of the peer's output, if there is any. */
        peer_expect(peer, "");
        fail("the peer ended with %d: %s", status, peer_last());
    }
}

void handle_to_text(crossdock_handle handle, char text[33])
{
    snprintf(text, 33, "%016llx%016llx", (unsigned long long)handle.segment, (unsigned long long)handle.offset);
}

crossdock_handle handle_of_text(const char *text)
{
    unsigned long long segment = 0, offset = 0;
    CHECK(sscanf(text, "%16llx%16llx", &segment, &offset) == 2);
    crossdock_handle handle = {segment, offset};
    return handle;
}

/* Runs the test of one row in a child process, which reports the reason of a failure through a pipe. */
static int run_row(const row *r)
{
    int words[2];
    fflush(stdout);
    if (pipe(words) != 0)
        return FAILED;
    pid_t pid = fork();
    if (pid == 0) {
        close(words[0]);
        report = words[1];
        snprintf(row_id, sizeof row_id, "%s", r->id);
        alarm(60); /* a test that hangs must fail, and must not hang the suite */
        r->run("", "");
        finish(0);
    }
    close(words[1]);
    char text[1000] = "";
    size_t length = 0;
    ssize_t n;
    while ((n = read(words[0], text + length, sizeof text - 1 - length)) > 0)
        length += (size_t)n;
    close(words[0]);
    int status;
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status))
        snprintf(text, sizeof text, "it ended by signal %d", WTERMSIG(status));
    int result = WIFSIGNALED(status) ? FAILED : WEXITSTATUS(status);
    if (result == 0)
        printf("ok %s %s\n", r->id, r->claim);
    else
        printf("%s %s %s: %s\n", result == SKIPPED ? "skip" : "FAILED", r->id, r->claim, text);
    return result;
}

int main(int count, char **arguments)
{
    const row *const groups[] = {region_rows, error_rows, port_rows, series_rows, item_rows, file_rows};
    bool peer = count == 6 && strcmp(arguments[1], "--peer") == 0;
    const char *only = peer ? arguments[2] : count > 1 ? arguments[1] : NULL;
    int passed = 0, failed = 0;
    snprintf(prefix, sizeof prefix, "c-%d", (int)getpid());
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        for (const row *r = groups[g]; r->id; r++) {
            if (only && strcmp(only, r->id) != 0)
                continue;
            if (peer) {
                is_peer = true;
                own_role = arguments[3];
                snprintf(row_id, sizeof row_id, "%s", r->id);
                snprintf(prefix, sizeof prefix, "%s", arguments[4]);
                alarm(60);
                r->run(arguments[3], arguments[5]);
                finish(0);
            }
            int result = run_row(r);
            passed += result == 0;
            failed += result != 0 && result != SKIPPED;
        }
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
