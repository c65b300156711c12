/* A thread that looks at files from inside a session for a while: it changes into the session's mount
 * namespace, alone, and comes back. For threads of the job pool; on the main thread everything else would
 * move along. */
#pragma once
#include <stdbool.h>

struct err;

struct visit {
    bool inside;
    int home; /* the mount namespace and directory to come back to */
    int cwd;
};

/* ns: isolated_view. -1: the thread is where it was. */
int visit_begin(struct visit *v, int ns, struct err *e);
/* On the same thread. The process ends if that fails: the thread would answer for the wrong files.
 * Harmless when nothing was begun. */
void visit_end(struct visit *v);
