#include "execd/exec/run.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/loop.h"
#include "common/proc/signals.h"
#include "execd/exec/events.h"
#include "execd/exec/leftover.h"
#include "execd/exec/spool.h"
#include "execd/exec/units.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

enum {
    READ_SIZE = 64 * 1024 - 1, /* with its terminator just below the allocator's mmap threshold */
    BATCH_SIZE = 64 * 1024,    /* events that are collected for one write to the stream */
    SCRATCH_MAX = 16 << 20,    /* the largest unit, escaped, and a batch */
    CR_WAIT_MS = 5,
    GONE_WAIT_MS = 1000, /* how long a killed group may take before it is not waited for */
};

/* One end of the command's output. */
struct outlet {
    struct run *run;
    const char *type;
    struct loop_fd watch; /* fd -1: closed */
    struct units units;
    struct loop_timer cr;
    size_t left; /* the leader is gone: what was in the pipe then and is not read yet */
};

struct run {
    struct runs *set;
    struct record *rec;  /* until the outcome is on it */
    struct spool *spool; /* of a background command */
    struct child child;
    struct outlet outs[2]; /* a background command has the first one only */
    unsigned n_outs;
    struct http_stream *stream; /* NULL: the client is gone, or it is a background command */
    struct loop_timer ping;
    struct loop_timer deadline;
    struct loop_timer grace;
    struct run_waiter *waiters;
    int64_t start_mono_ms;
    int64_t timeout_ms;
    int64_t took_ms;
    int code;      /* the outcome: exit status, or -1 */
    char text[64]; /* "exit status 3", "signal: killed" */
    char why[64];  /* what ended it, when that was the agent; else "" */
    int status;    /* of wait(2) */
    bool exited;   /* the leader is gone */
    bool ending;   /* the group was told to go, and may not be gone yet */
    bool killed;
    bool timed_out;
    bool draining; /* exited and not ending: what is in the pipes is the last output */
    bool blocked;  /* the stream is full */
    struct run *prev;
    struct run *next;
};

struct runs {
    struct loop *loop;
    struct signals *signals;
    struct http_server *server;
    struct records records;
    struct leftovers leftovers;
    struct run *head;
    unsigned n;
    unsigned ending;
    struct loop_hook hook;
    struct buf scratch; /* events of one batch, or output that nobody wants */
};

/* ---- the set ---- */

static int check_ending(void *arg);

struct runs *runs_new(struct loop *l, struct signals *sg, struct err *e)
{
    struct runs *rs = calloc(1, sizeof(*rs));

    if (!rs) {
        (void)err_nomem(e);
        return NULL;
    }
    rs->loop = l;
    rs->signals = sg;
    rs->leftovers.loop = l;
    rs->scratch = BUF_INIT(SCRATCH_MAX);
    rs->hook = (struct loop_hook){ .before_wait = check_ending, .arg = rs };
    loop_hook_add(l, &rs->hook);
    return rs;
}

void runs_set_server(struct runs *rs, struct http_server *server)
{
    rs->server = server;
}

struct records *runs_records(struct runs *rs)
{
    return &rs->records;
}

unsigned runs_active(const struct runs *rs)
{
    return rs->n;
}

static void link_run(struct run *r)
{
    struct runs *rs = r->set;

    r->next = rs->head;
    if (r->next)
        r->next->prev = r;
    rs->head = r;
    rs->n++;
}

static void unlink_run(struct run *r)
{
    if (r->prev)
        r->prev->next = r->next;
    else
        r->set->head = r->next;
    if (r->next)
        r->next->prev = r->prev;
    r->set->n--;
}

/* ---- outlets ---- */

static void outlet_close(struct outlet *o)
{
    if (o->watch.fd < 0)
        return;
    loop_del(o->run->set->loop, &o->watch);
    (void)close(o->watch.fd);
    o->watch.fd = -1;
    o->left = 0;
}

/* Reading stops while the stream is full, and goes on when it has room. */
static void outlets_watch(struct run *r, bool on)
{
    struct loop *l = r->set->loop;
    unsigned i;

    for (i = 0; i < r->n_outs; i++) {
        struct loop_fd *w = &r->outs[i].watch;

        if (w->fd < 0)
            continue;
        if (!on)
            loop_del(l, w);
        else if (!w->events && loop_add(l, w, EPOLLIN, NULL) < 0)
            outlet_close(&r->outs[i]); /* out of memory */
    }
}

static void scratch_done(struct runs *rs)
{
    if (rs->scratch.cap > 2 * BATCH_SIZE)
        buf_free(&rs->scratch);
    else
        buf_clear(&rs->scratch);
}

/* Out of memory: a gap must not look like success. */
static void stream_break(struct run *r)
{
    struct http_stream *st = TAKE_PTR(r->stream);

    if (!st)
        return;
    http_stream_abort(st);
    http_stream_release(st);
    r->blocked = false;
}

/* Writes to the stream, or marks it full. */
static bool stream_put(struct run *r, const struct buf *b)
{
    if (!r->stream || http_stream_write(r->stream, b->data, b->len) == 0)
        return true;
    r->blocked = true;
    outlets_watch(r, false);
    return false;
}

/* Turns complete units into events, one batch. 1: there may be more; 0: none are left; -1: the
 * stream is full, the batch stays. */
static int put_batch(struct outlet *o)
{
    struct runs *rs = o->run->set;
    const struct units before = o->units;
    int64_t now = clock_wall_ms();
    struct unit u;
    bool more;

    while ((more = units_next(&o->units, &u))) {
        if (event_text(&rs->scratch, o->type, u.text, u.len, now) < 0) {
            stream_break(o->run);
            break;
        }
        if (rs->scratch.len >= BATCH_SIZE)
            break;
    }
    if (rs->scratch.len && !stream_put(o->run, &rs->scratch)) {
        o->units = before;
        scratch_done(rs);
        return -1;
    }
    scratch_done(rs);
    return more && o->run->stream;
}

static void put_units(struct outlet *o)
{
    struct loop *l = o->run->set->loop;
    int rc;

    do
        rc = put_batch(o);
    while (rc > 0);
    if (!o->run->stream) { /* nobody is left who wants it */
        units_free(&o->units);
        units_init(&o->units, o->units.strip);
    }
    if (rc == 0)
        units_compact(&o->units);
    if (rc == 0 && units_holds_cr(&o->units) && !o->run->draining)
        (void)loop_timer_set(l, &o->cr, clock_mono_ms() + CR_WAIT_MS);
    else
        loop_timer_clear(l, &o->cr);
}

static void on_cr_alone(struct loop_timer *t)
{
    struct outlet *o = CONTAINER_OF(t, struct outlet, cr);

    units_release_cr(&o->units);
    put_units(o);
}

/* One read of at most max bytes into the stream or the spool. The number of bytes; 0: nothing is
 * there now, or the end (then the outlet is closed). */
static size_t outlet_read(struct outlet *o, size_t max)
{
    struct run *r = o->run;
    bool wanted = r->stream != NULL;
    char *at =
        wanted ? units_reserve(&o->units, READ_SIZE) : buf_reserve(&r->set->scratch, READ_SIZE);
    ssize_t n;

    if (!at) {
        stream_break(r);
        outlet_close(o);
        return 0;
    }
    n = read(o->watch.fd, at, max < READ_SIZE ? max : READ_SIZE);
    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            outlet_close(o);
        return 0;
    }
    if (wanted) {
        units_commit(&o->units, (size_t)n);
        put_units(o);
    } else if (r->spool) {
        spool_append(r->spool, at, (size_t)n);
    }
    return (size_t)n;
}

static void on_output(struct loop_fd *w, uint32_t events)
{
    (void)events;
    (void)outlet_read(CONTAINER_OF(w, struct outlet, watch), READ_SIZE);
}

/* ---- the end ---- */

/* Puts the outcome on record: from here on the command is over, whatever its reader does. */
static void record_outcome(struct run *r)
{
    const char *name;

    if (WIFEXITED(r->status)) {
        r->code = WEXITSTATUS(r->status);
        (void)snprintf(r->text, sizeof(r->text), "exit status %d", r->code);
    } else {
        name = sigdescr_np(WTERMSIG(r->status));
        r->code = -1;
        (void)snprintf(r->text, sizeof(r->text), "signal: %s", name ? name : "unknown");
        r->text[8] = (char)(r->text[8] | 0x20); /* "signal: killed", as the contract has it */
    }
    if (r->timed_out) {
        r->code = -1;
        (void)snprintf(r->why, sizeof(r->why), "command timed out after %" PRId64 " ms",
                       r->timeout_ms);
    }
    r->took_ms = clock_mono_ms() - r->start_mono_ms;
    records_end(&r->set->records, r->rec, r->code,
                r->code == 0 ? ""
                : r->why[0]  ? r->why
                             : r->text,
                clock_wall_ms());
    r->rec = NULL; /* it may be swept before the run is */
}

/* The one terminal event. false: no room yet. */
static bool put_terminal(struct run *r)
{
    struct buf *b = &r->set->scratch;
    int64_t now = clock_wall_ms();
    char value[16];
    bool done;
    int rc;

    if (!r->stream)
        return true;
    (void)snprintf(value, sizeof(value), "%d", r->code);
    if (r->code == 0)
        rc = event_complete(b, r->took_ms, now);
    else if (r->why[0])
        rc = event_error(b, "CommandExecError", value, r->why, r->text, now);
    else
        rc = event_error(b, "CommandExecError", value, r->text, NULL, now);
    if (rc < 0)
        stream_break(r);
    done = stream_put(r, b);
    scratch_done(r->set);
    return done;
}

/* A pipe that somebody still holds goes on being read elsewhere. */
static void part_with_pipes(struct run *r)
{
    struct buf *b = &r->set->scratch;
    unsigned i;

    for (i = 0; i < r->n_outs; i++) {
        struct outlet *o = &r->outs[i];
        char *at = o->watch.fd < 0 ? NULL : buf_reserve(b, READ_SIZE);
        ssize_t n = at ? read(o->watch.fd, at, READ_SIZE) : 0;

        loop_timer_clear(r->set->loop, &o->cr);
        units_free(&o->units);
        if (n > 0 && r->spool)
            spool_append(r->spool, at, (size_t)n);
        if (n == 0) {
            outlet_close(o);
            continue;
        }
        loop_del(r->set->loop, &o->watch);
        leftover_add(&r->set->leftovers, o->watch.fd, r->spool);
    }
}

static void run_free(struct run *r)
{
    struct loop *l = r->set->loop;

    loop_timer_clear(l, &r->ping);
    loop_timer_clear(l, &r->deadline);
    loop_timer_clear(l, &r->grace);
    spool_unref(r->spool);
    unlink_run(r);
    free(r);
}

/* The leader is gone, its last output is in the stream: say how it ended. */
static void finish(struct run *r)
{
    struct http_stream *st;

    if (!put_terminal(r))
        return; /* on_drain comes back here */
    st = TAKE_PTR(r->stream);
    if (st) {
        http_stream_end(st);
        http_stream_release(st);
    }
    part_with_pipes(r);
    run_free(r);
}

/* Takes what is still to be read, then ends the run. */
static void drain(struct run *r)
{
    unsigned i;

    for (i = 0; i < r->n_outs; i++) {
        struct outlet *o = &r->outs[i];
        size_t n = 1;

        while (o->watch.fd >= 0 && o->left && n && !r->blocked) {
            n = outlet_read(o, o->left);
            o->left -= n < o->left ? n : o->left;
        }
        if (r->blocked)
            return;
        if (!r->stream)
            continue;
        units_end(&o->units);
        put_units(o);
        if (r->blocked)
            return;
    }
    finish(r);
}

static void begin_drain(struct run *r)
{
    unsigned i;
    int n;

    record_outcome(r);
    r->draining = true;
    outlets_watch(r, false);
    for (i = 0; i < r->n_outs; i++) {
        n = 0;
        if (r->outs[i].watch.fd >= 0)
            (void)ioctl(r->outs[i].watch.fd, FIONREAD, &n);
        r->outs[i].left = (size_t)n;
    }
    if (!r->blocked)
        drain(r);
}

static void tell_waiters(struct run *r)
{
    struct run_waiter *w = TAKE_PTR(r->waiters);
    struct run_waiter *next;

    for (; w; w = next) {
        next = w->next;
        w->on_gone(w);
    }
}

/* The group is gone, or is not waited for any longer. */
static void end_done(struct run *r)
{
    r->ending = false;
    r->set->ending--;
    loop_timer_clear(r->set->loop, &r->grace);
    tell_waiters(r);
    begin_drain(r);
}

static bool group_gone(const struct run *r)
{
    return kill(-r->child.pid, 0) < 0 && errno == ESRCH;
}

/* Before every wait: children of ended leaders come and go without an event of their own but
 * SIGCHLD, which has just been taken. The group's number cannot be another's while a member is
 * left, and is not reused in the moment between the last one's end and this look. */
static int check_ending(void *arg)
{
    struct runs *rs = arg;
    struct run *r = rs->ending ? rs->head : NULL;
    struct run *next;
    int wait = -1;

    for (; r; r = next) {
        next = r->next;
        if (r->ending && r->exited && group_gone(r)) {
            end_done(r);
            wait = 0; /* other hooks may have had their turn: another round */
        }
    }
    return wait;
}

static void on_grace(struct loop_timer *t)
{
    struct run *r = CONTAINER_OF(t, struct run, grace);

    if (r->killed && r->exited) {
        end_done(r);
        return;
    }
    r->killed = true;
    (void)kill(-r->child.pid, SIGKILL);
    (void)loop_timer_set(r->set->loop, &r->grace, clock_mono_ms() + GONE_WAIT_MS);
}

/* TERM to the whole group now, KILL later. CONT, or a stopped process would not notice. */
static void end_group(struct run *r, int64_t grace_ms)
{
    if (r->ending)
        return;
    r->ending = true;
    r->set->ending++;
    (void)kill(-r->child.pid, SIGTERM);
    (void)kill(-r->child.pid, SIGCONT);
    if (loop_timer_set(r->set->loop, &r->grace, clock_mono_ms() + grace_ms) < 0)
        on_grace(&r->grace); /* out of memory: no grace */
}

static void on_deadline(struct loop_timer *t)
{
    struct run *r = CONTAINER_OF(t, struct run, deadline);

    r->timed_out = true;
    end_group(r, RUN_TIMEOUT_GRACE_MS);
}

static void on_leader_exit(struct child *c, int status)
{
    struct run *r = CONTAINER_OF(c, struct run, child);

    r->status = status;
    r->exited = true;
    loop_timer_clear(r->set->loop, &r->deadline);
    loop_timer_clear(r->set->loop, &r->ping);
    if (!r->ending)
        begin_drain(r);
    else if (group_gone(r))
        end_done(r);
}

int run_interrupt(struct run *r, struct run_waiter *w, struct err *e)
{
    if (r->exited && !r->ending)
        return err_set(e, ERRC_INTERNAL, "the command is not running");
    w->next = r->waiters;
    r->waiters = w;
    end_group(r, RUN_INTERRUPT_GRACE_MS);
    return 0;
}

/* ---- the stream ---- */

static void on_drain(void *owner)
{
    struct run *r = owner;
    unsigned i;

    r->blocked = false;
    if (!r->draining)
        outlets_watch(r, true);
    for (i = 0; i < r->n_outs && !r->blocked; i++)
        put_units(&r->outs[i]);
    if (r->draining && !r->blocked)
        drain(r);
}

/* The client is gone: the command goes on, its output is dropped. */
static void on_stream_close(void *owner)
{
    struct run *r = owner;
    bool was_blocked = r->blocked;
    struct http_stream *st = TAKE_PTR(r->stream);
    unsigned i;

    http_stream_release(st);
    r->blocked = false;
    loop_timer_clear(r->set->loop, &r->ping);
    for (i = 0; i < r->n_outs; i++)
        put_units(&r->outs[i]); /* without a stream: forgets */
    if (r->draining)
        drain(r);
    else if (was_blocked)
        outlets_watch(r, true);
}

static const struct http_stream_ops stream_ops = { on_drain, on_stream_close };

static void put_ping(struct run *r)
{
    struct buf *b = &r->set->scratch;

    if (r->stream && !r->blocked && event_text(b, "ping", "pong", 4, clock_wall_ms()) == 0)
        (void)http_stream_write(r->stream, b->data, b->len); /* full: the client has enough */
    scratch_done(r->set);
}

static void on_ping(struct loop_timer *t)
{
    struct run *r = CONTAINER_OF(t, struct run, ping);

    put_ping(r);
    (void)loop_timer_set(r->set->loop, t, clock_mono_ms() + RUN_PING_MS);
}

static int open_stream(struct run *r, struct err *e)
{
    struct buf *b = &r->set->scratch;
    const char *id = r->rec->id;

    r->stream = http_stream_new(r->set->server, RUN_STREAM_MAX, &stream_ops, r);
    if (!r->stream)
        return err_nomem(e);
    if (event_text(b, "init", id, strlen(id), clock_wall_ms()) < 0)
        return err_nomem(e);
    (void)http_stream_write(r->stream, b->data, b->len);
    scratch_done(r->set);
    put_ping(r);
    (void)loop_timer_set(r->set->loop, &r->ping, clock_mono_ms() + RUN_PING_MS);
    return 0;
}

/* ---- the start ---- */

/* A pipe whose reading end is watched by o; returns the writing end. */
static int outlet_open(struct run *r, struct outlet *o, const char *type, bool strip,
                       const struct spawn_req *rq, struct err *e)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(e, errno, "make a pipe for the output");
    o->run = r;
    o->type = type;
    o->cr.on_fire = on_cr_alone;
    units_init(&o->units, strip);
    o->watch.on_event = on_output;
    o->watch.fd = fds[0];
    r->n_outs++;
    (void)fcntl(fds[0], F_SETFL, O_NONBLOCK);
    if (rq->set_ids) /* so that the program can open /dev/stdout */
        (void)!fchown(fds[1], rq->uid, rq->gid);
    if (loop_add(r->set->loop, &o->watch, EPOLLIN, e) < 0) {
        (void)close(fds[1]);
        return -1;
    }
    return fds[1];
}

static int launch(struct run *r, const struct run_req *rq, struct err *e)
{
    struct spawn_req sp = rq->spawn;
    AUTO_FD int out = outlet_open(r, &r->outs[0], "stdout", rq->strip, &sp, e);
    AUTO_FD int err = -1;

    if (out < 0)
        return -1;
    if (!rq->background) {
        err = outlet_open(r, &r->outs[1], "stderr", rq->strip, &sp, e);
        if (err < 0)
            return -1;
    }
    sp.in = -1;
    sp.out = out;
    sp.err = rq->background ? out : err;
    return spawn(&sp, &r->child.pid, e);
}

static void unstart(struct run *r)
{
    unsigned i;

    for (i = 0; i < r->n_outs; i++) {
        outlet_close(&r->outs[i]);
        units_free(&r->outs[i].units);
    }
    run_free(r);
}

static struct run *make_run(struct runs *rs, const struct run_req *rq, struct err *e)
{
    struct run *r = rs->n < RUNS_MAX ? calloc(1, sizeof(*r)) : NULL;

    if (!r) {
        if (rs->n < RUNS_MAX)
            (void)err_nomem(e);
        else
            (void)err_set(e, ERRC_BUSY, "%d commands are running already", RUNS_MAX);
        return NULL;
    }
    r->set = rs;
    r->child.on_exit = on_leader_exit;
    r->ping.on_fire = on_ping;
    r->deadline.on_fire = on_deadline;
    r->grace.on_fire = on_grace;
    r->start_mono_ms = clock_mono_ms();
    r->timeout_ms = rq->timeout_ms;
    r->outs[0].watch.fd = r->outs[1].watch.fd = -1;
    link_run(r);
    r->rec = records_add(&rs->records, rq->content, clock_wall_ms());
    if (!r->rec) {
        run_free(r);
        (void)err_nomem(e);
        return NULL;
    }
    r->rec->run = r;
    r->rec->background = rq->background;
    return r;
}

enum { EXIT_NOT_STARTED = 255 }; /* contract/execd.md 6.3 */

struct record *run_failed(struct runs *rs, const char *content, const struct err *why)
{
    struct record *rec = records_add(&rs->records, content, clock_wall_ms());

    if (!rec)
        return NULL;
    rec->background = true;
    records_end(&rs->records, rec, EXIT_NOT_STARTED, why->msg, clock_wall_ms());
    return rec;
}

static void not_started(struct run *r, const struct run_req *rq, struct record **rec,
                        const struct err *e)
{
    struct record *record = r->rec;
    struct runs *rs = r->set;

    unstart(r);
    if (!rq->background) {
        records_forget(&rs->records, record);
        return;
    }
    records_end(&rs->records, record, EXIT_NOT_STARTED, e->msg, clock_wall_ms());
    *rec = record;
}

int run_start(struct runs *rs, const struct run_req *rq, struct record **rec,
              struct http_stream **stream, struct err *e)
{
    struct run *r = make_run(rs, rq, e);

    *rec = NULL;
    if (!r)
        return -1;
    if (rq->background) {
        r->spool = spool_new(rq->tmpdir, e);
        r->rec->spool = r->spool ? spool_ref(r->spool) : NULL;
    }
    if ((rq->background && !r->spool) || launch(r, rq, e) < 0) {
        not_started(r, rq, rec, e);
        return -1;
    }
    signals_watch_child(rs->signals, &r->child);
    if (rq->timeout_ms)
        (void)loop_timer_set(rs->loop, &r->deadline, clock_mono_ms() + rq->timeout_ms);
    if (!rq->background && open_stream(r, e) < 0)
        stream_break(r); /* the client sees a cut; the command runs */
    *rec = r->rec;
    *stream = r->stream;
    return 0;
}

void runs_free(struct runs *rs)
{
    struct run *r;
    unsigned i;

    if (!rs)
        return;
    while ((r = rs->head)) {
        signals_unwatch_child(rs->signals, &r->child);
        stream_break(r);
        for (i = 0; i < r->n_outs; i++)
            loop_timer_clear(rs->loop, &r->outs[i].cr);
        unstart(r);
    }
    leftovers_free(&rs->leftovers);
    records_free(&rs->records);
    loop_hook_del(rs->loop, &rs->hook);
    buf_free(&rs->scratch);
    free(rs);
}
