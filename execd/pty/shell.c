#include "execd/pty/shell.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/loop.h"
#include "common/proc/signals.h"
#include "execd/exec/descend.h"
#include "execd/pty/term.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

enum {
    DRAIN_MAX =
        1
        << 20, /* of an ended shell's output: what its children go on to write is not waited for */
    OUTS_MAX = 2,
};

struct out {
    struct shell *shell;
    struct loop_fd watch; /* fd -1: closed */
    size_t left;          /* while draining */
};

struct shell {
    struct shell_home *home;
    const struct shell_ops *ops;
    void *owner;
    struct child child;
    bool tty;
    bool paused;
    bool ended; /* collected */
    bool over;  /* on_exit has been called */
    bool input_was_full;
    bool mute; /* hung up */
    int code;
    struct out outs[OUTS_MAX]; /* terminal or stdout, stderr */
    struct loop_fd input;      /* another descriptor of the terminal, or a pipe */
    struct buf pending;        /* input that waits */
};

/* ---- life ---- */

static void close_watch(struct shell *sh, struct loop_fd *w)
{
    if (w->fd < 0)
        return;
    loop_del(sh->home->loop, w);
    (void)close(w->fd);
    w->fd = -1;
}

void shell_free(struct shell *sh)
{
    int i;

    if (!sh)
        return;
    if (!sh->ended && sh->child.pid > 0)
        signals_unwatch_child(sh->home->signals, &sh->child);
    for (i = 0; i < OUTS_MAX; i++)
        close_watch(sh, &sh->outs[i].watch);
    close_watch(sh, &sh->input);
    buf_free(&sh->pending);
    free(sh);
}

bool shell_running(const struct shell *sh)
{
    return !sh->ended;
}

bool shell_has_tty(const struct shell *sh)
{
    return sh->tty;
}

/* ---- output ---- */

/* Reads what is there, SHELL_CHUNK at the most. 0: nothing now, or the end. */
static size_t take_output(struct out *o)
{
    struct shell *sh = o->shell;
    size_t want = sh->ended && o->left < SHELL_CHUNK ? o->left : SHELL_CHUNK;
    char data[SHELL_CHUNK];
    size_t len = 0;
    ssize_t n = 1;

    while (o->watch.fd >= 0 && len < want) { /* a terminal gives 4 KiB at a time */
        n = read(o->watch.fd, data + len, want - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    if (n == 0 || (n < 0 && errno != EAGAIN)) /* a terminal says EIO */
        close_watch(sh, &o->watch);
    if (sh->ended)
        o->left -= len;
    if (len && !sh->mute)
        sh->ops->on_output(sh->owner, o == &sh->outs[1], data, len);
    return len;
}

static void on_readable(struct loop_fd *w, uint32_t events)
{
    (void)events;
    (void)take_output(CONTAINER_OF(w, struct out, watch));
}

static void watch_outputs(struct shell *sh, bool on)
{
    int i;

    for (i = 0; i < OUTS_MAX; i++)
        if (sh->outs[i].watch.fd >= 0 &&
            loop_mod(sh->home->loop, &sh->outs[i].watch, on ? EPOLLIN : 0) < 0)
            close_watch(sh, &sh->outs[i].watch);
}

/* ---- the end ---- */

/* A pipe that somebody still holds goes on being read elsewhere; a terminal is hung up. */
static void part(struct shell *sh)
{
    int i;

    for (i = 0; i < OUTS_MAX && !sh->tty; i++) {
        if (sh->outs[i].watch.fd < 0)
            continue;
        loop_del(sh->home->loop, &sh->outs[i].watch);
        leftover_add(&sh->home->leftovers, sh->outs[i].watch.fd, NULL);
        sh->outs[i].watch.fd = -1;
    }
}

static void drain(struct shell *sh)
{
    int i;

    for (i = 0; i < OUTS_MAX; i++)
        while (!sh->paused && sh->outs[i].left && take_output(&sh->outs[i]))
            ;
    if (sh->paused || sh->over)
        return;
    sh->over = true;
    part(sh);
    sh->ops->on_exit(sh->owner, sh->code);
    shell_free(sh);
}

static void on_exit_of_leader(struct child *c, int status)
{
    struct shell *sh = CONTAINER_OF(c, struct shell, child);
    int i;

    sh->ended = true;
    sh->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    watch_outputs(sh, false);
    close_watch(sh, &sh->input);
    for (i = 0; i < OUTS_MAX; i++)
        sh->outs[i].left = sh->outs[i].watch.fd < 0 ? 0 : DRAIN_MAX;
    drain(sh);
}

void shell_pause(struct shell *sh, bool on)
{
    if (sh->paused == on)
        return;
    sh->paused = on;
    if (!sh->ended)
        watch_outputs(sh, !on);
    else if (!on)
        drain(sh);
}

/* ---- input ---- */

static void close_input(struct shell *sh)
{
    close_watch(sh, &sh->input);
    buf_free(&sh->pending);
}

/* -1: nobody reads any longer. */
static int push_input(struct shell *sh)
{
    while (sh->pending.len) {
        ssize_t n = write(sh->input.fd, sh->pending.data, sh->pending.len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0)
            return -1;
        buf_consume(&sh->pending, (size_t)n);
    }
    if (!sh->pending.len)
        buf_free(&sh->pending);
    return loop_mod(sh->home->loop, &sh->input, sh->pending.len ? EPOLLOUT : 0);
}

static void on_writable(struct loop_fd *w, uint32_t events)
{
    struct shell *sh = CONTAINER_OF(w, struct shell, input);

    (void)events;
    if (push_input(sh) < 0) {
        close_input(sh);
        if (!sh->mute)
            sh->ops->on_input_gone(sh->owner);
        return;
    }
    if (sh->input_was_full && !shell_input_full(sh)) {
        sh->input_was_full = false;
        if (!sh->mute)
            sh->ops->on_input_room(sh->owner);
    }
}

int shell_write(struct shell *sh, const char *data, size_t len, struct err *e)
{
    if (sh->ended)
        return 0;
    if (sh->input.fd < 0)
        return err_set(e, ERRC_INTERNAL, "the program takes no input any longer");
    if (buf_append(&sh->pending, data, len) < 0)
        return err_set(e, ERRC_LIMIT, "too much input waits for the program");
    if (!sh->input.events && push_input(sh) < 0) {
        close_input(sh);
        return err_set(e, ERRC_INTERNAL, "the program takes no input any longer");
    }
    sh->input_was_full = shell_input_full(sh);
    return 0;
}

bool shell_input_full(const struct shell *sh)
{
    return sh->pending.len >= SHELL_INPUT_HIGH;
}

/* ---- signals ---- */

void shell_resize(struct shell *sh, uint16_t cols, uint16_t rows)
{
    if (sh->tty && sh->outs[0].watch.fd >= 0)
        term_resize(sh->outs[0].watch.fd, cols, rows);
}

void shell_signal(struct shell *sh, int sig)
{
    pid_t group = sh->child.pid;
    pid_t front = sh->tty && sh->outs[0].watch.fd >= 0 ? term_foreground(sh->outs[0].watch.fd) : 0;

    if (sh->ended)
        return;
    if (front > 1)
        (void)kill(-front, sig);
    if (front <= 1 || (front != group && sig != SIGINT && sig != SIGQUIT))
        (void)kill(-group, sig);
}

void shell_kill(struct shell *sh)
{
    if (sh->ended)
        return;
    if (sh->tty)
        descend_signal_session(sh->child.pid, SIGKILL);
    (void)kill(-sh->child.pid, SIGKILL);
}

void shell_hang_up(struct shell *sh)
{
    int i;

    sh->mute = true;
    sh->paused = false;
    for (i = 0; i < OUTS_MAX && sh->tty; i++)
        close_watch(sh, &sh->outs[i].watch);
    close_watch(sh, &sh->input);
    if (sh->ended)
        drain(sh);
    else
        watch_outputs(sh, true);
}

/* ---- the start ---- */

static int find_shell(struct launch *l, const struct shell_req *rq, const struct env *base,
                      struct err *e)
{
    const char *bash[] = { "bash", "--norc", "--noprofile", "-c", rq->command };
    const char *sh[] = { "sh", "-c", rq->command };
    struct launch_req find = rq->launch;

    find.argv = bash;
    find.n_argv = rq->command ? 5 : 3;
    if (launch_find(l, &find, base, e) == 0)
        return 0;
    if (e->code == ERRC_NOMEM)
        return -1;
    find.argv = sh;
    find.n_argv = rq->command ? 3 : 1;
    if (launch_find(l, &find, base, e) == 0)
        return 0;
    if (e->code == ERRC_NOT_FOUND)
        return err_set(e, ERRC_NOT_FOUND, "this image has no shell (neither bash nor sh in PATH)");
    return -1;
}

static int prepare(struct launch *l, const struct shell_req *rq, const struct env *base,
                   struct err *e)
{
    if (launch_prepare(l, &rq->launch, base, e) < 0)
        return -1;
    if (rq->tty && !env_get(&l->env, "TERM") && env_set(&l->env, "TERM", "xterm-256color") < 0)
        return err_nomem(e);
    return find_shell(l, rq, base, e);
}

/* Our end goes to *ours, non-blocking; the other one is returned. */
static int open_pipe(int *ours, bool we_read, const struct spawn_req *sp, struct err *e)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(e, errno, "make a pipe");
    *ours = fds[we_read ? 0 : 1];
    (void)fcntl(*ours, F_SETFL, O_NONBLOCK);
    if (sp->set_ids) /* so that the program can open /dev/stdout */
        (void)!fchown(fds[we_read ? 1 : 0], sp->uid, sp->gid);
    return fds[we_read ? 1 : 0];
}

static int start_on_tty(struct shell *sh, struct spawn_req *sp, struct err *e)
{
    AUTO_FD int slave = -1;

    if (term_open(&sh->outs[0].watch.fd, &slave, e) < 0)
        return -1;
    sh->input.fd = fcntl(sh->outs[0].watch.fd, F_DUPFD_CLOEXEC, 3);
    if (sh->input.fd < 0)
        return err_sys(e, errno, "open the terminal twice");
    if (sp->set_ids)
        (void)!fchown(slave, sp->uid, (gid_t)-1);
    sp->in = sp->out = sp->err = slave;
    sp->new_session = sp->tty = true;
    return spawn(sp, &sh->child.pid, e);
}

static int start_on_pipes(struct shell *sh, struct spawn_req *sp, struct err *e)
{
    AUTO_FD int in = open_pipe(&sh->input.fd, false, sp, e);
    AUTO_FD int out = in < 0 ? -1 : open_pipe(&sh->outs[0].watch.fd, true, sp, e);
    AUTO_FD int err = out < 0 ? -1 : open_pipe(&sh->outs[1].watch.fd, true, sp, e);

    if (err < 0)
        return -1;
    sp->in = in;
    sp->out = out;
    sp->err = err;
    return spawn(sp, &sh->child.pid, e);
}

static struct shell *make(struct shell_home *home, bool tty, const struct shell_ops *ops,
                          void *owner)
{
    struct shell *sh = calloc(1, sizeof(*sh));
    int i;

    if (!sh)
        return NULL;
    sh->home = home;
    sh->ops = ops;
    sh->owner = owner;
    sh->tty = tty;
    sh->child.on_exit = on_exit_of_leader;
    sh->pending = BUF_INIT(SHELL_INPUT_MAX);
    sh->input.fd = -1;
    sh->input.on_event = on_writable;
    for (i = 0; i < OUTS_MAX; i++) {
        sh->outs[i].shell = sh;
        sh->outs[i].watch.fd = -1;
        sh->outs[i].watch.on_event = on_readable;
    }
    return sh;
}

struct shell *shell_start(struct shell_home *home, const struct shell_req *rq,
                          const struct shell_ops *ops, void *owner, struct err *e)
{
    AUTO_LAUNCH struct launch l = { 0 };
    struct shell *sh = make(home, rq->tty, ops, owner);
    struct spawn_req sp;

    if (!sh) {
        (void)err_nomem(e);
        return NULL;
    }
    if (prepare(&l, rq, home->base, e) < 0) {
        shell_free(sh);
        return NULL;
    }
    sp = launch_spawn(&l);
    if ((rq->tty ? start_on_tty(sh, &sp, e) : start_on_pipes(sh, &sp, e)) < 0) {
        if (!sh->child.pid)
            launch_explain(&l, e);
        shell_free(sh);
        return NULL;
    }
    signals_watch_child(home->signals, &sh->child);
    watch_outputs(sh, true);
    return sh;
}
