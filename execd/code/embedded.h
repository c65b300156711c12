/* Kernels from the image's own programs: python3, and bash or sh. The agent starts the program in its own
 * process group and hands it a driver (driver.py, driver.sh; compiled into the agent), which runs code
 * as it comes over a socket and says what happened (frames.h). Output is read from pipes on descriptors 1
 * and 2, so that what the code's own programs write shows as well. Nothing is written to disk.
 *
 * Environment and working directory are those of a command (launch.h) at the start of the kernel. An
 * interrupt is SIGINT to the group. The group is killed with its kernel. For the loop's thread. */
#pragma once
#include "execd/code/kernel.h"

struct embedded;
struct env;
struct loop;
struct signals;

enum {
    EMBEDDED_START_MS = 30000,     /* until the driver has to be ready */
    EMBEDDED_COALESCE_MS = 5,      /* how long a piece of a line waits for the rest of it */
    EMBEDDED_CHUNK = 64 * 1024 - 1 /* bytes of output in one on_text */
};

extern const struct kernel_ops embedded_ops; /* the provider is a struct embedded */

/* base: what every command starts from; read at each start, must outlive the kernels. */
struct embedded *embedded_new(struct loop *l, struct signals *sg, const struct env *base,
                              struct err *e);
/* All kernels must have been destroyed. */
void embedded_free(struct embedded *em);
/* Whether a kernel's process is still there: on_gone follows when it is destroyed now. */
bool embedded_alive(const struct kernel *k);
/* Whether the image has the program for a language; for any other language false. */
bool embedded_has(const struct embedded *em, const char *language);
