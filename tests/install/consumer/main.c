/* Counts in a region how often the program was run. The second run finds what the first one left. */
#include <crossdock.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    crossdock_session *session;
    if (crossdock_session_default(&session) != CROSSDOCK_OK) {
        fprintf(stderr, "%s\n", crossdock_error_message());
        return 1;
    }
    printf("c %s\n", crossdock_version_string());
    return crossdock_session_unref(session);
}
