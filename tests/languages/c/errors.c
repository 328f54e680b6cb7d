/* Tests rows E1 to E4 of the table in ../conformance.md, and tests for C alone: NULL, wild and stale references. */
#define _GNU_SOURCE
#include "suite.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void e1(const char *role, const char *argument)
{
    (void)role, (void)argument;
    char endless[129];
    memset(endless, 'x', 128);
    endless[128] = 0;
    const char *const bad[] = {"", endless, "a b", "/a", "a/../b"};
    for (int i = 0; i < 5; i++) {
        crossdock_region *r;
        crossdock_object o;
        crossdock_port *p;
        WANT(CROSSDOCK_INVALID, crossdock_region_open(session(), bad[i], CROSSDOCK_OPEN_OR_CREATE, MIB, 0, &r));
        CHECK(*crossdock_error_message());
        WANT(CROSSDOCK_INVALID, crossdock_object_open(region(), bad[i], "i32", CROSSDOCK_OPEN_OR_CREATE, 0, &o));
        CHECK(*crossdock_error_message());
        WANT(CROSSDOCK_INVALID, crossdock_port_open(session(), bad[i], CROSSDOCK_PRODUCER, NULL, 0, &p));
        CHECK(*crossdock_error_message());
    }
}

static void e2(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_region *r;
    crossdock_object o;
    WANT(CROSSDOCK_INVALID, crossdock_region_open(session(), name_of("b"), CROSSDOCK_CREATE_ONLY, 0, 0, &r));
    crossdock_status status =
        crossdock_region_open(session(), name_of("b"), CROSSDOCK_CREATE_ONLY, UINT64_C(1) << 60, 0, &r);
    CHECK(status == CROSSDOCK_NO_SPACE || status == CROSSDOCK_INVALID);
    for (int i = 0; i < 2; i++) {
        OK(crossdock_region_open(session(), name_of("c"), CROSSDOCK_OPEN_OR_CREATE, i ? CROSSDOCK_ANY_SIZE : MIB, 0, &r));
        OK(crossdock_region_unref(r));
    }
    WANT(CROSSDOCK_INVALID, crossdock_region_open(session(), name_of("c"), CROSSDOCK_OPEN_OR_CREATE, 2 * MIB, 0, &r));
    WANT(CROSSDOCK_INVALID, crossdock_object_open(region(), "o", "f65", CROSSDOCK_OPEN_OR_CREATE, 0, &o));
    says("f65");
}

static void e3(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_connect_options options = CROSSDOCK_CONNECT_OPTIONS_INIT;
    crossdock_session *s;
    options.socket = "/nonexistent/crossdock/endpoint.sock";
    options.private_daemon = 0;
    long long begin = peer_now_ms();
    WANT(CROSSDOCK_NOT_FOUND, crossdock_session_connect(&options, &s));
    CHECK(peer_now_ms() - begin < 2000);
    says(options.socket);
}

static void e4(const char *role, const char *argument)
{
    (void)role, (void)argument;
    WANT(CROSSDOCK_INVALID, crossdock_session_progress(session(), 11, 10));
    says("11 of 10");
    for (uint64_t n = 1; n <= 1000; n++)
        OK(crossdock_session_progress(session(), n, 1000));
    OK(crossdock_session_progress(session(), 0, 0));
}

static void c1(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_region *r = region(), *stale = region_named("", CROSSDOCK_OPEN_ONLY, 0);
    crossdock_object o;
    uint64_t id;
    OK(crossdock_region_unref(stale));
    /* `stale` and `r` are the same reference, because the region was open already when it was opened again. */
    CHECK(stale == r);
    OK(crossdock_region_id(r, &id));
    stale = region_named("b", CROSSDOCK_CREATE_ONLY, MIB);
    OK(crossdock_region_unref(stale));
    crossdock_region *const bad[] = {NULL, stale, (crossdock_region *)session(), (crossdock_region *)&id,
                                     (crossdock_region *)(uintptr_t)0x1234567890};
    for (int i = 0; i < 5; i++) {
        WANT(CROSSDOCK_INVALID, crossdock_region_id(bad[i], &id));
        WANT(CROSSDOCK_INVALID, crossdock_object_open(bad[i], "o", "i32", CROSSDOCK_OPEN_OR_CREATE, 0, &o));
        WANT(CROSSDOCK_INVALID, crossdock_region_ref(bad[i]));
    }
    WANT(CROSSDOCK_INVALID, crossdock_region_unref(stale));
    OK(crossdock_region_unref(NULL));
    WANT(CROSSDOCK_INVALID, crossdock_region_id(r, NULL));
    WANT(CROSSDOCK_INVALID, crossdock_object_open(r, NULL, "i32", CROSSDOCK_OPEN_OR_CREATE, 0, &o));
    WANT(CROSSDOCK_INVALID, crossdock_object_open(r, "o", NULL, CROSSDOCK_OPEN_OR_CREATE, 0, &o));
    WANT(CROSSDOCK_INVALID, crossdock_object_open(r, "o", "i32", (crossdock_mode)4, 0, &o));
    WANT(CROSSDOCK_INVALID, crossdock_object_open(r, "o", "i32", CROSSDOCK_OPEN_ONLY, -2, &o));
    WANT(CROSSDOCK_INVALID, crossdock_handle_save(r, &id, &o.handle));
    crossdock_vector outside = {0};
    WANT(CROSSDOCK_INVALID, crossdock_vector_resize(r, &outside, 8, 1));
    OK(crossdock_region_id(r, &id));
}

static void c2(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_vector *v;
    OK(crossdock_vector_open(region(), "v", "f64", CROSSDOCK_CREATE_ONLY, 0, &v));
    OK(crossdock_vector_resize(region(), v, 8, 100));
    WANT(CROSSDOCK_WRONG_TYPE, crossdock_vector_resize(region(), v, 4, 200));
    WANT(CROSSDOCK_WRONG_TYPE, crossdock_vector_reserve(region(), v, 16, 1000));
    crossdock_vector *list;
    void *inner;
    uint64_t count;
    OK(crossdock_vector_open(region(), "list", "vector<f64>", CROSSDOCK_CREATE_ONLY, 0, &list));
    OK(crossdock_vector_resize(region(), list, sizeof(crossdock_vector), 3));
    OK(crossdock_vector_view(region(), list, sizeof(crossdock_vector), &inner, &count));
    crossdock_vector *third = (crossdock_vector *)inner + 2;
    WANT(CROSSDOCK_WRONG_TYPE, crossdock_vector_resize(region(), third, 4, 200));
    WANT(CROSSDOCK_WRONG_TYPE, crossdock_vector_reserve(region(), third, 4, 200));
    OK(crossdock_vector_resize(region(), third, 8, 200));
    const crossdock_vector good = *v;
    const crossdock_vector wild[] = {
        {good.region, INT64_MAX - 8, good.size, good.capacity}, {good.region, INT64_MIN, good.size, good.capacity},
        {good.region, good.data, UINT64_MAX, UINT64_MAX},       {good.region, good.data, 200, 100},
        {good.region, 0, 1, 1},                                 {good.region, good.data + 1, 1, 1},
    };
    for (int i = 0; i < 6; i++) {
        void *data;
        uint64_t size;
        *v = wild[i];
        WANT(CROSSDOCK_CORRUPT, crossdock_vector_view(region(), v, 8, &data, &size));
    }
    *v = good;
}

static void c3(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_region *r = region();
    void *base, *block, *other;
    uint64_t capacity;
    crossdock_region *at;
    OK(crossdock_region_base(r, &base, &capacity));
    EQUAL(capacity, 16 * MIB);
    OK(crossdock_region_at(base, &at));
    OK(crossdock_region_unref(at));
    WANT(CROSSDOCK_NOT_FOUND, crossdock_region_at((char *)base + 64, &at));
    OK(crossdock_allocate_at(base, 100, 64, &block));
    CHECK((uintptr_t)block % 64 == 0 && (char *)block > (char *)base && (char *)block < (char *)base + capacity);
    uint64_t *header, word = 42;
    OK(crossdock_allocate(r, 64, 64, (void **)&header));
    *header = 0;
    OK(crossdock_prepare(r, 100, 64, &other));
    OK(crossdock_replace(r, header, &word, 1, other, block));
    EQUAL(*header, 42);
    WANT(CROSSDOCK_BAD_HANDLE, crossdock_deallocate_at(base, block));
    OK(crossdock_deallocate_at(base, other));
    OK(crossdock_deallocate(r, header));
}

/* Tests an object that the program constructs by its own code. */
static void c4(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_type type = {"cpp:std::pair<int, int>", 24, 8, 0}, nameless = {"cpp:X", 0, 0, 0};
    crossdock_object o, again;
    crossdock_object_info info;
    WANT(CROSSDOCK_INVALID, crossdock_object_claim(region(), "o", &nameless, CROSSDOCK_OPEN_OR_CREATE, 0, &o));
    OK(crossdock_object_claim(region(), "o", &type, CROSSDOCK_OPEN_OR_CREATE, 0, &o));
    EQUAL(o.created, 1);
    OK(crossdock_object_abandon(region(), &o));
    WANT(CROSSDOCK_NOT_FOUND, crossdock_object_find(region(), "o", &info));
    OK(crossdock_object_claim(region(), "o", &type, CROSSDOCK_OPEN_OR_CREATE, 0, &o));
    memset(o.address, 7, 24);
    OK(crossdock_object_commit(region(), &o));
    OK(crossdock_object_claim(region(), "o", &type, CROSSDOCK_OPEN_OR_CREATE, 0, &again));
    EQUAL(again.created, 0);
    CHECK(again.address == o.address);
    OK(crossdock_object_find(region(), "o", &info));
    CHECK(strcmp(info.name, "o") == 0 && strcmp(info.type, type.name) == 0 && info.size == 24 && info.align == 8);
    size_t count;
    crossdock_object_info infos[4];
    OK(crossdock_object_list(region(), NULL, 0, &count));
    EQUAL(count, 1);
    OK(crossdock_object_list(region(), infos, 4, &count));
    CHECK(strcmp(infos[0].name, "o") == 0);
    OK(crossdock_object_claim(region(), "o", &type, CROSSDOCK_RECREATE, 0, &again));
    EQUAL(again.created, 1);
    EQUAL(*(char *)again.address, 0);
    OK(crossdock_object_commit(region(), &again));

    /* A call that cannot succeed does not remove the old object. */
    crossdock_type misaligned = {"cpp:X", 64, 8192, 0}, large = {"cpp:X", UINT64_C(1) << 40, 8, 0};
    crossdock_ndarray *array;
    uint64_t shape[2] = {100, UINT64_C(1) << 40};
    WANT(CROSSDOCK_INVALID, crossdock_object_claim(region(), "o", &misaligned, CROSSDOCK_RECREATE, 0, &again));
    WANT(CROSSDOCK_NO_SPACE, crossdock_object_claim(region(), "o", &large, CROSSDOCK_RECREATE, 0, &again));
    OK(crossdock_object_find(region(), "o", &info));
    OK(crossdock_ndarray_open(region(), "a", "f64", CROSSDOCK_ORDER_C, 1, shape, CROSSDOCK_CREATE_ONLY, 0, &array));
    WANT(CROSSDOCK_NO_SPACE,
         crossdock_ndarray_open(region(), "a", "f64", CROSSDOCK_ORDER_C, 2, shape, CROSSDOCK_RECREATE, 0, &array));
    OK(crossdock_object_find(region(), "a", &info));
    OK(crossdock_ndarray_open(region(), "a", "f64", CROSSDOCK_ORDER_C, 1, shape, CROSSDOCK_RECREATE, 0, &array));
}

static void c5(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_session *one, *two;
    crossdock_connect_options options = CROSSDOCK_CONNECT_OPTIONS_INIT;
    crossdock_region *r;
    crossdock_port *p;
    uint64_t a, b;
    char task[CROSSDOCK_NAME_MAX + 1];
    OK(crossdock_session_default(&one));
    OK(crossdock_session_default(&two));
    OK(crossdock_session_member(one, &a));
    OK(crossdock_session_member(two, &b));
    EQUAL(a, b);
    OK(crossdock_session_unref(two));
    OK(crossdock_session_unref(one));
    options.task = "closer";
    options.private_daemon = 0;
    OK(crossdock_session_connect(&options, &one));
    OK(crossdock_session_task(one, task, sizeof task));
    CHECK(strcmp(task, "closer") == 0);
    WANT(CROSSDOCK_NO_SPACE, crossdock_session_task(one, task, 3));
    port_open(CROSSDOCK_CONSUMER, CROSSDOCK_ONE_TO_ONE, 8);
    OK(crossdock_port_open(one, name_of(""), CROSSDOCK_PRODUCER, NULL, 0, &p));
    OK(crossdock_port_close(p));
    crossdock_message message = CROSSDOCK_MESSAGE_INIT;
    WANT(CROSSDOCK_CLOSED, crossdock_port_send(p, &message, 0, 0));
    OK(crossdock_port_close(p));
    OK(crossdock_port_unref(p));
    WANT(CROSSDOCK_INVALID, crossdock_port_disarm(p));
    OK(crossdock_session_close(one));
    WANT(CROSSDOCK_DISCONNECTED, crossdock_region_open(one, name_of(""), CROSSDOCK_OPEN_OR_CREATE, MIB, 0, &r));
    OK(crossdock_session_unref(one));
}

static void refused(crossdock_status status)
{
    if (status != CROSSDOCK_DISCONNECTED)
        fail("the child was not refused: %s: %s", crossdock_status_name(status), crossdock_error_message());
}

/* Tests what a child of fork() may not do, and that it can connect a session of its own. */
static void in_child(crossdock_region *inherited, crossdock_port *port)
{
    crossdock_connect_options options = CROSSDOCK_CONNECT_OPTIONS_INIT;
    crossdock_message message = CROSSDOCK_MESSAGE_INIT;
    crossdock_object n;
    crossdock_session *own;
    crossdock_region *r;
    void *block;
    refused(crossdock_object_open(inherited, "new", "i32", CROSSDOCK_OPEN_OR_CREATE, 0, &n));
    refused(crossdock_object_remove(inherited, "n"));
    refused(crossdock_allocate(inherited, 64, 64, &block));
    void *base;
    uint64_t capacity;
    OK(crossdock_region_base(inherited, &base, &capacity));
    refused(crossdock_allocate_at(base, 64, 8, &block));
    refused(crossdock_port_send(port, &message, 0, 0));
    refused(crossdock_region_open(session(), name_of(""), CROSSDOCK_OPEN_ONLY, 0, 0, &r));
    options.task = "child";
    options.private_daemon = 0;
    OK(crossdock_session_connect(&options, &own));
    OK(crossdock_region_open(own, name_of(""), CROSSDOCK_OPEN_ONLY, 0, 0, &r));
    OK(crossdock_object_open(r, "n", "i32", CROSSDOCK_OPEN_ONLY, 0, &n));
    EQUAL(*(int *)n.address, 7);
    *(int *)n.address = 8;
    OK(crossdock_session_default(&own));
}

static void c6(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_object n;
    crossdock_session *shared;
    crossdock_port *port = port_open(CROSSDOCK_PRODUCER, CROSSDOCK_ONE_TO_ONE, 8);
    OK(crossdock_session_default(&shared));
    OK(crossdock_object_open(region(), "n", "i32", CROSSDOCK_CREATE_ONLY, 0, &n));
    void *base, *block;
    uint64_t capacity;
    OK(crossdock_region_base(region(), &base, &capacity));
    for (int i = 0; i < 2; i++) /* makes this thread remember the region by its base address */
        OK(crossdock_allocate_at(base, 64, 8, &block));
    *(int *)n.address = 7;
    pid_t child = fork();
    if (child == 0) {
        in_child(region(), port);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    /* A check that failed in the child has printed the reason already. */
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail("the child ended with %#x", (unsigned)status);
    EQUAL(*(int *)n.address, 8);
    crossdock_message message = CROSSDOCK_MESSAGE_INIT;
    OK(crossdock_port_send(port, &message, 0, 0));
    OK(crossdock_object_open(region(), "m", "i32", CROSSDOCK_CREATE_ONLY, 0, &n));
}

/* Calls each function once for each of its pointers, with this pointer being NULL. */
static void c7(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_session *s = session();
    crossdock_region *r = region();
    crossdock_port *p = port_open(CROSSDOCK_PRODUCER, CROSSDOCK_ONE_TO_ONE, 8);
    crossdock_handle h;
    crossdock_object o = {0};
    crossdock_vector *v;
    crossdock_ndarray *a;
    uint64_t n, words[1] = {0};
    uint32_t n32;
    size_t count;
    void *d;
    int i;
    OK(crossdock_vector_open(r, "v", "f64", CROSSDOCK_CREATE_ONLY, 0, &v));
    OK(crossdock_ndarray_open(r, "a", "f64", CROSSDOCK_ORDER_C, 0, NULL, CROSSDOCK_CREATE_ONLY, 0, &a));
    OK(crossdock_handle_save(r, v, &h));
#define NO(call) WANT(CROSSDOCK_INVALID, call)
    NO(crossdock_session_connect(NULL, NULL));
    NO(crossdock_session_default(NULL));
    NO(crossdock_session_ref(NULL));
    NO(crossdock_session_close(NULL));
    NO(crossdock_session_member(NULL, &n));
    NO(crossdock_session_member(s, NULL));
    NO(crossdock_session_progress(NULL, 1, 2));
    NO(crossdock_session_rank(s, NULL));
    NO(crossdock_session_task(s, NULL, 10));
    NO(crossdock_session_workflow(s, NULL, 10));
    NO(crossdock_type_layout(NULL, &n, &n32));
    NO(crossdock_type_layout("f64", NULL, &n32));
    NO(crossdock_region_open(s, NULL, CROSSDOCK_OPEN_OR_CREATE, MIB, 0, &r));
    NO(crossdock_region_open(s, "x", CROSSDOCK_OPEN_OR_CREATE, MIB, 0, NULL));
    NO(crossdock_region_of(s, h, NULL));
    NO(crossdock_region_at(NULL, NULL));
    NO(crossdock_region_remove(s, NULL));
    NO(crossdock_region_name(r, NULL, 10));
    NO(crossdock_region_base(r, &d, NULL));
    NO(crossdock_region_base(r, NULL, &n));
    NO(crossdock_region_writable(r, NULL));
    NO(crossdock_region_statistics_get(r, NULL));
    OK(crossdock_region_heal(r, NULL));
    NO(crossdock_allocate(r, 8, 8, NULL));
    NO(crossdock_prepare(r, 8, 8, NULL));
    NO(crossdock_keep(r, NULL));
    OK(crossdock_deallocate(r, NULL));
    OK(crossdock_deallocate_at(NULL, NULL));
    WANT(CROSSDOCK_NOT_FOUND, crossdock_allocate_at(NULL, 8, 8, &d));
    NO(crossdock_replace(r, NULL, words, 1, NULL, NULL));
    NO(crossdock_replace(r, v, NULL, 1, NULL, NULL));
    NO(crossdock_replace(r, v, words, 0, NULL, NULL));
    NO(crossdock_replace(r, v, words, 17, NULL, NULL));
    NO(crossdock_object_open(r, "o", "i32", CROSSDOCK_OPEN_OR_CREATE, 0, NULL));
    NO(crossdock_object_claim(r, "o", NULL, CROSSDOCK_OPEN_OR_CREATE, 0, &o));
    NO(crossdock_object_commit(r, NULL));
    NO(crossdock_object_commit(r, &o));
    NO(crossdock_object_abandon(r, NULL));
    NO(crossdock_object_remove(r, NULL));
    NO(crossdock_object_find(r, "v", NULL));
    NO(crossdock_object_list(r, NULL, 1, &count));
    NO(crossdock_object_list(r, NULL, 0, NULL));
    NO(crossdock_handle_save(r, NULL, &h));
    NO(crossdock_handle_save(r, v, NULL));
    NO(crossdock_handle_load(r, h, NULL, NULL));
    NO(crossdock_session_load(s, h, NULL, NULL, &o));
    NO(crossdock_vector_open(r, "w", NULL, CROSSDOCK_OPEN_OR_CREATE, 0, &v));
    NO(crossdock_vector_open(r, "w", "f64", CROSSDOCK_OPEN_OR_CREATE, 0, NULL));
    NO(crossdock_vector_resize(r, NULL, 8, 1));
    NO(crossdock_vector_resize(r, v, 0, 1));
    NO(crossdock_vector_reserve(r, NULL, 8, 1));
    NO(crossdock_vector_view(r, NULL, 8, &d, &n));
    NO(crossdock_vector_view(r, v, 8, NULL, &n));
    NO(crossdock_string_open(r, "s", CROSSDOCK_OPEN_OR_CREATE, 0, NULL));
    NO(crossdock_string_assign(r, v, NULL, 1));
    NO(crossdock_ndarray_open(r, "b", "f64", CROSSDOCK_ORDER_C, 1, NULL, CROSSDOCK_OPEN_OR_CREATE, 0, &a));
    NO(crossdock_ndarray_open(r, "b", "f64", CROSSDOCK_ORDER_C, 9, &n, CROSSDOCK_OPEN_OR_CREATE, 0, &a));
    NO(crossdock_ndarray_reshape(r, a, 8, (crossdock_order)2, 0, NULL));
    NO(crossdock_ndarray_view(r, NULL, 8, &d, NULL, NULL, NULL));
    OK(crossdock_ndarray_view(r, a, 8, &d, NULL, NULL, NULL));
    NO(crossdock_port_open(s, "p", CROSSDOCK_PRODUCER, NULL, 0, NULL));
    NO(crossdock_port_open(s, "p", (crossdock_end)2, NULL, 0, &p));
    NO(crossdock_port_remove(s, NULL));
    NO(crossdock_port_send(p, NULL, 0, 0));
    NO(crossdock_port_reclaim(p, 0, NULL));
    NO(crossdock_port_receive(p, 0, NULL));
    NO(crossdock_port_release(p, NULL));
    NO(crossdock_port_descriptor(p, NULL));
    NO(crossdock_port_arm(p, NULL));
    NO(crossdock_port_arm(NULL, &i));
    NO(crossdock_port_statistics_get(p, NULL));
    NO(crossdock_port_set_waiting(p, (crossdock_waiting)3));
    NO(crossdock_error_raise(CROSSDOCK_BUSY, NULL));
#undef NO
}

/* Several threads add references to the same region, use it, and give the references up. No call may crash or fail. */
static void *use_and_let_go(void *argument)
{
    crossdock_region *r = argument;
    for (int i = 0; i < 2000; i++) {
        void *block;
        OK(crossdock_region_ref(r));
        OK(crossdock_allocate(r, 48, 16, &block));
        memset(block, i, 48);
        OK(crossdock_deallocate(r, block));
        OK(crossdock_region_unref(r));
    }
    return NULL;
}

static void c8(const char *role, const char *argument)
{
    (void)role, (void)argument;
    pthread_t threads[4];
    crossdock_region_statistics before, after;
    OK(crossdock_region_statistics_get(region(), &before));
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, use_and_let_go, region()) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    OK(crossdock_region_statistics_get(region(), &after));
    EQUAL(after.blocks, before.blocks);
}

static void *wait_for_message(void *port)
{
    crossdock_message message;
    WANT(CROSSDOCK_CLOSED, crossdock_port_receive(port, 10000, &message));
    return NULL;
}

static void c9(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_port *in = port_open(CROSSDOCK_CONSUMER, CROSSDOCK_ONE_TO_ONE, 8);
    crossdock_port *out = port_open(CROSSDOCK_PRODUCER, CROSSDOCK_ONE_TO_ONE, 8);
    crossdock_message message = CROSSDOCK_MESSAGE_INIT;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, wait_for_message, in) == 0);
    usleep(100000);
    long long begin = peer_now_ms();
    OK(crossdock_port_close(in));
    pthread_join(thread, NULL);
    CHECK(peer_now_ms() - begin < 2000);
    for (int i = 0; i < 8; i++) /* fills the ring, which may still have room */
        if (crossdock_port_send(out, &message, 0, 0) != CROSSDOCK_OK)
            break;
    WANT(CROSSDOCK_CLOSED, crossdock_port_send(out, &message, 0, 1000));
    OK(crossdock_port_unref(in));
}

/* Threads allocate in a region by its base address, and the region is then closed. After that, nothing keeps the region open:
 * the threads do not find it by its old address, the session can be closed, and if another region is mapped at the same
 * address later, the threads find that region. */
static struct {
    pthread_barrier_t used, closed, missed, opened;
    void *old, *new;
} by_base;

static void *allocate_by_base(void *argument)
{
    (void)argument;
    void *block;
    for (int i = 0; i < 3; i++) {
        OK(crossdock_allocate_at(by_base.old, 64, 8, &block));
        OK(crossdock_deallocate_at(by_base.old, block));
        WANT(CROSSDOCK_BAD_HANDLE, crossdock_deallocate_at(by_base.old, block));
    }
    pthread_barrier_wait(&by_base.used);
    pthread_barrier_wait(&by_base.closed);
    WANT(CROSSDOCK_NOT_FOUND, crossdock_allocate_at(by_base.old, 64, 8, &block));
    WANT(CROSSDOCK_NOT_FOUND, crossdock_deallocate_at(by_base.old, block));
    pthread_barrier_wait(&by_base.missed);
    pthread_barrier_wait(&by_base.opened);
    for (int i = 0; i < 3; i++) {
        OK(crossdock_allocate_at(by_base.new, 64, 8, &block));
        CHECK((char *)block > (char *)by_base.new && (char *)block < (char *)by_base.new + MIB);
        memset(block, i, 64);
    }
    WANT(CROSSDOCK_INVALID, crossdock_allocate_at(by_base.new, 64, 8, NULL));
    WANT(CROSSDOCK_INVALID, crossdock_allocate_at(by_base.new, 0, 8, &block));
    WANT(CROSSDOCK_INVALID, crossdock_deallocate_at(by_base.new, &block));
    OK(crossdock_deallocate_at(by_base.new, NULL));
    return NULL;
}

static void c12(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_connect_options options = CROSSDOCK_CONNECT_OPTIONS_INIT;
    crossdock_session *own;
    crossdock_region *old, *new;
    crossdock_region_statistics after;
    pthread_t threads[3];
    uint64_t capacity;
    options.task = "closer";
    options.private_daemon = 0;
    OK(crossdock_session_connect(&options, &own));
    OK(crossdock_region_open(own, name_of("b"), CROSSDOCK_CREATE_ONLY, MIB, 0, &old));
    OK(crossdock_region_base(old, &by_base.old, &capacity));
    pthread_barrier_init(&by_base.used, NULL, 4);
    pthread_barrier_init(&by_base.closed, NULL, 4);
    pthread_barrier_init(&by_base.missed, NULL, 4);
    pthread_barrier_init(&by_base.opened, NULL, 4);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, allocate_by_base, NULL) == 0);
    pthread_barrier_wait(&by_base.used);
    OK(crossdock_region_unref(old));
    OK(crossdock_session_close(own));
    OK(crossdock_session_unref(own));
    pthread_barrier_wait(&by_base.closed);
    pthread_barrier_wait(&by_base.missed);
    crossdock_region_remove(session(), name_of("b"));
    new = region_named("c", CROSSDOCK_CREATE_ONLY, MIB);
    OK(crossdock_region_base(new, &by_base.new, &capacity));
    pthread_barrier_wait(&by_base.opened);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    OK(crossdock_region_statistics_get(new, &after));
    EQUAL(after.blocks, 9);
}

const row error_rows[] = {
    {"E1", "bad names", e1},
    {"E2", "bad sizes and types", e2},
    {"E3", "no daemon", e3},
    {"E4", "progress", e4},
    {"C1", "NULL, stale, foreign and wild references", c1},
    {"C2", "scribbled headers are corrupt, not crashes", c2},
    {"C3", "allocation by base, and replace", c3},
    {"C4", "claim, abandon, commit, list", c4},
    {"C5", "shared session, closed sessions and ports", c5},
    {"C6", "a child of fork() is refused, and connects for itself", c6},
    {"C7", "NULL wherever a pointer is asked for", c7},
    {"C8", "threads share references", c8},
    {"C9", "closing a port ends the wait of another thread", c9},
    {"C12", "allocation by base finds what is mapped there now, and holds nothing", c12},
    {0},
};
