/* crossdock_mpi.h: handles in MPI messages (Dhmem, section III-C, Listing 5).
 *
 *     crossdock_handle handle;
 *     MPI_Send(&handle, 1, MPI_CROSSDOCK_HANDLE, dest, tag, comm);
 *
 * The datatype is made and committed when it is first used, between MPI_Init and MPI_Finalize, and freed by
 * MPI_Finalize. Any thread that may call MPI may use it. Errors of MPI go to MPI's error handler; where that returns,
 * the datatype is MPI_DATATYPE_NULL.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef CROSSDOCK_MPI_H
#define CROSSDOCK_MPI_H

#include <crossdock.h>
#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The committed datatype of a crossdock_handle. */
#define MPI_CROSSDOCK_HANDLE crossdock_mpi_handle_type()
#define MPI_DHMEM_HANDLE MPI_CROSSDOCK_HANDLE

MPI_Datatype crossdock_mpi_handle_type(void);

/* The symbols are weak, so that a program has only one copy of each symbol, even if several of its files include this
 * header. MPI_Finalize resets their values. */
#define CROSSDOCK_MPI_ONE __attribute__((weak, visibility("hidden")))

CROSSDOCK_MPI_ONE MPI_Datatype crossdock_mpi_handle_type_made;
CROSSDOCK_MPI_ONE int crossdock_mpi_handle_type_state; /* 0 = none, 1 = being made, 2 = made */

/* MPI_Finalize first deletes the attributes of MPI_COMM_SELF. The datatype is freed then. */
CROSSDOCK_MPI_ONE int crossdock_mpi_handle_type_free(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm, (void)keyval, (void)value, (void)extra;
    __atomic_store_n(&crossdock_mpi_handle_type_state, 0, __ATOMIC_RELEASE);
    return MPI_Type_free(&crossdock_mpi_handle_type_made);
}

CROSSDOCK_MPI_ONE MPI_Datatype crossdock_mpi_handle_type(void)
{
    for (;;) {
        int state = __atomic_load_n(&crossdock_mpi_handle_type_state, __ATOMIC_ACQUIRE);
        if (state == 2)
            return crossdock_mpi_handle_type_made;
        if (state == 1 || !__atomic_compare_exchange_n(&crossdock_mpi_handle_type_state, &state, 1, 0, __ATOMIC_ACQUIRE,
                                                       __ATOMIC_RELAXED))
            continue; /* another thread is making the datatype, which takes some microseconds */
        MPI_Datatype type = MPI_DATATYPE_NULL;
        int keyval = MPI_KEYVAL_INVALID;
        if (MPI_Type_contiguous(2, MPI_UINT64_T, &type) != MPI_SUCCESS || MPI_Type_commit(&type) != MPI_SUCCESS ||
            MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, crossdock_mpi_handle_type_free, &keyval, NULL) != MPI_SUCCESS ||
            MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL) != MPI_SUCCESS) {
            __atomic_store_n(&crossdock_mpi_handle_type_state, 0, __ATOMIC_RELEASE);
            return MPI_DATATYPE_NULL;
        }
        /* The attribute keeps the key alive until MPI_Finalize deletes the attribute. */
        MPI_Comm_free_keyval(&keyval);
        crossdock_mpi_handle_type_made = type;
        __atomic_store_n(&crossdock_mpi_handle_type_state, 2, __ATOMIC_RELEASE);
    }
}

#ifdef __cplusplus
}
#endif

#endif
