#include "execd/isolated/visit.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/log.h"

#include <fcntl.h>
#include <sched.h>

/* Root and directory of this thread become its own: a namespace can be changed by nobody else. */
int visit_begin(struct visit *v, int ns, struct err *e)
{
    AUTO_FD int home = open("/proc/thread-self/ns/mnt", O_RDONLY | O_CLOEXEC);
    AUTO_FD int cwd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (home < 0 || cwd < 0)
        return err_sys(e, errno, "remember where the thread is");
    if (unshare(CLONE_FS) < 0 || setns(ns, CLONE_NEWNS) < 0)
        return err_sys(e, errno, "look into the session");
    *v = (struct visit){ true, TAKE_FD(home), TAKE_FD(cwd) };
    return 0;
}

void visit_end(struct visit *v)
{
    if (!v->inside)
        return;
    if (setns(v->home, CLONE_NEWNS) < 0 || fchdir(v->cwd) < 0) {
        log_error("a thread cannot leave an isolated session");
        abort();
    }
    (void)close(v->home);
    (void)close(v->cwd);
    *v = (struct visit){ 0 };
}
