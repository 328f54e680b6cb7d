#define _GNU_SOURCE
#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PEERS = 256, DEADLINE_MS = 10000 };

static struct {
    pid_t pid;
    int to, from;
} peers[PEERS];
static int started;
static char last[512];

long long peer_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

const char *peer_last(void)
{
    return last;
}

int peer_start(const char *row, const char *role, const char *prefix, const char *argument)
{
    int to[2], from[2];
    pid_t parent = getpid();
    if (started == PEERS || pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0)
        return -1;
    pid_t pid = fork();
    if (pid < 0)
        return -1;
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(126);
        dup2(to[0], 0);
        dup2(from[1], 1);
        /* If the suite runs across nodes, the other processes of a test connect to the daemon of another node. The role
         * "run" is that of the first process of a test. */
        if (getenv("CROSSDOCK_PEER_SOCKET") != NULL && strcmp(role, "run") != 0)
            setenv("CROSSDOCK_SOCKET", getenv("CROSSDOCK_PEER_SOCKET"), 1);
        execl("/proc/self/exe", "peer", "--peer", row, role, prefix, argument, (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    peers[started].pid = pid;
    peers[started].to = to[1];
    peers[started].from = from[0];
    return started++;
}

static int tell(int descriptor, const char *line)
{
    char text[512];
    int length = snprintf(text, sizeof text, "%s\n", line);
    return write(descriptor, text, (size_t)length) == length ? 0 : -1;
}

/* Reads one line, byte by byte, so that nothing behind the line is read. */
static int expect(int descriptor, const char *line)
{
    long long deadline = peer_now_ms() + DEADLINE_MS;
    size_t length = 0;
    for (;;) {
        struct pollfd wait = {descriptor, POLLIN, 0};
        long long left = deadline - peer_now_ms();
        if (left <= 0 || poll(&wait, 1, (int)left) == 0) {
            snprintf(last, sizeof last, "nothing within 10 s, instead of '%s'", line);
            return -1;
        }
        char byte;
        ssize_t n = read(descriptor, &byte, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            snprintf(last, sizeof last, "the end of the other process, instead of '%s'", line);
            return -1;
        }
        if (byte == '\n')
            break;
        if (length < sizeof last - 1)
            last[length++] = byte;
    }
    last[length] = 0;
    return strcmp(last, line) == 0 ? 0 : -1;
}

int peer_tell(int peer, const char *line)
{
    return tell(peers[peer].to, line);
}

int peer_expect(int peer, const char *line)
{
    return expect(peers[peer].from, line);
}

int peer_end(int peer)
{
    long long deadline = peer_now_ms() + DEADLINE_MS;
    int status = 0;
    pid_t pid = peers[peer].pid;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (peer_now_ms() > deadline) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return -1;
        }
        usleep(1000);
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int peer_kill(int peer)
{
    return kill(peers[peer].pid, SIGKILL);
}

int parent_tell(const char *line)
{
    return tell(1, line);
}

int parent_expect(const char *line)
{
    return expect(0, line);
}

void peer_die(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}
