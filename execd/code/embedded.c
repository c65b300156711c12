#include "execd/code/embedded.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/loop.h"
#include "common/base/rand.h"
#include "common/json/utf8.h"
#include "common/proc/signals.h"
#include "common/proc/spawn.h"
#include "execd/code/frames.h"
#include "execd/exec/launch.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum {
    CODE_MAX = 8 << 20, /* the agent's own bodies are smaller */
    TAIL_MAX = 512,     /* what a program that does not start said last */
    HELD_MAX = 2 * EMBEDDED_CHUNK,
    AGAIN_MS = 300, /* after the first SIGINT, then twice as long each time */
    AGAIN_MAX = 5,
    CLOSED_WAIT_MS = 1000, /* between the end of the driver's socket and that of its program */
};

extern const char kernel_driver_py[], kernel_driver_py_end[];
extern const char kernel_driver_sh[], kernel_driver_sh_end[];

/* Takes the driver as its first code. The current directory is no place for the driver's own modules. */
static const char python_start[] =
    "import os, sys\n"
    "sys.path[:1] = [p for p in sys.path[:1] if p]\n"
    "control = open(os.dup(0), 'rb')\n"
    "exec(compile(b''.join([control.readline() for _ in range(int(control.readline()))]),"
    " '<kernel>', 'exec'))\n";

static const struct language {
    const char *name;
    const char *programs[3]; /* the first one that the image has */
    const char *args[4];
    const char *first; /* sent as code once the program runs; NULL: nothing */
    const char *first_end;
    bool forgets; /* an interrupt now and then */
} languages[] = {
    { "python",
      { "python3", "python", NULL },
      { "-u", "-c", python_start, NULL },
      kernel_driver_py,
      kernel_driver_py_end,
      false },
    { "bash", { "bash", "sh", NULL }, { "-c", kernel_driver_sh, NULL }, NULL, NULL, true },
};

enum phase { PHASE_STARTING, PHASE_IDLE, PHASE_BUSY, PHASE_OVER };

struct outlet {
    struct kernel *k;
    struct loop_fd watch; /* fd -1: closed */
    struct buf held;      /* not handed on yet */
    struct loop_timer flush;
    bool is_stderr;
};

struct kernel {
    struct embedded *home;
    const struct language *lang;
    const struct kernel_events *ev;
    void *owner;
    struct child child;
    struct loop_fd control; /* fd -1: closed */
    struct frames frames;
    struct frame next; /* read and not handed on */
    bool has_next;
    struct buf out; /* code on its way to the driver */
    struct outlet outs[2];
    struct loop_timer timer; /* the start's deadline, then: go on after a hold */
    struct loop_timer closed;
    struct loop_timer again; /* the next of several SIGINTs */
    unsigned interrupts;
    char tail[TAIL_MAX]; /* of stderr, before it was ready */
    size_t tail_len;
    enum phase phase;
    int status;     /* of wait(2) */
    bool begun;     /* busy: the driver has said so, too */
    bool interrupt; /* wanted once it has */
    bool exited;
    bool broke_off; /* killed for having closed the driver's end of the socket */
    bool held;
    bool caged; /* its process ends by TERM, and is waited for */
    bool gone_wanted;
    void (*on_gone)(void *owner);
    unsigned refs; /* the owner, calls under way, a cage */
};

struct embedded {
    struct loop *loop;
    struct signals *signals;
    const struct env *base;
};

/* ---- the set ---- */

struct embedded *embedded_new(struct loop *l, struct signals *sg, const struct env *base,
                              struct err *e)
{
    struct embedded *em = calloc(1, sizeof(*em));

    if (!em) {
        (void)err_nomem(e);
        return NULL;
    }
    em->loop = l;
    em->signals = sg;
    em->base = base;
    return em;
}

void embedded_free(struct embedded *em)
{
    free(em);
}

static const struct language *find_language(const char *name)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(languages); i++)
        if (strcmp(languages[i].name, name) == 0)
            return &languages[i];
    return NULL;
}

/* The first of its programs that PATH has; NULL: none. */
static const char *program_of(const struct language *lang, const struct env *vars)
{
    const char *path = env_get(vars, "PATH");
    size_t i;

    for (i = 0; lang->programs[i]; i++) {
        AUTO_FREE char *found = NULL;

        if (spawn_which(lang->programs[i], path && *path ? path : LAUNCH_PATH, &found, NULL) == 0)
            return lang->programs[i];
    }
    return NULL;
}

bool embedded_has(const struct embedded *em, const char *language)
{
    const struct language *lang = find_language(language);

    return lang && program_of(lang, em->base);
}

static int no_kernel(const struct embedded *em, const char *language, struct err *e)
{
    const struct language *lang = find_language(language);
    AUTO_BUF struct buf have = BUF_INIT(256);
    size_t i;

    for (i = 0; i < ARRAY_LEN(languages); i++)
        if (program_of(&languages[i], em->base))
            (void)buf_printf(&have, "%s%s", have.len ? ", " : "", languages[i].name);
    if (lang)
        return err_set(e, ERRC_INVALID,
                       "no kernel for %s: this image has no %s in PATH; languages available: %s",
                       language, lang->programs[0], have.len ? have.data : "none");
    return err_set(e, ERRC_INVALID,
                   "no kernel for the language \"%.40s\" in this image; languages available: %s",
                   language, have.len ? have.data : "none");
}

/* ---- life and death ---- */

static void control_close(struct kernel *k)
{
    if (k->control.fd < 0)
        return;
    loop_del(k->home->loop, &k->control);
    (void)close(k->control.fd);
    k->control.fd = -1;
}

static void outlet_close(struct outlet *o)
{
    if (o->watch.fd < 0)
        return;
    loop_del(o->k->home->loop, &o->watch);
    (void)close(o->watch.fd);
    o->watch.fd = -1;
}

static void outlet_watch(struct outlet *o, bool on)
{
    struct loop *l = o->k->home->loop;

    if (!on)
        loop_timer_clear(l, &o->flush);
    if (o->watch.fd < 0)
        return;
    if (!on)
        loop_del(l, &o->watch);
    else if (!o->watch.events && loop_add(l, &o->watch, EPOLLIN, NULL) < 0)
        outlet_close(o); /* out of memory */
}

static void unref(struct kernel *k)
{
    if (--k->refs)
        return;
    buf_free(&k->outs[0].held);
    buf_free(&k->outs[1].held);
    buf_free(&k->out);
    frames_free(&k->frames);
    if (k->has_next)
        frame_free(&k->next);
    free(k);
}

/* Gives up everything but the memory; the group does not outlive its kernel. */
static void let_go(struct kernel *k)
{
    struct loop *l = k->home->loop;
    unsigned i;

    if (k->child.pid > 0 && !k->exited && k->caged) {
        (void)kill(k->child.pid, SIGTERM);
    } else if (k->child.pid > 0 && !k->exited) {
        (void)kill(-k->child.pid, SIGKILL);
        signals_unwatch_child(k->home->signals, &k->child); /* collected as an orphan */
    }
    control_close(k);
    for (i = 0; i < 2; i++) {
        outlet_close(&k->outs[i]);
        loop_timer_clear(l, &k->outs[i].flush);
    }
    loop_timer_clear(l, &k->timer);
    loop_timer_clear(l, &k->closed);
    loop_timer_clear(l, &k->again);
    if (!k->caged)
        k->child.pid = 0;
    k->phase = PHASE_OVER;
}

bool embedded_alive(const struct kernel *k)
{
    return k->child.pid > 0 && !k->exited;
}

static void destroy(struct kernel *k)
{
    if (!k)
        return;
    k->ev = NULL;
    k->gone_wanted = k->caged && !k->exited;
    let_go(k);
    unref(k);
}

static void how_it_ended(const struct kernel *k, struct err *e)
{
    const char *name;

    if (k->broke_off && WIFSIGNALED(k->status))
        (void)err_set(e, ERRC_INTERNAL, "the code closed the kernel's own descriptors");
    else if (WIFEXITED(k->status))
        (void)err_set(e, ERRC_INTERNAL, "exit status %d", WEXITSTATUS(k->status));
    else {
        name = sigdescr_np(WTERMSIG(k->status));
        (void)err_set(e, ERRC_INTERNAL, "killed by signal %d (%s)", WTERMSIG(k->status),
                      name ? name : "unknown");
    }
}

/* on_ready with a reason, or on_dead. */
static void tell_end(struct kernel *k, const struct err *why)
{
    const struct kernel_events *ev = k->ev;
    bool starting = k->phase == PHASE_STARTING;
    struct err e = *why;

    let_go(k);
    if (!ev)
        return;
    k->ev = NULL;
    if (!starting) {
        ev->on_dead(k->owner, &e);
        return;
    }
    while (k->tail_len && strchr(" \r\n", k->tail[k->tail_len - 1]))
        k->tail_len--;
    if (k->tail_len)
        (void)err_set(&e, ERRC_INTERNAL, "the %s kernel did not start: %s: %.*s", k->lang->name,
                      why->msg, (int)(k->tail_len > 300 ? 300 : k->tail_len), k->tail);
    else
        (void)err_wrap(&e, "the %s kernel did not start", k->lang->name);
    ev->on_ready(k->owner, NULL, &e);
}

/* ---- output ---- */

/* What came before the kernel was ready is of no execution: its end explains a failure. */
static void keep_tail(struct kernel *k, const char *text, size_t len)
{
    size_t drop;

    if (len > TAIL_MAX) {
        text += len - TAIL_MAX;
        len = TAIL_MAX;
    }
    drop = k->tail_len + len > TAIL_MAX ? k->tail_len + len - TAIL_MAX : 0;
    memmove(k->tail, k->tail + drop, k->tail_len - drop);
    memcpy(k->tail + k->tail_len - drop, text, len);
    k->tail_len += len - drop;
}

/* Hands on what is held: all of it, or (whole false) no part of a character. */
static void outlet_flush(struct outlet *o, bool whole)
{
    struct kernel *k = o->k;
    struct buf text = o->held;
    size_t keep = whole || !text.len ? 0 : utf8_incomplete_tail(text.data, text.len);

    loop_timer_clear(k->home->loop, &o->flush);
    if (k->held || text.len == keep)
        return;
    o->held = BUF_INIT(HELD_MAX);
    if (keep)
        (void)buf_append(&o->held, text.data + text.len - keep, keep);
    if (k->phase != PHASE_STARTING && k->ev)
        k->ev->on_text(k->owner, o->is_stderr, text.data, text.len - keep);
    else if (o->is_stderr || k->caged)
        keep_tail(k, text.data, text.len - keep);
    buf_free(&text);
}

/* One read. The number of bytes; 0: nothing is there now, or the end (then the outlet is closed). */
static size_t outlet_read(struct outlet *o, size_t max)
{
    char *at = buf_reserve(&o->held, EMBEDDED_CHUNK);
    ssize_t n = at ? read(o->watch.fd, at, max < EMBEDDED_CHUNK ? max : EMBEDDED_CHUNK) : 0;

    if (n > 0) {
        o->held.len += (size_t)n;
        return (size_t)n;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR))
        outlet_close(o);
    return 0;
}

static void on_flush(struct loop_timer *t)
{
    struct outlet *o = CONTAINER_OF(t, struct outlet, flush);
    struct kernel *k = o->k;

    k->refs++;
    outlet_flush(o, false);
    unref(k);
}

static void on_output(struct loop_fd *w, uint32_t events)
{
    struct outlet *o = CONTAINER_OF(w, struct outlet, watch);
    struct kernel *k = o->k;
    char last;

    (void)events;
    k->refs++;
    if (outlet_read(o, EMBEDDED_CHUNK) == 0) {
        outlet_flush(o, true);
    } else {
        last = o->held.data[o->held.len - 1];
        if (last == '\n' || last == '\r' || o->held.len >= EMBEDDED_CHUNK / 2)
            outlet_flush(o, false);
        else if (!o->flush.at_mono_ms && loop_timer_set(k->home->loop, &o->flush,
                                                        clock_mono_ms() + EMBEDDED_COALESCE_MS) < 0)
            outlet_flush(o, false); /* out of memory: at once */
    }
    unref(k);
}

/* What was written before a message that has just been read. */
static void drain(struct kernel *k, bool whole)
{
    unsigned i;

    for (i = 0; i < 2; i++) {
        struct outlet *o = &k->outs[i];
        int left = 0;
        size_t n = 1;

        if (o->watch.fd >= 0)
            (void)ioctl(o->watch.fd, FIONREAD, &left);
        while (!k->held && o->watch.fd >= 0 && left > 0 && n) {
            n = outlet_read(o, (size_t)left);
            left -= (int)n;
            outlet_flush(o, false);
        }
        outlet_flush(o, whole);
    }
}

/* ---- the driver's socket ---- */

static void control_watch(struct kernel *k)
{
    uint32_t want = (k->held ? 0 : EPOLLIN) | (k->out.len ? EPOLLOUT : 0);

    if (k->control.fd < 0)
        return;
    if (!want)
        loop_del(k->home->loop, &k->control);
    else if (k->control.events ? loop_mod(k->home->loop, &k->control, want) < 0
                               : loop_add(k->home->loop, &k->control, want, NULL) < 0)
        (void)kill(-k->child.pid, SIGKILL); /* out of memory: its end is seen all the same */
}

/* As much as the socket takes. A driver that is gone shows by the end of its program. */
static void send_code(struct kernel *k)
{
    ssize_t n;

    while (k->control.fd >= 0 && k->out.len) {
        n = send(k->control.fd, k->out.data, k->out.len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            buf_clear(&k->out);
        if (n <= 0)
            break;
        buf_consume(&k->out, (size_t)n);
    }
    if (!k->out.len)
        buf_free(&k->out);
    control_watch(k);
}

static int put_code(struct kernel *k, const char *code, size_t len, struct err *e)
{
    size_t lines = 1;
    const char *p = code;

    while ((p = memchr(p, '\n', len - (size_t)(p - code)))) {
        lines++;
        p++;
    }
    if (len > CODE_MAX - 64)
        return err_set(e, ERRC_INVALID, "code: longer than %d bytes", CODE_MAX - 64);
    if (!buf_reserve(&k->out, len + 32))
        return err_nomem(e);
    (void)buf_printf(&k->out, "%zu\n", lines);
    (void)buf_append(&k->out, code, len);
    (void)buf_append(&k->out, "\n", 1);
    send_code(k);
    return 0;
}

/* One read into the frames: the number of bytes. At the end the socket is closed. */
static size_t control_read(struct kernel *k)
{
    char *at = k->control.fd < 0 ? NULL : frames_reserve(&k->frames, EMBEDDED_CHUNK);
    ssize_t n = at ? recv(k->control.fd, at, EMBEDDED_CHUNK, MSG_DONTWAIT) : 0;

    if (n > 0)
        frames_commit(&k->frames, (size_t)n);
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        control_close(k);
    return n > 0 ? (size_t)n : 0;
}

/* ---- messages ---- */

/* bash forgets that it got a SIGINT when the program that it waits for ends well all the same, which the last one of a
 * pipeline does when the signal meets it before its exec: one in twenty. It gets another one while the code runs on. */
static int send_interrupt(struct kernel *k)
{
    const int64_t wait_ms = (int64_t)AGAIN_MS << k->interrupts;

    if (k->lang->forgets && k->interrupts++ < AGAIN_MAX)
        (void)loop_timer_set(k->home->loop, &k->again, clock_mono_ms() + wait_ms);
    return kill(-k->child.pid, SIGINT);
}

static void on_again(struct loop_timer *t)
{
    struct kernel *k = CONTAINER_OF(t, struct kernel, again);

    if (k->phase == PHASE_BUSY && !k->exited)
        (void)send_interrupt(k);
}

static void on_frame(struct kernel *k, const struct frame *fr)
{
    char id[RAND_UUID_TEXT];

    if (k->phase == PHASE_STARTING) {
        if (fr->type != FRAME_READY)
            return;
        loop_timer_clear(k->home->loop, &k->timer);
        k->phase = PHASE_IDLE;
        rand_uuid4(id);
        k->ev->on_ready(k->owner, id, NULL);
        return;
    }
    if (k->phase != PHASE_BUSY)
        return; /* of no execution */
    switch (fr->type) {
    case FRAME_BUSY:
        k->begun = true;
        if (k->interrupt)
            (void)send_interrupt(k);
        break;
    case FRAME_RESULT:
        k->ev->on_result(k->owner, fr->count, fr->data);
        break;
    case FRAME_DISPLAY:
        k->ev->on_result(k->owner, 0, fr->data);
        break;
    case FRAME_ERROR:
        k->ev->on_error(k->owner, fr->ename, fr->evalue, fr->traceback);
        break;
    case FRAME_IDLE:
        loop_timer_clear(k->home->loop, &k->again);
        k->phase = PHASE_IDLE;
        k->ev->on_idle(k->owner, fr->count);
        break;
    case FRAME_READY:
        break;
    }
}

static void bad_frame(struct kernel *k, const struct err *e)
{
    char text[256];
    int n =
        snprintf(text, sizeof(text), "[a message of the kernel was left out: %.180s]\n", e->msg);

    if (k->phase == PHASE_BUSY)
        k->ev->on_text(k->owner, true, text, (size_t)n);
}

/* Hands on what is there, output before the message that followed it, until the owner holds. */
static void pump(struct kernel *k)
{
    struct frame fr;
    struct err e = { 0 };
    int rc = 1;

    while (rc != 0) {
        drain(k, k->has_next && k->next.type == FRAME_IDLE);
        if (k->held || !k->ev)
            return;
        if (k->has_next) {
            fr = k->next;
            k->has_next = false;
            on_frame(k, &fr);
            frame_free(&fr);
            continue;
        }
        rc = frames_next(&k->frames, &k->next, &e);
        k->has_next = rc > 0;
        if (rc < 0)
            bad_frame(k, &e);
    }
}

/* The program is gone, and its group with it: what is left to read, then the end. */
static void finish(struct kernel *k)
{
    struct err e = { 0 };
    int left = 0;
    size_t n = 1;

    if (k->control.fd >= 0) /* a child of the code may hold its other end, and write on */
        (void)ioctl(k->control.fd, FIONREAD, &left);
    for (; k->ev && !k->held && left > 0 && n; left -= (int)n) {
        n = control_read(k);
        pump(k);
    }
    pump(k);
    if (!k->ev || k->held)
        return;
    drain(k, true);
    how_it_ended(k, &e);
    tell_end(k, &e);
}

/* The driver's end of the socket is closed while its program runs on: nothing can come any more. */
static void on_closed(struct loop_timer *t)
{
    struct kernel *k = CONTAINER_OF(t, struct kernel, closed);

    k->broke_off = true;
    (void)kill(-k->child.pid, SIGKILL);
}

static void on_control(struct loop_fd *w, uint32_t events)
{
    struct kernel *k = CONTAINER_OF(w, struct kernel, control);

    k->refs++;
    if (events & EPOLLOUT)
        send_code(k);
    if (events & ~(uint32_t)EPOLLOUT) {
        (void)control_read(k);
        pump(k);
    }
    if (k->control.fd < 0 && k->ev && !k->exited && /* its end follows, as a rule */
        loop_timer_set(k->home->loop, &k->closed, clock_mono_ms() + CLOSED_WAIT_MS) < 0)
        on_closed(&k->closed);
    unref(k);
}

static void on_exit_of_program(struct child *c, int status)
{
    struct kernel *k = CONTAINER_OF(c, struct kernel, child);

    if (!k->caged)
        (void)kill(-c->pid, SIGKILL);
    k->exited = true;
    k->status = status;
    loop_timer_clear(k->home->loop, &k->closed);
    if (!k->caged)
        k->refs++;
    finish(k);
    if (k->gone_wanted)
        k->on_gone(k->owner);
    unref(k); /* the cage's reference, or the one of this call */
}

/* The start took too long, or a hold is over. */
static void on_timer(struct loop_timer *t)
{
    struct kernel *k = CONTAINER_OF(t, struct kernel, timer);
    struct err e = { 0 };

    k->refs++;
    if (k->phase == PHASE_STARTING) {
        (void)err_set(&e, ERRC_TIMEOUT, "not ready within %d s", EMBEDDED_START_MS / 1000);
        tell_end(k, &e);
    } else if (k->exited) {
        finish(k);
    } else {
        pump(k);
    }
    unref(k);
}

/* ---- verbs ---- */

static int execute(struct kernel *k, const char *code, struct err *e)
{
    if (k->phase == PHASE_BUSY || k->phase == PHASE_STARTING)
        return err_set(e, ERRC_BUSY, "the kernel runs other code");
    if (k->phase != PHASE_IDLE || k->exited)
        return err_set(e, ERRC_INTERNAL, "the kernel is gone");
    if (put_code(k, code, strlen(code), e) < 0)
        return -1;
    k->phase = PHASE_BUSY;
    k->begun = k->interrupt = false;
    k->interrupts = 0;
    return 0;
}

static int interrupt(struct kernel *k, struct err *e)
{
    if (k->phase != PHASE_BUSY || k->exited)
        return 0;
    k->interrupt = true;
    k->interrupts = 0;
    if (k->begun && send_interrupt(k) < 0)
        return err_sys(e, errno, "interrupt the kernel");
    return 0;
}

static void hold(struct kernel *k, bool on)
{
    unsigned i;

    if (k->held == on || k->phase == PHASE_OVER)
        return;
    k->held = on;
    for (i = 0; i < 2; i++)
        outlet_watch(&k->outs[i], !on);
    control_watch(k);
    if (!on)
        (void)loop_timer_set(k->home->loop, &k->timer, clock_mono_ms());
}

/* ---- the start ---- */

/* A pipe whose reading end is watched; returns the writing end. */
static int outlet_open(struct kernel *k, struct outlet *o, struct err *e)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(e, errno, "make a pipe for the kernel's output");
    o->watch.fd = fds[0];
    (void)fcntl(fds[0], F_SETFL, O_NONBLOCK);
    if (loop_add(k->home->loop, &o->watch, EPOLLIN, e) < 0) {
        (void)close(fds[1]);
        return -1;
    }
    return fds[1];
}

static int control_open(struct kernel *k, struct err *e)
{
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
        return err_sys(e, errno, "make a socket for the kernel");
    k->control.fd = fds[0];
    (void)fcntl(fds[0], F_SETFL, O_NONBLOCK);
    if (loop_add(k->home->loop, &k->control, EPOLLIN, e) < 0) {
        (void)close(fds[1]);
        return -1;
    }
    return fds[1];
}

static int start_program(struct kernel *k, const struct launch *l, const struct spawn_req *sp,
                         struct err *e)
{
    if (spawn(sp, &k->child.pid, e) < 0) {
        launch_explain(l, e);
        return -1;
    }
    signals_watch_child(k->home->signals, &k->child);
    return 0;
}

/* The program and its arguments become arguments of the cage's. */
static int start_caged(struct kernel *k, const struct kernel_cage *cage, const struct launch *l,
                       struct spawn_req *sp, struct err *e)
{
    AUTO_FREE const char **argv = NULL;
    size_t n = 0;

    while (l->argv[n])
        n++;
    argv = calloc(cage->n_argv + n + 2, sizeof(*argv));
    if (!argv)
        return err_nomem(e);
    memcpy(argv, cage->argv, cage->n_argv * sizeof(*argv));
    memcpy(argv + cage->n_argv, l->argv, n * sizeof(*argv));
    argv[cage->n_argv] = l->path;
    sp->path = cage->path;
    sp->argv = (char *const *)argv;
    sp->envp = cage->env->vars;
    sp->keep = cage->keep;
    sp->inherit = true;
    if (start_program(k, l, sp, e) < 0)
        return -1;
    k->caged = true;
    k->on_gone = cage->on_gone;
    k->refs++;
    return 0;
}

static int launch(struct kernel *k, const struct kernel_req *rq, const char *program, struct err *e)
{
    const char *argv[ARRAY_LEN(k->lang->args) + 1] = { program };
    struct launch_req lrq = { .argv = argv, .n_argv = 1, .cwd = rq->cwd };
    const struct env *base = rq->cage ? rq->cage->env : k->home->base;
    AUTO_LAUNCH struct launch l = { 0 };
    AUTO_FD int in = control_open(k, e);
    AUTO_FD int out = in < 0 ? -1 : outlet_open(k, &k->outs[0], e);
    AUTO_FD int err = out < 0 || rq->cage ? -1 : outlet_open(k, &k->outs[1], e);
    struct spawn_req sp;

    if (out < 0 || (err < 0 && !rq->cage))
        return -1;
    for (; k->lang->args[lrq.n_argv - 1]; lrq.n_argv++)
        argv[lrq.n_argv] = k->lang->args[lrq.n_argv - 1];
    if (launch_prepare(&l, &lrq, base, e) < 0 || launch_find(&l, &lrq, base, e) < 0)
        return -1;
    sp = launch_spawn(&l);
    sp.in = in;
    sp.out = out;
    sp.err = rq->cage ? out : err;
    return rq->cage ? start_caged(k, rq->cage, &l, &sp, e) : start_program(k, &l, &sp, e);
}

static struct kernel *make_kernel(struct embedded *em, const struct language *lang,
                                  const struct kernel_req *rq)
{
    struct kernel *k = calloc(1, sizeof(*k));
    unsigned i;

    if (!k)
        return NULL;
    k->home = em;
    k->lang = lang;
    k->ev = rq->events;
    k->owner = rq->owner;
    k->refs = 1;
    k->child.on_exit = on_exit_of_program;
    k->control.fd = -1;
    k->control.on_event = on_control;
    k->timer.on_fire = on_timer;
    k->closed.on_fire = on_closed;
    k->again.on_fire = on_again;
    k->out = BUF_INIT(CODE_MAX);
    frames_init(&k->frames);
    for (i = 0; i < 2; i++)
        k->outs[i] = (struct outlet){ .k = k,
                                      .watch = { .fd = -1, .on_event = on_output },
                                      .held = BUF_INIT(HELD_MAX),
                                      .flush = { .on_fire = on_flush },
                                      .is_stderr = i == 1 };
    return k;
}

static struct kernel *create(void *provider, const struct kernel_req *rq, struct err *e)
{
    struct embedded *em = provider;
    const struct language *lang = find_language(rq->language);
    const char *program = lang ? program_of(lang, rq->cage ? rq->cage->env : em->base) : NULL;
    struct kernel *k;

    if (!program) {
        (void)no_kernel(em, rq->language, e);
        return NULL;
    }
    k = make_kernel(em, lang, rq);
    if (!k) {
        (void)err_nomem(e);
        return NULL;
    }
    if (launch(k, rq, program, e) < 0 ||
        (lang->first && put_code(k, lang->first, (size_t)(lang->first_end - lang->first), e) < 0) ||
        loop_timer_set(em->loop, &k->timer, clock_mono_ms() + EMBEDDED_START_MS) < 0) {
        if (!e->code)
            (void)err_nomem(e);
        destroy(k);
        return NULL;
    }
    return k;
}

const struct kernel_ops embedded_ops = { create, execute, interrupt, hold, destroy };
