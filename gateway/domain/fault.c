#include "gateway/domain/fault.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A test hook: it may poll. */
static bool wait_for_file(const char *path)
{
    while (path && access(path, F_OK) < 0)
        (void)poll(NULL, 0, 10);
    return true;
}

bool fault_point(const char *step)
{
    const char *spec = getenv("SANDGATE_FAULT");
    const char *colon = spec ? strchr(spec, ':') : NULL;

    if (!colon || strcmp(colon + 1, step) != 0)
        return true;
    if (strncmp(spec, "crash:", 6) == 0)
        (void)kill(getpid(), SIGKILL);
    if (strncmp(spec, "wait:", 5) == 0)
        return wait_for_file(getenv("SANDGATE_FAULT_FILE"));
    for (;;)
        (void)pause();
}
