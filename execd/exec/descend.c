#include "execd/exec/descend.h"

#include "common/base/cleanup.h"
#include "common/base/num.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>

enum { PROCESSES_MAX = 65536 };

struct process {
    pid_t pid;
    pid_t parent;
    bool below;
};

/* "pid (name) state ppid pgrp session ...": the name may hold anything, so the last ')' counts. */
enum stat_field { STAT_PARENT = 2, STAT_SESSION = 4 };

static pid_t stat_of(const char *pid, enum stat_field field)
{
    char path[64];
    char text[512];
    char *p;
    int64_t value = 0;
    unsigned i;
    ssize_t n;

    (void)snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    p = strrchr(text, ')');
    for (i = 0; p && i < (unsigned)field; i++)
        p = strchr(p + 1, ' ');
    if (!p)
        return 0;
    p++;
    p[strcspn(p, " ")] = '\0';
    return num_parse_i64(p, 0, INT32_MAX, &value) == 0 ? (pid_t)value : 0;
}

static size_t read_processes(struct process *list)
{
    DIR *dir = opendir("/proc");
    struct dirent *de;
    int64_t pid;
    size_t n = 0;

    while (dir && n < PROCESSES_MAX && (de = readdir(dir)))
        if (num_parse_i64(de->d_name, 1, INT32_MAX, &pid) == 0)
            list[n++] = (struct process){ (pid_t)pid, stat_of(de->d_name, STAT_PARENT), false };
    if (dir)
        (void)closedir(dir);
    return n;
}

/* One more generation; false when there was none. */
static bool mark_generation(struct process *list, size_t n)
{
    pid_t self = getpid();
    bool found = false;
    size_t i;
    size_t k;

    for (i = 0; i < n; i++) {
        if (list[i].below || list[i].pid == self)
            continue;
        for (k = 0; k < n && !(list[k].below && list[k].pid == list[i].parent); k++)
            ;
        if (list[i].parent == self || k < n)
            list[i].below = found = true;
    }
    return found;
}

void descend_signal(int sig)
{
    AUTO_FREE struct process *list = NULL;
    size_t n;
    size_t i;

    if (getpid() == 1) {
        (void)kill(-1, sig);
        return;
    }
    list = calloc(PROCESSES_MAX, sizeof(*list));
    n = list ? read_processes(list) : 0;
    while (mark_generation(list, n))
        ;
    for (i = 0; i < n; i++)
        if (list[i].below)
            (void)kill(list[i].pid, sig);
}

void descend_signal_session(pid_t sid, int sig)
{
    DIR *dir = opendir("/proc");
    struct dirent *de;
    int64_t pid;

    while (dir && (de = readdir(dir)))
        if (num_parse_i64(de->d_name, 2, INT32_MAX, &pid) == 0 &&
            stat_of(de->d_name, STAT_SESSION) == sid)
            (void)kill((pid_t)pid, sig);
    if (dir)
        (void)closedir(dir);
}

int descend_none_left(void)
{
    siginfo_t si;

    return waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD;
}
