/* What starting a shell costs here: vfork, exec and wait of `SHELL -c true`, without anything around it.
 *
 * Usage: spawn COUNT SHELL. Prints the median in microseconds. */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

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
    long count = argc == 3 ? strtol(argv[1], NULL, 10) : 0;
    long *took;
    long i;

    if (count < 1 || count > 100000 || !(took = calloc((size_t)count, sizeof *took))) {
        fprintf(stderr, "usage: spawn COUNT SHELL, COUNT of 1 to 100000\n");
        return 2;
    }
    for (i = 0; i < count; i++)
        if ((took[i] = once(argv[2])) < 0) {
            fprintf(stderr, "%s does not start\n", argv[2]);
            return 1;
        }
    qsort(took, (size_t)count, sizeof *took, rising);
    printf("%ld\n", took[count / 2]);
    free(took);
    return 0;
}
