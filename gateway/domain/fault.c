#include "gateway/domain/fault.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool fault_point(const char *step)
{
    const char *spec = getenv("SANDGATE_FAULT");
    const char *colon = spec ? strchr(spec, ':') : NULL;

    if (!colon || strcmp(colon + 1, step) != 0)
        return true;
    if (strncmp(spec, "crash", (size_t)(colon - spec)) == 0)
        (void)kill(getpid(), SIGKILL);
    for (;;)
        (void)pause();
}
