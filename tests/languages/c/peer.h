/* Starts the other processes (peers) of a test: a peer is the same program, started again. Parent and peer exchange
 * lines of text.
 *
 * The C and the Fortran suites use these functions. Each wait has a deadline. A peer is killed if its parent dies. */
#ifndef PEER_H
#define PEER_H

/* The time in milliseconds of a clock that only goes forward. */
long long peer_now_ms(void);

/* Start this program again as `PROGRAM --peer ROW ROLE PREFIX ARGUMENT`. Returns the number of the peer, or -1. */
int peer_start(const char *row, const char *role, const char *prefix, const char *argument);

/* For the parent: peer_tell sends a line to the peer. peer_expect waits at most 10 s for the peer's next line, which must be
 * `line`. Both return 0, or -1. After -1, peer_last() gives the line that came instead, or the reason. */
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
