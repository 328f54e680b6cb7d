#include <crossdock_mpi.h>

MPI_Datatype type_of_the_other_file(void);
MPI_Datatype type_of_the_other_file(void)
{
    return MPI_CROSSDOCK_HANDLE;
}
