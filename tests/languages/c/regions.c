/* Tests rows R1 to R17 of the table in ../conformance.md: regions and their objects. */
#include "suite.h"

#include <stdlib.h>
#include <string.h>

static void *object(crossdock_region *region, const char *name, const char *type, crossdock_mode mode)
{
    crossdock_object object;
    OK(crossdock_object_open(region, name, type, mode, CROSSDOCK_NO_WAIT, &object));
    return object.address;
}

static crossdock_vector *vector(crossdock_region *region, const char *name, const char *element, crossdock_mode mode)
{
    crossdock_vector *vector;
    OK(crossdock_vector_open(region, name, element, mode, CROSSDOCK_NO_WAIT, &vector));
    return vector;
}

static double *doubles(crossdock_region *region, crossdock_vector *vector, uint64_t elements)
{
    void *data;
    uint64_t size;
    OK(crossdock_vector_view(region, vector, sizeof(double), &data, &size));
    EQUAL(size, elements);
    return data;
}

static uint64_t id_of(crossdock_region *region)
{
    uint64_t id;
    OK(crossdock_region_id(region, &id));
    return id;
}

static crossdock_handle saved(crossdock_region *region, const void *address)
{
    crossdock_handle handle;
    OK(crossdock_handle_save(region, address, &handle));
    return handle;
}

static void r1(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_region *first, *again;
    WANT(CROSSDOCK_NOT_FOUND, crossdock_region_open(session(), name_of(""), CROSSDOCK_OPEN_ONLY, 0, 0, &first));
    first = region_named("", CROSSDOCK_CREATE_ONLY, 16 * MIB);
    *(int *)object(first, "n", "i32", CROSSDOCK_CREATE_ONLY) = 1;
    WANT(CROSSDOCK_EXISTS, crossdock_region_open(session(), name_of(""), CROSSDOCK_CREATE_ONLY, 16 * MIB, 0, &again));
    says(name_of(""));
    for (crossdock_mode mode = CROSSDOCK_OPEN_ONLY; mode <= CROSSDOCK_OPEN_OR_CREATE; mode++) {
        again = region_named("", mode, 16 * MIB);
        EQUAL(id_of(again), id_of(first));
        OK(crossdock_region_unref(again));
    }
    again = region_named("", CROSSDOCK_RECREATE, 16 * MIB);
    CHECK(id_of(again) != id_of(first));
    crossdock_object n;
    WANT(CROSSDOCK_NOT_FOUND, crossdock_object_open(again, "n", "i32", CROSSDOCK_OPEN_ONLY, 0, &n));
    OK(crossdock_region_unref(first));
    OK(crossdock_region_unref(again));
}

static void r2(const char *role, const char *argument)
{
    (void)argument;
    int *n = object(region(), "n", "i32", *role ? CROSSDOCK_OPEN_ONLY : CROSSDOCK_CREATE_ONLY);
    if (*role) {
        EQUAL(*n, 123);
        *n = 3 * *n + 1;
        return;
    }
    EQUAL(*n, 0);
    *n = 123;
    ends_well(start("B", NULL));
    EQUAL(*n, 370);
}

static void r3(const char *role, const char *argument)
{
    (void)argument;
    crossdock_mode mode = *role ? CROSSDOCK_OPEN_ONLY : CROSSDOCK_CREATE_ONLY;
    struct {
        int32_t i;
        double d;
        int32_t three[3];
    } *s = object(region(), "s", "{i32,f64,i32[3]}", mode);
    float *a = object(region(), "a", "f32[512]", mode);
    if (!*role) {
        s->i = 7;
        s->d = 2.5;
        for (int i = 0; i < 3; i++)
            s->three[i] = i + 1;
        for (int i = 0; i < 512; i++)
            a[i] = (float)i / 2;
        ends_well(start("B", NULL));
        CHECK(s->d == -2.5 && s->i == 7 && a[511] == 1 && a[510] == 255);
        return;
    }
    CHECK(s->i == 7 && s->d == 2.5 && s->three[0] == 1 && s->three[1] == 2 && s->three[2] == 3);
    for (int i = 0; i < 512; i++)
        CHECK(a[i] == (float)i / 2);
    s->d = -2.5;
    a[511] = 1;
}

static void r4(const char *role, const char *argument)
{
    (void)argument;
    crossdock_vector *v = vector(region(), "v", "f64", *role ? CROSSDOCK_OPEN_ONLY : CROSSDOCK_CREATE_ONLY);
    if (*role) {
        CHECK(doubles(region(), v, 1000)[999] == 999);
        OK(crossdock_vector_resize(region(), v, sizeof(double), 100000));
        return;
    }
    CHECK(doubles(region(), v, 0) == NULL);
    OK(crossdock_vector_resize(region(), v, sizeof(double), 1000));
    double *x = doubles(region(), v, 1000);
    CHECK(x == crossdock_vector_data(v) && (uintptr_t)x % 64 == 0);
    for (int i = 0; i < 1000; i++)
        x[i] = i;
    ends_well(start("B", NULL));
    x = doubles(region(), v, 100000);
    for (int i = 0; i < 100000; i++)
        CHECK(x[i] == (i < 1000 ? i : 0));
    OK(crossdock_vector_resize(region(), v, sizeof(double), 10));
    CHECK(doubles(region(), v, 10)[9] == 9);
}

static void r5(const char *role, const char *argument)
{
    (void)argument;
    crossdock_string *s;
    void *data;
    uint64_t size;
    char many[1000];
    memset(many, 'x', sizeof many);
    OK(crossdock_string_open(region(), "s", *role ? CROSSDOCK_OPEN_ONLY : CROSSDOCK_CREATE_ONLY, 0, &s));
    if (*role) {
        OK(crossdock_vector_view(region(), s, 1, &data, &size));
        CHECK(size == 9 && memcmp(data, "crossdock", 9) == 0);
        OK(crossdock_string_assign(region(), s, many, sizeof many));
        return;
    }
    EQUAL(s->size, 0);
    OK(crossdock_string_assign(region(), s, "crossdock", 9));
    ends_well(start("B", NULL));
    OK(crossdock_vector_view(region(), s, 1, &data, &size));
    CHECK(size == 1000 && memcmp(data, many, 1000) == 0);
    OK(crossdock_string_assign(region(), s, NULL, 0));
    EQUAL(s->size, 0);
}

static void r6(const char *role, const char *argument)
{
    (void)argument;
    static const char *const names[] = {"c", "f"};
    crossdock_ndarray *arrays[2];
    for (uint32_t order = 0; order < 2; order++) {
        const uint64_t shape[3] = {3, 4, 5};
        crossdock_ndarray **array = &arrays[order];
        if (*role)
            OK(crossdock_ndarray_open(region(), names[order], "f32", 0, 0, NULL, CROSSDOCK_OPEN_ONLY, 0, array));
        else
            OK(crossdock_ndarray_open(region(), names[order], "f32", (crossdock_order)order, 3, shape,
                                      CROSSDOCK_CREATE_ONLY, 0, array));
        void *data;
        crossdock_order its_order;
        uint32_t rank;
        uint64_t its_shape[CROSSDOCK_RANK_MAX];
        OK(crossdock_ndarray_view(region(), *array, sizeof(float), &data, &its_order, &rank, its_shape));
        EQUAL(its_order, order);
        EQUAL(rank, 3);
        CHECK(memcmp(shape, its_shape, sizeof shape) == 0);
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 4; j++)
                for (int k = 0; k < 5; k++) {
                    float *element = (float *)data + (order ? i + 3 * (j + 4 * k) : (i * 4 + j) * 5 + k);
                    float value = (float)(100 * i + 10 * j + k);
                    if (*role)
                        CHECK(*element == value);
                    else
                        *element = value;
                }
    }
    const uint64_t flat[2] = {6, 10};
    if (*role) {
        OK(crossdock_ndarray_reshape(region(), arrays[0], sizeof(float), CROSSDOCK_ORDER_C, 2, flat));
        return;
    }
    ends_well(start("B", NULL));
    EQUAL(arrays[0]->rank, 2);
    CHECK(arrays[0]->shape[0] == 6 && arrays[0]->shape[1] == 10);
}

static void r7(const char *role, const char *argument)
{
    (void)role, (void)argument;
    int *n = object(region(), "n", "i32", CROSSDOCK_CREATE_ONLY);
    *n = 5;
    crossdock_object other;
    WANT(CROSSDOCK_WRONG_TYPE, crossdock_object_open(region(), "n", "f64", CROSSDOCK_OPEN_OR_CREATE, 0, &other));
    says("n");
    says("i32");
    says("f64");
    EQUAL(*n, 5);
}

static void r8(const char *role, const char *argument)
{
    (void)argument;
    crossdock_object late;
    if (*role) {
        object(region(), "ready", "i32", CROSSDOCK_CREATE_ONLY);
        tell(0, "ready");
        expect(0, "go");
        long long until = peer_now_ms() + 200;
        while (peer_now_ms() < until) {
        }
        object(region(), "late", "i32", CROSSDOCK_CREATE_ONLY);
        return;
    }
    long long begin = peer_now_ms();
    WANT(CROSSDOCK_NOT_FOUND, crossdock_object_open(region(), "late", "i32", CROSSDOCK_OPEN_ONLY, 0, &late));
    CHECK(peer_now_ms() - begin < 100);
    begin = peer_now_ms();
    WANT(CROSSDOCK_TIMED_OUT, crossdock_object_open(region(), "late", "i32", CROSSDOCK_OPEN_ONLY, 200, &late));
    long long took = peer_now_ms() - begin;
    CHECK(took >= 199 && took < 2000);
    says("late");
    int b = start("B", NULL);
    expect(b, "ready");
    tell(b, "go");
    OK(crossdock_object_open(region(), "late", "i32", CROSSDOCK_OPEN_ONLY, 10000, &late));
    ends_well(b);
}

static void r9(const char *role, const char *argument)
{
    (void)role, (void)argument;
    int *n = object(region(), "n", "i32", CROSSDOCK_CREATE_ONLY);
    *n = 5;
    crossdock_object again;
    WANT(CROSSDOCK_EXISTS, crossdock_object_open(region(), "n", "i32", CROSSDOCK_CREATE_ONLY, 0, &again));
    says("n");
    EQUAL(*n, 5);
}

static void r10(const char *role, const char *argument)
{
    char text[33];
    if (*role) {
        crossdock_handle handle = handle_of_text(argument);
        crossdock_type type = {"vector<f64>", 0, 0, 0}, other = {"vector<i32>", 0, 0, 0};
        crossdock_region *found;
        crossdock_object object;
        OK(crossdock_session_load(session(), handle, &type, &found, &object));
        double *x = doubles(found, object.address, 3);
        CHECK(x[0] == 1 && x[1] == 2 && x[2] == 3);
        handle_to_text(saved(found, object.address), text);
        CHECK(strcmp(text, argument) == 0);
        WANT(CROSSDOCK_WRONG_TYPE, crossdock_handle_load(found, handle, &other, &object));
        OK(crossdock_region_unref(found));
        return;
    }
    crossdock_vector *v = vector(region(), "v", "f64", CROSSDOCK_CREATE_ONLY);
    OK(crossdock_vector_resize(region(), v, sizeof(double), 3));
    for (int i = 0; i < 3; i++)
        doubles(region(), v, 3)[i] = i + 1;
    handle_to_text(saved(region(), v), text);
    ends_well(start("B", text));
}

static void r11(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_region *other = region_named("b", CROSSDOCK_CREATE_ONLY, 16 * MIB);
    crossdock_handle good = saved(region(), object(region(), "good", "f64[8]", CROSSDOCK_CREATE_ONLY));
    crossdock_handle foreign = saved(other, object(other, "n", "f64[8]", CROSSDOCK_CREATE_ONLY));
    crossdock_handle freed = saved(region(), object(region(), "freed", "f64[8]", CROSSDOCK_CREATE_ONLY));
    OK(crossdock_object_remove(region(), "freed"));
    crossdock_handle bad[] = {
        foreign,
        freed,
        {good.segment, good.offset + 8},
        {good.segment, UINT64_C(1) << 40},
        {UINT64_C(0x9e3779b97f4a7c15), UINT64_C(0xbf58476d1ce4e5b9)},
        {0, 0},
    };
    crossdock_object object;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        crossdock_status status = crossdock_handle_load(region(), bad[i], NULL, &object);
        if (status != CROSSDOCK_BAD_HANDLE)
            fail("bad handle %zu gave %s", i, crossdock_status_name(status));
    }
    OK(crossdock_handle_load(region(), good, NULL, &object));
    OK(crossdock_region_unref(other));
}

static void r12(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_region_statistics before, after;
    WANT(CROSSDOCK_NOT_FOUND, crossdock_object_remove(region(), "o"));
    OK(crossdock_region_statistics_get(region(), &before));
    for (int i = 0; i < 100; i++) {
        crossdock_vector *v = vector(region(), "o", "f64", CROSSDOCK_CREATE_ONLY);
        OK(crossdock_vector_resize(region(), v, sizeof(double), 1000));
        OK(crossdock_object_remove(region(), "o"));
        object(region(), "o", "i32", CROSSDOCK_CREATE_ONLY);
        OK(crossdock_object_remove(region(), "o"));
    }
    OK(crossdock_region_statistics_get(region(), &after));
    EQUAL(after.used, before.used);
    EQUAL(after.objects, before.objects);
}

static void r13(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_region *small = region_named("b", CROSSDOCK_CREATE_ONLY, MIB);
    crossdock_vector *v = vector(small, "v", "u8", CROSSDOCK_CREATE_ONLY);
    OK(crossdock_vector_resize(small, v, 1, 100));
    WANT(CROSSDOCK_NO_SPACE, crossdock_vector_resize(small, v, 1, 4 * MIB));
    EQUAL(v->size, 100);
    void *blocks[64];
    int count = 0;
    crossdock_status status;
    while ((status = crossdock_allocate(small, 64 << 10, 64, &blocks[count])) == CROSSDOCK_OK) {
        memset(blocks[count], 1, 64 << 10);
        CHECK(++count < 64);
    }
    EQUAL(status, CROSSDOCK_NO_SPACE);
    CHECK(count > 1);
    for (int i = 0; i < count; i += 2)
        OK(crossdock_deallocate(small, blocks[i]));
    void *fits;
    OK(crossdock_allocate(small, 64 << 10, 64, &fits));
    WANT(CROSSDOCK_BAD_HANDLE, crossdock_deallocate(small, (char *)fits + 64));
    OK(crossdock_deallocate(small, fits));
    WANT(CROSSDOCK_BAD_HANDLE, crossdock_deallocate(small, fits));
    OK(crossdock_region_unref(small));
}

static void r14(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_region *old = region_named("", CROSSDOCK_CREATE_ONLY, 16 * MIB), *other;
    int *n = object(old, "n", "i32", CROSSDOCK_CREATE_ONLY);
    crossdock_handle handle = saved(old, n);
    OK(crossdock_region_remove(session(), name_of("")));
    *n = 5;
    EQUAL(*(int *)object(old, "n", "i32", CROSSDOCK_OPEN_ONLY), 5);
    WANT(CROSSDOCK_NOT_FOUND, crossdock_region_open(session(), name_of(""), CROSSDOCK_OPEN_ONLY, 0, 0, &other));
    other = region_named("", CROSSDOCK_CREATE_ONLY, 16 * MIB);
    CHECK(id_of(other) != id_of(old));
    crossdock_object object;
    WANT(CROSSDOCK_BAD_HANDLE, crossdock_handle_load(other, handle, NULL, &object));
    OK(crossdock_region_unref(other));
    OK(crossdock_region_unref(old));
}

static void r15(const char *role, const char *argument)
{
    (void)role, (void)argument;
    crossdock_region *made = region_named("", CROSSDOCK_OPEN_OR_CREATE, 16 * MIB), *again, *larger;
    void *base;
    uint64_t capacity;
    OK(crossdock_region_base(made, &base, &capacity));
    EQUAL(capacity, 16 * MIB);
    again = region_named("", CROSSDOCK_OPEN_OR_CREATE, 16 * MIB);
    EQUAL(id_of(again), id_of(made));
    WANT(CROSSDOCK_INVALID, crossdock_region_open(session(), name_of(""), CROSSDOCK_OPEN_OR_CREATE, 16 * MIB + 4096, 0, &larger));
    says("16777216");
    says("16781312");
    OK(crossdock_region_unref(again));
    OK(crossdock_region_unref(made));
}

static void r16(const char *role, const char *argument)
{
    crossdock_region *moved, *again;
    if (*role) {
        crossdock_type type = {"vector<f64>", 0, 0, 0};
        crossdock_object object;
        OK(crossdock_region_move(session(), name_of("b"), 20000, &moved));
        OK(crossdock_handle_load(moved, handle_of_text(argument), &type, &object));
        double *x = doubles(moved, object.address, 3);
        CHECK(x[0] == 1 && x[1] == 2 && x[2] == 3);
        OK(crossdock_region_move(session(), name_of("b"), 20000, &again));
        EQUAL(id_of(again), id_of(moved));
        WANT(CROSSDOCK_INVALID, crossdock_region_copy(session(), name_of("b"), name_of("b"), 100, &again));
        WANT(CROSSDOCK_NOT_FOUND, crossdock_region_move(session(), name_of("c"), 100, &again));
        OK(crossdock_region_unref(moved));
        OK(crossdock_region_unref(moved));
        OK(crossdock_region_remove(session(), name_of("b")));
        return;
    }
    char text[33];
    crossdock_region *made = region_named("b", CROSSDOCK_CREATE_ONLY, 16 * MIB);
    crossdock_vector *v = vector(made, "v", "f64", CROSSDOCK_CREATE_ONLY);
    OK(crossdock_vector_resize(made, v, sizeof(double), 3));
    for (int i = 0; i < 3; i++)
        doubles(made, v, 3)[i] = i + 1;
    handle_to_text(saved(made, v), text);
    OK(crossdock_region_unref(made));
    ends_well(start("B", text));
}

static void r17(const char *role, const char *argument)
{
    (void)argument;
    const uint64_t shape[2] = {2, 3};
    crossdock_ndarray *f;
    OK(crossdock_ndarray_open(region(), "f", "f64[3]", CROSSDOCK_ORDER_FORTRAN, 2, shape,
                              *role ? CROSSDOCK_OPEN_ONLY : CROSSDOCK_CREATE_ONLY, 0, &f));
    void *data;
    crossdock_order order;
    uint32_t rank;
    uint64_t its_shape[CROSSDOCK_RANK_MAX];
    OK(crossdock_ndarray_view(region(), f, 3 * sizeof(double), &data, &order, &rank, its_shape));
    EQUAL(order, CROSSDOCK_ORDER_FORTRAN);
    EQUAL(rank, 2);
    CHECK(memcmp(shape, its_shape, sizeof shape) == 0);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 3; k++) {
                double *number = (double *)data + 3 * (i + 2 * j) + k;
                if (*role)
                    CHECK(*number == 100 * i + 10 * j + k);
                else
                    *number = 100 * i + 10 * j + k;
            }
    double *last = (double *)data + 15;
    if (*role) {
        for (int k = 0; k < 3; k++)
            last[k] = -1 - k;
        return;
    }
    ends_well(start("B", NULL));
    CHECK(last[0] == -1 && last[1] == -2 && last[2] == -3);
}

const row region_rows[] = {
    {"R1", "modes", r1},
    {"R2", "simple", r2},
    {"R3", "struct and array", r3},
    {"R4", "vector", r4},
    {"R5", "string", r5},
    {"R6", "ndarray", r6},
    {"R7", "wrong type", r7},
    {"R8", "not found, with and without deadline", r8},
    {"R9", "create only", r9},
    {"R10", "save and load", r10},
    {"R11", "bad handles", r11},
    {"R12", "remove and reuse", r12},
    {"R13", "region full", r13},
    {"R14", "removed region", r14},
    {"R15", "size", r15},
    {"R16", "move", r16},
    {"R17", "ndarray of fixed arrays", r17},
    {0},
};
