/* Checked directories and files of the host, held in place for the engine. Between a check of a path
 * and the engine's mount of it a sandbox that shares the directory may put a link in its place, and
 * what the agent says about it afterwards is worth nothing when an image's own links led a volume
 * over the agent. So the engine gets no such path, but a bind mount of what was opened, below a
 * directory of the server's own: <root>/<sandbox id>/<n>. The mount goes when the create has come to
 * its end; the container has one of its own by then.
 * Crash safety: all that is below root is of creates that died; pins_clear removes it at the start.
 * Blocks on disks; safe from any thread, calls about one sandbox one at a time. */
#pragma once
#include <stddef.h>

struct err;

/* Not among the database's files: whoever removes those with all that is below must not reach what is
 * mounted there. hier(7). */
#define PINS_PARENT "/run/sandgate"

/* fd: O_PATH. *out holds HOST_PATH bytes: the path that will be fd's for as long as the pin is there.
 * root's parent is made, too. 1: pinned; 0: this process may not (it has no CAP_SYS_ADMIN, or may not
 * write there), *out is as it was; -1: error. */
int pins_add(const char *root, const char *sandbox_id, size_t n, int fd, char *out, struct err *e);
/* Those of one sandbox. What cannot be removed is logged and left to pins_clear. */
void pins_drop(const char *root, const char *sandbox_id);
/* All of them: when nobody makes a sandbox. */
void pins_clear(const char *root);
