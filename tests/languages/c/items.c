/* Tests rows I1 to I16 of the table in ../conformance.md, and C10: the paper's interface (crossdock/cdi.h). */
#define _GNU_SOURCE
#include "suite.h"

#include <crossdock/cdi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WAIT = 10000 };

static crossdock_item *create_with(const char *suffix, uint64_t size, crossdock_item_level level, crossdock_item_policy policy)
{
    crossdock_item_options options = {level, policy};
    crossdock_item *item;
    OK(crossdock_item_create(session(), name_of(suffix), size, &options, &item));
    return item;
}

static crossdock_item *create(const char *suffix, uint64_t size)
{
    crossdock_item *item;
    OK(crossdock_item_create(session(), name_of(suffix), size, NULL, &item));
    return item;
}

static crossdock_item *access_item(const char *suffix)
{
    crossdock_item *item;
    OK(crossdock_item_access(session(), name_of(suffix), WAIT, &item));
    return item;
}

static unsigned char *bytes_of(crossdock_item *item, uint64_t size)
{
    void *data;
    uint64_t there;
    OK(crossdock_item_data(item, &data, &there));
    EQUAL(there, size);
    return data;
}

static void fill(crossdock_item *item, uint64_t size, int value)
{
    memset(bytes_of(item, size), value, size);
}

static void all_are(const unsigned char *bytes, uint64_t from, uint64_t to, int value)
{
    for (uint64_t i = from; i < to; i++)
        if (bytes[i] != value)
            fail("byte %llu is %d, not %d", (unsigned long long)i, bytes[i], value);
}

static void hand(crossdock_item *item, const char *to)
{
    OK(crossdock_item_transfer(item, to));
    OK(crossdock_item_unref(item));
}

static void destroy(crossdock_item *item)
{
    OK(crossdock_item_destroy(item));
    OK(crossdock_item_unref(item));
}

static crossdock_item_info found(const char *suffix)
{
    crossdock_item_info info;
    OK(crossdock_item_find(session(), name_of(suffix), &info));
    return info;
}

static bool belongs_to(const crossdock_item_info *info, const char *task)
{
    size_t length = strlen(task);
    return strncmp(info->owner, task, length) == 0 && (info->owner[length] == 0 || info->owner[length] == '/');
}

/* Waits at most 2 s until crossdock_item_find gives the wanted status. */
static void becomes(crossdock_status wanted, const char *suffix)
{
    long long until = peer_now_ms() + 2000;
    crossdock_item_info info;
    while (crossdock_item_find(session(), name_of(suffix), &info) != wanted && peer_now_ms() < until)
        usleep(10000);
    WANT(wanted, crossdock_item_find(session(), name_of(suffix), &info));
}

static void i1(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_item_info info;
    crossdock_item *item, *other;
    int writable = 0;
    WANT(CROSSDOCK_NOT_FOUND, crossdock_item_find(session(), name_of(""), &info));
    item = create("", 10000);
    all_are(bytes_of(item, 10000), 0, 10000, 0);
    OK(crossdock_item_writable(item, &writable));
    CHECK(writable);
    info = found("");
    CHECK(info.size == 10000 && info.mine && belongs_to(&info, "test") && strcmp(info.key, name_of("")) == 0);
    WANT(CROSSDOCK_EXISTS, crossdock_item_create(session(), name_of(""), 10000, NULL, &other));
    says(name_of(""));
    says("test");
    destroy(item);
    WANT(CROSSDOCK_NOT_FOUND, crossdock_item_find(session(), name_of(""), &info));
    destroy(create("", 10000));
}

static void i2(const char *role, const char *argument)
{
    (void)argument;
    enum { SIZE = 1000000 };
    static const struct {
        crossdock_item_level level;
        const char *suffix;
    } levels[] = {{CROSSDOCK_VERIFIED, ""}, {CROSSDOCK_STRICT, "b"}, {CROSSDOCK_COOPERATIVE, "c"}};
    int b = *role ? 0 : start("B", NULL);
    for (int i = 0; i < 3; i++) {
        const char *suffix = levels[i].suffix;
        crossdock_item *item;
        if (*role) {
            item = access_item(suffix);
            all_are(bytes_of(item, SIZE), 0, SIZE, 7);
            bytes_of(item, SIZE)[0] = 9;
            hand(item, "test");
            continue;
        }
        item = create_with(suffix, SIZE, levels[i].level, CROSSDOCK_KEEP);
        fill(item, SIZE, 7);
        hand(item, "peer");
        item = access_item(suffix);
        EQUAL(bytes_of(item, SIZE)[0], 9);
        all_are(bytes_of(item, SIZE), 1, SIZE, 7);
        destroy(item);
    }
    if (!*role)
        ends_well(b);
}

static void i3(const char *role, const char *argument)
{
    (void)argument;
    if (*role) {
        crossdock_item *item = access_item("");
        all_are(bytes_of(item, 5000), 0, 5000, 4);
        destroy(item);
        return;
    }
    crossdock_item *item = create("", 5000);
    fill(item, 5000, 4);
    hand(item, "peer");
    crossdock_item_info info = found("");
    CHECK(!info.mine && belongs_to(&info, "peer"));
    ends_well(start("B", NULL));
}

static void i4(const char *role, const char *argument)
{
    (void)argument;
    if (*role) {
        crossdock_item *item = create("", 4096);
        tell(0, "made");
        expect(0, "go");
        usleep(200000);
        hand(item, "test");
        return;
    }
    int b = start("B", NULL);
    expect(b, "made");
    tell(b, "go");
    long long begun = peer_now_ms();
    crossdock_item *item = access_item("");
    long long took = peer_now_ms() - begun;
    CHECK(took >= 150 && took <= 2000);
    destroy(item);
    ends_well(b);
}

static void i5(const char *role, const char *argument)
{
    (void)argument;
    if (*role) {
        crossdock_item *item = create("", 4096);
        tell(0, "made");
        expect(0, "done");
        destroy(item);
        return;
    }
    crossdock_item *item;
    int b = start("B", NULL);
    expect(b, "made");
    WANT(CROSSDOCK_NOT_YET, crossdock_item_access(session(), name_of(""), CROSSDOCK_NO_WAIT, &item));
    long long begun = peer_now_ms();
    WANT(CROSSDOCK_TIMED_OUT, crossdock_item_access(session(), name_of(""), 200, &item));
    long long took = peer_now_ms() - begun;
    CHECK(took >= 190 && took <= 2000);
    says(name_of(""));
    says("peer");
    tell(b, "done");
    ends_well(b);
}

static void i6(const char *role, const char *argument)
{
    (void)argument;
    if (*role) {
        crossdock_item *item = access_item("");
        all_are(bytes_of(item, 4096), 0, 4096, 8);
        destroy(item);
        return;
    }
    crossdock_item *item = create("", 4096), *copy;
    void *data;
    uint64_t size;
    crossdock_region *heap;
    fill(item, 4096, 8);
    OK(crossdock_item_transfer(item, "peer"));
    WANT(CROSSDOCK_CLOSED, crossdock_item_data(item, &data, &size));
    says("peer");
    WANT(CROSSDOCK_CLOSED, crossdock_item_transfer(item, "test"));
    WANT(CROSSDOCK_CLOSED, crossdock_item_copy(item, name_of("b"), &copy));
    WANT(CROSSDOCK_CLOSED, crossdock_item_resize(item, 10));
    WANT(CROSSDOCK_CLOSED, crossdock_item_share(item));
    WANT(CROSSDOCK_CLOSED, crossdock_item_unshare(item, 0));
    WANT(CROSSDOCK_CLOSED, crossdock_item_region(item, CROSSDOCK_OPEN_ONLY, &heap));
    WANT(CROSSDOCK_CLOSED, crossdock_item_destroy(item));
    OK(crossdock_item_unref(item));
    WANT(CROSSDOCK_INVALID, crossdock_item_data(item, &data, &size));
    ends_well(start("B", NULL));
}

static void i7(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_item *item = create("", 100000), *copy, *third;
    fill(item, 100000, 5);
    OK(crossdock_item_copy(item, name_of("b"), &copy));
    WANT(CROSSDOCK_EXISTS, crossdock_item_copy(item, name_of("b"), &third));
    fill(item, 100000, 6);
    all_are(bytes_of(copy, 100000), 0, 100000, 5);
    destroy(item);
    all_are(bytes_of(copy, 100000), 0, 100000, 5);
    CHECK(found("b").mine);
    destroy(copy);
}

static void *take_back(void *item)
{
    OK(crossdock_item_unshare(item, WAIT));
    return NULL;
}

static void i8(const char *role, const char *argument)
{
    (void)argument;
    crossdock_item *item;
    int writable = 1;
    if (*role) {
        OK(crossdock_item_read(session(), name_of(""), WAIT, &item));
        all_are(bytes_of(item, 50000), 0, 50000, 3);
        OK(crossdock_item_writable(item, &writable));
        CHECK(!writable);
        WANT(CROSSDOCK_DENIED, crossdock_item_transfer(item, "peer"));
        tell(0, "reading");
        expect(0, "let go");
        OK(crossdock_item_unref(item));
        tell(0, "gone");
        expect(0, "again");
        WANT(CROSSDOCK_NOT_YET, crossdock_item_read(session(), name_of(""), CROSSDOCK_NO_WAIT, &item));
        return;
    }
    item = create("", 50000);
    fill(item, 50000, 3);
    OK(crossdock_item_share(item));
    OK(crossdock_item_writable(item, &writable));
    CHECK(!writable);
    all_are(bytes_of(item, 50000), 0, 50000, 3);
    int b = start("B", NULL);
    expect(b, "reading");
    crossdock_item_info info = found("");
    EQUAL(info.state, CROSSDOCK_ITEM_SHARED);
    EQUAL(info.readers, 2); /* the owner is one of them */
    /* While one thread waits for the reader, calls of another thread give BUSY and do not wait. */
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, take_back, item) == 0);
    usleep(300000);
    void *data;
    uint64_t size;
    char key[256];
    long long begin = peer_now_ms();
    WANT(CROSSDOCK_BUSY, crossdock_item_data(item, &data, &size));
    WANT(CROSSDOCK_BUSY, crossdock_item_unshare(item, WAIT));
    OK(crossdock_item_key(item, key, sizeof key));
    CHECK(peer_now_ms() - begin < 1000);
    tell(b, "let go");
    expect(b, "gone");
    pthread_join(thread, NULL);
    OK(crossdock_item_writable(item, &writable));
    CHECK(writable);
    all_are(bytes_of(item, 50000), 0, 50000, 3);
    fill(item, 50000, 4);
    tell(b, "again");
    ends_well(b);
    destroy(item);
}

static void i9(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_item *item = create("", 4096);
    fill(item, 4096, 5);
    OK(crossdock_item_resize(item, 1000000));
    all_are(bytes_of(item, 1000000), 0, 4096, 5);
    all_are(bytes_of(item, 1000000), 4096, 1000000, 0);
    OK(crossdock_item_resize(item, 100));
    all_are(bytes_of(item, 100), 0, 100, 5);
    WANT(CROSSDOCK_INVALID, crossdock_item_resize(item, 0));
    all_are(bytes_of(item, 100), 0, 100, 5);
    destroy(item);
}

static void i10(const char *role, const char *argument)
{
    (void)role, (void)argument;
    static const char *const bad[] = {"", "a b", "#x"};
    crossdock_item *item, *other;
    crossdock_item_info info;
    WANT(CROSSDOCK_INVALID, crossdock_item_create(session(), name_of(""), 0, NULL, &item));
    crossdock_status status = crossdock_item_create(session(), name_of(""), UINT64_C(1) << 60, NULL, &item);
    CHECK(status == CROSSDOCK_NO_SPACE || status == CROSSDOCK_INVALID);
    WANT(CROSSDOCK_INVALID, crossdock_item_create(session(), "a b", 10, NULL, &item));
    WANT(CROSSDOCK_INVALID, crossdock_item_create(session(), "", 10, NULL, &item));
    WANT(CROSSDOCK_INVALID, crossdock_item_create(session(), NULL, 10, NULL, &item));
    crossdock_item_options options = {7, 0};
    WANT(CROSSDOCK_INVALID, crossdock_item_create(session(), name_of(""), 10, &options, &item));
    WANT(CROSSDOCK_INVALID, crossdock_item_create(session(), name_of(""), 10, NULL, NULL));
    item = create("", 4096);
    fill(item, 4096, 2);
    for (int i = 0; i < 3; i++)
        WANT(CROSSDOCK_INVALID, crossdock_item_transfer(item, bad[i]));
    WANT(CROSSDOCK_INVALID, crossdock_item_transfer(item, NULL));
    all_are(bytes_of(item, 4096), 0, 4096, 2);
    CHECK(found("").mine);
    WANT(CROSSDOCK_NOT_FOUND, crossdock_item_find(session(), name_of("b"), &info));
    WANT(CROSSDOCK_NOT_FOUND, crossdock_item_access(session(), name_of("b"), CROSSDOCK_NO_WAIT, &other));
    destroy(item);
}

static void i11(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_item *item = create("", 4096), *again;
    fill(item, 4096, 6);
    WANT(CROSSDOCK_BUSY, crossdock_item_access(session(), name_of(""), CROSSDOCK_NO_WAIT, &again));
    OK(crossdock_item_unref(item));
    item = access_item("");
    all_are(bytes_of(item, 4096), 0, 4096, 6);
    destroy(item);
}

static void i12(const char *role, const char *argument)
{
    (void)argument;
    if (*role) {
        crossdock_item *item;
        tell(0, "waiting");
        WANT(CROSSDOCK_NOT_FOUND, crossdock_item_access(session(), name_of(""), WAIT, &item));
        return;
    }
    crossdock_item *item = create("", 4096);
    int b = start("B", NULL);
    expect(b, "waiting");
    usleep(200000);
    destroy(item);
    ends_well(b);
}

static void i13(const char *role, const char *argument)
{
    (void)argument;
    if (*role) {
        crossdock_item *first = create("", 4096), *second = create("b", 4096), *third = create("c", 4096);
        tell(0, "made");
        usleep(200000);
        hand(second, "test");
        expect(0, "done");
        destroy(first);
        destroy(third);
        return;
    }
    int b = start("B", NULL);
    expect(b, "made");
    const char *const keys[] = {name_of(""), name_of("b"), name_of("c")};
    crossdock_item *item;
    size_t index = 9;
    OK(crossdock_item_access_any(session(), keys, 3, WAIT, &index, &item));
    EQUAL(index, 1);
    char key[CROSSDOCK_NAME_MAX + 1];
    OK(crossdock_item_key(item, key, sizeof key));
    CHECK(strcmp(key, keys[1]) == 0);
    WANT(CROSSDOCK_INVALID, crossdock_item_access_any(session(), keys, 0, WAIT, &index, &item));
    tell(b, "done");
    destroy(item);
    ends_well(b);
}

static void i14(const char *role, const char *argument)
{
    (void)argument;
    crossdock_item *item = *role ? access_item("") : create("", 4 * MIB);
    crossdock_region *heap;
    crossdock_vector *v;
    OK(crossdock_item_region(item, *role ? CROSSDOCK_OPEN_ONLY : CROSSDOCK_CREATE_ONLY, &heap));
    OK(crossdock_vector_open(heap, "v", "f64", *role ? CROSSDOCK_OPEN_ONLY : CROSSDOCK_CREATE_ONLY, CROSSDOCK_NO_WAIT, &v));
    if (*role) {
        double sum = 0;
        EQUAL(v->size, 1000);
        for (int i = 0; i < 1000; i++)
            sum += ((double *)crossdock_vector_data(v))[i];
        CHECK(sum == 500500);
        OK(crossdock_vector_resize(heap, v, sizeof(double), 1001));
        ((double *)crossdock_vector_data(v))[1000] = -1;
        OK(crossdock_region_unref(heap));
        hand(item, "test");
        return;
    }
    OK(crossdock_vector_resize(heap, v, sizeof(double), 1000));
    for (int i = 0; i < 1000; i++)
        ((double *)crossdock_vector_data(v))[i] = i + 1;
    WANT(CROSSDOCK_BUSY, crossdock_item_transfer(item, "peer"));
    OK(crossdock_region_unref(heap));
    hand(item, "peer");
    int b = start("B", NULL);
    item = access_item("");
    OK(crossdock_item_region(item, CROSSDOCK_OPEN_ONLY, &heap));
    OK(crossdock_vector_open(heap, "v", "f64", CROSSDOCK_OPEN_ONLY, CROSSDOCK_NO_WAIT, &v));
    EQUAL(v->size, 1001);
    CHECK(((double *)crossdock_vector_data(v))[1000] == -1);
    OK(crossdock_region_unref(heap));
    destroy(item);
    ends_well(b);
}

static void i15(const char *role, const char *argument)
{
    (void)argument;
    static const char *const suffixes[] = {"", "b", "c"};
    static const crossdock_item_policy policies[] = {CROSSDOCK_KEEP, CROSSDOCK_RETURN, CROSSDOCK_DESTROY};
    if (strcmp(role, "B") == 0) {
        for (int i = 0; i < 3; i++)
            access_item(suffixes[i]);
        tell(0, "taken");
        kill(getpid(), SIGKILL);
    }
    if (strcmp(role, "C") == 0) {
        destroy(access_item(""));
        return;
    }
    for (int i = 0; i < 3; i++)
        hand(create_with(suffixes[i], 4096, CROSSDOCK_VERIFIED, policies[i]), "peer");
    int b = start("B", NULL);
    expect(b, "taken");
    peer_end(b);
    long long begun = peer_now_ms();
    destroy(access_item("b"));
    CHECK(peer_now_ms() - begun <= 2000);
    becomes(CROSSDOCK_NOT_FOUND, "c");
    crossdock_item_info info = found("");
    CHECK(!info.mine && belongs_to(&info, "peer"));
    ends_well(start("C", NULL));
}

static void i16(const char *role, const char *argument)
{
    uint64_t number = 4000 + (uint64_t)getpid();
    char to[32];
    if (*role) {
        crossdock_item *item = create("", 4096);
        fill(item, 4096, 1);
        hand(item, argument);
        return;
    }
    OK(crossdock_session_register_number(session(), number));
    snprintf(to, sizeof to, "#%llu", (unsigned long long)number);
    int b = start("B", to);
    crossdock_item *item = access_item("");
    all_are(bytes_of(item, 4096), 0, 4096, 1);
    ends_well(b);
    /* No task has registered this number yet. */
    snprintf(to, sizeof to, "#%llu", (unsigned long long)number + 1);
    hand(item, to);
    WANT(CROSSDOCK_NOT_YET, crossdock_item_access(session(), name_of(""), CROSSDOCK_NO_WAIT, &item));
    OK(crossdock_session_register_number(session(), number + 1));
    destroy(access_item(""));
}

/* Tests the paper's interface: the names and return codes of its section III-B. */
static void c10(const char *role, const char *argument)
{
    (void)argument;
    CDI frame = CDI_INIT, copy = CDI_INIT, other = CDI_INIT;
    char key[128], second[128];
    /* The paper's interface uses the default session of the process. */
    setenv("CROSSDOCK_TASK", *role ? "peer" : "test", 1);
    snprintf(key, sizeof key, "%s", name_of(""));
    snprintf(second, sizeof second, "%s", name_of("b"));
    if (*role) {
        /* The other container registers itself, names an object that it does not own, waits until it owns the object,
         * changes the object, and hands it back. */
        int mine = atoi(argument) + 1, theirs = atoi(argument);
        EQUAL(CDI_register(mine), 1);
        EQUAL(CDI_use(&frame, key), 1);
        CHECK(CDI_data(&frame) == NULL && CDI_size(&frame) == 0);
        EQUAL(CDI_transfer(&frame, theirs), -1);
        EQUAL(CDI_destroy(&frame), -1);
        tell(0, "using");
        EQUAL(CDI_access(&frame), 1);
        CHECK(CDI_size(&frame) == 5000);
        all_are(CDI_data(&frame), 0, 5000, 11);
        memset(CDI_data(&frame), 12, 5000);
        EQUAL(CDI_transfer(&frame, theirs), 1);
        CHECK(CDI_data(&frame) == NULL);
        return;
    }
    char text[16];
    int number = 100000 + (int)getpid() * 2;
    snprintf(text, sizeof text, "%d", number);
    EQUAL(CDI_register(number), 1);
    EQUAL(CDI_use(&frame, key), 0);
    EQUAL(CDI_create(&frame, key, 5000), 1);
    EQUAL(CDI_create(&other, key, 5000), 0);
    EQUAL(CDI_create(&other, "no good key", 5000), -1);
    EQUAL(CDI_create(&other, second, (size_t)1 << 60), -1);
    EQUAL(CDI_use(&other, key), 1);
    memset(CDI_data(&frame), 11, 5000);
    EQUAL(CDI_copy(&copy, &frame, second), 1);
    EQUAL(CDI_copy(&other, &frame, second), 0);
    all_are(CDI_data(&copy), 0, 5000, 11);
    int b = start("B", text);
    expect(b, "using");
    EQUAL(CDI_transfer(&frame, number + 1), 1);
    EQUAL(CDI_transfer(&frame, number + 1), -1);
    EQUAL(CDI_access(&frame), 1);
    all_are(CDI_data(&frame), 0, 5000, 12);
    all_are(CDI_data(&copy), 0, 5000, 11);
    EQUAL(CDI_destroy(&frame), 1);
    EQUAL(CDI_destroy(&copy), 1);
    EQUAL(CDI_use(&frame, key), 0);
    ends_well(b);
}

/* A task that is not the owner may do nothing. An item cannot be handed to its owner. An old address gives no access. */
static void c11(const char *role, const char *argument)
{
    (void)argument;
    crossdock_item *item, *other;
    crossdock_region *heap;
    const uint64_t shape[] = {10};
    if (*role) {
        OK(crossdock_item_read(session(), name_of(""), WAIT, &item));
        WANT(CROSSDOCK_DENIED, crossdock_item_transfer(item, "peer"));
        says(name_of(""));
        WANT(CROSSDOCK_DENIED, crossdock_item_transfer(item, "#7"));
        WANT(CROSSDOCK_DENIED, crossdock_item_copy(item, name_of("b"), &other));
        WANT(CROSSDOCK_DENIED, crossdock_item_destroy(item));
        WANT(CROSSDOCK_DENIED, crossdock_item_share(item));
        WANT(CROSSDOCK_DENIED, crossdock_item_unshare(item, 0));
        WANT(CROSSDOCK_DENIED, crossdock_item_resize(item, 10));
        WANT(CROSSDOCK_DENIED, crossdock_item_set_array(item, "f64", CROSSDOCK_ORDER_C, 1, shape));
        WANT(CROSSDOCK_DENIED, crossdock_item_region(item, CROSSDOCK_CREATE_ONLY, &heap));
        WANT(CROSSDOCK_NOT_YET, crossdock_item_access(session(), name_of(""), CROSSDOCK_NO_WAIT, &other));
        pid_t writer = fork();
        if (writer == 0) {
            void *data;
            uint64_t size;
            signal(SIGSEGV, SIG_DFL);
            crossdock_item_data(item, &data, &size);
            *(volatile char *)data = 1;
            _exit(0);
        }
        int status;
        waitpid(writer, &status, 0);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
        OK(crossdock_item_unref(item));
        return;
    }
    item = create("", 4096);
    fill(item, 4096, 3);
    WANT(CROSSDOCK_INVALID, crossdock_item_transfer(item, "test"));
    WANT(CROSSDOCK_INVALID, crossdock_item_transfer(item, "test/0"));
    WANT(CROSSDOCK_INVALID, crossdock_item_unshare(item, 0));
    WANT(CROSSDOCK_INVALID, crossdock_item_set_array(item, "f64", CROSSDOCK_ORDER_C, 1, (const uint64_t[]){513}));
    WANT(CROSSDOCK_INVALID, crossdock_item_set_array(item, "f65", CROSSDOCK_ORDER_C, 1, shape));
    WANT(CROSSDOCK_INVALID, crossdock_item_region(item, CROSSDOCK_CREATE_ONLY, &heap));
    WANT(CROSSDOCK_WRONG_TYPE, crossdock_item_region(item, CROSSDOCK_OPEN_ONLY, &heap));
    OK(crossdock_item_set_array(item, "f64", CROSSDOCK_ORDER_FORTRAN, 2, (const uint64_t[]){8, 64}));
    char type[CROSSDOCK_TYPE_NAME_MAX + 1];
    crossdock_order order;
    uint32_t rank;
    uint64_t extents[CROSSDOCK_RANK_MAX];
    OK(crossdock_item_array(item, type, sizeof type, &order, &rank, extents));
    CHECK(strcmp(type, "f64") == 0 && order == CROSSDOCK_ORDER_FORTRAN && rank == 2 && extents[0] == 8 && extents[1] == 64);
    all_are(bytes_of(item, 4096), 0, 4096, 3);
    OK(crossdock_item_share(item));
    WANT(CROSSDOCK_BUSY, crossdock_item_transfer(item, "peer"));
    WANT(CROSSDOCK_BUSY, crossdock_item_resize(item, 10));
    ends_well(start("B", NULL));
    OK(crossdock_item_unshare(item, WAIT));
    /* After another task owns the item, a read at the item's old address must end with SIGSEGV. */
    volatile unsigned char *old = bytes_of(item, 4096);
    OK(crossdock_item_transfer(item, "absent"));
    OK(crossdock_item_unref(item));
    pid_t reader = fork();
    if (reader == 0) {
        signal(SIGSEGV, SIG_DFL);
        _exit(old[0]);
    }
    int status;
    waitpid(reader, &status, 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

const row item_rows[] = {
    {"I1", "create, find, destroy", i1},
    {"I2", "transfer there and back", i2},
    {"I3", "to a task that is not there yet", i3},
    {"I4", "a waiting task gets it", i4},
    {"I5", "deadline names the owner", i5},
    {"I6", "a spent item is nothing", i6},
    {"I7", "copy", i7},
    {"I8", "share and unshare", i8},
    {"I9", "resize", i9},
    {"I10", "bad arguments", i10},
    {"I11", "access twice", i11},
    {"I12", "destroyed while others wait", i12},
    {"I13", "the first of several", i13},
    {"I14", "a heap in an item", i14},
    {"I15", "owner's death", i15},
    {"I16", "numbers", i16},
    {"C10", "the paper's names and return codes", c10},
    {"C11", "who does not own may not, and an old address is no way in", c11},
    {0},
};
