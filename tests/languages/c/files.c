/* Tests rows F1 to F9 of the table in ../conformance.md: files of managed directories. */
#define _GNU_SOURCE
#include "suite.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { SIZE = 100000, TEXT = 512 };

static const char *place(const char *row, const char *side, const char *name)
{
    static char paths[4][TEXT];
    static int next;
    const char *root = getenv("CROSSDOCK_CONFORMANCE_FILES");
    if (!root)
        fail("CROSSDOCK_CONFORMANCE_FILES is not set; tests/languages/run sets it");
    char *path = paths[next++ % 4];
    snprintf(path, TEXT, "%s/%s/%s/%s", root, row, side, name);
    return path;
}

static void put(FILE *file, int byte, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        fputc(byte, file);
    CHECK(fflush(file) == 0);
}

static void write_file(const char *row, const char *name, int byte)
{
    FILE *file = fopen(place(row, "stage", name), "wb");
    CHECK(file != NULL);
    put(file, byte, SIZE);
    CHECK(fclose(file) == 0);
}

static void holds(FILE *file, int byte)
{
    static char bytes[SIZE + 1];
    CHECK(file != NULL);
    EQUAL(fread(bytes, 1, sizeof bytes, file), SIZE);
    for (int i = 0; i < SIZE; i++)
        EQUAL(bytes[i], byte);
    fclose(file);
}

static void comes(const char *row, const char *name, int byte)
{
    const char *path = place(row, "published", name);
    OK(crossdock_file_await(path));
    holds(fopen(path, "rb"), byte);
}

static bool is_seen(const char *row, const char *name) { return access(place(row, "published", name), F_OK) == 0; }

/* Process B writes the file, and process A opens it. */
static FILE *opened(const char *row, const char *name)
{
    ends_well(start("writes", name));
    const char *path = place(row, "published", name);
    OK(crossdock_file_await(path));
    return fopen(path, "rb");
}

static void f1(const char *role, const char *argument)
{
    (void)argument;
    if (*role) {
        usleep(200000);
        write_file("f1", "coming", 'x');
        return;
    }
    int peer = start("later", NULL);
    comes("f1", "coming", 'x');
    ends_well(peer);
    long long began = peer_now_ms();
    OK(crossdock_file_await("/nonexistent/file"));
    CHECK(peer_now_ms() - began < 2000);
}

static void f2(const char *role, const char *argument)
{
    (void)role, (void)argument;
    long long began = peer_now_ms();
    WANT(CROSSDOCK_TIMED_OUT, crossdock_file_await(place("f2", "published", "never")));
    long long took = peer_now_ms() - began;
    CHECK(took >= 300 && took <= 5000);
    says("f2/published/never");
    says("simulate");
}

static void f3(const char *role, const char *argument)
{
    (void)argument;
    if (*role) {
        char own[16];
        snprintf(own, sizeof own, "%d", (int)getpid());
        CHECK(symlink(own, place("f3", "stage", ".producer")) == 0);
        FILE *file = fopen(place("f3", "stage", "half"), "wb");
        CHECK(file != NULL);
        put(file, 'x', SIZE / 2);
        usleep(200000);
        peer_die();
    }
    int peer = start("dies", NULL);
    WANT(CROSSDOCK_NOT_FOUND, crossdock_file_await(place("f3", "published", "half")));
    says("half");
    says("simulate failed");
    says("killed");
    CHECK(!is_seen("f3", "half"));
    EQUAL(peer_end(peer), 128 + SIGKILL);
}

static void f4(const char *role, const char *argument)
{
    if (strcmp(role, "again") == 0) {
        write_file("f4", "next", 'y');
        CHECK(rename(place("f4", "stage", "next"), place("f4", "stage", "name")) == 0);
        write_file("f4", "after", 'x');
        return;
    }
    if (*role) {
        write_file("f4", argument, 'x');
        return;
    }
    FILE *held = opened("f4", "name");
    ends_well(start("again", NULL));
    comes("f4", "after", 'x');
    comes("f4", "name", 'y');
    holds(held, 'x');
}

static void f5(const char *role, const char *argument)
{
    (void)argument;
    if (*role) {
        FILE *file = fopen(place("f5", "stage", "slow"), "wb");
        CHECK(file != NULL);
        put(file, 'x', SIZE / 2);
        tell(-1, "half");
        expect(-1, "go on");
        put(file, 'x', SIZE / 2);
        CHECK(fclose(file) == 0);
        return;
    }
    int peer = start("slowly", NULL);
    expect(peer, "half");
    CHECK(!is_seen("f5", "slow"));
    tell(peer, "go on");
    comes("f5", "slow", 'x');
    ends_well(peer);
}

static void f6(const char *role, const char *argument)
{
    (void)argument;
    if (*role) {
        CHECK(mkdir(place("f6", "stage", "a"), 0755) == 0);
        CHECK(mkdir(place("f6", "stage", "a/b"), 0755) == 0);
        write_file("f6", "a/b/c", 'x');
        return;
    }
    ends_well(start("folder", NULL));
    comes("f6", "a/b/c", 'x');
}

static void f7(const char *role, const char *argument)
{
    if (strcmp(role, "remove") == 0) {
        CHECK(remove(place("f7", "stage", "gone")) == 0);
        write_file("f7", "after", 'x');
        return;
    }
    if (*role) {
        write_file("f7", argument, 'x');
        return;
    }
    FILE *held = opened("f7", "gone");
    ends_well(start("remove", NULL));
    comes("f7", "after", 'x');
    CHECK(!is_seen("f7", "gone"));
    holds(held, 'x');
}

static void f8(const char *role, const char *argument)
{
    (void)argument;
    if (*role) {
        static char bytes[2000000];
        int big = open(place("f8", "stage", "big"), O_WRONLY | O_CREAT, 0644);
        CHECK(big >= 0);
        ssize_t n;
        while ((n = write(big, bytes, sizeof bytes)) > 0)
            CHECK(n < (ssize_t)sizeof bytes);
        EQUAL(errno, ENOSPC);
        close(big);
        CHECK(remove(place("f8", "stage", "big")) == 0);
        struct statvfs room = {0};
        for (int attempt = 0; attempt < 1000 && room.f_bavail * room.f_bsize < 2 * SIZE; attempt++) {
            CHECK(statvfs(place("f8", "stage", ""), &room) == 0);
            usleep(10000);
        }
        write_file("f8", "small", 'x');
        return;
    }
    ends_well(start("full", NULL));
    comes("f8", "small", 'x');
    CHECK(!is_seen("f8", "big"));
}

static void f9(const char *role, const char *argument)
{
    if (*role) {
        write_file("f9", argument, 'x');
        return;
    }
    fclose(opened("f9", "1"));
    fclose(opened("f9", "2"));
    fclose(opened("f9", "3"));
    CHECK(!is_seen("f9", "1"));
    comes("f9", "2", 'x');
}

const row file_rows[] = {
    {"F1", "a file that comes", f1},
    {"F2", "deadline names the producer", f2},
    {"F3", "dead producer", f3},
    {"F4", "published name written again", f4},
    {"F5", "never part of a file", f5},
    {"F6", "directories", f6},
    {"F7", "removal", f7},
    {"F8", "quota", f8},
    {"F9", "retention", f9},
    {NULL, NULL, NULL},
};
