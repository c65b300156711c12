#include "execd/isolated/probe.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/rand.h"
#include "common/proc/spawn.h"
#include "execd/isolated/cage.h"
#include "execd/isolated/store.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>

enum { TRY_MS = 10000, SAID_MAX = 2048 };

/* What the program of a working cage says: this binary, asked for its version. */
static const char answer[] = "execd " SANDGATE_VERSION "\n";

static struct {
    pthread_mutex_t lock;
    bool known;
    struct cages cages;
} found = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool is_admin(void)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2];

    return syscall(SYS_capget, &head, data) == 0 &&
           (data[0].effective & (1U << CAP_SYS_ADMIN)) != 0;
}

/* Until the other end is closed. */
static int read_all(int fd, struct buf *out, struct err *e)
{
    int64_t end = clock_mono_ms() + TRY_MS;

    for (;;) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int64_t left = end - clock_mono_ms();
        char *at = buf_reserve(out, 512);
        ssize_t n;

        if (left <= 0 || !at)
            return err_set(e, ERRC_TIMEOUT, "a cage was not built within %d s", TRY_MS / 1000);
        if (poll(&p, 1, (int)left) <= 0)
            continue;
        n = read(fd, at, 512);
        if (n == 0)
            return 0;
        if (n > 0)
            out->len += (size_t)n;
        else if (errno != EINTR)
            return err_sys(e, errno, "hear of a cage");
    }
}

static int start(const struct cage *c, const char *self, struct buf *said, struct err *e)
{
    AUTO_FREE char **head = NULL;
    const char *argv[64];
    char *const env[] = { NULL };
    size_t n;
    int fds[2];
    pid_t pid;
    int rc;

    head = cage_argv(c, self, &n);
    if (!head || n + 3 > ARRAY_LEN(argv))
        return err_nomem(e);
    memcpy(argv, head, n * sizeof(*argv));
    argv[n] = self;
    argv[n + 1] = "--version";
    argv[n + 2] = NULL;
    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(e, errno, "make a pipe");

    AUTO_FD int rd = fds[0];
    AUTO_FD int wr = fds[1];
    const struct spawn_req rq = { .path = self,
                                  .argv = (char *const *)argv,
                                  .envp = env,
                                  .in = -1,
                                  .out = wr,
                                  .inherit = true,
                                  .err = wr };

    if (spawn(&rq, &pid, e) < 0)
        return -1;
    (void)close(TAKE_FD(wr));
    rc = read_all(rd, said, e);
    if (rc < 0)
        (void)kill(-pid, SIGKILL);
    return rc;
}

/* 0: such a cage can be built. */
static int attempt(bool userns, struct err *e)
{
    AUTO_BUF struct buf said = BUF_INIT(SAID_MAX);
    char self[PATH_MAX];
    char name[48] = "probe-";
    char dir[STORE_PATH_MAX];
    char source[STORE_PATH_MAX + 8];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    int rc;

    if (len < 0)
        return err_sys(e, errno, "find the agent's own file");
    self[len] = '\0';
    rand_hex(name + 6, 16);

    AUTO_FD int lock = store_add(name, dir, e);

    if (lock < 0)
        return -1;
    (void)snprintf(source, sizeof(source), "%s/" STORE_IO, dir);
    const struct cage c = { .dir = dir,
                            .cwd = "/run/probe",
                            .mounts = { { CAGE_OVERLAY, source, "/run/probe" } },
                            .n_mounts = 1,
                            .own_net = true,
                            .userns = userns,
                            .uid = geteuid(),
                            .gid = getegid() };

    rc = start(&c, self, &said, e);
    (void)store_remove(dir, NULL);
    if (rc < 0)
        return -1;
    if (said.len && memmem(said.data, said.len, answer,
                           sizeof(answer) - 1)) /* a sanitizer may say something before it */
        return 0;
    while (said.len && said.data[said.len - 1] == '\n')
        said.len--;
    return err_set(e, ERRC_BUSY, "%.*s", said.len > 300 ? 300 : (int)said.len,
                   said.len ? said.data : "");
}

int cages_explain(struct err *e)
{
    struct err why = *e;
    const char *hint = "";

    if (!is_admin())
        hint =
            "; the agent has to be root with CAP_SYS_ADMIN: create the sandbox with the extension "
            "bootstrap.execd.isolation=enable from an image whose user is root";
    else if (strstr(why.msg, "Operation not permitted") || strstr(why.msg, "Permission denied"))
        hint = "; a seccomp or AppArmor profile, or the engine's user namespace, refuses it";
    (void)err_set(e, ERRC_BUSY, "isolation unavailable: %.250s%s", why.msg, hint);
    if (strstr(why.msg, "(user)"))
        e->api_code = "NOT_SUPPORTED";
    return -1;
}

void cages_probe(struct cages *out)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&found.lock);
    struct cages *c = &found.cages;
    struct err e = { 0 };

    if (!found.known) {
        store_sweep();
        c->available = attempt(false, &e) == 0;
        c->userns = c->available && attempt(true, &e) == 0;
        if (!c->userns) {
            (void)cages_explain(&e);
            (void)snprintf(c->message, sizeof(c->message), "%s%.460s",
                           c->available ? "uid_mode userns: " : "", e.msg);
        }
        found.known = true;
    }
    *out = *c;
}

int cages_gate(struct err *e)
{
    struct err why = { .code = ERRC_BUSY };
    /* while a probe runs the capability has to do */
    bool held = pthread_mutex_trylock(&found.lock) == 0;
    bool known = held && found.known;
    bool available = held && found.cages.available;

    if (known && !available)
        (void)err_set(&why, ERRC_BUSY, "%s", found.cages.message);
    if (held)
        (void)pthread_mutex_unlock(&found.lock);
    if (known && available)
        return 0;
    if (!known && is_admin())
        return 0;
    if (!known) {
        (void)err_set(&why, ERRC_BUSY, "the agent lacks CAP_SYS_ADMIN");
        (void)cages_explain(&why);
    }
    *e = why;
    return -1;
}
