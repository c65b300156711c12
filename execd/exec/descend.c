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

/* "pid (name) state ppid ...": the name may hold anything, so the last ')' counts. */
static pid_t parent_of(const char *pid)
{
    char path[64];
    char text[512];
    const char *p;
    int64_t ppid = 0;
    ssize_t n;

    (void)snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    p = strrchr(text, ')');
    if (!p || strlen(p) < 5)
        return 0;
    text[(size_t)(p - text) + 4 + strcspn(p + 4, " ")] = '\0';
    return num_parse_i64(p + 4, 0, INT32_MAX, &ppid) == 0 ? (pid_t)ppid : 0;
}

static size_t read_processes(struct process *list)
{
    DIR *dir = opendir("/proc");
    struct dirent *de;
    int64_t pid;
    size_t n = 0;

    while (dir && n < PROCESSES_MAX && (de = readdir(dir)))
        if (num_parse_i64(de->d_name, 1, INT32_MAX, &pid) == 0)
            list[n++] = (struct process){ (pid_t)pid, parent_of(de->d_name), false };
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

int descend_none_left(void)
{
    siginfo_t si;

    return waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD;
}
