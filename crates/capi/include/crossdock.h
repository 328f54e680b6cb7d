/* crossdock.h: shared memory for workflows whose tasks live in containers of their own.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 *     crossdock_session *session;
 *     crossdock_region *region;
 *     crossdock_vector *positions;
 *     crossdock_session_connect(NULL, &session);
 *     crossdock_region_open(session, "frames", CROSSDOCK_OPEN_OR_CREATE, 1 << 30, CROSSDOCK_NO_WAIT, &region);
 *     crossdock_vector_open(region, "positions", "f64", CROSSDOCK_OPEN_OR_CREATE, CROSSDOCK_NO_WAIT, &positions);
 *     crossdock_vector_resize(region, positions, sizeof(double), 96000);
 *     double *x = crossdock_vector_data(positions);
 *
 * Caveats, each with its cure
 *
 *  1. An address in a region holds in this process only, and only while this process keeps a reference to that region.
 *     To name data to another task use a crossdock_handle (16 bytes, the same in every process) or the object's name.
 *  2. The bytes of your objects are yours to guard: nothing stops two tasks from writing at once. Hand objects over
 *     through ports; a credit that came back (crossdock_port_reclaim) says that no consumer reads the object any more.
 *  3. Resizing a vector or string and reshaping an ndarray may move the elements. Take the data address anew afterwards,
 *     and do not resize what another task is reading.
 *  4. A child of fork() must not use its parent's session, regions, ports, series or items. Calls that would change
 *     anything fail with CROSSDOCK_DISCONNECTED, and so do calls on an item, publisher, observer or version that another
 *     thread of the parent was using during the fork. Connect and open anew in the child.
 *  5. A member that can write a region can write anything into it. crossdock checks its own structures each time it
 *     reads them (CROSSDOCK_CORRUPT, never a crash); what your own objects contain is for you to check. The inline
 *     accessors below (crossdock_vector_data ..) do not check; crossdock_vector_view .. do.
 *  6. Nothing here may be called from a signal handler.
 *
 * Conventions
 *
 *  - Each function returns a crossdock_status; CROSSDOCK_OK is 0. On any other status nothing was written through the
 *    out-pointers (except where said), nothing is half done, and crossdock_error_message() of the same thread says
 *    which object, what, who, and what to do about it.
 *  - A NULL where an argument is needed, a value out of range, and a reference that was never given out or is already
 *    gone give CROSSDOCK_INVALID. Pointers to your own structs and strings are taken at their word.
 *  - crossdock_session, crossdock_region and crossdock_port are counted references, not addresses: never look through
 *    them. `_ref` adds a reference, `_unref` gives one up; NULL is ignored by `_unref`.
 *  - Every function may be called by any thread at any time, on the same session, region or port too, as long as the
 *    calling thread's reference lasts as long as the call. Messages and structs of yours are not guarded.
 *  - `timeout_ms`: 0 = do not wait; N > 0 = at most N milliseconds; CROSSDOCK_WAIT (-1) = the default deadline, 60 s.
 *    No call waits for ever. Functions with no timeout do not block beyond one exchange with the node daemon.
 *  - Names are 1 to 127 bytes of [A-Za-z0-9_.+-], parts separated by '/', no empty, "." or ".." part.
 *  - Sizes and offsets are bytes unless a name says elements.
 *
 * Types. An object has a type: a name, and the size and alignment that follow from it. One grammar in every language:
 *     bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 c64 c128       scalars; c64 is two f32, c128 two f64; bool is a byte
 *     T[n]                                                      fixed array: f64[3], f32[4][8] (C order)
 *     {T,T,..}                                                  struct with C's alignment: {i32,f64}
 *     vector<T>   string   ndarray<T>                           the growing ones, see crossdock_vector ..
 *     cpp:Name                                                  a language's own; size and alignment must be given
 * Opening an object as another type is CROSSDOCK_WRONG_TYPE, and the message prints both.
 *
 * The enums and limits are written from crates/layout (its test `generated`); change them there.
 */
#ifndef CROSSDOCK_H
#define CROSSDOCK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ version */

#define CROSSDOCK_VERSION_MAJOR 0
#define CROSSDOCK_VERSION_MINOR 1
#define CROSSDOCK_VERSION_PATCH 0
/* One number that grows: major * 1000000 + minor * 1000 + patch. */
#define CROSSDOCK_VERSION (CROSSDOCK_VERSION_MAJOR * 1000000 + CROSSDOCK_VERSION_MINOR * 1000 + CROSSDOCK_VERSION_PATCH)

/* The version of the library that is loaded, to compare with CROSSDOCK_VERSION of the header. Never fails. */
uint32_t crossdock_version(void);
/* "0.1.0"; static. */
const char *crossdock_version_string(void);

/* ------------------------------------------------------------------- status */

/* Closed: no value is ever added in the middle or removed. */
typedef enum crossdock_status {
    CROSSDOCK_OK = 0,            /* the call did what it was asked for */
    CROSSDOCK_NOT_YET = 1,       /* there is nothing yet, and the call was asked not to wait */
    CROSSDOCK_TIMED_OUT = 2,     /* the deadline passed */
    CROSSDOCK_CLOSED = 3,        /* the other end left in order, and everything that it had sent was taken */
    CROSSDOCK_PEER_DIED = 4,     /* the other end died, and everything that it had sent was taken */
    CROSSDOCK_NOT_FOUND = 5,     /* there is no such region, port, item, series or object */
    CROSSDOCK_EXISTS = 6,        /* the object exists already, but the call asked for a new one */
    CROSSDOCK_WRONG_TYPE = 7,    /* the object has another type; the message shows both types */
    CROSSDOCK_INVALID = 8,       /* an argument has a value that is never allowed */
    CROSSDOCK_BAD_HANDLE = 9,    /* the handle names nothing that is in use in this region */
    CROSSDOCK_DENIED = 10,       /* no grant of this task allows the call */
    CROSSDOCK_NO_SPACE = 11,     /* the region, the quota or the node is full */
    CROSSDOCK_BUSY = 12,         /* another member or a view still uses the object */
    CROSSDOCK_CORRUPT = 13,      /* shared memory has contents that no correct member writes */
    CROSSDOCK_DISCONNECTED = 14, /* there is no node daemon, or the session is closed */
    CROSSDOCK_INCOMPATIBLE = 15, /* the two sides were built with different layouts or protocols */
    CROSSDOCK_SYSTEM = 16        /* the system refused a call; the message has the system's reason */
} crossdock_status;

/* "NO_SPACE" .. ; static; "UNKNOWN" for a number that is none. */
const char *crossdock_status_name(crossdock_status status);
/* One line of meaning; static. */
const char *crossdock_status_meaning(crossdock_status status);

/* The message of the last call of this thread that did not return CROSSDOCK_OK or CROSSDOCK_NOT_YET; "" if there was
 * none. Successful calls leave it alone. Valid until the next failing call of this thread. Never NULL. */
const char *crossdock_error_message(void);
/* The status that belongs to it. */
crossdock_status crossdock_error_status(void);
/* For bindings that check something themselves: make this the last failure of this thread. Gives `status` back. */
crossdock_status crossdock_error_raise(crossdock_status status, const char *message);

/* --------------------------------------------------------------- plain data */

/* Values of timeout_ms. */
#define CROSSDOCK_NO_WAIT INT64_C(0)
#define CROSSDOCK_WAIT INT64_C(-1)

#define CROSSDOCK_NAME_MAX 127      /* bytes, without the terminating zero */
#define CROSSDOCK_TYPE_NAME_MAX 191 /* the same */
#define CROSSDOCK_INLINE_MAX 24     /* bytes that travel inside a message */
#define CROSSDOCK_RANK_MAX 8        /* dimensions of an ndarray */

typedef struct crossdock_session crossdock_session; /* one connection to the node daemon, acting as one task */
typedef struct crossdock_region crossdock_region;   /* a mapped segment with a heap and a directory */
typedef struct crossdock_port crossdock_port;       /* one end of a bounded channel */

/* Where an allocation is, the same in every process. Plain data: copy it, send it, compare it member by member.
 * {0, 0} is no handle. Segment ids are never reused, so a handle of a removed region never means another one. */
typedef struct crossdock_handle {
    uint64_t segment;
    uint64_t offset;
} crossdock_handle;

/* A type. With size 0 both size and align follow from the name, which the grammar above then must give.
 * `cpp:Name` needs both. */
typedef struct crossdock_type {
    const char *name;
    uint64_t size;
    uint32_t align;
    uint32_t reserved; /* 0 */
} crossdock_type;

/* How to open a region or an object. */
typedef enum crossdock_mode {
    CROSSDOCK_CREATE_ONLY = 0,    /* create the object; EXISTS if the name exists */
    CROSSDOCK_OPEN_ONLY = 1,      /* open the object; NOT_FOUND if the name does not exist */
    CROSSDOCK_OPEN_OR_CREATE = 2, /* open the object, or create it if the name does not exist */
    CROSSDOCK_RECREATE = 3        /* remove the object that has the name, and then create one */
} crossdock_mode;

/* --------------------------------------------------------------------- type */

/* Size and alignment of a type of the grammar. INVALID with the place of the fault if it is none, or if it is a
 * language's own (cpp:Name), whose size cannot be known here. */
crossdock_status crossdock_type_layout(const char *name, uint64_t *size, uint32_t *align);

/* ------------------------------------------------------------------ session */

typedef struct crossdock_connect_options {
    const char *socket;      /* path of the endpoint; NULL: CROSSDOCK_SOCKET, /run/crossdock, the user's runtime folder */
    const char *task;        /* NULL: CROSSDOCK_TASK, else the program's name */
    const char *workflow;    /* NULL: CROSSDOCK_WORKFLOW, else the endpoint's own */
    int64_t rank;            /* -1: CROSSDOCK_RANK, else 0 */
    int64_t timeout_ms;      /* for the connection; -1: 5 s */
    uint32_t private_daemon; /* 1: start a private daemon when no endpoint is found; 0: that is an error */
    uint32_t reserved;       /* 0 */
} crossdock_connect_options;

#define CROSSDOCK_CONNECT_OPTIONS_INIT {NULL, NULL, NULL, -1, -1, 1, 0}

/* Connect to the node daemon as one task. `options` may be NULL: all defaults. Blocks at most options->timeout_ms.
 * One reference for the caller. Errors: NOT_FOUND (no daemon; the message lists the places tried), DENIED,
 * INCOMPATIBLE, TIMED_OUT, INVALID, SYSTEM. */
crossdock_status crossdock_session_connect(const crossdock_connect_options *options, crossdock_session **session);

/* The one session that libraries of this process share, connected with all defaults by the first caller. A reference
 * for the caller. A child of fork() gets one of its own. Errors as crossdock_session_connect. */
crossdock_status crossdock_session_default(crossdock_session **session);

crossdock_status crossdock_session_ref(crossdock_session *session);
/* The last reference closes the session. Regions and ports that are open keep what they need of it. */
crossdock_status crossdock_session_unref(crossdock_session *session);

/* Leave now: the ports of this session end in good order, the daemon forgets the member. Later calls on the session
 * give DISCONNECTED. The reference is still to be given up. BUSY while regions, items, publishers, observers or versions
 * of this session are open: they go on, and so does the session; close them first. */
crossdock_status crossdock_session_close(crossdock_session *session);

/* The member id: unique on this node for ever. */
crossdock_status crossdock_session_member(crossdock_session *session, uint64_t *member);
/* The rank in the task. */
crossdock_status crossdock_session_rank(crossdock_session *session, uint32_t *rank);
/* The run of its workflow that it takes part in, counted from 1. Ports end with the run. */
crossdock_status crossdock_session_run(crossdock_session *session, uint64_t *run);
/* Says how far this task is: `done` of `of` steps. People see it in `crossdock ps`, `top`, the live view of `run`, the web
 * page and the metrics; no task waits for it. `of` of 0 takes it back. It never waits for the daemon and may be called in
 * every iteration: calls within 20 ms of another one are joined to one message. INVALID: `done` is more than `of`. */
crossdock_status crossdock_session_progress(crossdock_session *session, uint64_t done, uint64_t of);
/* Task and workflow, as the daemon sees them. Copied, zero-terminated; a buffer of CROSSDOCK_NAME_MAX + 1 is always
 * large enough; a smaller one that does not hold it gives NO_SPACE. */
crossdock_status crossdock_session_task(crossdock_session *session, char *buffer, size_t buffer_size);
crossdock_status crossdock_session_workflow(crossdock_session *session, char *buffer, size_t buffer_size);

/* ------------------------------------------------------------------- region */

/* Open or create a region. `size` is the capacity in bytes, headers included; memory is taken only as it is used.
 * It counts when the region is created, and is ignored by CROSSDOCK_OPEN_ONLY; CROSSDOCK_OPEN_OR_CREATE gives INVALID
 * if the existing region is smaller. Waits (timeout_ms) only in CROSSDOCK_OPEN_ONLY,
 * for another task to create it: NOT_FOUND at once with CROSSDOCK_NO_WAIT, TIMED_OUT after a deadline.
 * Other errors: EXISTS, INVALID (name, size), NO_SPACE (size beyond the quota), DENIED, INCOMPATIBLE, DISCONNECTED.
 * One reference for the caller. Opening the same region twice in one process maps it once. */
crossdock_status crossdock_region_open(crossdock_session *session, const char *name, crossdock_mode mode, uint64_t size,
                                       int64_t timeout_ms, crossdock_region **region);

/* The region that a handle points into, attached if need be. Errors: BAD_HANDLE (no such segment), DENIED. */
crossdock_status crossdock_region_of(crossdock_session *session, crossdock_handle handle, crossdock_region **region);

/* The region of this process that is mapped with its header at `base`, as a new reference; NOT_FOUND if there is none.
 * For code that has a container but not its region. Allocators use crossdock_allocate_at, which is cheaper. */
crossdock_status crossdock_region_at(const void *base, crossdock_region **region);

crossdock_status crossdock_region_ref(crossdock_region *region);
/* The last reference in this process unmaps it: addresses in it die. The region itself lives on until it is removed or
 * its workflow ends. */
crossdock_status crossdock_region_unref(crossdock_region *region);

/* Remove the name. Members that have the region open keep it until they let go; its memory goes with the last of them.
 * Errors: NOT_FOUND, DENIED. */
crossdock_status crossdock_region_remove(crossdock_session *session, const char *name);

crossdock_status crossdock_region_name(crossdock_region *region, char *buffer, size_t buffer_size);
/* The segment id that handles of this region carry. */
crossdock_status crossdock_region_id(crossdock_region *region, uint64_t *segment);
/* Where it is mapped in this process, and how many bytes of address space it has. */
crossdock_status crossdock_region_base(crossdock_region *region, void **base, uint64_t *capacity);
/* 1 if this task may write to it; 0 if it was granted for reading only, and a store would be a SIGSEGV. */
crossdock_status crossdock_region_writable(crossdock_region *region, int *writable);

typedef struct crossdock_region_statistics {
    uint64_t capacity;     /* bytes that the region can grow to, header included */
    uint64_t reserved;     /* bytes of memory taken so far */
    uint64_t used;         /* bytes of blocks in use, rounded up to the heap's sizes */
    uint64_t blocks;       /* blocks in use */
    uint64_t objects;      /* named objects */
    uint64_t slots;        /* heap slots that living members hold */
    uint64_t largest_free; /* bytes of the largest block that fits without taking more memory */
    uint64_t unused;       /* 0 */
} crossdock_region_statistics;

/* Counted now; numbers of a busy region may be from slightly different instants. */
crossdock_status crossdock_region_statistics_get(crossdock_region *region, crossdock_region_statistics *statistics);

typedef struct crossdock_heal_report {
    uint64_t slots;      /* dead members' heap slots put in order */
    uint64_t operations; /* half-done operations finished or taken back */
    uint64_t objects;    /* objects whose maker or remover had died */
} crossdock_heal_report;

/* Put right what dead members left half done, now. Calling it is optional: it happens by itself where a dead member is
 * in the way. `report` may be NULL. */
crossdock_status crossdock_region_heal(crossdock_region *region, crossdock_heal_report *report);

/* --------------------------------------------------------------- allocation */

/* Raw memory of the region, not zeroed. `align` is a power of two, at most 4096; `size` at least 1.
 * Errors: NO_SPACE (the region stays usable), INVALID. Does not block, except once in a while for the daemon's word on
 * the quota. Lost if the process dies before the address is stored in an object: crossdock_prepare is for that. */
crossdock_status crossdock_allocate(crossdock_region *region, uint64_t size, uint64_t align, void **address);

/* Give it back; any member may. NULL is ignored. BAD_HANDLE for what is not the start of an allocated block,
 * a second time included. */
crossdock_status crossdock_deallocate(crossdock_region *region, void *address);

/* As crossdock_allocate, but the block is given back by itself if this process dies before it hands the block to
 * crossdock_replace or says crossdock_keep: no instruction at which a kill leaks. A thread may have four such blocks at
 * a time; further ones are ordinary. To change one's mind: keep, then deallocate. */
crossdock_status crossdock_prepare(crossdock_region *region, uint64_t size, uint64_t align, void **address);
crossdock_status crossdock_keep(crossdock_region *region, void *address);

/* Allocate and deallocate by the mapped base of the region, for allocators in shared containers: they know their region
 * only by a relative pointer. NOT_FOUND if nothing is mapped there. */
crossdock_status crossdock_allocate_at(const void *base, uint64_t size, uint64_t align, void **address);
crossdock_status crossdock_deallocate_at(const void *base, void *address);

/* Put `new_block` in the place of `old_block` in one step that survives a kill at any instruction: afterwards either all
 * words are written and the old block is free, or none is and a prepared new block is free.
 * `header` lies in the region, 8-byte aligned; `words` are `word_count` (1 to 16) 64-bit words that are copied to it.
 * `new_block` and `old_block` are starts of allocated blocks, or NULL for none. */
crossdock_status crossdock_replace(crossdock_region *region, void *header, const uint64_t *words, uint32_t word_count,
                                   void *new_block, void *old_block);

/* ------------------------------------------------------------------- object */

/* An object as this process sees it. */
typedef struct crossdock_object {
    void *address;
    crossdock_handle handle;
    uint64_t size;
    uint32_t created;  /* claim: 1 = new, zeroed, to be committed or abandoned; 0 = it was there */
    uint32_t reserved; /* 0 */
} crossdock_object;

/* Find or create a named object, ready to use: new memory is zeroed, and a growing type's header is set up empty.
 * For the types of the grammar (not cpp:Name). Waits (timeout_ms) in CROSSDOCK_OPEN_ONLY for another task to make it
 * (NOT_FOUND at once with CROSSDOCK_NO_WAIT, TIMED_OUT after a deadline), and in every mode while another living member
 * is making it. CROSSDOCK_RECREATE frees the old one: no task may be using it.
 * Errors: EXISTS, WRONG_TYPE, INVALID (name, type), NO_SPACE, CORRUPT. */
crossdock_status crossdock_object_open(crossdock_region *region, const char *name, const char *type, crossdock_mode mode,
                                       int64_t timeout_ms, crossdock_object *object);

/* The same in two steps, for objects that need a constructor: if `object->created` is 1 the caller fills the zeroed
 * memory and then commits, upon which others see it; or abandons it. If the caller dies in between, name and memory are
 * free again. Errors as crossdock_object_open. */
crossdock_status crossdock_object_claim(crossdock_region *region, const char *name, const crossdock_type *type,
                                        crossdock_mode mode, int64_t timeout_ms, crossdock_object *object);
crossdock_status crossdock_object_commit(crossdock_region *region, const crossdock_object *object);
crossdock_status crossdock_object_abandon(crossdock_region *region, const crossdock_object *object);

/* Remove a named object and free its memory, elements of a vector, string or ndarray included (a language's own type:
 * only the object itself; destroy what it holds first). No task may be using it. Handles to it become BAD_HANDLE, the
 * name is free again. Errors: NOT_FOUND, BUSY (being made by a living member). */
crossdock_status crossdock_object_remove(crossdock_region *region, const char *name);

typedef struct crossdock_object_info {
    char name[CROSSDOCK_NAME_MAX + 1];
    char type[CROSSDOCK_TYPE_NAME_MAX + 1];
    crossdock_handle handle;
    uint64_t size;
    uint32_t align;
    uint32_t reserved; /* 0 */
} crossdock_object_info;

/* What is known of one object; does not wait. NOT_FOUND. */
crossdock_status crossdock_object_find(crossdock_region *region, const char *name, crossdock_object_info *info);

/* All objects, by name; those that are still being made are not there. Writes at most `capacity` of them and in `count` how many there are; call with capacity 0
 * (infos may be NULL) to learn how many. */
crossdock_status crossdock_object_list(crossdock_region *region, crossdock_object_info *infos, size_t capacity,
                                       size_t *count);

/* ------------------------------------------------------------------- handle */

/* The handle of an object or allocated block of this region, from its address. INVALID if the address is not in the
 * region, BAD_HANDLE if no allocated block starts there. */
crossdock_status crossdock_handle_save(crossdock_region *region, const void *address, crossdock_handle *handle);

/* The inverse: address and size in this process (`object->created` is 0). `type` may be NULL: any. The handle is
 * checked: BAD_HANDLE if it is of another region, freed, not the start of a block, or nonsense; WRONG_TYPE if it is a
 * named object of another type. A raw allocation has no type: then only its size is checked against the type's. */
crossdock_status crossdock_handle_load(crossdock_region *region, crossdock_handle handle, const crossdock_type *type,
                                       crossdock_object *object);

/* The same when the region is not known: finds it, attaches it if need be, and gives a reference to it. */
crossdock_status crossdock_session_load(crossdock_session *session, crossdock_handle handle, const crossdock_type *type,
                                        crossdock_region **region, crossdock_object *object);

/* ------------------------------------------------- vector, string, ndarray */

/* What lies in shared memory; one layout for all languages. `region` and `data` are self-relative: address of the
 * field + value; 0 is null. Change them only through the functions below (or crossdock_replace). */
typedef struct crossdock_vector {
    int64_t region;    /* to the region's header, so that a task with the vector finds the allocator */
    int64_t data;      /* to the elements, aligned to 64 bytes */
    uint64_t size;     /* elements */
    uint64_t capacity; /* elements */
} crossdock_vector;

/* A string is a vector of bytes, not zero-terminated. */
typedef crossdock_vector crossdock_string;

typedef enum crossdock_order {
    CROSSDOCK_ORDER_C = 0,      /* the last index varies fastest, as in C */
    CROSSDOCK_ORDER_FORTRAN = 1 /* the first index varies fastest, as in Fortran */
} crossdock_order;

typedef struct crossdock_ndarray {
    int64_t region;
    int64_t data;                       /* contiguous */
    uint64_t capacity_bytes;
    uint32_t rank;                      /* 0 to CROSSDOCK_RANK_MAX */
    uint32_t order;                     /* crossdock_order */
    uint64_t shape[CROSSDOCK_RANK_MAX]; /* the first `rank` count, the others are 0 */
    uint8_t reserved[32];               /* 0 */
} crossdock_ndarray;

/* Find or create a named vector of `element_type` ("f64" for a vector<f64>), empty at first. Modes, waiting and errors
 * as crossdock_object_open. */
crossdock_status crossdock_vector_open(crossdock_region *region, const char *name, const char *element_type,
                                       crossdock_mode mode, int64_t timeout_ms, crossdock_vector **vector);

/* Change the number of elements; new ones are zero. The elements may move. Survives a kill at any instruction: the
 * vector is then the old or the new one, and nothing leaks. `element_size` must be the size of the vector's elements.
 * Errors: NO_SPACE (the vector is as it was), INVALID, BAD_HANDLE, CORRUPT. Does not wait. */
crossdock_status crossdock_vector_resize(crossdock_region *region, crossdock_vector *vector, uint64_t element_size,
                                         uint64_t elements);
/* Make room for so many, without changing the size. Never shrinks. */
crossdock_status crossdock_vector_reserve(crossdock_region *region, crossdock_vector *vector, uint64_t element_size,
                                          uint64_t elements);
/* Data and size, checked against the region: CORRUPT rather than an address outside it. `data` is NULL when the vector
 * has never had room. */
crossdock_status crossdock_vector_view(crossdock_region *region, const crossdock_vector *vector, uint64_t element_size,
                                       void **data, uint64_t *elements);

/* Find or create a named string, empty at first. */
crossdock_status crossdock_string_open(crossdock_region *region, const char *name, crossdock_mode mode,
                                       int64_t timeout_ms, crossdock_string **string);
/* Replace the contents. `bytes` may be NULL if `length` is 0; they must not lie in the string itself. */
crossdock_status crossdock_string_assign(crossdock_region *region, crossdock_string *string, const char *bytes,
                                         uint64_t length);

/* Find or create a named ndarray of `element_type` ("f32" for an ndarray<f32>). A new one gets this shape and order,
 * and zeroes; of one that was there they are ignored (rank 0 and shape NULL are allowed then): read them from it. */
crossdock_status crossdock_ndarray_open(crossdock_region *region, const char *name, const char *element_type,
                                        crossdock_order order, uint32_t rank, const uint64_t *shape,
                                        crossdock_mode mode, int64_t timeout_ms, crossdock_ndarray **array);
/* Give it another shape, order, or both; the elements are zero afterwards, unless nothing changed. Errors and crash
 * behaviour as crossdock_vector_resize. */
crossdock_status crossdock_ndarray_reshape(crossdock_region *region, crossdock_ndarray *array, uint64_t element_size,
                                           crossdock_order order, uint32_t rank, const uint64_t *shape);
/* Data, order, rank and shape, checked. `shape` has room for CROSSDOCK_RANK_MAX. `order`, `rank`, `shape` may be NULL. */
crossdock_status crossdock_ndarray_view(crossdock_region *region, const crossdock_ndarray *array, uint64_t element_size,
                                        void **data, crossdock_order *order, uint32_t *rank, uint64_t *shape);

/* Unchecked accessors, for data of tasks that are trusted (caveat 5). NULL when there is nothing. */
static inline void *crossdock_vector_data(const crossdock_vector *vector)
{
    return vector->data ? (void *)((char *)(uintptr_t)&vector->data + vector->data) : NULL;
}
static inline void *crossdock_ndarray_data(const crossdock_ndarray *array)
{
    return array->data ? (void *)((char *)(uintptr_t)&array->data + array->data) : NULL;
}

/* --------------------------------------------------------------------- port */

typedef enum crossdock_end {
    CROSSDOCK_PRODUCER = 0, /* the side that sends messages and gets credits back */
    CROSSDOCK_CONSUMER = 1  /* the side that receives messages and releases them */
} crossdock_end;

typedef enum crossdock_pattern {
    CROSSDOCK_ONE_TO_ONE = 0, /* one producer and one consumer; messages keep their order */
    CROSSDOCK_FAN_OUT = 1,    /* one producer; each consumer (at most 31) gets each message sent since it came */
    CROSSDOCK_FAN_IN = 2,     /* up to 32 producers and one consumer */
    CROSSDOCK_WORK_QUEUE = 3, /* up to 32 producers, up to 31 consumers; each message goes to one consumer */
    CROSSDOCK_ANY_PATTERN = 4 /* whichever the port was made with; one-to-one if it is made by this */
} crossdock_pattern;

typedef struct crossdock_port_options {
    crossdock_pattern pattern;
    uint32_t capacity; /* messages in flight; a power of two, 1 to 4096; 0: what the port has, 8 if it is made by this */
    uint32_t persistent; /* not 0: if it is made by this, it outlasts the run, with its messages, until it is removed */
} crossdock_port_options;

#define CROSSDOCK_PORT_OPTIONS_INIT {CROSSDOCK_ANY_PATTERN, 0, 0}

/* What travels. 64 bytes. */
typedef struct crossdock_message {
    crossdock_handle handle;                    /* the data; {0, 0} for none */
    uint64_t tag;                               /* yours: step, kind .. */
    uint64_t position;                          /* set by receive: which message of the port; release needs it */
    uint32_t inline_length;                     /* bytes of inline_bytes that count */
    uint32_t reserved;                          /* 0 */
    uint8_t inline_bytes[CROSSDOCK_INLINE_MAX]; /* yours: small data that needs no object */
} crossdock_message;

#define CROSSDOCK_MESSAGE_INIT {{0, 0}, 0, 0, 0, 0, {0}}

/* Open one end of a port; the end that comes first creates it, so producer and consumer may start in any order. `options`
 * may be NULL: as the port was made (by another task, by the workflow file), else one-to-one, 8 messages. Does not wait
 * for the other end (see crossdock_port_wait_peer).
 * Errors: INVALID (name, capacity, or options that differ from those the port has), BUSY (the end is taken by a living
 * member; waited for up to timeout_ms), DENIED, NO_SPACE. One reference for the caller. */
crossdock_status crossdock_port_open(crossdock_session *session, const char *name, crossdock_end end,
                                     const crossdock_port_options *options, int64_t timeout_ms, crossdock_port **port);

crossdock_status crossdock_port_ref(crossdock_port *port);
/* The last reference closes this end. A process that ends without closing its ports counts as dead (PEER_DIED), even if
 * it ends by exit(0): no other code can know that it was done. */
crossdock_status crossdock_port_unref(crossdock_port *port);

/* Leave in good order: a consumer at the other end still gets what was sent, then CLOSED; a producer gets CLOSED.
 * What was sent before any consumer came is lost when the last producer closes: call crossdock_port_wait_peer first.
 * Messages that a closing consumer has not released are delivered again to its successor. Later sends and receives at
 * this end give CLOSED, and so do, at once, those of other threads that wait. The reference is still to be given up. */
crossdock_status crossdock_port_close(crossdock_port *port);

/* Remove the name. Members that have the port open keep it. NOT_FOUND, DENIED. */
crossdock_status crossdock_port_remove(crossdock_session *session, const char *name);

/* Wait until a living peer is at the other end. TIMED_OUT, PEER_DIED. */
crossdock_status crossdock_port_wait_peer(crossdock_port *port, int64_t timeout_ms);

/* Send; waits for a free place, that is, for a credit. With CROSSDOCK_NO_WAIT and no place: NOT_YET.
 * `bytes` is how much data the handle stands for, for the statistics (0 if unknown).
 * The object must stay as it is until its credit is back (caveat 2).
 * Errors: TIMED_OUT (names the consumer that holds the place), CLOSED and PEER_DIED (no consumer is left),
 * INVALID (consumer's end, inline_length). On error nothing was sent. */
crossdock_status crossdock_port_send(crossdock_port *port, const crossdock_message *message, uint64_t bytes,
                                     int64_t timeout_ms);

/* Producer: wait until the next send finds a place, and get back a handle whose message was released: no consumer reads its
 * object any more, it may be written again. Each handle comes back once, oldest first. {0, 0}: there is a place, and no
 * handle waits to come back (at first, or when messages carried none). Errors as crossdock_port_send. */
crossdock_status crossdock_port_reclaim(crossdock_port *port, int64_t timeout_ms, crossdock_handle *handle);

/* Receive; waits for a message. With CROSSDOCK_NO_WAIT and none there: NOT_YET. The message stays yours until it is
 * released. Errors: TIMED_OUT (names the producer), CLOSED (all producers left), PEER_DIED, INVALID (producer's end),
 * CORRUPT. What was sent before a producer left or died is received first. */
crossdock_status crossdock_port_receive(crossdock_port *port, int64_t timeout_ms, crossdock_message *message);

/* Give the place, and with it the data, back to the producer. Each received message once, in any order.
 * INVALID for one that was not received here or is released already. */
crossdock_status crossdock_port_release(crossdock_port *port, const crossdock_message *message);

/* For event loops: a descriptor that poll(2) and epoll report readable when something happened after arm. It belongs to
 * the port: do not read, close or dup2 over it. The protocol:
 *     arm; if it said ready, or poll reports the descriptor: disarm, then receive (or send) with CROSSDOCK_NO_WAIT until
 *     NOT_YET; then arm again.
 * There are false wake-ups; none is missed. `ready` is 1 when there is something to do right now. */
crossdock_status crossdock_port_descriptor(crossdock_port *port, int *descriptor);
crossdock_status crossdock_port_arm(crossdock_port *port, int *ready);
crossdock_status crossdock_port_disarm(crossdock_port *port);

typedef struct crossdock_port_statistics {
    uint64_t messages;          /* sent, by all producers */
    uint64_t received;          /* released, by all consumers */
    uint64_t bytes_handed_over; /* as told to send, plus inline bytes */
    uint64_t bytes_copied;      /* as told to crossdock_port_note_copied */
    uint64_t producer_wait_ns;  /* time that producers waited for a place */
    uint64_t consumer_wait_ns;  /* time that consumers waited for a message */
    uint64_t sleeps;            /* times that an end went to sleep */
    uint64_t wakes;             /* times that an end woke another */
    uint64_t redelivered;       /* messages delivered again because their consumer died or left */
    uint64_t voided;            /* messages in the middle of whose writing their producer died */
    uint64_t under_way;         /* messages in the port right now */
    uint64_t unused;            /* 0 */
} crossdock_port_statistics;

/* Of the port as a whole, not of this end. They live in shared memory: a lying member can falsify them. */
crossdock_status crossdock_port_statistics_get(crossdock_port *port, crossdock_port_statistics *statistics);

/* How this end waits. Adaptive unless told: spin while it pays and a processor is to spare, then sleep. */
typedef enum crossdock_waiting {
    CROSSDOCK_WAIT_ADAPTIVE = 0, /* spins while that pays and a CPU is free, and then sleeps */
    CROSSDOCK_WAIT_SPIN = 1,     /* spins until the deadline, for a task that has a CPU of its own */
    CROSSDOCK_WAIT_BLOCK = 2     /* sleeps at once, without spinning */
} crossdock_waiting;

crossdock_status crossdock_port_set_waiting(crossdock_port *port, crossdock_waiting waiting);

/* Say that `bytes` had to be copied at this end, e.g. out of a buffer that is not in a region. */
crossdock_status crossdock_port_note_copied(crossdock_port *port, uint64_t bytes);

/* ------------------------------------------------------------------- series
 *
 * A named data set that one publisher changes in place and publishes version by version; any number of observers read
 * versions that never change. No observer ever delays the publisher.
 *
 *     crossdock_variable u = {"u", "f64", 2, CROSSDOCK_ORDER_C, {512, 512}, {0}, NULL, 0};
 *     crossdock_publisher *field;
 *     double *x;
 *     crossdock_publisher_open(session, "field", &u, 1, NULL, 0, NULL, &field);
 *     crossdock_publisher_memory(field, "u", (void **)&x, NULL);
 *     for (;;) {
 *         step(x);
 *         crossdock_attribute now[] = {CROSSDOCK_I64_ATTRIBUTE("step", n)};
 *         crossdock_publisher_publish(field, now, 1, NULL);
 *     }
 *
 * An observer's addresses hold until its version is given up (crossdock_series_version_unref) or refreshed. What they show
 * changes by a refresh only.
 *
 * The pages of a published array stay where they are, so that it can be registered (RDMA, io_uring, CUDA, a pending
 * MPI_Irecv). Two things move them, and what a device writes through an earlier registration is lost then without a word:
 * CROSSDOCK_PAGES_MAY_MOVE, and crossdock_publisher_begin.
 *
 * A publisher may be used by one thread at a time; calls of others wait for it. What a forked child does to a publisher's memory is the
 * child's alone. */

typedef struct crossdock_publisher crossdock_publisher; /* counted references, as sessions are */
typedef struct crossdock_observer crossdock_observer;
typedef struct crossdock_series_version crossdock_series_version;

#define CROSSDOCK_TEXT_MAX 63     /* bytes of a text value */
#define CROSSDOCK_VERSIONS_MAX 15 /* versions that one observer holds at a time */

typedef enum crossdock_value_kind {
    CROSSDOCK_VALUE_I64 = 0, /* a signed integer of 64 bits */
    CROSSDOCK_VALUE_U64 = 1, /* an unsigned integer of 64 bits */
    CROSSDOCK_VALUE_F64 = 2, /* a floating-point number of 64 bits */
    CROSSDOCK_VALUE_TEXT = 3 /* text of at most 63 bytes */
} crossdock_value_kind;

/* A number or a text. 80 bytes. */
typedef struct crossdock_value {
    crossdock_value_kind kind;
    uint32_t reserved; /* 0 */
    union {
        int64_t i64;
        uint64_t u64;
        double f64;
    } number;
    char text[CROSSDOCK_TEXT_MAX + 1]; /* zero-terminated */
} crossdock_value;

/* A named value: an attribute of a version, or a constant. In a list of attributes to be declared only the kind counts. */
typedef struct crossdock_attribute {
    const char *name;
    crossdock_value value;
} crossdock_attribute;

#define CROSSDOCK_I64_ATTRIBUTE(name, n) {(name), {CROSSDOCK_VALUE_I64, 0, {.i64 = (n)}, {0}}}
#define CROSSDOCK_U64_ATTRIBUTE(name, n) {(name), {CROSSDOCK_VALUE_U64, 0, {.u64 = (n)}, {0}}}
#define CROSSDOCK_F64_ATTRIBUTE(name, x) {(name), {CROSSDOCK_VALUE_F64, 0, {.f64 = (x)}, {0}}}

/* An array that the publisher works on in place. */
typedef struct crossdock_variable {
    const char *name;
    const char *type;                         /* of its elements, in the grammar above: "f64", "{f64,i32}" */
    uint32_t dimensions;                      /* 0 for a single value */
    crossdock_order order;                    /* told to observers; crossdock itself sees bytes */
    uint64_t shape[CROSSDOCK_RANK_MAX];       /* at present */
    uint64_t max_shape[CROSSDOCK_RANK_MAX];   /* what it can grow to; 0: this dimension stays as it is */
    const crossdock_attribute *constants;     /* what never changes: spacing, units; NULL for none */
    size_t constant_count;
} crossdock_variable;

/* What a publish does when the pool is full, cannot grow, and observers hold all old versions. */
typedef enum crossdock_full {
    CROSSDOCK_FULL_WITHHOLD = 0, /* the publish succeeds with number 0, and the version is withheld */
    CROSSDOCK_FULL_FAIL = 1,     /* the publish fails with NO_SPACE */
    CROSSDOCK_FULL_TAKE_BACK = 2 /* the oldest versions are taken back from their observers */
} crossdock_full;

/* May publishing put other pages at the variables' addresses? */
typedef enum crossdock_pages {
    CROSSDOCK_PAGES_STAY = 0,    /* no: the pages stay */
    CROSSDOCK_PAGES_MAY_MOVE = 1 /* yes: no memory is registered */
} crossdock_pages;

/* How changes are found. */
typedef enum crossdock_detect {
    CROSSDOCK_DETECT_AUTO = 0,           /* by the method that measurements show to be cheapest */
    CROSSDOCK_DETECT_HINTS = 1,          /* only bytes that the program named as touched count as changed */
    CROSSDOCK_DETECT_PRIVATE_COPIES = 2, /* by private copies of pages, if pages may move */
    CROSSDOCK_DETECT_WRITE_PROTECT = 3,  /* by write protection, with which the kernel notes writes */
    CROSSDOCK_DETECT_COPY_ALL = 4,       /* nothing is searched: everything is copied each time */
    CROSSDOCK_DETECT_COMPARE = 5         /* by comparing everything with the last version */
} crossdock_detect;

typedef struct crossdock_series_options {
    uint64_t capacity;      /* bytes of the pool at most, which wins over `keep`; 0: the workflow's quota is the limit */
    uint32_t chunk;         /* bytes of a chunk, a power of two from 4 KiB to 2 MiB; 0: by the size of the data */
    uint32_t keep;          /* versions kept besides the latest, though no observer holds them */
    uint32_t max_observers; /* at a time; at most 1024 */
    crossdock_full full;
    crossdock_detect detect;
    crossdock_pages pages;
} crossdock_series_options;

#define CROSSDOCK_SERIES_OPTIONS_INIT {0, 0, 0, 64, CROSSDOCK_FULL_WITHHOLD, CROSSDOCK_DETECT_AUTO, CROSSDOCK_PAGES_STAY}

/* Begin to publish. `attributes` (may be NULL) are those that versions will carry; others are declared by the first publish
 * that has them. `options` may be NULL. A name whose former publisher ended or died is taken over; its observers keep what
 * they have. Errors: EXISTS (names the living publisher), INVALID (names, types, shapes, sizes), DENIED, NO_SPACE. */
crossdock_status crossdock_publisher_open(crossdock_session *session, const char *name,
                                          const crossdock_variable *variables, size_t variable_count,
                                          const crossdock_attribute *attributes, size_t attribute_count,
                                          const crossdock_series_options *options, crossdock_publisher **publisher);
crossdock_status crossdock_publisher_ref(crossdock_publisher *publisher);
/* The last reference ends the series, as crossdock_publisher_end does. */
crossdock_status crossdock_publisher_unref(crossdock_publisher *publisher);

/* Where a variable lies, and how many bytes it has now (`bytes` may be NULL). The address stays for as long as the
 * publisher, over resizing, too; but for the time from begin to publish or abandon. The pages stay, too, unless the series
 * was opened with CROSSDOCK_PAGES_MAY_MOVE, and until crossdock_publisher_begin is called. NOT_FOUND. */
crossdock_status crossdock_publisher_memory(crossdock_publisher *publisher, const char *variable, void **data,
                                            uint64_t *bytes);
/* Another shape, within the largest; new elements are zero. It is published with the next version. INVALID, NOT_FOUND. */
crossdock_status crossdock_publisher_resize(crossdock_publisher *publisher, const char *variable, const uint64_t *shape,
                                            uint32_t dimensions);
/* A hint: these bytes of a variable were written. Needed with CROSSDOCK_DETECT_HINTS only. */
crossdock_status crossdock_publisher_touched(crossdock_publisher *publisher, const char *variable, uint64_t from,
                                             uint64_t bytes);

/* Publish what is in place as the next version, with these attributes; `sequence` (may be NULL) is its number, from 1 on.
 * 0: the version was withheld, since the pool cannot grow and observers hold all old ones; the next publish that finds room
 * has its changes. Waits for no observer. NO_SPACE: by CROSSDOCK_FULL_FAIL; nothing was published, and nothing is lost.
 * INVALID, WRONG_TYPE (attributes), CLOSED (ended). */
crossdock_status crossdock_publisher_publish(crossdock_publisher *publisher, const crossdock_attribute *attributes,
                                             size_t attribute_count, uint64_t *sequence);

/* For codes that write everything anew: after begin the variables' memory is the next version itself, at other addresses
 * (crossdock_publisher_memory; what it holds is undefined): write all of it, then publish, which copies nothing. Afterwards
 * the variables are at their own addresses again, and other pages lie there: what was registered has to be registered anew.
 * abandon: as if begin had not been. BUSY: begun already. INVALID: not begun. */
crossdock_status crossdock_publisher_begin(crossdock_publisher *publisher);
crossdock_status crossdock_publisher_abandon(crossdock_publisher *publisher);

typedef struct crossdock_publisher_statistics {
    uint64_t versions;       /* published so far */
    uint64_t chunk;          /* bytes of a chunk */
    uint64_t withheld;       /* publishes that withheld their version */
    uint64_t slots_used;     /* chunks that some version holds */
    uint64_t slots_reserved; /* chunks that the pool has memory for */
    uint64_t copied;         /* chunks copied so far */
    uint64_t shared;         /* chunks taken over from the version before */
    uint64_t last_ns;        /* the last publish */
    uint64_t longest_ns;     /* the longest */
    uint64_t no_space;       /* publishes that failed for lack of room */
    uint64_t taken_back;     /* versions taken back from observers */
    uint64_t method;         /* how changes are found now: 0 copy all, 1 hints, 2 private copies, 3 write protection,
                                4 written in place, 5 comparison */
} crossdock_publisher_statistics;

crossdock_status crossdock_publisher_statistics_get(crossdock_publisher *publisher,
                                                    crossdock_publisher_statistics *statistics);
/* No more versions; observers still get the last one, then CLOSED. The memory stays until the last reference is given up. */
crossdock_status crossdock_publisher_end(crossdock_publisher *publisher);

/* Take the name away. Observers keep what they have. NOT_FOUND, DENIED, BUSY (it is being published). */
crossdock_status crossdock_series_remove(crossdock_session *session, const char *name);

/* Observe the series of this name in the current run; waits for it up to `timeout_ms`. NOT_FOUND (no waiting), TIMED_OUT,
 * DENIED, NO_SPACE (observers). */
crossdock_status crossdock_observer_open(crossdock_session *session, const char *name, int64_t timeout_ms,
                                         crossdock_observer **observer);
/* The same, but the latest series of this name, also one that a run left that has ended. */
crossdock_status crossdock_observer_open_former(crossdock_session *session, const char *name, int64_t timeout_ms,
                                                crossdock_observer **observer);
crossdock_status crossdock_observer_ref(crossdock_observer *observer);
crossdock_status crossdock_observer_unref(crossdock_observer *observer);
/* A number for the series as it is observed; a restarted publisher's has another one. */
crossdock_status crossdock_observer_id(crossdock_observer *observer, uint64_t *id);

typedef enum crossdock_series_state {
    CROSSDOCK_SERIES_LIVE = 0,  /* the publisher is alive and may publish further versions */
    CROSSDOCK_SERIES_ENDED = 1, /* the publisher ended in order: no version will follow */
    CROSSDOCK_SERIES_DIED = 2   /* the publisher died: no further version will follow */
} crossdock_series_state;

crossdock_status crossdock_observer_state(crossdock_observer *observer, crossdock_series_state *state);

/* What a series says of a variable. Copies, which stay. */
typedef struct crossdock_variable_info {
    char name[CROSSDOCK_NAME_MAX + 1];
    char type[CROSSDOCK_TYPE_NAME_MAX + 1];
    uint32_t dimensions;
    crossdock_order order;
    uint64_t element_size;
    uint64_t max_shape[CROSSDOCK_RANK_MAX];
    uint32_t constant_count;
    uint32_t reserved;
} crossdock_variable_info;

crossdock_status crossdock_observer_variable_count(crossdock_observer *observer, uint32_t *count);
/* By index, in the order of their declaration. NOT_FOUND beyond the last. */
crossdock_status crossdock_observer_variable(crossdock_observer *observer, uint32_t index,
                                             crossdock_variable_info *variable);
/* A constant of a variable, by name. NOT_FOUND. */
crossdock_status crossdock_observer_constant(crossdock_observer *observer, const char *variable, const char *name,
                                             crossdock_value *value);

/* The newest version. With nothing published yet: NOT_YET (CLOSED, PEER_DIED if nothing will come). BUSY: this observer
 * holds CROSSDOCK_VERSIONS_MAX versions already. A version is the caller's until crossdock_series_version_unref. */
crossdock_status crossdock_observer_latest(crossdock_observer *observer, crossdock_series_version **version);
/* The newest version, if it is newer than the last one given by this observer; waits for one. NOT_YET (no waiting),
 * TIMED_OUT, CLOSED (ended in order), PEER_DIED. */
crossdock_status crossdock_observer_next(crossdock_observer *observer, int64_t timeout_ms, crossdock_series_version **version);
/* The version that follows the one given last, in order; waits for it. Versions that are gone are passed over, and
 * crossdock_series_version_missed counts them. The first one given is the oldest there is. Errors as next. */
crossdock_status crossdock_observer_each(crossdock_observer *observer, int64_t timeout_ms, crossdock_series_version **version);
/* The version of this number; waits until it is published. NOT_FOUND: gone, or never there. NOT_YET (no waiting): still to
 * come. Errors as next. */
crossdock_status crossdock_observer_at(crossdock_observer *observer, uint64_t sequence, int64_t timeout_ms,
                                       crossdock_series_version **version);

crossdock_status crossdock_series_version_ref(crossdock_series_version *version);
crossdock_status crossdock_series_version_unref(crossdock_series_version *version);
crossdock_status crossdock_series_version_sequence(crossdock_series_version *version, uint64_t *sequence);
/* When it was published: nanoseconds since 1970. */
crossdock_status crossdock_series_version_time(crossdock_series_version *version, uint64_t *time_ns);
/* How many versions between this one and the one that crossdock_observer_each gave before were gone by then. */
crossdock_status crossdock_series_version_missed(crossdock_series_version *version, uint64_t *missed);
/* 0 once it was taken back by the policy CROSSDOCK_FULL_TAKE_BACK. Data that was given stays as it is. */
crossdock_status crossdock_series_version_valid(crossdock_series_version *version, int *valid);
/* A variable's elements, one after the other, not to be written. NOT_FOUND: no such variable, or the version was taken back
 * before this was first asked for (the message names the policy). */
crossdock_status crossdock_series_version_data(crossdock_series_version *version, const char *variable, const void **data,
                                        uint64_t *bytes);
/* What its series says of a variable, by name. NOT_FOUND. */
crossdock_status crossdock_series_version_variable(crossdock_series_version *version, const char *variable,
                                                   crossdock_variable_info *info);
/* Its shape in this version; `shape` has CROSSDOCK_RANK_MAX places. */
crossdock_status crossdock_series_version_shape(crossdock_series_version *version, const char *variable, uint32_t *dimensions,
                                         uint64_t *shape);
crossdock_status crossdock_series_version_attribute_count(crossdock_series_version *version, uint32_t *count);
/* An attribute by index: its name (a buffer of CROSSDOCK_NAME_MAX + 1 bytes, or NULL) and its value. */
crossdock_status crossdock_series_version_attribute_at(crossdock_series_version *version, uint32_t index, char *name,
                                                crossdock_value *value);
/* An attribute by name. NOT_FOUND: this version does not carry it. */
crossdock_status crossdock_series_version_attribute(crossdock_series_version *version, const char *name, crossdock_value *value);

/* Turn a version into the newest one, while no other thread uses it; only chunks that differ are mapped anew, so
 * addresses taken before hold again afterwards. `remapped` (may be NULL): how many chunks. */
crossdock_status crossdock_series_version_refresh(crossdock_series_version *version, uint64_t *remapped);

/* Bytes of a variable, by its index, that may differ. */
typedef struct crossdock_change {
    uint32_t variable;
    uint32_t reserved;
    uint64_t from;
    uint64_t bytes;
} crossdock_change;

/* Where two versions of a series differ, in whole chunks. `count`: how many changes there are; the first `room` of them are
 * written. INVALID: versions of different series. */
crossdock_status crossdock_series_version_diff(crossdock_series_version *before, crossdock_series_version *after, crossdock_change *changes,
                                        size_t room, size_t *count);

/* -------------------------------------------------------------- checkpoints */

/* What `crossdock checkpoint` wrote, read back; no daemon is needed. One file holds one version of one series, or of those
 * of all ranks. `series` may be NULL where a file has only one. Nothing is given that its checksum does not vouch for. */
typedef struct crossdock_checkpoint crossdock_checkpoint; /* a counted reference, as sessions are */

/* The newest good checkpoint of a folder. `name` is what the files' names begin with (`field`); NULL: whatever there is, if
 * there is only one. Damaged ones are passed over (crossdock_checkpoint_skipped says which). Reads all of it once.
 * Errors: NOT_FOUND (there is none: a first start), CORRUPT (there are some, and none is good), INVALID (several names),
 * DENIED, SYSTEM. */
crossdock_status crossdock_checkpoint_restart(const char *folder, const char *name, crossdock_checkpoint **checkpoint);
/* A file by its path. Errors: NOT_FOUND, CORRUPT, DENIED, SYSTEM. */
crossdock_status crossdock_checkpoint_open(const char *path, crossdock_checkpoint **checkpoint);
crossdock_status crossdock_checkpoint_ref(crossdock_checkpoint *checkpoint);
crossdock_status crossdock_checkpoint_unref(crossdock_checkpoint *checkpoint);

/* The file. NO_SPACE if the buffer is too small. */
crossdock_status crossdock_checkpoint_path(crossdock_checkpoint *checkpoint, char *buffer, size_t buffer_size);
/* How many newer ones were damaged, and into `buffer` (may be NULL) one line for each, as much of them as fits. */
crossdock_status crossdock_checkpoint_skipped(crossdock_checkpoint *checkpoint, uint32_t *count, char *buffer,
                                              size_t buffer_size);

/* The version's number, and what its publisher said of it. Errors: NOT_FOUND (names those that there are), WRONG_TYPE,
 * NO_SPACE (the buffer). `real` takes whole numbers, too; `text` takes all. */
crossdock_status crossdock_checkpoint_sequence(crossdock_checkpoint *checkpoint, const char *series, uint64_t *sequence);
crossdock_status crossdock_checkpoint_integer(crossdock_checkpoint *checkpoint, const char *series, const char *name,
                                              int64_t *value);
crossdock_status crossdock_checkpoint_real(crossdock_checkpoint *checkpoint, const char *series, const char *name,
                                           double *value);
crossdock_status crossdock_checkpoint_text(crossdock_checkpoint *checkpoint, const char *series, const char *name,
                                           char *buffer, size_t buffer_size);

typedef struct crossdock_checkpoint_variable {
    char type_name[192];
    uint64_t bytes;    /* of all elements */
    uint64_t shape[8]; /* C order */
    uint32_t rank;
    uint32_t reserved; /* 0 */
} crossdock_checkpoint_variable;

/* Errors: NOT_FOUND (names those that there are). */
crossdock_status crossdock_checkpoint_variable_info(crossdock_checkpoint *checkpoint, const char *series,
                                                    const char *name, crossdock_checkpoint_variable *info);
/* All elements into memory of just `bytes` bytes, a publisher's in-place array for one. Errors: WRONG_TYPE (another size),
 * NOT_FOUND, CORRUPT (then what lies in the memory is not to be used), SYSTEM. */
crossdock_status crossdock_checkpoint_read(crossdock_checkpoint *checkpoint, const char *series, const char *name,
                                           void *into, size_t bytes);

/* A publisher's variables from the newest good checkpoint of its series: each array that is stored is filled, and resized
 * if it had another shape. `checkpoint` (may be NULL) gets what it was, for its attributes. Nothing else may use the arrays
 * during the call. Errors: NOT_FOUND (there is none: a first start; or a variable that the publisher has not), CORRUPT,
 * INVALID (of another number of ranks), WRONG_TYPE, DENIED, SYSTEM. */
crossdock_status crossdock_publisher_restart(crossdock_publisher *publisher, const char *folder,
                                             crossdock_checkpoint **checkpoint);

/* `field` -> `field/3`: names of the series of parallel programs. `rank`: an MPI rank, or -1 for what the launcher said
 * (OMPI_COMM_WORLD_RANK, PMIX_RANK, PMI_RANK, MV2_COMM_WORLD_RANK, SLURM_PROCID, CROSSDOCK_RANK; 0 without any).
 * Errors: INVALID, NO_SPACE (the buffer; CROSSDOCK_NAME_MAX + 1 bytes always do). */
crossdock_status crossdock_ranked_name(const char *name, int64_t rank, char *buffer, size_t buffer_size);
/* --------------------------------------------------------------------- item */

/* A data object that exactly one task owns. Its owner alone can read and write it, hand it to another task, share it for
 * reading, copy it, resize it and destroy it; the kernel proves at each transfer that the former owner kept no way in.
 *
 *     crossdock_item *frame;
 *     crossdock_item_create(session, "frame.1", 1 << 20, NULL, &frame);
 *     void *memory;
 *     uint64_t size;
 *     crossdock_item_data(frame, &memory, &size);
 *     fill(memory, size);
 *     crossdock_item_transfer(frame, "detect/1");     -- `memory` is gone now; the reference is still to be given up
 *     crossdock_item_unref(frame);
 *
 * A reference that was transferred or destroyed is spent: each function gives CROSSDOCK_CLOSED and says to whom it went.
 * Addresses in an item end with its transfer, sharing, unsharing, resizing, destruction, and last reference: a later load
 * or store through one is a SIGSEGV, never another owner's bytes. `to` names a task: "combine" (whichever rank comes first),
 * "detect/1" (rank 1), "#7" (the task that registered 7). It need not exist yet. What is for owners gives CROSSDOCK_DENIED to
 * readers. */
typedef struct crossdock_item crossdock_item;

typedef enum crossdock_item_level {
    CROSSDOCK_LEVEL_DEFAULT = 0, /* verified */
    CROSSDOCK_COOPERATIVE = 1,   /* for tasks that trust each other: no daemon call and no proof */
    CROSSDOCK_VERIFIED = 2,      /* the kernel proves that the old owner closed it, or the new one gets a copy */
    CROSSDOCK_STRICT = 3         /* the new owner always gets fresh pages */
} crossdock_item_level;

/* What becomes of an item whose owner dies. */
typedef enum crossdock_item_policy {
    CROSSDOCK_POLICY_DEFAULT = 0, /* keep */
    CROSSDOCK_KEEP = 1,           /* the item stays with its task, until the task is started again */
    CROSSDOCK_RETURN = 2,         /* the item goes back to the task that made it */
    CROSSDOCK_DESTROY = 3         /* the item is destroyed */
} crossdock_item_policy;

typedef struct crossdock_item_options {
    crossdock_item_level level;
    crossdock_item_policy on_death;
} crossdock_item_options;

#define CROSSDOCK_ITEM_OPTIONS_INIT {CROSSDOCK_LEVEL_DEFAULT, CROSSDOCK_POLICY_DEFAULT}

typedef enum crossdock_item_state {
    CROSSDOCK_ITEM_HELD = 1,    /* the item's owner has it open */
    CROSSDOCK_ITEM_WAITING = 2, /* the item's owner does not have it open, or does not exist yet */
    CROSSDOCK_ITEM_SHARED = 3,  /* the item is shared for reading */
    CROSSDOCK_ITEM_COPYING = 4  /* the item is being copied for its new owner */
} crossdock_item_state;

typedef struct crossdock_item_info {
    char key[CROSSDOCK_NAME_MAX + 1];
    char owner[CROSSDOCK_NAME_MAX + 1];   /* in the words of `to`: "detect/1", "detect", "#7" */
    char creator[CROSSDOCK_NAME_MAX + 1]; /* the same */
    uint64_t size;                        /* bytes */
    uint64_t since_ms;                    /* how long the owner has had it */
    uint64_t transfers;                   /* how often it changed its owner */
    uint64_t copies;                      /* how often a former owner clung to it, so that it had to be copied */
    crossdock_item_state state;
    crossdock_item_level level;
    crossdock_item_policy on_death;
    uint32_t readers; /* members that read it now, its owner among them */
    uint32_t waiting; /* requests that wait for it */
    uint32_t mine;    /* 1: this task is its owner */
} crossdock_item_info;

/* Be reached by a number, too: a task that transfers to "#7" means the task and rank that registered 7, now or later.
 * EXISTS: another task has it. (CDI_register of crossdock/cdi.h) */
crossdock_status crossdock_session_register_number(crossdock_session *session, uint64_t number);

/* Make an item of `size` zero bytes, owned by this task. `options` may be NULL: verified, kept for the owner.
 * EXISTS (says who owns it), NO_SPACE (quota, node), INVALID (key, size 0), DENIED. One reference for the caller. */
crossdock_status crossdock_item_create(crossdock_session *session, const char *key, uint64_t size,
                                       const crossdock_item_options *options, crossdock_item **item);

/* What is known of an item of this workflow; does not wait, needs no ownership. NOT_FOUND. */
crossdock_status crossdock_item_find(crossdock_session *session, const char *key, crossdock_item_info *info);

/* Wait until this task owns the item, also if it is still to be created; those who wait are served in the order in which
 * they came. NOT_YET with CROSSDOCK_NO_WAIT when another task owns it; TIMED_OUT says who owns it and since when;
 * NOT_FOUND with CROSSDOCK_NO_WAIT, or when it is destroyed during the wait; BUSY: this process has it open already. */
crossdock_status crossdock_item_access(crossdock_session *session, const char *key, int64_t timeout_ms,
                                       crossdock_item **item);

/* The same for the first of several that comes; `index` says which of `keys`. At most 24. */
crossdock_status crossdock_item_access_any(crossdock_session *session, const char *const *keys, size_t count,
                                           int64_t timeout_ms, size_t *index, crossdock_item **item);

/* Read an item that its owner shares: waits until it does. Its memory cannot be written, by nothing that the reader does.
 * Give the reference up to let the owner have it for itself again. */
crossdock_status crossdock_item_read(crossdock_session *session, const char *key, int64_t timeout_ms,
                                     crossdock_item **item);

/* Hand it to a task, in one step: this task owns it no more, the other one does. A task that waits for it has it at once.
 * INVALID (no name of a task; oneself), DENIED, CLOSED. On error the item is still owned; take its address anew. */
crossdock_status crossdock_item_transfer(crossdock_item *item, const char *to);

/* A new item with the same bytes, owned by this task; independent of the first. Errors as crossdock_item_create. */
crossdock_status crossdock_item_copy(crossdock_item *item, const char *key, crossdock_item **copy);

/* It is gone. Tasks that wait for it get NOT_FOUND. */
crossdock_status crossdock_item_destroy(crossdock_item *item);

/* Let others read: from now on no task can write, the owner included. Take the address anew. What else its owner may do has to
 * wait for unshare (BUSY). INVALID: a cooperative item, which all its tasks can read anyway. */
crossdock_status crossdock_item_share(crossdock_item *item);
/* Have it for oneself again: readers have until the deadline to let go. A task that still reads then keeps the bytes as they
 * were, and this task gets a copy of its own. */
crossdock_status crossdock_item_unshare(crossdock_item *item, int64_t timeout_ms);

/* Another size; what was there stays as far as it fits, the rest is zero. Take the address anew. NO_SPACE: it is as it was.
 * INVALID: size 0, a cooperative item. */
crossdock_status crossdock_item_resize(crossdock_item *item, uint64_t size);

/* Address and size in this process. Page-aligned, and writable if crossdock_item_writable says so. */
crossdock_status crossdock_item_data(crossdock_item *item, void **data, uint64_t *size);
crossdock_status crossdock_item_writable(crossdock_item *item, int *writable);
/* Copied, zero-terminated; a buffer of CROSSDOCK_NAME_MAX + 1 is always large enough. */
crossdock_status crossdock_item_key(crossdock_item *item, char *buffer, size_t buffer_size);

/* Say that an item holds an array without gaps, from its first byte on: of `element_type`, in this order and shape. The
 * bytes stay as they are. INVALID if it does not fit. */
crossdock_status crossdock_item_set_array(crossdock_item *item, const char *element_type, crossdock_order order,
                                          uint32_t rank, const uint64_t *shape);
/* What array it holds, checked against its size; `shape` has room for CROSSDOCK_RANK_MAX. WRONG_TYPE: it holds none. */
crossdock_status crossdock_item_array(crossdock_item *item, char *element_type, size_t element_type_size,
                                      crossdock_order *order, uint32_t *rank, uint64_t *shape);

/* The heap in an item, as a region: objects, vectors, arrays and handles work in it as in any other, and they go with the item
 * when it is handed on. CROSSDOCK_CREATE_ONLY makes it in the item's zero bytes (at least 256 KiB),
 * CROSSDOCK_OPEN_ONLY finds what another task made (WRONG_TYPE: nothing of the kind), CROSSDOCK_RECREATE clears the item
 * first. Give the region up before the item is handed on: BUSY until then. */
crossdock_status crossdock_item_region(crossdock_item *item, crossdock_mode mode, crossdock_region **region);

crossdock_status crossdock_item_ref(crossdock_item *item);
/* The last reference unmaps it. An item that this task owns stays its own: access it again. */
crossdock_status crossdock_item_unref(crossdock_item *item);

/* -------------------------------------------------------------------- files */

/* Wait until the file is there, if it lies in a managed directory that this task consumes (`files:` in the workflow file);
 * for every other path, and outside of `crossdock run`, return OK at once. Open the file afterwards as always.
 * Blocks up to the directory's `wait`; any number of threads may wait; needs no session.
 * NOT_FOUND: the producers have ended without it. TIMED_OUT. SYSTEM: a signal handler ran that does not restart calls. */
crossdock_status crossdock_file_await(const char *path);

#ifdef __cplusplus
}
#endif

#endif
