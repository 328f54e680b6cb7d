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
 *  1. An address in a region is valid in this process only, and only while this process keeps a reference to that region.
 *     To name data to another task use a crossdock_handle (16 bytes, the same in every process) or the object's name.
 *  2. You must guard the bytes of your objects: nothing stops two tasks from writing at the same time. Hand objects over
 *     through ports. When a credit comes back (crossdock_port_reclaim), no consumer reads the object any more.
 *  3. Resizing a vector or string and reshaping an ndarray may move the elements. Ask for the data address again
 *     afterwards, and do not resize what another task is reading.
 *  4. A child of fork() must not use its parent's session, regions, ports, series or items. Calls that would change
 *     anything fail with CROSSDOCK_DISCONNECTED, and so do calls on an item, publisher, observer or version that
 *     another thread of the parent was using during the fork. The child must connect a session of its own and open the
 *     objects in it.
 *  5. A member that can write a region can write anything into it. crossdock checks its own structures each time it
 *     reads them (CROSSDOCK_CORRUPT, never a crash); you must check what your own objects contain. The inline accessors
 *     below, such as crossdock_vector_data, do not check the header; functions such as crossdock_vector_view check it.
 *  6. Nothing here may be called from a signal handler.
 *
 * Conventions
 *
 *  - Each function returns a crossdock_status; CROSSDOCK_OK is 0. On any other status nothing was written through the
 *    out-pointers (except where this header says so), and nothing is half done. crossdock_error_message(), called in
 *    the same thread, then names the object, the reason, the task or member on the other side, and what to do.
 *  - CROSSDOCK_INVALID is the status for a NULL where an argument is needed, for a value out of range, and for a
 *    reference that was never given out or was given up already. Pointers to your own structs and strings are not
 *    checked further.
 *  - crossdock_session, crossdock_region and crossdock_port are counted references and not addresses: never dereference
 *    them. `_ref` adds a reference and `_unref` gives one up; `_unref` ignores NULL.
 *  - Any thread may call any function at any time, also on the same session, region or port, provided that the calling
 *    thread's reference lasts as long as the call. Your own messages and structs are not guarded.
 *  - `timeout_ms`: 0 = do not wait; N > 0 = at most N milliseconds; CROSSDOCK_WAIT (-1) = the default deadline, 60 s.
 *    No call waits for ever. Functions without a timeout block at most for one answer of the node daemon.
 *  - Names are 1 to 127 bytes of [A-Za-z0-9_.+-]. '/' separates the parts of a name; no part is empty, "." or "..".
 *  - Sizes and offsets count bytes, unless the argument's name says elements.
 *
 * Types. An object has a type: a name, and the size and alignment that follow from it. One grammar in every language:
 *     bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 c64 c128       scalars; c64 is two f32, c128 two f64; bool is a byte
 *     T[n]                                                      fixed array: f64[3], f32[4][8] (C order)
 *     {T,T,..}                                                  struct with C's alignment: {i32,f64}
 *     vector<T>   string   ndarray<T>                           types that can grow, see crossdock_vector
 *     cpp:Name                                                  a type of one language; size and alignment must be given
 * Opening an object as another type gives CROSSDOCK_WRONG_TYPE, and the message has both types.
 *
 * A test of crates/layout (`generated`) writes the enums and limits of this header. Change them in crates/layout. */
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
/* One number that grows with each version: major * 1000000 + minor * 1000 + patch. */
#define CROSSDOCK_VERSION (CROSSDOCK_VERSION_MAJOR * 1000000 + CROSSDOCK_VERSION_MINOR * 1000 + CROSSDOCK_VERSION_PATCH)

/* The version of the library that is loaded, to compare with CROSSDOCK_VERSION of the header. Never fails. */
uint32_t crossdock_version(void);
/* The version as text, for example "0.1.0". The text is static. */
const char *crossdock_version_string(void);

/* ------------------------------------------------------------------- status */

/* The number of a status never changes: no status is ever removed, and a new one could only be added at the end. */
typedef enum crossdock_status {
    CROSSDOCK_OK = 0,            /* the call succeeded */
    CROSSDOCK_NOT_YET = 1,       /* there is no result yet, and the caller chose not to wait */
    CROSSDOCK_TIMED_OUT = 2,     /* the deadline passed */
    CROSSDOCK_CLOSED = 3,        /* the other end was closed, and all that it had sent was received */
    CROSSDOCK_PEER_DIED = 4,     /* the member at the other end died, and all that it had sent was received */
    CROSSDOCK_NOT_FOUND = 5,     /* there is no such region, port, item, series or object */
    CROSSDOCK_EXISTS = 6,        /* the object exists already, but the call asked for a new one */
    CROSSDOCK_WRONG_TYPE = 7,    /* the object has another type */
    CROSSDOCK_INVALID = 8,       /* an argument has a value that is never allowed */
    CROSSDOCK_BAD_HANDLE = 9,    /* the handle names nothing that is in use in this region */
    CROSSDOCK_DENIED = 10,       /* no grant of this task allows the call */
    CROSSDOCK_NO_SPACE = 11,     /* the region, the quota or the node is full */
    CROSSDOCK_BUSY = 12,         /* another member or request, or an array of this program, uses the object */
    CROSSDOCK_CORRUPT = 13,      /* shared memory has contents that no correct member writes */
    CROSSDOCK_DISCONNECTED = 14, /* there is no node daemon, or the session with it is closed */
    CROSSDOCK_INCOMPATIBLE = 15, /* the two sides were built with different layouts or protocols */
    CROSSDOCK_SYSTEM = 16        /* the operating system refused a call */
} crossdock_status;

/* The name of a status without its prefix, for example "NO_SPACE"; "UNKNOWN" if the number is no status. The text is
 * static. */
const char *crossdock_status_name(crossdock_status status);
/* The meaning of a status in one line. The text is static. */
const char *crossdock_status_meaning(crossdock_status status);

/* The message of the last call of this thread that returned neither CROSSDOCK_OK nor CROSSDOCK_NOT_YET; "" if there was
 * no such call. Successful calls do not change the message. The pointer is never NULL, and valid until the next failing
 * call of this thread. */
const char *crossdock_error_message(void);
/* The status of the call to which crossdock_error_message belongs. */
crossdock_status crossdock_error_status(void);
/* Stores a status and a message as the last failure of this thread, and returns `status`. The function is for
 * bindings of other languages that check arguments themselves. */
crossdock_status crossdock_error_raise(crossdock_status status, const char *message);

/* --------------------------------------------------------------- plain data */

/* Values of timeout_ms. */
#define CROSSDOCK_NO_WAIT INT64_C(0)
#define CROSSDOCK_WAIT INT64_C(-1)

#define CROSSDOCK_ANY_SIZE UINT64_MAX /* for crossdock_region_open */
#define CROSSDOCK_NAME_MAX 127      /* bytes, without the terminating zero */
#define CROSSDOCK_TYPE_NAME_MAX 191 /* bytes, without the terminating zero */
#define CROSSDOCK_INLINE_MAX 24     /* bytes that travel inside a message */
#define CROSSDOCK_RANK_MAX 8        /* dimensions of an ndarray */

typedef struct crossdock_session crossdock_session; /* one connection to the node daemon, acting as one task */
typedef struct crossdock_region crossdock_region;   /* a mapped segment with a heap and a directory */
typedef struct crossdock_port crossdock_port;       /* one end of a bounded channel */

/* Names an allocation. The two numbers are the same in every process. A handle is plain data: copy it, send it, compare
 * it field by field. {0, 0} names nothing. Segment ids are never used again, so a handle of a removed region never
 * names data in another region. */
typedef struct crossdock_handle {
    uint64_t segment;
    uint64_t offset;
} crossdock_handle;

/* A type. If size is 0, size and align follow from the name, which must be in the grammar above. `cpp:Name` needs both. */
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
    CROSSDOCK_RECREATE = 3        /* remove the object if the name exists, and then create a new object */
} crossdock_mode;

/* --------------------------------------------------------------------- type */

/* The size and alignment of a type. INVALID (with the position of the error) if the name is not in the grammar above,
 * or if it is a type of one language (cpp:Name), whose size is not known here. */
crossdock_status crossdock_type_layout(const char *name, uint64_t *size, uint32_t *align);

/* ------------------------------------------------------------------ session */

typedef struct crossdock_connect_options {
    const char *socket;      /* path of the endpoint; NULL: CROSSDOCK_SOCKET, /run/crossdock, the user's runtime folder */
    const char *task;        /* NULL: CROSSDOCK_TASK, else the program's name */
    const char *workflow;    /* NULL: CROSSDOCK_WORKFLOW, else the endpoint's workflow */
    int64_t rank;            /* -1: CROSSDOCK_RANK, else 0 */
    int64_t timeout_ms;      /* for the connection; -1: 5 s */
    uint32_t private_daemon; /* 1: start a private daemon if no endpoint is found; 0: NOT_FOUND */
    uint32_t reserved;       /* 0 */
} crossdock_connect_options;

#define CROSSDOCK_CONNECT_OPTIONS_INIT {NULL, NULL, NULL, -1, -1, 1, 0}

/* Connect to the node daemon as one task. If `options` is NULL, all options have their defaults. Blocks at most
 * options->timeout_ms. The caller gets one reference. Errors: NOT_FOUND (there is no daemon, and the message lists
 * the sockets that were tried; or there is no workflow of this name), DENIED (the daemon does not serve this user, or
 * the endpoint is of another task or workflow), INCOMPATIBLE (the daemon speaks another version of the protocol),
 * TIMED_OUT (the daemon does not answer in time), NO_SPACE (the daemon has no room for another member), INVALID (a
 * name is not allowed, or CROSSDOCK_RANK is no number), SYSTEM (the kernel refuses a call). */
crossdock_status crossdock_session_connect(const crossdock_connect_options *options, crossdock_session **session);

/* The one session that all libraries of this process share. The first call connects it with the default options. The
 * caller gets a reference. A child of fork() gets a session of its own. Errors: as for crossdock_session_connect. */
crossdock_status crossdock_session_default(crossdock_session **session);

crossdock_status crossdock_session_ref(crossdock_session *session);
/* Giving up the last reference closes the session. Regions and ports that are still open keep the connection to the
 * daemon and still work; the member leaves when the last of them is closed. */
crossdock_status crossdock_session_unref(crossdock_session *session);

/* Leave now. The ports of this session are closed as crossdock_port_close does, and the daemon forgets the member.
 * Later calls on the session give DISCONNECTED. The caller still has to give up its reference. BUSY while regions,
 * items, publishers, observers or versions of this session are open. After BUSY, they and the session still work; close
 * them first. */
crossdock_status crossdock_session_close(crossdock_session *session);

/* The id of this member. No other member of this node ever gets it. */
crossdock_status crossdock_session_member(crossdock_session *session, uint64_t *member);
/* The rank of this session in its task. */
crossdock_status crossdock_session_rank(crossdock_session *session, uint32_t *rank);
/* The number of the workflow's run that the session takes part in, counted from 1. Ports end with the run. */
crossdock_status crossdock_session_run(crossdock_session *session, uint64_t *run);
/* Report how far this task is: `done` of `of` steps. `crossdock ps`, `top`, the live view of `run`, the web page and
 * the metrics show the report; no task waits for it. If `of` is 0, the report is withdrawn. The call never waits for
 * the daemon, so it can be made in every iteration. If several calls follow within 20 ms, only the last one is sent.
 * INVALID: `done` is more than `of`. */
crossdock_status crossdock_session_progress(crossdock_session *session, uint64_t done, uint64_t of);
/* The names of the task and of the workflow, as the daemon knows them. They are copied with a terminating zero. A
 * buffer of CROSSDOCK_NAME_MAX + 1 bytes is always large enough. NO_SPACE if the buffer is too small. */
crossdock_status crossdock_session_task(crossdock_session *session, char *buffer, size_t buffer_size);
crossdock_status crossdock_session_workflow(crossdock_session *session, char *buffer, size_t buffer_size);

/* ------------------------------------------------------------------- region */

/* Open or create a region. `size` is the capacity in bytes, including the headers; a page of memory is allocated only
 * when it is first used. A region that this call creates gets this size. CROSSDOCK_OPEN_ONLY ignores the size;
 * CROSSDOCK_OPEN_OR_CREATE gives INVALID if the existing region is smaller. With CROSSDOCK_ANY_SIZE an existing region
 * may have any size, and a new region gets 1 GiB. Only CROSSDOCK_OPEN_ONLY waits (timeout_ms) for another task to
 * create the region: with CROSSDOCK_NO_WAIT it gives NOT_FOUND immediately, and otherwise TIMED_OUT at the deadline.
 * Other errors: EXISTS (CROSSDOCK_CREATE_ONLY finds a region), INVALID (the name is not allowed, or the size is 0),
 * NO_SPACE (the quota or the node's memory does not suffice), BUSY (the region is being copied or moved to another
 * node), DENIED (no grant), INCOMPATIBLE (a build with another memory layout made the region), DISCONNECTED (there is
 * no daemon). The caller gets one reference. If a process opens a region twice, it is mapped only once. */
crossdock_status crossdock_region_open(crossdock_session *session, const char *name, crossdock_mode mode, uint64_t size,
                                       int64_t timeout_ms, crossdock_region **region);

/* Copy a region of any node of the site to this node, under the name `copy`, and open the copy. The copy has the bytes
 * of one moment in which no task had the region open. Handles that were saved in the region are valid in the copy.
 * Within timeout_ms the call waits for the region to be made, and for all tasks to close it. Errors: BUSY (a task still
 * has the region open at the timeout; the message names the task), EXISTS (the name `copy` is taken), NOT_FOUND (no
 * node has the region at the timeout), NO_SPACE (the quota or this node's memory does not suffice), DENIED (no grant to
 * read the region, or to create and read the copy), TIMED_OUT (the copying takes longer than timeout_ms), DISCONNECTED
 * (the region's node or the catalog was lost meanwhile), INVALID (a name is not allowed, both names are equal, or the
 * region is on this node and the daemon is in no site). After an error there is no copy. */
crossdock_status crossdock_region_copy(crossdock_session *session, const char *name, const char *copy,
                                       int64_t timeout_ms, crossdock_region **region);
/* Move a region of any node of the site to this node, and open it. The region keeps its name, and its handles stay
 * valid. A region that is on this node already is only opened. Errors: as for crossdock_region_copy, but DENIED means
 * that this task lacks a grant to read, write, remove or create the region. After an error the region is where it
 * was. */
crossdock_status crossdock_region_move(crossdock_session *session, const char *name, int64_t timeout_ms,
                                       crossdock_region **region);

/* The region that a handle points into. The region is opened if this process does not have it open. Errors:
 * BAD_HANDLE (there is no such segment, this task may not see it, or it is no region), DENIED (the grant of this task
 * does not allow to read the region), BUSY (the region is being copied or moved to another node). */
crossdock_status crossdock_region_of(crossdock_session *session, crossdock_handle handle, crossdock_region **region);

/* A new reference to the region whose header is mapped at `base` in this process; NOT_FOUND if no region is mapped
 * there. The function is for code that has a container but not its region. Allocators use the cheaper
 * crossdock_allocate_at. */
crossdock_status crossdock_region_at(const void *base, crossdock_region **region);

crossdock_status crossdock_region_ref(crossdock_region *region);
/* Giving up the last reference of this process unmaps the region. All addresses in it are invalid afterwards. The
 * region itself exists until it is removed or its workflow ends. */
crossdock_status crossdock_region_unref(crossdock_region *region);

/* Remove the name of a region. Members that have the region open keep it; the memory is freed when the last of them
 * closes it. Errors: NOT_FOUND (there is no region of this name), DENIED (no grant to remove it). */
crossdock_status crossdock_region_remove(crossdock_session *session, const char *name);

crossdock_status crossdock_region_name(crossdock_region *region, char *buffer, size_t buffer_size);
/* The segment id that the handles of this region contain. */
crossdock_status crossdock_region_id(crossdock_region *region, uint64_t *segment);
/* The address at which the region is mapped in this process, and the number of bytes that are mapped there. */
crossdock_status crossdock_region_base(crossdock_region *region, void **base, uint64_t *capacity);
/* `writable` is 1 if this task may write to the region. It is 0 if the task may only read the region; a store to its
 * memory then ends in a SIGSEGV. */
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

/* Counts the region's blocks and objects. If other members change the region during the call, the numbers may be from
 * slightly different moments. */
crossdock_status crossdock_region_statistics_get(crossdock_region *region, crossdock_region_statistics *statistics);

typedef struct crossdock_heal_report {
    uint64_t slots;      /* heap slots of dead members that were repaired */
    uint64_t operations; /* half-done operations that were finished or undone */
    uint64_t objects;    /* objects whose maker or remover died before it had finished */
} crossdock_heal_report;

/* Repair now what dead members left half done in the region. The call is optional: without it, each half-done change is
 * repaired by the first member that meets the change. `report` (may be NULL) tells what was repaired. */
crossdock_status crossdock_region_heal(crossdock_region *region, crossdock_heal_report *report);

/* --------------------------------------------------------------- allocation */

/* Allocate raw memory of the region. The memory is not zeroed. `align` is a power of two, at most 4096; `size` is at
 * least
 * 1. Errors: NO_SPACE (the region, the quota or the node is full; the region stays usable), INVALID (`size` or
 * `align` is not allowed). The call does not block, except that it sometimes asks the daemon about the quota. If the
 * process dies before it stores the address in an object, the block is lost; crossdock_prepare avoids this. */
crossdock_status crossdock_allocate(crossdock_region *region, uint64_t size, uint64_t align, void **address);

/* Free a block. Any member may do this. NULL is ignored. After a member's death, the call first repairs what that
 * member left half done. BAD_HANDLE if no allocated block starts at the address, for example when a block is freed
 * twice. BUSY if the block belongs to a named object, or if a stopped member holds the region's lock; in both cases the
 * block stays allocated. */
crossdock_status crossdock_deallocate(crossdock_region *region, void *address);

/* Allocate a block as crossdock_allocate does. If this process dies before it passes the block to crossdock_replace or
 * crossdock_keep, the block is freed, so it does not leak. A thread may have three such blocks at a time; a fourth one
 * is like a block of crossdock_allocate. To give a prepared block up, call crossdock_keep and then
 * crossdock_deallocate. */
crossdock_status crossdock_prepare(crossdock_region *region, uint64_t size, uint64_t align, void **address);
crossdock_status crossdock_keep(crossdock_region *region, void *address);

/* Allocate and deallocate in the region that is mapped at the address `base`. These functions are for allocators in
 * shared containers, which know their region only by a relative pointer. NOT_FOUND if no region is mapped at `base`. */
crossdock_status crossdock_allocate_at(const void *base, uint64_t size, uint64_t align, void **address);
crossdock_status crossdock_deallocate_at(const void *base, void *address);

/* Replace `old_block` by `new_block` in one step. If the process is killed at any instruction, either all words are
 * written and the old block is free, or none is written and a prepared new block is free. `header` lies in the region
 * and is aligned to 8 bytes; `words` are `word_count` (1 to 16) 64-bit words that are copied to it. `new_block` and
 * `old_block` are starts of allocated blocks, or NULL for none. */
crossdock_status crossdock_replace(crossdock_region *region, void *header, const uint64_t *words, uint32_t word_count,
                                   void *new_block, void *old_block);

/* ------------------------------------------------------------------- object */

/* An object in a region, with its address in this process. */
typedef struct crossdock_object {
    void *address;
    crossdock_handle handle;
    uint64_t size;
    uint32_t created;  /* claim: 1 = new, zeroed, to be committed or abandoned; 0 = it existed */
    uint32_t reserved; /* 0 */
} crossdock_object;

/* Find or create a named object that is ready to use: new memory is zero, and a growing type is empty. The function is
 * for the types of the grammar (not cpp:Name). With CROSSDOCK_OPEN_ONLY it waits (timeout_ms) for another task to make
 * the object (NOT_FOUND immediately with CROSSDOCK_NO_WAIT, otherwise TIMED_OUT at the deadline). In every mode it also
 * waits while another living member is making the object, and gives NOT_YET if that member has not finished at the
 * deadline. With CROSSDOCK_NO_WAIT this second wait takes up to 60 s, except in the mode CROSSDOCK_OPEN_ONLY, which
 * gives NOT_YET immediately. CROSSDOCK_RECREATE frees the old object, which no task may be using. It first checks the
 * arguments, and that the new object is not larger than the region; if the region is too full for the new object, the
 * old one is gone. Errors: EXISTS (CROSSDOCK_CREATE_ONLY finds an object), WRONG_TYPE (the object has another type),
 * INVALID (the name or the type is not allowed), NO_SPACE (the region, the quota or the node is full), CORRUPT (the
 * region holds what no correct member writes). */
crossdock_status crossdock_object_open(crossdock_region *region, const char *name, const char *type, crossdock_mode mode,
                                       int64_t timeout_ms, crossdock_object *object);

/* Find or create a named object in two steps, if it needs a constructor. If `object->created` is 1, the caller fills
 * the zeroed memory, and then either commits the object, so that others see it, or abandons it. If the caller dies
 * before it commits, the name and the memory are free again. Errors as crossdock_object_open. If commit gives BUSY (a
 * member holds the region's lock and is stopped), call commit again later, or abandon the object. If abandon gives
 * BUSY, do not call abandon again: the library removes the object when this process next makes or removes an object of
 * this name, or gives the region up. */
crossdock_status crossdock_object_claim(crossdock_region *region, const char *name, const crossdock_type *type,
                                        crossdock_mode mode, int64_t timeout_ms, crossdock_object *object);
crossdock_status crossdock_object_commit(crossdock_region *region, const crossdock_object *object);
crossdock_status crossdock_object_abandon(crossdock_region *region, const crossdock_object *object);

/* Remove a named object and free its memory, with the elements of a vector, string or ndarray. If the type belongs to
 * one language (cpp:Name), only the object itself is freed, so destroy its contents first. No task may be using the
 * object. Handles to it become BAD_HANDLE, and the name is free again. Errors: NOT_FOUND, BUSY (a living member is
 * making it). */
crossdock_status crossdock_object_remove(crossdock_region *region, const char *name);

typedef struct crossdock_object_info {
    char name[CROSSDOCK_NAME_MAX + 1];
    char type[CROSSDOCK_TYPE_NAME_MAX + 1];
    crossdock_handle handle;
    uint64_t size;
    uint32_t align;
    uint32_t reserved; /* 0 */
} crossdock_object_info;

/* What the region's directory contains about one object. The call does not wait. NOT_FOUND: there is no object of this
 * name. */
crossdock_status crossdock_object_find(crossdock_region *region, const char *name, crossdock_object_info *info);

/* Lists all objects, sorted by name, except those that are still being made. Writes at most `capacity` of them to
 * `infos`, and their total number to `count`. To learn only how many objects there are, call this function with
 * capacity 0 (`infos` may be NULL in that case). */
crossdock_status crossdock_object_list(crossdock_region *region, crossdock_object_info *infos, size_t capacity,
                                       size_t *count);

/* ------------------------------------------------------------------- handle */

/* The handle of an object or allocated block of this region, from its address. INVALID if the address is not in the
 * region, BAD_HANDLE if no allocated block starts at the address. */
crossdock_status crossdock_handle_save(crossdock_region *region, const void *address, crossdock_handle *handle);

/* Find the object that a handle names: its address and size in this process (`object->created` is 0). If `type` is
 * NULL, any type is accepted. The handle is checked: BAD_HANDLE if it is of another region, if its block was freed, or
 * if no block starts at its offset; WRONG_TYPE if it names a named object of another type. A raw allocation has no
 * type, so only its size is compared with that of the type. */
crossdock_status crossdock_handle_load(crossdock_region *region, crossdock_handle handle, const crossdock_type *type,
                                       crossdock_object *object);

/* Find the object that a handle names when its region is not known. The region is opened if this process does not
 * have it open, and the caller gets a reference to the region. */
crossdock_status crossdock_session_load(crossdock_session *session, crossdock_handle handle, const crossdock_type *type,
                                        crossdock_region **region, crossdock_object *object);

/* ------------------------------------------------- vector, string, ndarray */

/* The header of a vector in shared memory. All languages have the same layout. `region` and `data` are self-relative:
 * the target is the address of the field plus its value; 0 is null. Change the fields only through the functions below
 * (or crossdock_replace). */
typedef struct crossdock_vector {
    int64_t region;    /* to the region's header, so that a task with the vector finds the allocator */
    int64_t data;      /* to the elements, aligned to 64 bytes */
    uint64_t size;     /* elements */
    uint64_t capacity; /* elements */
} crossdock_vector;

/* A string is a vector of bytes without a terminating zero. */
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
    uint64_t shape[CROSSDOCK_RANK_MAX]; /* `rank` lengths, followed by zeros */
    uint8_t reserved[32];               /* 0 */
} crossdock_ndarray;

/* Find or create a named vector of `element_type` ("f64" for a vector<f64>), empty at first. Modes, waiting and errors
 * as crossdock_object_open. */
crossdock_status crossdock_vector_open(crossdock_region *region, const char *name, const char *element_type,
                                       crossdock_mode mode, int64_t timeout_ms, crossdock_vector **vector);

/* Change the number of elements of a vector; new elements are zero. The elements may move. If the process is killed at
 * any instruction, the vector has its old or its new state, and nothing leaks. `element_size` must be the size of the
 * vector's elements; if the vector is a named object or a part of one, this is checked. Errors: NO_SPACE (the region
 * is full) and WRONG_TYPE (`element_size` is wrong): the vector is as it was. INVALID (the header is not in the
 * region, or `element_size` is 0), BAD_HANDLE (no vector can lie at this address), CORRUPT (the header holds what no
 * correct member writes), BUSY (a stopped member holds the region's lock). The call waits only for this
 * lock, or for one answer of the daemon.
 *
 * Elements may be or contain vectors, strings and ndarrays. Their contents stay as they are when the elements move, and
 * are freed when the elements are removed (if the process is killed meanwhile, some of the elements to be removed may
 * be left, and are empty). For this the library must know the type of the vector, so the vector must be a named object,
 * a part of one, or an element of a container in one. Elements of a vector in an object of an opaque type (cpp:Name),
 * or in memory of crossdock_allocate, must not contain vectors, strings or ndarrays. */
crossdock_status crossdock_vector_resize(crossdock_region *region, crossdock_vector *vector, uint64_t element_size,
                                         uint64_t elements);
/* Make room for this many elements without changing the number of elements. The call never shrinks the vector. */
crossdock_status crossdock_vector_reserve(crossdock_region *region, crossdock_vector *vector, uint64_t element_size,
                                          uint64_t elements);
/* The address and the number of a vector's elements. Both are checked: CORRUPT if they do not lie in the region. `data`
 * is NULL if the vector never had memory for elements. */
crossdock_status crossdock_vector_view(crossdock_region *region, const crossdock_vector *vector, uint64_t element_size,
                                       void **data, uint64_t *elements);

/* Find or create a named string, empty at first. */
crossdock_status crossdock_string_open(crossdock_region *region, const char *name, crossdock_mode mode,
                                       int64_t timeout_ms, crossdock_string **string);
/* Replace the contents of a string. `bytes` may be NULL if `length` is 0; they must not lie in the string itself. */
crossdock_status crossdock_string_assign(crossdock_region *region, crossdock_string *string, const char *bytes,
                                         uint64_t length);

/* Find or create a named ndarray of `element_type` ("f32" for an ndarray<f32>). A new ndarray gets this shape and
 * order, and its elements are zero. For an existing ndarray, shape and order are ignored (rank 0 and shape NULL are
 * allowed then); crossdock_ndarray_view gives the shape and order that the ndarray has. */
crossdock_status crossdock_ndarray_open(crossdock_region *region, const char *name, const char *element_type,
                                        crossdock_order order, uint32_t rank, const uint64_t *shape,
                                        crossdock_mode mode, int64_t timeout_ms, crossdock_ndarray **array);
/* Give an ndarray another shape, order, or both. The elements keep their order in memory, so their indices change; new
 * elements are zero. Errors and behaviour after a kill as crossdock_vector_resize. */
crossdock_status crossdock_ndarray_reshape(crossdock_region *region, crossdock_ndarray *array, uint64_t element_size,
                                           crossdock_order order, uint32_t rank, const uint64_t *shape);
/* The address of an ndarray's elements, and its order, rank and shape, all checked. `shape` must have room for
 * CROSSDOCK_RANK_MAX numbers. `order`, `rank` and `shape` may be NULL. */
crossdock_status crossdock_ndarray_view(crossdock_region *region, const crossdock_ndarray *array, uint64_t element_size,
                                        void **data, crossdock_order *order, uint32_t *rank, uint64_t *shape);

/* Accessors that check nothing, for data of tasks that are trusted (caveat 5 at the top of this file). They give NULL
 * if there is no data. */
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
    CROSSDOCK_FAN_OUT = 1,    /* one producer, up to 31 consumers; each message goes to all present consumers */
    CROSSDOCK_FAN_IN = 2,     /* up to 32 producers and one consumer */
    CROSSDOCK_WORK_QUEUE = 3, /* up to 32 producers, up to 31 consumers; each message goes to one consumer */
    CROSSDOCK_ANY_PATTERN = 4 /* for an existing port, the pattern that it has; for a new port, one-to-one */
} crossdock_pattern;

typedef struct crossdock_port_options {
    crossdock_pattern pattern;
    uint32_t capacity;   /* messages in flight; a power of two, 1 to 4096; 0: as the port has, or 8 for a new port */
    uint32_t persistent; /* not 0: a port that this call makes stays after the run, with its messages, until removed */
} crossdock_port_options;

#define CROSSDOCK_PORT_OPTIONS_INIT {CROSSDOCK_ANY_PATTERN, 0, 0}

/* A message as it is sent through a port. It has 64 bytes. */
typedef struct crossdock_message {
    crossdock_handle handle;                    /* the data; {0, 0} for none */
    uint64_t tag;                               /* for the program: a step, a kind .. */
    uint64_t position;                          /* set by receive: the message's number in the port; release needs it */
    uint32_t inline_length;                     /* the number of bytes used in inline_bytes */
    uint32_t reserved;                          /* 0 */
    uint8_t inline_bytes[CROSSDOCK_INLINE_MAX]; /* for the program: small data that needs no object */
} crossdock_message;

#define CROSSDOCK_MESSAGE_INIT {{0, 0}, 0, 0, 0, 0, {0}}

/* Open one end of a port. The end that is opened first creates the port, so producer and consumer may start in any
 * order. If `options` is NULL, an existing port keeps its options (from another task or the workflow file), and a new
 * port is one-to-one with 8 messages. The call does not wait for the other end (see crossdock_port_wait_peer). Errors:
 * INVALID (the name or the capacity is not allowed, or the options differ from those of the existing port), BUSY
 * (another living member still has the end after timeout_ms), DENIED (no grant for this end), NO_SPACE (the quota or
 * the node's memory does not suffice). The caller gets one reference. */
crossdock_status crossdock_port_open(crossdock_session *session, const char *name, crossdock_end end,
                                     const crossdock_port_options *options, int64_t timeout_ms, crossdock_port **port);

crossdock_status crossdock_port_ref(crossdock_port *port);
/* Giving up the last reference closes this end. If a process ends by exit(0), its ports are closed as
 * crossdock_port_close does. If a process ends with another status or by a signal, the port's other members get
 * PEER_DIED. */
crossdock_status crossdock_port_unref(crossdock_port *port);

/* Close this end of the port, so that the other end knows that this member did not die. If it is a producer's end, the
 * consumer still gets everything that was sent, and then CLOSED. If it is a consumer's end, the producer gets CLOSED.
 * Messages that were sent before any consumer came are lost when the last producer closes, so call
 * crossdock_port_wait_peer first. Messages that a closing consumer has not released are delivered again to the next
 * consumer. Later sends and receives at this end give CLOSED, and so do those in which other threads wait. The caller
 * still has to give up its reference. */
crossdock_status crossdock_port_close(crossdock_port *port);

/* Remove the name of a port. Members that have the port open keep it. Errors: NOT_FOUND (there is no port of this
 * name), DENIED (no grant to remove it). */
crossdock_status crossdock_port_remove(crossdock_session *session, const char *name);

/* Wait until a living member is at the other end of the port. Error: TIMED_OUT if no member came before the deadline;
 * NOT_YET with CROSSDOCK_NO_WAIT. */
crossdock_status crossdock_port_wait_peer(crossdock_port *port, int64_t timeout_ms);

/* Send a message. If the port is full, wait for a free cell, that is, for a credit. NOT_YET if no cell is free, with
 * CROSSDOCK_NO_WAIT. `bytes` is the amount of data that the handle stands for; it is used for the statistics (0 if
 * unknown). The object must not change until its credit is back (caveat 2 at the top of this file). Errors: TIMED_OUT
 * (the message names the consumer that has not released its messages), CLOSED (no cell is free, and all consumers have
 * closed their ends), PEER_DIED (no cell is free, all consumers are gone, and at least one of them died), INVALID (the
 * end is a consumer's, or `inline_length` is too large). After an error nothing was sent. */
crossdock_status crossdock_port_send(crossdock_port *port, const crossdock_message *message, uint64_t bytes,
                                     int64_t timeout_ms);

/* For a producer: wait until there is a free cell for the next send, and get back a handle whose message was released.
 * No consumer reads the object of this handle any more, so the object may be written again. Each handle comes back
 * once, the oldest first. The handle is {0, 0} if there is a free cell but no handle to give back (at first, or when
 * messages carried no handle). Errors as crossdock_port_send. */
crossdock_status crossdock_port_reclaim(crossdock_port *port, int64_t timeout_ms, crossdock_handle *handle);

/* Receive a message. If there is no message, wait for one; with CROSSDOCK_NO_WAIT: NOT_YET. The message belongs to this
 * consumer until it is released. Errors: TIMED_OUT (the message names the producer), CLOSED (all producers have closed
 * their ends), PEER_DIED (all producers are gone, and one of them died), INVALID (the end is a producer's), CORRUPT
 * (the port's memory holds what no correct member writes). Messages that were sent before a producer left or died are
 * received first. */
crossdock_status crossdock_port_receive(crossdock_port *port, int64_t timeout_ms, crossdock_message *message);

/* Release a message: give its cell, and with it the data, back to the producer. Release each received message once, in
 * any order. INVALID if the message was not received at this end or was released already. */
crossdock_status crossdock_port_release(crossdock_port *port, const crossdock_message *message);

/* Put a received message back: the next receive of this end gives it again. This is for a program that cannot use the
 * message now. The call never waits. INVALID if the message was not received at this end, was released, or was put back
 * already. */
crossdock_status crossdock_port_put_back(crossdock_port *port, const crossdock_message *message);

/* For event loops: a descriptor that becomes readable for poll(2) and epoll when something happens at the port after
 * crossdock_port_arm. The descriptor belongs to the port: do not read from it, close it or replace it by dup2. The
 * protocol:
 *     arm; if `ready` is 1, or when the descriptor is readable: disarm, then receive (or send) with CROSSDOCK_NO_WAIT
 *     until NOT_YET; then arm again.
 * The descriptor may become readable without an event, but no event is missed. `ready` is 1 if a message can be
 * received or sent now. */
crossdock_status crossdock_port_descriptor(crossdock_port *port, int *descriptor);
crossdock_status crossdock_port_arm(crossdock_port *port, int *ready);
crossdock_status crossdock_port_disarm(crossdock_port *port);

typedef struct crossdock_port_statistics {
    uint64_t messages;          /* messages that all producers have sent */
    uint64_t received;          /* messages that all consumers have released */
    uint64_t bytes_handed_over; /* the `bytes` of all sends, plus inline bytes */
    uint64_t bytes_copied;      /* the `bytes` of all calls of crossdock_port_note_copied */
    uint64_t producer_wait_ns;  /* time that producers waited for a free cell */
    uint64_t consumer_wait_ns;  /* time that consumers waited for a message */
    uint64_t sleeps;            /* how often an end went to sleep */
    uint64_t wakes;             /* how often an end woke another end */
    uint64_t redelivered;       /* messages delivered again because their consumer died or left */
    uint64_t voided;            /* messages whose producer died while it wrote them */
    uint64_t under_way;         /* messages in the port right now */
    uint64_t unused;            /* 0 */
} crossdock_port_statistics;

/* The counters of the whole port, not only of this end. The counters are in shared memory, so a member of the port
 * could falsify them. */
crossdock_status crossdock_port_statistics_get(crossdock_port *port, crossdock_port_statistics *statistics);

/* How this end of a port waits. Without a call of crossdock_port_set_waiting, the end waits adaptively. */
typedef enum crossdock_waiting {
    CROSSDOCK_WAIT_ADAPTIVE = 0, /* spins while spinning saves time and a CPU is free, and then sleeps */
    CROSSDOCK_WAIT_SPIN = 1,     /* spins until the deadline, for a task that has a CPU of its own */
    CROSSDOCK_WAIT_BLOCK = 2     /* sleeps immediately, without spinning */
} crossdock_waiting;

crossdock_status crossdock_port_set_waiting(crossdock_port *port, crossdock_waiting waiting);

/* Add `bytes` to this end's count of copied bytes, for example after the program has copied data out of a buffer that
 * is not in a region. */
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
 * An observer's addresses are valid until its version is given up (crossdock_series_version_unref). The data at these
 * addresses changes only when the version is refreshed.
 *
 * The pages of a published array stay where they are, so that the array's memory can be registered (RDMA, io_uring,
 * CUDA, a pending MPI_Irecv). Only CROSSDOCK_PAGES_MAY_MOVE and crossdock_publisher_begin move the pages. After such a
 * move, data that a device writes through an earlier registration is lost without an error.
 *
 * One thread at a time may use a publisher; calls of other threads wait. What a forked child writes to a publisher's
 * memory, only the child sees. */

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

/* A named value: an attribute of a version, or a constant. In a list of attributes to declare, only the kind is used. */
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
    crossdock_order order;                    /* for observers; crossdock treats the data as bytes */
    uint64_t shape[CROSSDOCK_RANK_MAX];       /* the present lengths */
    uint64_t max_shape[CROSSDOCK_RANK_MAX];   /* the largest lengths; 0: this dimension keeps its length */
    const crossdock_attribute *constants;     /* values that never change: spacing, units; NULL for none */
    size_t constant_count;
} crossdock_variable;

/* What a publish does when the series' pool is full and cannot grow, and observers hold all old versions. */
typedef enum crossdock_full {
    CROSSDOCK_FULL_WITHHOLD = 0, /* the publish returns 0 as the version's number, and the version is withheld */
    CROSSDOCK_FULL_FAIL = 1,     /* the publish fails with NO_SPACE */
    CROSSDOCK_FULL_TAKE_BACK = 2 /* the publish takes the oldest versions back from their observers */
} crossdock_full;

/* Whether a publish may put other memory pages at the variables' addresses. */
typedef enum crossdock_pages {
    CROSSDOCK_PAGES_STAY = 0,    /* the pages at the variables' addresses stay */
    CROSSDOCK_PAGES_MAY_MOVE = 1 /* a publish may change the pages, because no memory is registered */
} crossdock_pages;

/* How a publisher finds the bytes that changed since the last version. */
typedef enum crossdock_detect {
    CROSSDOCK_DETECT_AUTO = 0,           /* by the method that the library has measured to be cheapest */
    CROSSDOCK_DETECT_HINTS = 1,          /* only bytes that the program named as touched count as changed */
    CROSSDOCK_DETECT_PRIVATE_COPIES = 2, /* by private copies of pages, if pages may move */
    CROSSDOCK_DETECT_WRITE_PROTECT = 3,  /* by write protection, with which the kernel notes writes */
    CROSSDOCK_DETECT_COPY_ALL = 4,       /* without finding changes: each publish copies everything */
    CROSSDOCK_DETECT_COMPARE = 5         /* by comparing everything with the last version */
} crossdock_detect;

typedef struct crossdock_series_options {
    uint64_t capacity;      /* the pool's largest size in bytes, even if `keep` versions do not fit; 0: the quota */
    uint32_t chunk;         /* bytes of a chunk, a power of two from 4 KiB to 2 MiB; 0: by the size of the data */
    uint32_t keep;          /* versions kept besides the latest, even if no observer holds them */
    uint32_t max_observers; /* observers at a time; at most 1024 */
    crossdock_full full;
    crossdock_detect detect;
    crossdock_pages pages;
} crossdock_series_options;

#define CROSSDOCK_SERIES_OPTIONS_INIT {0, 0, 0, 64, CROSSDOCK_FULL_WITHHOLD, CROSSDOCK_DETECT_AUTO, CROSSDOCK_PAGES_STAY}

/* Begin to publish a series. `attributes` (may be NULL) are the attributes that the versions will have; other
 * attributes are declared by the first publish that has them. `options` may be NULL. If the former publisher of this
 * name ended or died, the new series takes over the name; observers of the old series keep their versions. Errors:
 * EXISTS (a living publisher has the name; the message names it), INVALID (a name, type, shape or size is not allowed),
 * DENIED (no grant to publish the series), NO_SPACE (the quota or the node's memory does not suffice). */
crossdock_status crossdock_publisher_open(crossdock_session *session, const char *name,
                                          const crossdock_variable *variables, size_t variable_count,
                                          const crossdock_attribute *attributes, size_t attribute_count,
                                          const crossdock_series_options *options, crossdock_publisher **publisher);
crossdock_status crossdock_publisher_ref(crossdock_publisher *publisher);
/* Giving up the last reference ends the series, as crossdock_publisher_end does, but waits at most for one answer. */
crossdock_status crossdock_publisher_unref(crossdock_publisher *publisher);

/* The address of a variable, and its present number of bytes (`bytes` may be NULL). The address is the same as long as
 * the publisher exists, also after a resize, except between begin and publish or abandon. The memory pages at the
 * address also stay the same until crossdock_publisher_begin is called, unless the series was opened with
 * CROSSDOCK_PAGES_MAY_MOVE. NOT_FOUND: there is no such variable. */
crossdock_status crossdock_publisher_memory(crossdock_publisher *publisher, const char *variable, void **data,
                                            uint64_t *bytes);
/* The present shape of a variable. `shape` has room for CROSSDOCK_RANK_MAX lengths. NOT_FOUND: there is no such
 * variable. */
crossdock_status crossdock_publisher_shape(crossdock_publisher *publisher, const char *variable, uint32_t *dimensions,
                                           uint64_t *shape);
/* Give a variable another shape, within its largest shape. New elements are zero. The shape is published with the
 * next version. INVALID: the shape is beyond the largest one. NOT_FOUND: there is no such variable. BUSY: a version
 * is begun. */
crossdock_status crossdock_publisher_resize(crossdock_publisher *publisher, const char *variable, const uint64_t *shape,
                                            uint32_t dimensions);
/* Tell the library that these bytes of a variable were written. The call is needed with CROSSDOCK_DETECT_HINTS only. */
crossdock_status crossdock_publisher_touched(crossdock_publisher *publisher, const char *variable, uint64_t from,
                                             uint64_t bytes);

/* Publish the present contents of the variables as the next version, with these attributes. `sequence` (may be NULL) is
 * the number of the version, from 1 on. A `sequence` of 0 means that the version was withheld, because the pool
 * cannot grow and observers hold all old versions. The changes of a withheld version are part of the next version
 * that finds room. The call waits for no observer. NO_SPACE (with CROSSDOCK_FULL_FAIL): nothing was published, and
 * nothing is lost. INVALID: an attribute's name or value is not allowed. WRONG_TYPE: an attribute was declared with
 * another kind. CLOSED: the series has ended. */
crossdock_status crossdock_publisher_publish(crossdock_publisher *publisher, const crossdock_attribute *attributes,
                                             size_t attribute_count, uint64_t *sequence);

/* For programs that write all data for each version. After begin, the variables' memory is the next version itself, at
 * other addresses (crossdock_publisher_memory), with undefined contents. Write all of it, then publish, which copies
 * nothing. Afterwards the variables are at their own addresses again, but other pages lie there, so memory that was
 * registered must be registered again. crossdock_publisher_abandon gives up the begun version. Errors: begin gives BUSY
 * if a version is begun already; abandon gives INVALID if no version is begun. */
crossdock_status crossdock_publisher_begin(crossdock_publisher *publisher);
crossdock_status crossdock_publisher_abandon(crossdock_publisher *publisher);

typedef struct crossdock_publisher_statistics {
    uint64_t versions;       /* versions published so far */
    uint64_t chunk;          /* bytes of a chunk */
    uint64_t withheld;       /* publishes that withheld their version */
    uint64_t slots_used;     /* chunks that some version holds */
    uint64_t slots_reserved; /* chunks that the pool has memory for */
    uint64_t copied;         /* chunks copied so far */
    uint64_t shared;         /* chunks taken over from the version before */
    uint64_t last_ns;        /* how long the last publish took */
    uint64_t longest_ns;     /* how long the longest publish took */
    uint64_t no_space;       /* publishes that failed for lack of room */
    uint64_t taken_back;     /* versions taken back from observers */
    uint64_t method;         /* how changes are found now: 0 copy all, 1 hints, 2 private copies, 3 write protection,
                                4 written in place, 5 comparison */
} crossdock_publisher_statistics;

crossdock_status crossdock_publisher_statistics_get(crossdock_publisher *publisher,
                                                    crossdock_publisher_statistics *statistics);
/* End the series, so that no more versions come. Observers still get the last version, and then CLOSED. If the last
 * version was withheld because the daemon did not answer in time, and if the variables have not changed since, the call
 * first publishes this version, and waits up to 5 s for the daemon. The memory stays until the last reference is given
 * up. */
crossdock_status crossdock_publisher_end(crossdock_publisher *publisher);

/* Remove the name of a series. Observers keep their versions. Errors: NOT_FOUND (there is no series of this name),
 * DENIED (no grant to remove it), BUSY (a member publishes the series). */
crossdock_status crossdock_series_remove(crossdock_session *session, const char *name);

/* Observe the series of this name in the current run. If the series does not exist yet, wait for it up to `timeout_ms`.
 * NOT_FOUND: there is no such series (CROSSDOCK_NO_WAIT). TIMED_OUT: no such series came before the deadline. DENIED:
 * no grant to observe the series. NO_SPACE: the series has as many observers as it allows. */
crossdock_status crossdock_observer_open(crossdock_session *session, const char *name, int64_t timeout_ms,
                                         crossdock_observer **observer);
/* Observe the latest series of this name from any run, also from a run that has ended. Otherwise as
 * crossdock_observer_open. */
crossdock_status crossdock_observer_open_former(crossdock_session *session, const char *name, int64_t timeout_ms,
                                                crossdock_observer **observer);
crossdock_status crossdock_observer_ref(crossdock_observer *observer);
crossdock_status crossdock_observer_unref(crossdock_observer *observer);
/* A number that identifies this incarnation of the series. When a publisher is restarted, its series gets another
 * number. */
crossdock_status crossdock_observer_id(crossdock_observer *observer, uint64_t *id);

typedef enum crossdock_series_state {
    CROSSDOCK_SERIES_LIVE = 0,  /* the publisher is alive and may publish further versions */
    CROSSDOCK_SERIES_ENDED = 1, /* the publisher has ended the series itself: no further version will follow */
    CROSSDOCK_SERIES_DIED = 2   /* the publisher died: no further version will follow */
} crossdock_series_state;

crossdock_status crossdock_observer_state(crossdock_observer *observer, crossdock_series_state *state);

/* The description of a variable in a series. The texts are copies, which stay valid. */
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
/* A variable by its index, in the order of declaration. NOT_FOUND if the index is too large. */
crossdock_status crossdock_observer_variable(crossdock_observer *observer, uint32_t index,
                                             crossdock_variable_info *variable);
/* The constant `name` of a variable. NOT_FOUND: there is no such variable or constant. */
crossdock_status crossdock_observer_constant(crossdock_observer *observer, const char *variable, const char *name,
                                             crossdock_value *value);

/* The newest version. If no version was published: NOT_YET while the publisher lives, CLOSED if it has ended,
 * PEER_DIED if it died. BUSY: this observer holds CROSSDOCK_VERSIONS_MAX versions already. The version belongs to the
 * caller until crossdock_series_version_unref. */
crossdock_status crossdock_observer_latest(crossdock_observer *observer, crossdock_series_version **version);
/* Wait for a version that is newer than the last one that this observer gave, and get the newest. If there is no newer
 * version: NOT_YET (CROSSDOCK_NO_WAIT), TIMED_OUT (at the deadline), CLOSED (the publisher has ended the series),
 * PEER_DIED (the publisher died). */
crossdock_status crossdock_observer_next(crossdock_observer *observer, int64_t timeout_ms, crossdock_series_version **version);
/* Wait for the version that follows the one that this observer gave last. Versions that no longer exist are skipped,
 * and crossdock_series_version_missed counts them. If the observer has given no version yet, the call gives the oldest
 * version that exists. Errors as crossdock_observer_next. */
crossdock_status crossdock_observer_each(crossdock_observer *observer, int64_t timeout_ms, crossdock_series_version **version);
/* Waits until the version with this number is published, and gives it. NOT_FOUND: the version no longer exists, or never
 * existed. NOT_YET (CROSSDOCK_NO_WAIT): the version is not published yet. Other errors as crossdock_observer_next. */
crossdock_status crossdock_observer_at(crossdock_observer *observer, uint64_t sequence, int64_t timeout_ms,
                                       crossdock_series_version **version);

crossdock_status crossdock_series_version_ref(crossdock_series_version *version);
crossdock_status crossdock_series_version_unref(crossdock_series_version *version);
crossdock_status crossdock_series_version_sequence(crossdock_series_version *version, uint64_t *sequence);
/* The time at which the version was published, in nanoseconds since 1970. */
crossdock_status crossdock_series_version_time(crossdock_series_version *version, uint64_t *time_ns);
/* The number of versions that crossdock_observer_each skipped just before this version, because they no longer
 * existed. */
crossdock_status crossdock_series_version_missed(crossdock_series_version *version, uint64_t *missed);
/* `valid` is 0 if the publisher has taken the version back (CROSSDOCK_FULL_TAKE_BACK). Data that
 * crossdock_series_version_data gave before stays as it is. */
crossdock_status crossdock_series_version_valid(crossdock_series_version *version, int *valid);
/* The elements of a variable as contiguous memory, which must not be written. NOT_FOUND: there is no such variable, or
 * the version was taken back before its data was first asked for (the message names the policy). */
crossdock_status crossdock_series_version_data(crossdock_series_version *version, const char *variable, const void **data,
                                        uint64_t *bytes);
/* The description of the variable of this name. NOT_FOUND: there is no such variable. */
crossdock_status crossdock_series_version_variable(crossdock_series_version *version, const char *variable,
                                                   crossdock_variable_info *info);
/* The shape of a variable in this version. `shape` must have room for CROSSDOCK_RANK_MAX numbers. */
crossdock_status crossdock_series_version_shape(crossdock_series_version *version, const char *variable, uint32_t *dimensions,
                                         uint64_t *shape);
crossdock_status crossdock_series_version_attribute_count(crossdock_series_version *version, uint32_t *count);
/* An attribute of the version by its index: `name` (a buffer of CROSSDOCK_NAME_MAX + 1 bytes, or NULL) gets its name,
 * and `value` its value. */
crossdock_status crossdock_series_version_attribute_at(crossdock_series_version *version, uint32_t index, char *name,
                                                crossdock_value *value);
/* An attribute by name. NOT_FOUND: this version has no attribute of this name. */
crossdock_status crossdock_series_version_attribute(crossdock_series_version *version, const char *name, crossdock_value *value);

/* Turn a version into the newest one. No other thread may use the version meanwhile. Only the chunks that differ are
 * mapped again, so addresses that crossdock_series_version_data gave before stay valid and show the new version.
 * `remapped` (may be NULL) is the number of chunks that were mapped or copied. An array is copied instead of mapped if
 * the process may make no further mappings, or if the publisher may take versions back. From the fourth refresh on, an
 * array with room for at most 64 KiB is copied too, because a copy takes less time. NO_SPACE or SYSTEM: the kernel gives
 * no memory for such a copy. After this error, ask for the arrays' addresses again. */
crossdock_status crossdock_series_version_refresh(crossdock_series_version *version, uint64_t *remapped);

/* A range of bytes of one variable in which two versions may differ. `variable` is the variable's index. */
typedef struct crossdock_change {
    uint32_t variable;
    uint32_t reserved;
    uint64_t from;
    uint64_t bytes;
} crossdock_change;

/* The chunks in which two versions of a series differ. `count` is the number of changes; at most `room` of them are
 * written. INVALID: the versions are of different series. */
crossdock_status crossdock_series_version_diff(crossdock_series_version *before, crossdock_series_version *after, crossdock_change *changes,
                                        size_t room, size_t *count);

/* -------------------------------------------------------------- checkpoints */

/* Reads the files that `crossdock checkpoint` wrote; no daemon is needed. One file contains one version of one series,
 * or of the series of all ranks. If a file has only one series, `series` may be NULL. Data is given only if its
 * checksum is right. */
typedef struct crossdock_checkpoint crossdock_checkpoint; /* a counted reference, as sessions are */

/* Open the newest undamaged checkpoint of a folder. `name` is the part of the file names before the number (`field`);
 * it may be NULL if the folder has checkpoints of only one name. Damaged checkpoints are skipped
 * (crossdock_checkpoint_skipped lists them). The whole file is read once. `folder` may also be the path of one
 * checkpoint file, which is then opened. A program of several ranks needs this: one rank chooses the newest checkpoint
 * and tells the other ranks its path, because a newer checkpoint may be saved between the calls of two ranks. Errors:
 * NOT_FOUND (there is no checkpoint, so the program starts for the first time), CORRUPT (all checkpoints are damaged),
 * INVALID (`name` is NULL, and the folder has checkpoints of several names; or the given file does not exist), DENIED
 * (this user may not read the folder or a file), SYSTEM (the kernel refuses another call). */
crossdock_status crossdock_checkpoint_restart(const char *folder, const char *name, crossdock_checkpoint **checkpoint);
/* Open the checkpoint file at this path. Errors: NOT_FOUND (there is no such file), CORRUPT (it is damaged or no
 * checkpoint), DENIED (this user may not read it), SYSTEM (the kernel refuses another call). */
crossdock_status crossdock_checkpoint_open(const char *path, crossdock_checkpoint **checkpoint);
crossdock_status crossdock_checkpoint_ref(crossdock_checkpoint *checkpoint);
crossdock_status crossdock_checkpoint_unref(crossdock_checkpoint *checkpoint);

/* The path of the checkpoint's file. NO_SPACE if the buffer is too small. */
crossdock_status crossdock_checkpoint_path(crossdock_checkpoint *checkpoint, char *buffer, size_t buffer_size);
/* The number of checkpoints that are newer than this one and were skipped because they are damaged. `buffer` (may be
 * NULL) gets one line for each skipped checkpoint, as far as the lines fit. */
crossdock_status crossdock_checkpoint_skipped(crossdock_checkpoint *checkpoint, uint32_t *count, char *buffer,
                                              size_t buffer_size);

/* The number of the version, and the attributes that its publisher gave it. Errors: NOT_FOUND (there is no such
 * series or attribute; the message names the attributes that exist), WRONG_TYPE (the attribute is of another kind),
 * NO_SPACE (the buffer is too small). crossdock_checkpoint_real also accepts attributes that are whole numbers;
 * crossdock_checkpoint_text accepts attributes of all kinds. */
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
    uint64_t shape[8]; /* C order: reversed if the variable was declared with CROSSDOCK_ORDER_FORTRAN */
    uint32_t rank;
    uint32_t reserved; /* 0 */
} crossdock_checkpoint_variable;

/* The description of a variable in a checkpoint. Errors: NOT_FOUND (the message names the variables that exist). */
crossdock_status crossdock_checkpoint_variable_info(crossdock_checkpoint *checkpoint, const char *series,
                                                    const char *name, crossdock_checkpoint_variable *info);
/* Read all elements into memory of exactly `bytes` bytes, for example into a publisher's array. Errors: WRONG_TYPE (the
 * variable has more or fewer than `bytes` bytes), NOT_FOUND (there is no such variable), CORRUPT (the data are damaged:
 * do not use the memory's contents), SYSTEM (the file cannot be read). */
crossdock_status crossdock_checkpoint_read(crossdock_checkpoint *checkpoint, const char *series, const char *name,
                                           void *into, size_t bytes);

/* Fill the variables of a publisher from the newest undamaged checkpoint of its series. `folder` is a folder of
 * checkpoints, or the path of the file that another rank has chosen, as in crossdock_checkpoint_restart. Each array
 * that is stored is filled, and is resized if it had another shape. `checkpoint` (may be NULL) gets the checkpoint, for
 * its attributes. No other code may use the arrays during the call. Errors: NOT_FOUND (there is no checkpoint, so the
 * program starts for the first time), CORRUPT (all checkpoints are damaged), INVALID (the checkpoint is of another
 * number of ranks, or the publisher lacks a stored variable, or its largest shape is smaller than the stored one),
 * WRONG_TYPE (a stored array has another type than the publisher's), BUSY (a version is begun, and an array would have
 * to be resized), NO_SPACE (the node's memory does not suffice), DENIED (this user may not read the folder or a file),
 * SYSTEM (the kernel refuses another call). The arrays are unchanged after an error, with two exceptions. If the file
 * can no longer be read after it was checked, then, after SYSTEM or CORRUPT, some arrays may have been resized or
 * filled. If the kernel refuses memory while several arrays with CROSSDOCK_PAGES_MAY_MOVE become smaller, those
 * elements of these arrays that are not stored may be 0. */
crossdock_status crossdock_publisher_restart(crossdock_publisher *publisher, const char *folder,
                                             crossdock_checkpoint **checkpoint);

/* Append the rank to a name, for the series of a parallel program: `field` becomes `field/3` on rank 3. `rank` is an
 * MPI rank, or -1 for the rank that the launcher gave (OMPI_COMM_WORLD_RANK, PMIX_RANK, PMI_RANK,
 * MV2_COMM_WORLD_RANK, SLURM_PROCID, CROSSDOCK_RANK; 0 without any). Errors: INVALID (the name is invalid or becomes
 * too long, `rank` is less than -1 or too large, or the launcher's variable is not a number), NO_SPACE (the buffer is
 * too small; CROSSDOCK_NAME_MAX + 1 bytes are always enough). */
crossdock_status crossdock_ranked_name(const char *name, int64_t rank, char *buffer, size_t buffer_size);
/* --------------------------------------------------------------------- item */

/* A data object that exactly one task owns. Only its owner can read and write it, hand it to another task, share it for
 * reading, copy it, resize it and destroy it. At each transfer the kernel proves that the former owner has no access left.
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
 * The reference of an item that was transferred or destroyed is spent: each function gives CROSSDOCK_CLOSED, and the message
 * names the new owner. Addresses in an item are invalid after its transfer, sharing, unsharing, resizing and destruction,
 * and after the last reference was given up: a later load or store is a SIGSEGV, and never shows another owner's bytes.
 * `to` names a task: "combine" (the first rank that accesses the item), "detect/1" (rank 1), "#7" (the task that registered
 * 7). The task need not exist yet. Calls for owners give CROSSDOCK_DENIED to readers. */
typedef struct crossdock_item crossdock_item;

typedef enum crossdock_item_level {
    CROSSDOCK_LEVEL_DEFAULT = 0, /* verified */
    CROSSDOCK_COOPERATIVE = 1,   /* for tasks that trust each other: no call to the daemon, and no proof */
    CROSSDOCK_VERIFIED = 2,      /* the former owner provably closed the item, or the new owner gets a copy */
    CROSSDOCK_STRICT = 3         /* the new owner always gets fresh pages */
} crossdock_item_level;

/* What happens to an item when its owner dies or leaves. */
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
    char owner[CROSSDOCK_NAME_MAX + 1];   /* in the form of `to`: "detect/1", "detect", "#7" */
    char creator[CROSSDOCK_NAME_MAX + 1]; /* the task that made the item */
    uint64_t size;                        /* bytes */
    uint64_t since_ms;                    /* how long the owner has had the item */
    uint64_t transfers;                   /* how often the item has changed its owner */
    uint64_t copies;                      /* how often the item was copied because a former owner still had it open */
    crossdock_item_state state;
    crossdock_item_level level;
    crossdock_item_policy on_death;
    uint32_t readers; /* members that read the item now, including its owner */
    uint32_t waiting; /* requests that wait for the item */
    uint32_t mine;    /* 1: this task owns the item */
} crossdock_item_info;

/* Give this rank of this task a number as a second name: a transfer to "#7" goes to the rank that registered 7, even if
 * it registers the number later. EXISTS: another rank or task has the number. DENIED: this task may own no item.
 * CDI_register of crossdock/cdi.h calls this function. */
crossdock_status crossdock_session_register_number(crossdock_session *session, uint64_t number);

/* Make an item of `size` zero bytes. This task owns the item. If `options` is NULL, the item has the level
 * CROSSDOCK_VERIFIED and the policy CROSSDOCK_KEEP. EXISTS: an item has this key (the message names its owner).
 * NO_SPACE: the quota or the node's memory does not suffice. INVALID: the key is not a name, or the size is 0. DENIED:
 * no grant to own the item. The caller gets one reference. */
crossdock_status crossdock_item_create(crossdock_session *session, const char *key, uint64_t size,
                                       const crossdock_item_options *options, crossdock_item **item);

/* What the daemon knows about an item of this workflow. The task need not own the item. NOT_FOUND: there is no item of
 * this key, or this task may not see it. On one node the answer comes immediately. In a site, the call waits up to 5 s
 * for an item that is on its way between two nodes: TIMED_OUT if it has not arrived, DISCONNECTED if its node or the
 * catalog does not answer. */
crossdock_status crossdock_item_find(crossdock_session *session, const char *key, crossdock_item_info *info);

/* Wait until this task owns the item, and open it. The item need not exist yet. Waiting tasks are served in the order
 * of their calls. NOT_YET with CROSSDOCK_NO_WAIT if another task owns it; TIMED_OUT (the message names the owner and
 * tells since when it has the item); NOT_FOUND with CROSSDOCK_NO_WAIT if the item does not exist, or if it is destroyed
 * during the wait; BUSY: this process has the item open already. In a site, even with CROSSDOCK_NO_WAIT: TIMED_OUT
 * after 5 s if the item is on its way between two nodes, DISCONNECTED if its node or the catalog does not answer. */
crossdock_status crossdock_item_access(crossdock_session *session, const char *key, int64_t timeout_ms,
                                       crossdock_item **item);

/* Wait for several items, at most 24, and open the first one that this task owns. `index` tells which of `keys` it is.
 * In all other respects the call works like crossdock_item_access. */
crossdock_status crossdock_item_access_any(crossdock_session *session, const char *const *keys, size_t count,
                                           int64_t timeout_ms, size_t *index, crossdock_item **item);

/* Wait until the owner of an item shares it, and open it for reading. The reader cannot write the memory in any way.
 * Give up the reference, so that the owner can take the item back. */
crossdock_status crossdock_item_read(crossdock_session *session, const char *key, int64_t timeout_ms,
                                     crossdock_item **item);

/* Hand the item to a task in one step. Afterwards the other task owns it. If that task waits for the item, it gets the
 * item immediately. INVALID: `to` is no name of a task, or is this task. DENIED: that task has no grant to own the
 * item. BUSY: a region that was opened in the item is in use. CLOSED: this task has already handed the item on. After
 * any other error this task still owns the item; ask for its address again. */
crossdock_status crossdock_item_transfer(crossdock_item *item, const char *to);

/* Make a new item with the same bytes. This task owns the new item. Later changes of one of the two items do not change
 * the other. Errors as crossdock_item_create. */
crossdock_status crossdock_item_copy(crossdock_item *item, const char *key, crossdock_item **copy);

/* Destroy the item. Tasks that wait for it get NOT_FOUND. */
crossdock_status crossdock_item_destroy(crossdock_item *item);

/* Let other tasks read the item. Until crossdock_item_unshare, no task can write the item, not even the owner, and the
 * owner's other calls that would change the item give BUSY. Ask for the item's address again after this call. INVALID:
 * a cooperative item, which all its tasks can read anyway. */
crossdock_status crossdock_item_share(crossdock_item *item);
/* Take a shared item back. The call waits, at most until the deadline, for the readers to close the item. A reader that
 * still has it open at the deadline keeps the old bytes, and this task gets a copy of its own. During the call, calls
 * of other threads for the item give BUSY. */
crossdock_status crossdock_item_unshare(crossdock_item *item, int64_t timeout_ms);

/* Give the item another size. The bytes up to the smaller of the two sizes stay as they are; new bytes are zero. Ask
 * for the item's address again after this call. NO_SPACE: the quota or the node's memory does not suffice, and the item
 * is unchanged. INVALID: the size is 0, or the item is cooperative. */
crossdock_status crossdock_item_resize(crossdock_item *item, uint64_t size);

/* The address and the size of the item in this process. The address is page-aligned. crossdock_item_writable tells
 * whether the memory may be written. */
crossdock_status crossdock_item_data(crossdock_item *item, void **data, uint64_t *size);
crossdock_status crossdock_item_writable(crossdock_item *item, int *writable);
/* The key of the item, copied with a terminating zero. A buffer of CROSSDOCK_NAME_MAX + 1 bytes is always large enough. */
crossdock_status crossdock_item_key(crossdock_item *item, char *buffer, size_t buffer_size);

/* Describe the item as an array without gaps that begins at its first byte, with this `element_type`, order and shape.
 * The bytes stay as they are. INVALID if the array does not fit. */
crossdock_status crossdock_item_set_array(crossdock_item *item, const char *element_type, crossdock_order order,
                                          uint32_t rank, const uint64_t *shape);
/* The description of the item as an array, checked against its size. `shape` must have room for CROSSDOCK_RANK_MAX
 * numbers. WRONG_TYPE: the item is not described as an array. */
crossdock_status crossdock_item_array(crossdock_item *item, char *element_type, size_t element_type_size,
                                      crossdock_order *order, uint32_t *rank, uint64_t *shape);

/* Open the heap in an item as a region. Objects, vectors, arrays and handles work in it as in any region, and are
 * handed on together with the item. CROSSDOCK_CREATE_ONLY makes the heap in the item's zero bytes (at least 256 KiB);
 * CROSSDOCK_OPEN_ONLY opens a heap that exists (WRONG_TYPE: there is none); CROSSDOCK_RECREATE clears the item first.
 * Give up the region before you hand the item on or recreate its heap; as long as the region is open, these calls give
 * BUSY. The region of a cooperative item counts also after the item was closed and opened again. */
crossdock_status crossdock_item_region(crossdock_item *item, crossdock_mode mode, crossdock_region **region);

crossdock_status crossdock_item_ref(crossdock_item *item);
/* Giving up the last reference unmaps the item. If this task owns the item, it stays the owner and can access the item
 * again. */
crossdock_status crossdock_item_unref(crossdock_item *item);

/* -------------------------------------------------------------------- files */

/* Wait until the file exists, if it lies in a managed directory that this task consumes (`files:` in the workflow
 * file). For every other path, and outside of `crossdock run`, return OK immediately. Open the file afterwards as
 * usual. Blocks at most for the directory's `wait`. Any number of threads may wait, and no session is needed.
 * NOT_FOUND: the producers have ended without the file. TIMED_OUT: the directory's `wait` is over. SYSTEM: a signal
 * interrupted the wait, and its handler was installed without SA_RESTART. */
crossdock_status crossdock_file_await(const char *path);

#ifdef __cplusplus
}
#endif

#endif
