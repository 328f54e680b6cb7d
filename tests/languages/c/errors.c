/* Rows E1 to E3 of ../conformance.md, and what is C's own: NULL, wild and stale references. */
#include "suite.h"

#include <string.h>

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

static void c1(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_region *r = region(), *stale = region_named("", CROSSDOCK_OPEN_ONLY, 0);
    crossdock_object o;
    uint64_t id;
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

/* An object with a constructor of the program's own. */
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
    WANT(CROSSDOCK_CLOSED, crossdock_port_disarm(p));
    OK(crossdock_port_unref(p));
    WANT(CROSSDOCK_INVALID, crossdock_port_disarm(p));
    OK(crossdock_session_close(one));
    WANT(CROSSDOCK_DISCONNECTED, crossdock_region_open(one, name_of(""), CROSSDOCK_OPEN_OR_CREATE, MIB, 0, &r));
    OK(crossdock_session_unref(one));
}

const row error_rows[] = {
    {"E1", "bad names", e1},
    {"E2", "bad sizes and types", e2},
    {"E3", "no daemon", e3},
    {"C1", "NULL, stale, foreign and wild references", c1},
    {"C2", "scribbled headers are corrupt, not crashes", c2},
    {"C3", "allocation by base, and replace", c3},
    {"C4", "claim, abandon, commit, list", c4},
    {"C5", "shared session, closed sessions and ports", c5},
    {0},
};
