/* The same in C, over crossdock::c. */
#include <crossdock.h>

int main(void)
{
    crossdock_session *session;
    return crossdock_session_default(&session) == CROSSDOCK_OK ? crossdock_session_unref(session) : 1;
}
