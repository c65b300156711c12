#include "execd/isolated/isolated.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "execd/code/embedded.h"
#include "execd/exec/run.h"
#include "execd/isolated/probe.h"
#include "execd/isolated/session_internal.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { REPORT_FD_MIN = 100 };

struct isolated *isolated_new(const struct isolated_home *home, struct err *e)
{
    struct isolated *is = calloc(1, sizeof(*is));

    if (!is) {
        (void)err_nomem(e);
        return NULL;
    }
    is->home = *home;
    (void)pthread_mutex_init(&is->lock, NULL);
    return is;
}

/* ---- the list ---- */

static void link_last(struct isolated *is, struct isolated_session **head,
                      struct isolated_session *s)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&is->lock);

    s->next = NULL;
    while (*head)
        head = &(*head)->next;
    *head = s;
}

static void unlink_from(struct isolated *is, struct isolated_session **head,
                        struct isolated_session *s)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&is->lock);

    while (*head && *head != s)
        head = &(*head)->next;
    if (*head)
        *head = s->next;
}

struct isolated_session *isolated_next(const struct isolated *is, const struct isolated_session *s)
{
    struct isolated_session *next = s ? s->next : is->head;

    while (next && !next->ready)
        next = next->next;
    return next;
}

struct isolated_session *isolated_find(const struct isolated *is, const char *id)
{
    struct isolated_session *s = isolated_next(is, NULL);

    while (s && strcmp(s->id, id) != 0)
        s = isolated_next(is, s);
    return s;
}

int isolated_view(struct isolated *is, const char *id, struct isolated_view *out, struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&is->lock);
    const struct isolated_session *s = isolated_find(is, id);

    if (!s)
        return err_api(e, ERRC_NOT_FOUND, "SESSION_NOT_FOUND", "no isolated session %.64s", id);
    *out = (struct isolated_view){ fcntl(s->ns, F_DUPFD_CLOEXEC, 3), s->plan.has_id, s->plan.id };
    return out->ns < 0 ? err_sys(e, errno, "look into the session") : 0;
}

/* ---- the end ---- */

static void session_free(struct isolated_session *s)
{
    loop_timer_clear(s->set->home.loop, &s->idle);
    backgrounds_free(&s->backgrounds);
    if (s->report > 0)
        (void)close(s->report);
    if (s->ns >= 0)
        (void)close(s->ns);
    if (s->lock >= 0)
        (void)close(s->lock);
    plan_free(&s->plan);
    json_decref(s->echo);
    free(s);
}

/* The files are gone, or cannot be removed. */
static void on_removed(void *arg)
{
    struct isolated_session *s = arg;
    struct isolated *is = s->set;
    isolated_fn fn = s->on_gone;
    struct err e = s->removed;
    void *fn_arg = s->arg;

    if (e.code)
        log_warn("files of an isolated session are left", LOG_S("error", e.msg));
    unlink_from(is, &is->ending, s);
    is->n--;
    session_free(s);
    if (fn)
        fn(fn_arg, e.code ? &e : NULL);
}

static void remove_files(struct isolated_session *s)
{
    if (store_remove(s->dir, &s->removed) < 0) {
        s->removed.code = ERRC_BUSY;
        (void)err_wrap(&s->removed, "the session is over, its files are not all removed");
    }
}

static void remove_job(void *arg)
{
    struct isolated_session *s = arg;

    remove_files(s);
    s->call = (struct loop_call){ .fn = on_removed, .arg = s };
    loop_post(s->set->home.loop, &s->call);
}

/* Its processes are gone. */
static void on_cage_gone(void *owner)
{
    struct isolated_session *s = owner;

    if (s->ns >= 0)
        (void)close(TAKE_FD(s->ns));
    if (jobs_post(s->set->home.jobs, remove_job, s, NULL) < 0) /* too many wait: here, then */
        remove_job(s);
}

static void end_session(struct isolated_session *s)
{
    struct isolated *is = s->set;
    bool alive = s->kernel && embedded_alive(s->kernel);

    s->ready = false;
    unlink_from(is, &is->head, s);
    link_last(is, &is->ending, s);
    loop_timer_clear(is->home.loop, &s->idle);
    turns_fail(s, "session terminated");
    s->dead = true;
    if (s->kernel)
        embedded_ops.destroy(TAKE_PTR(s->kernel));
    if (!alive)
        on_cage_gone(s);
}

void isolated_delete(struct isolated_session *s, isolated_fn fn, void *arg)
{
    s->on_gone = fn;
    s->arg = arg;
    end_session(s);
}

static void free_all(struct isolated_session *s)
{
    struct isolated_session *next;

    for (; s; s = next) {
        next = s->next;
        turns_fail(s, "the sandbox ends");
        if (s->kernel)
            embedded_ops.destroy(TAKE_PTR(s->kernel));
        if (access(s->dir, F_OK) == 0)
            (void)store_remove(s->dir, NULL);
        session_free(s);
    }
}

void isolated_free(struct isolated *is)
{
    if (!is)
        return;
    free_all(is->head);
    free_all(is->ending);
    (void)pthread_mutex_destroy(&is->lock);
    free(is);
}

/* ---- idle ---- */

static void on_idle_time(struct loop_timer *t)
{
    isolated_delete(CONTAINER_OF(t, struct isolated_session, idle), NULL, NULL);
}

static bool busy(const struct isolated_session *s)
{
    return s->current || s->queue || s->backgrounds.running;
}

void session_touch(struct isolated_session *s)
{
    struct loop *l = s->set->home.loop;

    if (!s->idle_ms || !s->ready)
        return;
    if (busy(s))
        loop_timer_clear(l, &s->idle);
    else if (loop_timer_set(l, &s->idle, clock_mono_ms() + s->idle_ms) < 0)
        log_warn("an isolated session has lost its idle timeout: memory is out");
}

static void on_background_end(void *owner)
{
    session_touch(owner);
}

void isolated_look(const struct isolated_session *s, struct isolated_info *out)
{
    int64_t left = s->idle.at_mono_ms - clock_mono_ms();

    *out = (struct isolated_info){ .id = s->id,
                                   .dead = s->dead,
                                   .created_ms = s->created_ms,
                                   .last_run_ms = s->last_run_ms,
                                   .idle_left_s = -1,
                                   .echo = s->echo };
    if (s->idle.at_mono_ms)
        out->idle_left_s = left < 0 ? 0 : (left + 999) / 1000;
    else if (s->idle_ms)
        out->idle_left_s = s->idle_ms / 1000;
}

/* ---- what the shell says ---- */

/* The keeper has said which process has the namespace; it waits for that one, so the number holds. */
static int open_ns(struct isolated_session *s, struct err *e)
{
    struct cage_report report = { 0 };
    char path[48];
    int fd;

    if (pread(s->report, &report, sizeof(report), 0) != sizeof(report) || report.init <= 0)
        return err_set(e, ERRC_INTERNAL, "the cage did not say where it is");
    (void)snprintf(path, sizeof(path), "/proc/%d/ns/mnt", report.init);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "open %s", path);
    mutex_lock(&s->set->lock);
    s->ns = fd;
    s->ready = true;
    (void)pthread_mutex_unlock(&s->set->lock);
    return 0;
}

/* For who waits for the session: it never was. */
struct failed {
    isolated_fn fn;
    void *arg;
    struct err why;
};

static void on_failed_gone(void *arg, const struct err *e)
{
    struct failed *f = arg;

    (void)e;
    f->fn(f->arg, &f->why);
    free(f);
}

static void give_up(struct isolated_session *s, const struct err *why)
{
    struct failed *f = malloc(sizeof(*f));
    isolated_fn fn = s->on_ready;
    void *arg = s->arg;

    if (!f) {
        isolated_delete(s, NULL, NULL);
        fn(arg, why);
        return;
    }
    *f = (struct failed){ fn, arg, *why };
    (void)cages_explain(&f->why);
    isolated_delete(s, on_failed_gone, f);
}

static void on_ready(void *owner, const char *id, const struct err *why)
{
    struct isolated_session *s = owner;
    struct err e = { 0 };

    (void)id;
    if (why || open_ns(s, &e) < 0) {
        give_up(s, why ? why : &e);
        return;
    }
    s->created_ms = s->last_run_ms = clock_wall_ms();
    session_touch(s);
    s->on_ready(s->arg, NULL);
}

static void on_text(void *owner, bool is_stderr, const char *text, size_t len)
{
    (void)is_stderr;
    turns_text(owner, text, len);
}

static void on_result(void *owner, int64_t count, const json_t *mime)
{
    (void)owner, (void)count, (void)mime; /* a shell has none */
}

static void on_error(void *owner, const char *ename, const char *evalue, const json_t *traceback)
{
    (void)ename, (void)traceback;
    turns_error(owner, evalue);
}

static void on_idle(void *owner, int64_t count)
{
    (void)count;
    turns_idle(owner);
}

static void on_dead(void *owner, const struct err *why)
{
    struct isolated_session *s = owner;

    (void)why;
    s->dead = true;
    turns_fail(s, "session process has exited");
    embedded_ops.destroy(TAKE_PTR(s->kernel));
    session_touch(s);
}

static const struct kernel_events events = { on_ready, on_text, on_result,
                                             on_error, on_idle, on_dead };

/* ---- the start ---- */

static int report_open(struct err *e)
{
    AUTO_FD int fd = memfd_create("cage", MFD_CLOEXEC);
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, REPORT_FD_MIN);

    return high < 0 ? err_sys(e, errno, "make room for a cage's report") : high;
}

static int start(struct isolated_session *s, struct err *e)
{
    AUTO_FREE char **argv = NULL;
    char self[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    struct kernel_cage cage = { .path = self, .env = &s->plan.env, .on_gone = on_cage_gone };
    const struct kernel_req rq = { "bash", NULL, &events, s, &cage };

    if (len < 0)
        return err_sys(e, errno, "find the agent's own file");
    self[len] = '\0';
    s->lock = store_add(s->id, s->dir, e);
    s->report = s->lock < 0 ? -1 : report_open(e);
    if (s->report < 0)
        return -1;
    s->plan.cage.dir = s->dir;
    s->plan.cage.report = cage.keep = s->report;
    s->plan.cage.parent = getpid();
    argv = cage_argv(&s->plan.cage, self, &cage.n_argv);
    if (!argv)
        return err_nomem(e);
    cage.argv = argv;
    s->kernel = embedded_ops.create(s->set->home.kernels, &rq, e);
    return s->kernel ? 0 : -1;
}

static struct isolated_session *session_new(struct isolated *is, const struct isolated_req *rq)
{
    struct isolated_session *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->set = is;
    s->plan = *rq->plan;
    *rq->plan = (struct plan){ 0 };
    s->echo = json_incref(rq->echo);
    s->idle_ms = rq->idle_s * 1000;
    s->idle.on_fire = on_idle_time;
    s->on_ready = rq->on_ready;
    s->arg = rq->arg;
    s->ns = s->lock = -1;
    rand_uuid4(s->id);
    return s;
}

struct isolated_session *isolated_add(struct isolated *is, const struct isolated_req *rq,
                                      struct err *e)
{
    struct isolated_session *s = NULL;

    if (is->n >= ISOLATED_MAX)
        (void)err_set(e, ERRC_BUSY, "there are %d isolated sessions already: delete some",
                      ISOLATED_MAX);
    else if (!(s = session_new(is, rq)))
        (void)err_nomem(e);
    if (!s) {
        plan_free(rq->plan);
        return NULL;
    }
    if (start(s, e) < 0) {
        if (e->code != ERRC_NOMEM)
            (void)cages_explain(e);
        if (s->lock >= 0)
            (void)store_remove(s->dir, NULL);
        session_free(s);
        return NULL;
    }
    s->backgrounds = (struct backgrounds){ .loop = is->home.loop,
                                           .spools = &runs_records(is->home.runs)->spools,
                                           .on_end = on_background_end,
                                           .owner = s };
    (void)snprintf(s->backgrounds.dir, sizeof(s->backgrounds.dir), "%s/" STORE_IO, s->dir);
    link_last(is, &is->head, s);
    is->n++;
    return s;
}
