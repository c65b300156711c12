#include "execd/exec/run.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/loop.h"
#include "common/proc/signals.h"
#include "execd/exec/eventlog.h"
#include "execd/exec/feed.h"
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
    SCRATCH_MAX = 1 << 20,
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
    struct record *rec;  /* until the outcome is on it; NULL: of a session */
    struct spool *spool; /* of a background command */
    struct feed *feed;   /* of any other */
    struct child child;
    struct outlet outs[2]; /* the first one only: background, or stderr goes there, too */
    unsigned n_outs;
    struct loop_timer deadline;
    struct loop_timer grace;
    struct run_waiter *waiters;
    void (*on_end)(void *owner, struct run_end *end);
    void *owner;
    int64_t start_mono_ms;
    int64_t timeout_ms;
    int status;  /* of wait(2) */
    bool exited; /* the leader is gone */
    bool ending; /* the group was told to go, and may not be gone yet */
    bool killed;
    bool timed_out;
    bool interrupted;
    bool tied;
    bool drop_blank;
    bool draining; /* exited and not ending: what is in the pipes is the last output */
    bool blocked;  /* the feed is full */
    struct run_end end;
    struct run *prev;
    struct run *next;
};

struct runs {
    struct loop *loop;
    struct signals *signals;
    struct http_server *server;
    struct records records;
    struct eventlogs logs;
    struct leftovers leftovers;
    struct run *head;
    unsigned n;
    unsigned ending;
    struct loop_hook hook;
    struct buf scratch; /* output that goes to a spool, or that nobody wants */
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

struct feed *runs_feed(struct runs *rs, const char *init, const struct feed_ops *ops, void *owner,
                       struct http_stream **stream, struct err *e)
{
    const struct feed_req rq = { rs->loop, rs->server, &rs->logs, init, false, ops, owner };

    return feed_new(&rq, stream, e);
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

/* The feed took no more: it says when it does. */
static void block(struct run *r)
{
    r->blocked = true;
    outlets_watch(r, false);
}

/* Hands complete units on; those that are refused stay. */
static void put_units(struct outlet *o)
{
    struct run *r = o->run;
    struct units before = o->units;
    struct unit u;

    for (; feed_wanted(r->feed) && units_next(&o->units, &u); before = o->units) {
        if (r->drop_blank && u.len == 1 && u.text[0] == '\n')
            continue;
        if (feed_text(r->feed, o->type, u.text, u.len) < 0) {
            o->units = before;
            block(r);
            break;
        }
    }
    feed_flush(r->feed);
    if (!feed_wanted(r->feed)) {
        units_free(&o->units);
        units_init(&o->units, o->units.strip);
    }
    if (!r->blocked)
        units_compact(&o->units);
    if (!r->blocked && units_holds_cr(&o->units) && !r->draining)
        (void)loop_timer_set(r->set->loop, &o->cr, clock_mono_ms() + CR_WAIT_MS);
    else
        loop_timer_clear(r->set->loop, &o->cr);
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
    bool wanted = r->feed && feed_wanted(r->feed);
    char *at =
        wanted ? units_reserve(&o->units, READ_SIZE) : buf_reserve(&r->set->scratch, READ_SIZE);
    ssize_t n;

    if (!at) { /* out of memory: a gap must not look like success */
        feed_free(TAKE_PTR(r->feed));
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

/* Why the run ended, when that was not the command's own doing; "" when it was. */
static void reason(const struct run *r, struct run_end *end)
{
    if (r->timed_out)
        (void)snprintf(end->why, sizeof(end->why), "command timed out after %" PRId64 " ms",
                       r->timeout_ms);
    else if (r->interrupted && end->code != 0)
        (void)snprintf(end->why, sizeof(end->why), "command was interrupted");
}

/* Puts the outcome on record: from here on the command is over, whatever its reader does. */
static void record_outcome(struct run *r)
{
    struct run_end *end = &r->end;
    const char *name;

    if (WIFEXITED(r->status)) {
        end->code = WEXITSTATUS(r->status);
        (void)snprintf(end->text, sizeof(end->text), "exit status %d", end->code);
    } else {
        name = sigdescr_np(WTERMSIG(r->status));
        end->code = -1;
        (void)snprintf(end->text, sizeof(end->text), "signal: %s", name ? name : "unknown");
        end->text[8] = (char)(end->text[8] | 0x20); /* "signal: killed", as the contract has it */
    }
    if (r->timed_out)
        end->code = -1;
    reason(r, end);
    end->took_ms = clock_mono_ms() - r->start_mono_ms;
    if (!r->rec)
        return;
    records_end(&r->set->records, r->rec, end->code,
                end->code == 0 ? ""
                : end->why[0]  ? end->why
                               : end->text,
                clock_wall_ms());
    r->rec = NULL; /* it may be swept before the run is */
}

static void put_terminal(struct run *r)
{
    const struct run_end *end = &r->end;
    /* an interrupt is what the client asked for: contract/execd.md 6.1 wants the signal there */
    bool first = end->why[0] && r->timed_out;
    const char *traceback[] = { first ? end->why : end->text, first ? end->text : end->why };
    char value[16];

    if (!r->feed)
        return;
    (void)snprintf(value, sizeof(value), "%d", end->code);
    if (end->code == 0)
        feed_complete(r->feed, end->took_ms);
    else
        feed_error(r->feed, "CommandExecError", value, traceback, end->why[0] ? 2 : 1);
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

    loop_timer_clear(l, &r->deadline);
    loop_timer_clear(l, &r->grace);
    spool_unref(r->spool);
    feed_free(r->feed);
    unlink_run(r);
    free(r);
}

/* The leader is gone, its last output is in the feed: say how it ended. */
static void finish(struct run *r)
{
    if (r->on_end)
        r->on_end(r->owner, &r->end);
    put_terminal(r);
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
        if (!r->feed)
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
    if (!r->ending)
        begin_drain(r);
    else if (group_gone(r))
        end_done(r);
}

int run_interrupt(struct run *r, struct run_waiter *w, struct err *e)
{
    if (r->exited && !r->ending)
        return err_set(e, ERRC_INTERNAL, "the command is not running");
    if (w) {
        w->next = r->waiters;
        r->waiters = w;
    }
    r->interrupted = true;
    end_group(r, RUN_INTERRUPT_GRACE_MS);
    return 0;
}

void run_kill(struct run *r)
{
    if (r->exited && !r->ending)
        return;
    r->interrupted = true;
    end_group(r, 0);
}

/* ---- the feed ---- */

static void go_on(struct run *r)
{
    unsigned i;

    r->blocked = false;
    if (!r->draining)
        outlets_watch(r, true);
    for (i = 0; i < r->n_outs && !r->blocked; i++)
        put_units(&r->outs[i]);
    if (r->draining && !r->blocked)
        drain(r);
}

static void on_room(void *owner)
{
    go_on(owner);
}

/* The client is gone: a command goes on, a run of a session does not. */
static void on_gone(void *owner)
{
    struct run *r = owner;

    if (r->tied && !r->exited) {
        r->interrupted = true;
        end_group(r, RUN_TIMEOUT_GRACE_MS);
    }
    if (r->blocked)
        go_on(r);
}

static const struct feed_ops feed_ops = { on_room, on_gone };

static int open_feed(struct run *r, const struct run_req *rq, struct http_stream **stream,
                     struct err *e)
{
    struct runs *rs = r->set;
    const struct feed_req fr = {
        .loop = rs->loop,
        .server = rs->server,
        .logs = &rs->logs,
        .init = rq->init ? rq->init : r->rec->id,
        .numbered = r->rec != NULL,
        .ops = &feed_ops,
        .owner = r,
    };

    r->feed = feed_new(&fr, stream, e);
    if (r->feed && r->rec)
        r->rec->feed = feed_ref(r->feed);
    return r->feed ? 0 : -1;
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
    bool strip = rq->strip || rq->drop_blank;
    AUTO_FD int out = outlet_open(r, &r->outs[0], "stdout", strip, &sp, e);
    AUTO_FD int err = -1;

    if (out < 0)
        return -1;
    if (!rq->background && !rq->merged) {
        err = outlet_open(r, &r->outs[1], "stderr", strip, &sp, e);
        if (err < 0)
            return -1;
    }
    sp.in = -1;
    sp.out = out;
    sp.err = err < 0 ? out : err;
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
    r->deadline.on_fire = on_deadline;
    r->grace.on_fire = on_grace;
    r->start_mono_ms = clock_mono_ms();
    r->timeout_ms = rq->timeout_ms;
    r->tied = rq->tied;
    r->drop_blank = rq->drop_blank;
    r->on_end = rq->on_end;
    r->owner = rq->owner;
    r->outs[0].watch.fd = r->outs[1].watch.fd = -1;
    link_run(r);
    if (rq->init)
        return r;
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
        if (record)
            records_forget(&rs->records, record);
        return;
    }
    records_end(&rs->records, record, EXIT_NOT_STARTED, e->msg, clock_wall_ms());
    *rec = record;
}

int run_start(struct runs *rs, const struct run_req *rq, struct run_started *out, struct err *e)
{
    struct run *r = make_run(rs, rq, e);

    *out = (struct run_started){ 0 };
    if (!r)
        return -1;
    if (rq->tmpdir)
        (void)snprintf(rs->logs.tmpdir, sizeof(rs->logs.tmpdir), "%s", rq->tmpdir);
    if (rq->background) {
        r->spool = spool_new(&rs->records.spools, rq->tmpdir, e);
        r->rec->spool = r->spool ? spool_ref(r->spool) : NULL;
    }
    if ((rq->background && !r->spool) || launch(r, rq, e) < 0 ||
        (!rq->background && open_feed(r, rq, &out->stream, e) < 0)) {
        if (r->child.pid > 0)
            (void)kill(-r->child.pid, SIGKILL); /* collected as an orphan */
        not_started(r, rq, &out->rec, e);
        return -1;
    }
    signals_watch_child(rs->signals, &r->child);
    if (rq->timeout_ms)
        (void)loop_timer_set(rs->loop, &r->deadline, clock_mono_ms() + rq->timeout_ms);
    out->rec = r->rec;
    out->run = r;
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
