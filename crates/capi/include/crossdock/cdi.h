/* cdi.h: container data items by the names and return codes of the paper
 *
 *     Rahman et al., "Container Data Item: An Abstract Datatype for Efficient Container-based Edge Computing", III-B
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 *     CDI frame;
 *     CDI_register(1);                              -- this container's id
 *     if (CDI_create(&frame, "frame.1", size) == 1) {
 *         fill(CDI_data(&frame), CDI_size(&frame));
 *         CDI_transfer(&frame, 2);                  -- container 2 owns it now; CDI_data is NULL here
 *         CDI_access(&frame);                       -- blocks until this container owns it again
 *         CDI_destroy(&frame);
 *     }
 *
 * A CDI variable is what the paper means by it: it names an object, which this task or another task owns. Each call
 * returns 1, 0 or -1 with the meaning that the paper gives. In cases that the paper leaves open (for example a transfer
 * by a task that is not the owner), the call returns -1, and crossdock_error_message() of crossdock.h has the reason.
 * This header implements the calls over crossdock.h. crossdock.h also has what the paper lacks: deadlines, sharing,
 * resizing, waiting for any of several items.
 *
 * CDI_register makes a container id known. An object may be transferred to an id before that call; the object then
 * waits for the container. The functions use the process's default session (CROSSDOCK_SOCKET and so on, see
 * crossdock_session_default).
 */
#ifndef CROSSDOCK_CDI_H
#define CROSSDOCK_CDI_H

#include <crossdock.h>

#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef const char *CDI_key;
typedef int CDI_container;

/* A CDI variable: it names an object, and gives access to it while this container owns the object. CDI_create, CDI_use
 * or CDI_copy makes it. CDI_release gives the variable up and leaves the object as it is. */
typedef struct CDI {
    char key[CROSSDOCK_NAME_MAX + 1];
    crossdock_item *item; /* NULL: as far as this variable knows, this container does not own the object */
} CDI;

#define CDI_INIT {{0}, NULL}

static inline int CDI_variable(CDI *c, CDI_key k, crossdock_item *item)
{
    size_t length = strlen(k);
    memcpy(c->key, k, length + 1);
    c->item = item;
    return 1;
}

static inline int CDI_good_key(CDI_key k)
{
    if (k && strlen(k) <= CROSSDOCK_NAME_MAX)
        return 1;
    crossdock_error_raise(CROSSDOCK_INVALID, "a CDI_key is a name of at most 127 bytes");
    return 0;
}

/* Gives the id `c_id` to the container of this process. 1: done. -1: not possible, for example because another
 * container has the id. */
static inline int CDI_register(CDI_container c_id)
{
    crossdock_session *session;
    if (c_id < 0) {
        crossdock_error_raise(CROSSDOCK_INVALID, "a CDI_container is a number from 0");
        return -1;
    }
    if (crossdock_session_default(&session) != CROSSDOCK_OK)
        return -1;
    crossdock_status status = crossdock_session_register_number(session, (uint64_t)c_id);
    crossdock_session_unref(session);
    return status == CROSSDOCK_OK ? 1 : -1;
}

/* Makes an object. 1: there is a new object with key k and s bytes of data, and this container owns it. 0: an object of
 * this key exists already. -1: the object cannot be created, for example for lack of memory. */
static inline int CDI_create(CDI *c, CDI_key k, size_t s)
{
    crossdock_session *session;
    crossdock_item *item;
    if (!CDI_good_key(k) || crossdock_session_default(&session) != CROSSDOCK_OK)
        return -1;
    crossdock_status status = crossdock_item_create(session, k, s, NULL, &item);
    crossdock_session_unref(session);
    if (status == CROSSDOCK_OK)
        return CDI_variable(c, k, item);
    return status == CROSSDOCK_EXISTS ? 0 : -1;
}

/* Lets the variable c stand for an existing object. 1: c stands for the object of key k, even if another container owns
 * the object. 0: there is no such object. -1: the call could not find out whether there is one. */
static inline int CDI_use(CDI *c, CDI_key k)
{
    crossdock_session *session;
    crossdock_item_info info;
    if (!CDI_good_key(k) || crossdock_session_default(&session) != CROSSDOCK_OK)
        return -1;
    crossdock_status status = crossdock_item_find(session, k, &info);
    crossdock_session_unref(session);
    if (status == CROSSDOCK_OK)
        return CDI_variable(c, k, NULL);
    return status == CROSSDOCK_NOT_FOUND ? 0 : -1;
}

/* Copies an object. 1: `copy` is a new object of key k, and this container owns it. It is an exact copy of c, and
 * independent of c. 0: an object of this key exists already. -1: the copy cannot be created, or this container does not
 * own c. */
static inline int CDI_copy(CDI *copy, CDI *c, CDI_key k)
{
    crossdock_item *item;
    if (!CDI_good_key(k))
        return -1;
    crossdock_status status = crossdock_item_copy(c->item, k, &item);
    if (status == CROSSDOCK_OK)
        return CDI_variable(copy, k, item);
    return status == CROSSDOCK_EXISTS ? 0 : -1;
}

/* Blocks until this container owns the object, and returns 1. -1: the object was destroyed, or the node daemon is gone.
 * For a wait with a deadline, use crossdock_item_access. */
static inline int CDI_access(CDI *c)
{
    crossdock_session *session;
    crossdock_item *item;
    crossdock_status status;
    if (c->item)
        return 1;
    if (crossdock_session_default(&session) != CROSSDOCK_OK)
        return -1;
    do
        status = crossdock_item_access(session, c->key, CROSSDOCK_WAIT, &item);
    while (status == CROSSDOCK_TIMED_OUT);
    crossdock_session_unref(session);
    if (status != CROSSDOCK_OK)
        return -1;
    c->item = item;
    return 1;
}

/* Transfers the object. 1: container c_id owns the object now, and this container does not. -1: this container does not
 * own it. */
static inline int CDI_transfer(CDI *c, CDI_container c_id)
{
    char to[16];
    snprintf(to, sizeof to, "#%d", c_id);
    if (crossdock_item_transfer(c->item, to) != CROSSDOCK_OK)
        return -1;
    crossdock_item_unref(c->item);
    c->item = NULL;
    return 1;
}

/* Destroys the object. 1: the object is destroyed. -1: this container does not own it. */
static inline int CDI_destroy(CDI *c)
{
    if (crossdock_item_destroy(c->item) != CROSSDOCK_OK)
        return -1;
    crossdock_item_unref(c->item);
    c->item = NULL;
    return 1;
}

/* The address of the object's bytes if this container owns the object, or else NULL. */
static inline void *CDI_data(const CDI *c)
{
    void *data;
    uint64_t size;
    return c->item && crossdock_item_data(c->item, &data, &size) == CROSSDOCK_OK ? data : NULL;
}

/* The number of bytes of the object (dataSize in the paper) if this container owns the object, or else 0. */
static inline size_t CDI_size(const CDI *c)
{
    void *data;
    uint64_t size;
    return c->item && crossdock_item_data(c->item, &data, &size) == CROSSDOCK_OK ? (size_t)size : 0;
}

/* Gives up the variable. If this container owns the object, it stays the owner. */
static inline void CDI_release(CDI *c)
{
    crossdock_item_unref(c->item);
    c->item = NULL;
}

#ifdef __cplusplus
}
#endif

#endif
