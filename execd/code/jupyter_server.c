#include "execd/code/jupyter_server.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/base/loop.h"
#include "common/base/rand.h"
#include "execd/code/kernel.h"

#include <string.h>

enum { SESSION_PATH_MAX = 8192 };

enum step { STEP_SPECS, STEP_SESSION, STEP_REMOVE };

struct errand {
    struct jupyter_server *home;
    struct errand *prev;
    struct errand *next;
    enum step step;
    struct rest_call *call;
    struct loop_timer retry;
    int64_t until_mono_ms;
    jupyter_begun done; /* NULL: nobody waits any more */
    void *owner;
    char language[KERNEL_LANGUAGE_MAX];
    char *cwd;
    char spec[JUPYTER_SPEC_TEXT];
    char session[JUPYTER_ID_TEXT]; /* to be removed */
};

static void on_answer(void *owner, const struct rest_answer *a, const struct err *e);

/* ---- life ---- */

static void errand_free(struct errand *t)
{
    struct jupyter_server *s = t->home;

    rest_cancel(t->call);
    loop_timer_clear(s->rest.loop, &t->retry);
    *(t->prev ? &t->prev->next : &s->errands) = t->next;
    if (t->next)
        t->next->prev = t->prev;
    s->n--;
    free(t->cwd);
    free(t);
}

void jupyter_server_close(struct jupyter_server *s)
{
    while (s->errands)
        errand_free(s->errands);
}

static void finish(struct errand *t, const struct jupyter_ids *ids, const struct err *e)
{
    jupyter_begun done = t->done;
    void *owner = t->owner;

    errand_free(t);
    if (done)
        done(owner, ids, e);
}

int jupyter_refused(const struct jupyter_server *s, const struct rest_answer *a, struct err *e)
{
    char said[200];

    if (a->status == 401 || a->status == 403)
        return err_set(e, ERRC_BAD_GATEWAY,
                       "the Jupyter server at %s refuses the token (HTTP %d): JUPYTER_TOKEN has to "
                       "be the one that it was started with",
                       s->rest.url, a->status);
    jupyter_read_error(a->body, a->len, said, sizeof(said));
    return err_set(e, ERRC_BAD_GATEWAY, "the Jupyter server at %s answers HTTP %d%s%s", s->rest.url,
                   a->status, *said ? ": " : "", said);
}

/* ---- steps ---- */

static int call(struct errand *t, const char *method, const char *path, const char *body,
                int timeout_ms, struct err *e)
{
    t->call = rest_call(&t->home->rest, method, path, body, timeout_ms, on_answer, t, e);
    return t->call ? 0 : -1;
}

/* contract/execd.md 8.2: the path decides the kernel's directory, as far as the server's root allows. */
static int call_session(struct errand *t, struct err *e)
{
    AUTO_BUF struct buf path = BUF_INIT(SESSION_PATH_MAX);
    AUTO_FREE char *body = NULL;
    char name[RAND_UUID_TEXT];

    rand_uuid4(name);
    if (buf_printf(&path, "%s%s%s.ipynb", t->cwd ? t->cwd : "", t->cwd ? "/" : "", name) < 0)
        return err_nomem(e);
    body = jupyter_session_request(path.data, name, t->spec);
    return body ? call(t, "POST", "/api/sessions", body, JUPYTER_CALL_MS, e) : err_nomem(e);
}

static int begin_step(struct errand *t, struct err *e)
{
    char path[sizeof("/api/sessions/") + JUPYTER_ID_TEXT];

    switch (t->step) {
    case STEP_SPECS:
        return call(t, "GET", "/api/kernelspecs", NULL, JUPYTER_CALL_MS, e);
    case STEP_SESSION:
        return call_session(t, e);
    default:
        (void)snprintf(path, sizeof(path), "/api/sessions/%s", t->session);
        return call(t, "DELETE", path, NULL, JUPYTER_REMOVE_MS, e);
    }
}

static void go(struct errand *t, enum step step)
{
    struct err e = { 0 };

    t->step = step;
    if (begin_step(t, &e) < 0)
        finish(t, NULL, &e);
}

static void on_retry(struct loop_timer *timer)
{
    struct errand *t = CONTAINER_OF(timer, struct errand, retry);

    go(t, t->step);
}

static void on_session(struct errand *t, const struct rest_answer *a)
{
    struct jupyter_ids ids;
    struct err e = { 0 };

    if (jupyter_read_session(a->body, a->len, &ids, &e) < 0) {
        finish(t, NULL, &e);
    } else if (!t->done) {
        (void)snprintf(t->session, sizeof(t->session), "%s", ids.session);
        t->until_mono_ms = clock_mono_ms() + JUPYTER_REMOVE_MS;
        go(t, STEP_REMOVE);
    } else {
        finish(t, &ids, NULL);
    }
}

/* passes: it may be another one in a while. */
static void on_failure(struct errand *t, bool passes, const struct err *e)
{
    int64_t now = clock_mono_ms();

    if (passes && now < t->until_mono_ms &&
        loop_timer_set(t->home->rest.loop, &t->retry, now + JUPYTER_RETRY_MS) == 0)
        return;
    if (t->step == STEP_REMOVE)
        log_warn("a kernel of the Jupyter server was not removed", LOG_S("reason", e->msg));
    finish(t, NULL, e);
}

/* Nobody listens, or a server that starts or ends cut the connection; a POST may have been heard, though. */
static bool may_pass(const struct errand *t, const struct err *e)
{
    return e->code == ERRC_BUSY || (e->code == ERRC_BAD_GATEWAY && t->step == STEP_SPECS);
}

static void on_answer(void *owner, const struct rest_answer *a, const struct err *e)
{
    struct errand *t = owner;
    struct err why = { 0 };

    t->call = NULL;
    if (a && (a->status < 200 || a->status > 299) && !(t->step == STEP_REMOVE && a->status == 404))
        (void)jupyter_refused(t->home, a, &why);
    if (e) {
        on_failure(t, t->done && may_pass(t, e), e);
        return;
    }
    if (why.code) { /* the server cannot remove a kernel that it is restarting */
        on_failure(t, t->step == STEP_REMOVE && a->status >= 500, &why);
        return;
    }
    switch (t->step) {
    case STEP_SPECS:
        if (jupyter_choose_spec(a->body, a->len, t->language, t->spec, &why) < 0)
            finish(t, NULL, &why);
        else
            go(t, STEP_SESSION);
        break;
    case STEP_SESSION:
        on_session(t, a);
        break;
    case STEP_REMOVE:
        finish(t, NULL, NULL);
        break;
    }
}

/* ---- verbs ---- */

static struct errand *errand_new(struct jupyter_server *s, int ms)
{
    struct errand *t = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    t->home = s;
    t->retry.on_fire = on_retry;
    t->until_mono_ms = clock_mono_ms() + ms;
    t->next = s->errands;
    if (t->next)
        t->next->prev = t;
    s->errands = t;
    s->n++;
    return t;
}

struct errand *jupyter_begin(struct jupyter_server *s, const char *language, const char *cwd,
                             jupyter_begun done, void *owner, struct err *e)
{
    struct errand *t = errand_new(s, JUPYTER_SERVER_MS);

    if (!t || (cwd && !(t->cwd = strdup(cwd)))) {
        if (t)
            errand_free(t);
        (void)err_nomem(e);
        return NULL;
    }
    (void)snprintf(t->language, sizeof(t->language), "%s", language);
    t->step = STEP_SPECS;
    if (begin_step(t, e) < 0) {
        errand_free(t);
        return NULL;
    }
    t->done = done;
    t->owner = owner;
    return t;
}

void jupyter_abandon(struct errand *t)
{
    if (!t)
        return;
    t->done = NULL;
    if (t->step == STEP_SPECS || !t->call)
        errand_free(t);
}

void jupyter_remove(struct jupyter_server *s, const char *session)
{
    struct errand *t = errand_new(s, JUPYTER_REMOVE_MS);

    if (!t)
        return; /* the server's end, or its own culling, removes it */
    (void)snprintf(t->session, sizeof(t->session), "%s", session);
    go(t, STEP_REMOVE);
}
