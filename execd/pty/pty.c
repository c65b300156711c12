#include "execd/pty/internal.h"

#include "common/base/err.h"
#include "common/base/loop.h"
#include "execd/fs/path.h"

#include <stdlib.h>
#include <string.h>

/* ---- the set ---- */

struct ptys *ptys_new(struct loop *l, struct signals *sg, const struct env *base, struct err *e)
{
    struct ptys *set = calloc(1, sizeof(*set));

    if (!set) {
        (void)err_nomem(e);
        return NULL;
    }
    set->home =
        (struct shell_home){ .loop = l, .signals = sg, .base = base, .leftovers = { .loop = l } };
    set->sockets.loop = l;
    return set;
}

static void free_strings(struct pty *p)
{
    size_t i;

    for (i = 0; p->envs && i < 2 * p->n_envs; i++)
        free(p->envs[i]);
    free(p->envs);
    free(p->command);
    free(p->cwd);
}

static void pty_free(struct pty *p)
{
    if (p->prev)
        p->prev->next = p->next;
    else
        p->set->head = p->next;
    if (p->next)
        p->next->prev = p->prev;
    p->set->n--;
    free_strings(p);
    ring_free(&p->ring);
    free(p);
}

void pty_unref(struct pty *p)
{
    if (p->deleted && !p->clients && !p->shell && !p->pinned)
        pty_free(p);
}

/* All that are connected; those whose handshake is under way are turned away later. */
static void close_clients(struct pty *p, unsigned code, const char *reason)
{
    struct pty_client *c;
    struct pty_client *next;

    for (c = p->clients; c; c = next) {
        next = c->next;
        if (c->ws)
            pty_client_close(c, code, reason, 0);
    }
}

void ptys_stop(struct ptys *set)
{
    struct pty *p;
    struct pty *next;

    set->stopping = true;
    for (p = set->head; p; p = next) {
        next = p->next;
        p->pinned = true;
        if (p->shell)
            shell_hang_up(p->shell);
        close_clients(p, WS_CODE_GOING_AWAY, "the sandbox is stopping");
        p->pinned = false;
        pty_unref(p);
    }
}

void ptys_cut(struct ptys *set)
{
    if (!set)
        return;
    set->stopping = set->cut = true;
    ws_set_free(&set->sockets);
}

void ptys_free(struct ptys *set)
{
    struct pty *p;
    struct pty_client *c;

    if (!set)
        return;
    ptys_cut(set);
    while ((p = set->head)) {
        while ((c = p->clients)) {
            p->clients = c->next;
            free(c);
        }
        shell_free(p->shell);
        pty_free(p);
    }
    leftovers_free(&set->home.leftovers);
    free(set);
}

struct pty *pty_find(struct ptys *set, const char *id)
{
    struct pty *p;

    for (p = set->head; p; p = p->next)
        if (!p->deleted && strcmp(p->id, id) == 0)
            return p;
    return NULL;
}

struct pty *pty_next(struct ptys *set, const struct pty *p)
{
    struct pty *next = p ? p->next : set->head;

    while (next && next->deleted)
        next = next->next;
    return next;
}

void pty_state(const struct pty *p, struct pty_state *out)
{
    *out = (struct pty_state){
        .running = p->shell && shell_running(p->shell),
        .output_offset = p->ring.total,
        .launch_attempted = p->launch_attempted,
        .launch_failed = p->launch_failed,
        .held = p->holder,
        .viewers = p->n_viewers,
    };
    memcpy(out->id, p->id, sizeof(out->id));
}

/* ---- a session ---- */

/* Variables of the env file and of the request count in cwd, as they do when the shell starts. */
static int make_cwd(struct pty *p, const char *cwd, const struct env *base, struct err *e)
{
    AUTO_LAUNCH struct launch l = { 0 };
    const struct path_from from = { &l.env, NULL };
    struct launch_req rq = p->launch;

    rq.cwd = NULL;
    if (launch_prepare(&l, &rq, base, e) < 0)
        return -1;
    if (!cwd || !*cwd)
        return 0;
    return path_resolve(cwd, &from, &p->cwd, e) < 0 || path_make(p->cwd, 0777, e) < 0 ? -1 : 0;
}

static int copy_strings(struct pty *p, const struct pty_req *rq)
{
    size_t i;

    if (rq->command && !(p->command = strdup(rq->command)))
        return -1;
    p->envs = calloc(2 * rq->launch.n_envs + 1, sizeof(*p->envs));
    if (!p->envs)
        return -1;
    p->n_envs = rq->launch.n_envs;
    for (i = 0; i < 2 * p->n_envs; i++)
        if (!(p->envs[i] = strdup(rq->launch.envs[i])))
            return -1;
    p->launch = rq->launch;
    p->launch.envs = (const char *const *)p->envs;
    return 0;
}

struct pty *pty_new(struct ptys *set, const struct pty_req *rq, struct err *e)
{
    struct pty *p = set->n < PTYS_MAX ? calloc(1, sizeof(*p)) : NULL;

    if (!p) {
        if (set->n < PTYS_MAX)
            (void)err_nomem(e);
        else
            (void)err_set(e, ERRC_BUSY, "there are %d PTY sessions already: delete one first",
                          PTYS_MAX);
        return NULL;
    }
    if (copy_strings(p, rq) < 0) {
        (void)err_nomem(e);
    } else if (make_cwd(p, rq->launch.cwd, set->home.base, e) == 0) {
        p->launch.cwd = p->cwd;
        p->set = set;
        rand_uuid4(p->id);
        p->next = set->head;
        if (p->next)
            p->next->prev = p;
        set->head = p;
        set->n++;
        return p;
    }
    free_strings(p);
    free(p);
    return NULL;
}

void pty_delete(struct pty *p)
{
    p->deleted = true;
    if (p->shell)
        shell_kill(p->shell);
    pty_unref(p);
}

/* ---- the shell's news ---- */

static void on_output(void *owner, bool is_stderr, const char *data, size_t len)
{
    struct pty *p = owner;
    const char tag = is_stderr ? PTY_STDERR : PTY_STDOUT;
    struct pty_client *c;

    ring_write(&p->ring, data, len);
    if (p->holder && ws_send(p->holder->ws, WS_BINARY, &tag, 1, data, len) < 0) {
        (void)ws_send(p->holder->ws, WS_BINARY | WS_FORCE, &tag, 1, data, len);
        shell_pause(p->shell, true); /* until on_room, or until it is gone */
    }
    for (c = p->clients; c; c = c->next)
        if (c->how.viewer && c->ws)
            pty_client_feed(c);
}

static void on_input_room(void *owner)
{
    struct pty *p = owner;

    if (p->holder)
        ws_pause(p->holder->ws, false);
}

static void on_input_gone(void *owner)
{
    struct pty *p = owner;

    if (!p->holder)
        return;
    pty_say_error(p->holder, "STDIN_WRITE_FAILED", "the program has closed its input");
    pty_client_close(p->holder, WS_CODE_INTERNAL, "STDIN_WRITE_FAILED", 0);
}

static void on_exit_of_shell(void *owner, int code)
{
    struct pty *p = owner;
    struct pty_client *c;
    struct pty_client *next;
    bool pinned = p->pinned;

    p->shell = NULL;
    p->pinned = true;
    for (c = p->clients; c; c = next) {
        next = c->next;
        if (!c->ws)
            continue;
        if (c->how.viewer && pty_replay(c, c->at) < 0) {
            pty_client_close(c, WS_CODE_INTERNAL, "out of memory", 0);
            continue;
        }
        pty_say_exit(c, code);
        pty_client_close(c, WS_CODE_NORMAL, "process exited", 0);
    }
    p->pinned = pinned;
    pty_unref(p);
}

static const struct shell_ops shell_ops = { on_output, on_input_room, on_input_gone,
                                            on_exit_of_shell };

int pty_start_shell(struct pty *p, bool pipe, struct err *e)
{
    const struct shell_req rq = { .command = p->command, .tty = !pipe, .launch = p->launch };

    p->launch_attempted = true;
    p->shell = shell_start(&p->set->home, &rq, &shell_ops, p, e);
    p->launch_failed = !p->shell;
    return p->shell ? 0 : -1;
}
