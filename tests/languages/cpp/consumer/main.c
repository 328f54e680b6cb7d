/* The program of main.cpp in C, with the CMake target crossdock::c. */
#include <crossdock.h>

int main(void)
{
    crossdock_session *session;
    return crossdock_session_default(&session) == CROSSDOCK_OK ? crossdock_session_unref(session) : 1;
}
