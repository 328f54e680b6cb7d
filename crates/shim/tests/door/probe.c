// A static program for the tests of the door. The first argument names an operation, and the second one a file. The program
// does the operation, and prints the file's bytes or the name of the errno.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static void say_all(int fd) {
    char buffer[65536];
    ssize_t n;
    struct itimerval never = {{0, 0}, {0, 0}};
    int why = errno;
    setitimer(ITIMER_REAL, &never, NULL);
    errno = why;
    if (fd < 0) {
        printf("%s\n", strerrorname_np(errno));
        exit(1);
    }
    while ((n = read(fd, buffer, sizeof buffer)) > 0)
        if (write(1, buffer, n) != n) exit(2);
    close(fd);
}

static void ring(int signal) {
    (void)signal;
}

static void leave(int signal) {
    (void)signal;
    if (write(1, "asked\n", 6) == 6) _exit(9);
}

static void every_10_ms(int flags) {
    struct sigaction action = {.sa_handler = ring, .sa_flags = flags};
    struct itimerval often = {{0, 10000}, {0, 10000}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
}

static void *size_of(void *folder) {
    static int next;
    char path[4096];
    struct stat found;
    snprintf(path, sizeof path, "%s/%d", (char *)folder, __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED));
    return (void *)(stat(path, &found) == 0 ? found.st_size : -1);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    const char *what = argv[1], *path = argv[2];
    struct stat found;
    if (!strcmp(what, "open")) {
        say_all(open(path, O_RDONLY));
    } else if (!strcmp(what, "fopen")) {
        FILE *file = fopen(path, "r");
        say_all(file ? fileno(file) : -1);
    } else if (!strcmp(what, "stat")) {
        if (stat(path, &found) || found.st_size == 0) return 1;
        say_all(open(path, O_RDONLY));
    } else if (!strcmp(what, "access")) {
        if (access(path, R_OK)) return 1;
        say_all(open(path, O_RDONLY));
    } else if (!strcmp(what, "relative")) {
        char *folder = strdup(path), *name = strrchr(folder, '/');
        *name++ = 0;
        if (chdir(folder)) return 1;
        say_all(open(name, O_RDONLY));
    } else if (!strcmp(what, "openat")) {
        char *folder = strdup(path), *name = strrchr(folder, '/');
        *name++ = 0;
        say_all(openat(open(folder, O_RDONLY | O_DIRECTORY), name, O_RDONLY));
    } else if (!strcmp(what, "openat2")) {
        unsigned long how[3] = {O_RDONLY, 0, 0};
        say_all(syscall(SYS_openat2, AT_FDCWD, path, how, sizeof how));
    } else if (!strcmp(what, "child")) {
        pid_t child = fork();
        if (child == 0) execl("/proc/self/exe", "probe", "open", path, NULL);
        int status;
        waitpid(child, &status, 0);
        return WEXITSTATUS(status);
    } else if (!strcmp(what, "create")) {
        say_all(open(path, O_RDWR | O_CREAT, 0644));
    } else if (!strcmp(what, "write")) {
        say_all(open(path, O_WRONLY));
    } else if (!strcmp(what, "append")) {
        say_all(open(path, O_WRONLY | O_APPEND | O_CREAT, 0644));
    } else if (!strcmp(what, "creat")) {
        say_all(creat(path, 0644));
    } else if (!strcmp(what, "anew")) {
        say_all(open(path, O_WRONLY | O_CREAT | O_EXCL, 0644));
    } else if (!strcmp(what, "write2")) {
        unsigned long how[3] = {O_RDWR, 0, 0};
        say_all(syscall(SYS_openat2, AT_FDCWD, path, how, sizeof how));
    } else if (!strcmp(what, "truncate")) {
        say_all(truncate(path, 0) ? -1 : open("/dev/null", O_RDONLY));
    } else if (!strcmp(what, "unlink")) {
        say_all(unlink(path) ? -1 : open("/dev/null", O_RDONLY));
    } else if (!strcmp(what, "mkdir")) {
        say_all(mkdir(path, 0755) ? -1 : open("/dev/null", O_RDONLY));
    } else if (!strcmp(what, "symlink")) {
        say_all(symlink("x", path) ? -1 : open("/dev/null", O_RDONLY));
    } else if (!strcmp(what, "rename")) {
        char to[4096];
        snprintf(to, sizeof to, "%s-renamed", path);
        say_all(rename(path, to) ? -1 : open("/dev/null", O_RDONLY));
    } else if (!strcmp(what, "look")) {
        char to[4096];
        snprintf(to, sizeof to, "%s-renamed", path);
        // The test may have mounted the folder of `to` writable. The call fails all the same, because the folder "none"
        // does not exist.
        if (rename("none/a", to) == 0) return 3;
        if (stat(to, &found) == 0 || errno != ENOENT) return 4;
        say_all(open(path, O_RDONLY));
    } else if (!strcmp(what, "move")) {
        say_all(rename(path, "/proc/moved") ? -1 : open("/dev/null", O_RDONLY));
    } else if (!strcmp(what, "restarted")) {
        every_10_ms(SA_RESTART);
        say_all(open(path, O_RDONLY));
    } else if (!strcmp(what, "interrupted")) {
        every_10_ms(0);
        say_all(open(path, O_RDONLY));
    } else if (!strcmp(what, "ring")) {
        char parameters[256] = {0};
        say_all(syscall(SYS_io_uring_setup, 1, parameters));
    } else if (!strcmp(what, "threads")) {
        pthread_t threads[64];
        long sum = 0;
        void *size;
        for (int n = 0; n < 64; n++) pthread_create(&threads[n], NULL, size_of, (void *)path);
        for (int n = 0; n < 64; n++) pthread_join(threads[n], &size), sum += (long)size;
        printf("%ld\n", sum);
    } else if (!strcmp(what, "term")) {
        struct sigaction action = {.sa_handler = leave};
        sigaction(SIGTERM, &action, NULL);
        if (write(1, "ready\n", 6) != 6) return 1;
        for (;;) pause();
    } else if (!strcmp(what, "abort")) {
        abort();
    } else {
        return 2;
    }
    return 0;
}
