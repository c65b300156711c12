#include "execd/exec/session_state.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/macros.h"
#include "common/base/num.h"

#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { FD_MIN = 100, MAGIC = 0x31534753 };

struct head {
    uint32_t magic;
    uint32_t len; /* of the body: directory, then NAME=VALUE, each with its terminator */
};
_Static_assert(sizeof(struct head) == SESSION_STATE_HEAD, "the file begins with it");

int session_state_open(struct err *e)
{
    AUTO_FD int fd = memfd_create("session", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int high;

    if (fd < 0 || ftruncate(fd, SESSION_STATE_HEAD + SESSION_STATE_MAX) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
        return err_sys(e, errno, "make room for a session's state");
    high = fcntl(fd, F_DUPFD_CLOEXEC, FD_MIN);
    return high < 0 ? err_sys(e, errno, "make room for a session's state") : high;
}

bool session_state_lasting(const char *assignment)
{
    /* contract/execd.md 7.2, and what a shell keeps for itself */
    static const char *const own[] = { "PS1", "PS2", "PS3",   "PS4", "PROMPT_COMMAND",
                                       "PWD", "_",   "SHLVL", NULL };
    size_t len = strcspn(assignment, "=");
    size_t i;

    if (!len || len >= SESSION_NAME_MAX || assignment[len] != '=' ||
        isdigit((unsigned char)assignment[0]))
        return false;
    for (i = 0; i < len; i++)
        if (!isalnum((unsigned char)assignment[i]) && assignment[i] != '_')
            return false;
    if (strncmp(assignment, "__sandgate", 10) == 0)
        return false;
    for (i = 0; own[i]; i++)
        if (strlen(own[i]) == len && strncmp(own[i], assignment, len) == 0)
            return false;
    return true;
}

/* ---- the shell's side ---- */

/* The name by which the shell knows its directory, when it is right. */
static const char *current_dir(char buf[PATH_MAX])
{
    const char *pwd = getenv("PWD");
    struct stat named;
    struct stat here;

    if (pwd && pwd[0] == '/' && stat(pwd, &named) == 0 && stat(".", &here) == 0 &&
        named.st_dev == here.st_dev && named.st_ino == here.st_ino)
        return pwd;
    return getcwd(buf, PATH_MAX) && buf[0] == '/' ? buf : "";
}

static int refuse(const char *why)
{
    (void)printf("sandgate: this session's state is not kept: %s\n", why);
    return 1;
}

static int put_all(struct buf *b, char *const *env, unsigned *n)
{
    char dir[PATH_MAX];
    const char *cwd = current_dir(dir);

    if (buf_append(b, cwd, strlen(cwd) + 1) < 0)
        return -1;
    for (*n = 0; *env; env++)
        if (session_state_lasting(*env)) {
            (*n)++;
            if (buf_append(b, *env, strlen(*env) + 1) < 0)
                return -1;
        }
    return 0;
}

int session_state_write(const char *arg, char *const *env)
{
    AUTO_BUF struct buf b = BUF_INIT(SESSION_STATE_MAX);
    struct head h = { 0, 0 };
    unsigned n;
    int64_t fd;

    if (!arg || num_parse_i64(arg, 0, INT_MAX, &fd) < 0)
        return 2;
    if (put_all(&b, env, &n) < 0)
        return refuse("the exported variables take more than 1 MiB");
    if (n > ENV_VARS_MAX)
        return refuse("there are more than 4096 exported variables");
    /* whoever reads in between finds nothing: the head comes last */
    if (pwrite((int)fd, &h, sizeof(h), 0) != sizeof(h) ||
        pwrite((int)fd, b.data, b.len, sizeof(h)) != (ssize_t)b.len)
        return 1;
    h = (struct head){ MAGIC, (uint32_t)b.len };
    return pwrite((int)fd, &h, sizeof(h), 0) == sizeof(h) ? 0 : 1;
}

/* ---- the agent's side ---- */

int session_state_parse(const char *data, size_t len, struct session_state *out, struct err *e)
{
    struct head h;
    const char *at;
    const char *end;

    *out = (struct session_state){ 0 };
    if (len < sizeof(h))
        return err_set(e, ERRC_INVALID, "no state");
    memcpy(&h, data, sizeof(h));
    if (h.magic != MAGIC || !h.len || h.len > len - sizeof(h) || data[sizeof(h) + h.len - 1])
        return err_set(e, ERRC_INVALID, "no state");
    at = data + sizeof(h);
    end = at + h.len;
    if (*at == '/' && strlen(at) < PATH_MAX) {
        out->cwd = strdup(at);
        if (!out->cwd)
            return err_nomem(e);
    }
    for (at += strlen(at) + 1; at < end; at += strlen(at) + 1)
        if (session_state_lasting(at) && env_put(&out->env, at) < 0) {
            session_state_free(out);
            return err_set(e, ERRC_INVALID, "too many variables, or memory is out");
        }
    return 0;
}

int session_state_read(int fd, struct session_state *out, struct err *e)
{
    AUTO_FREE char *data = NULL;
    struct head h;
    ssize_t n;

    *out = (struct session_state){ 0 };
    if (pread(fd, &h, sizeof(h), 0) != sizeof(h) || h.magic != MAGIC || h.len > SESSION_STATE_MAX)
        return err_set(e, ERRC_INVALID, "no state");
    data = malloc(sizeof(h) + h.len);
    if (!data)
        return err_nomem(e);
    n = pread(fd, data, sizeof(h) + h.len, 0);
    return session_state_parse(data, n < 0 ? 0 : (size_t)n, out, e);
}

void session_state_free(struct session_state *st)
{
    env_free(&st->env);
    free(st->cwd);
    *st = (struct session_state){ 0 };
}
