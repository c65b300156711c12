/* What starting a shell costs here: vfork, exec and wait of `SHELL -c true`, without anything around it.
 *
 * Usage: spawn SHELL. Prints the median of 200 in microseconds. */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

enum { COUNT = 200 };

extern char **environ;

static long now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000L + t.tv_nsec / 1000;
}

static int rising(const void *a, const void *b)
{
    long x = *(const long *)a, y = *(const long *)b;

    return (x > y) - (x < y);
}

static long once(char *shell)
{
    char *argv[] = { shell, "-c", "true", NULL };
    long begin = now_us();
    int status = -1;
    pid_t pid;

    if (posix_spawn(&pid, shell, NULL, NULL, argv, environ) != 0)
        return -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status == 0 ? now_us() - begin : -1;
}

int main(int argc, char **argv)
{
    static long took[COUNT];
    int i;

    if (argc != 2) {
        fprintf(stderr, "usage: spawn SHELL\n");
        return 2;
    }
    for (i = 0; i < COUNT; i++)
        if ((took[i] = once(argv[1])) < 0) {
            fprintf(stderr, "%s does not start\n", argv[1]);
            return 1;
        }
    qsort(took, COUNT, sizeof(took[0]), rising);
    printf("%ld\n", took[COUNT / 2]);
    return 0;
}
