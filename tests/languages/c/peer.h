/* Other processes for a test row: the same program started again, with a line-by-line conversation.
 *
 * Used by the C and the Fortran suites. Deadlines everywhere; a peer dies with its parent. */
#ifndef PEER_H
#define PEER_H

/* The time in milliseconds of a clock that only goes forward. */
long long peer_now_ms(void);

/* Start this program again as `PROGRAM --peer ROW ROLE PREFIX ARGUMENT`. Returns the number of the peer, or -1. */
int peer_start(const char *row, const char *role, const char *prefix, const char *argument);

/* In the parent: a line to the peer; the next line of the peer must be `line` within 10 s. 0, or -1 with the line that
 * came instead (or the reason) in peer_last(). */
int peer_tell(int peer, const char *line);
int peer_expect(int peer, const char *line);
const char *peer_last(void);

/* Wait at most 10 s for the end of the peer. Returns its exit status, or 128 + signal, or -1 if it had to be killed. */
int peer_end(int peer);
int peer_kill(int peer);

/* For the peer: send a line to the parent, and expect a line from the parent. */
int parent_tell(const char *line);
int parent_expect(const char *line);
/* Kill this process with SIGKILL, so that no destructor runs and nothing is closed. */
void peer_die(void);

#endif
