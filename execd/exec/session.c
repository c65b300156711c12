#include "execd/exec/session.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/rand.h"
#include "execd/exec/launch.h"
#include "execd/exec/run.h"
#include "execd/exec/session_state.h"
#include "execd/fs/expand.h"
#include "execd/fs/path.h"

#include <limits.h>
#include <string.h>

/* One shell. Its command sees neither a function nor a file of ours: the text is evaluated, then the agent's
 * binary writes down what it finds in its environment; once more by the trap when the text ended the shell
 * itself. A trap of the command's own replaces ours, and runs after the first. */
static const char script[] =
    "__sandgate=$2\n"
    "trap '{ set +x; \"$__sandgate\" " SESSION_STATE_VERB " %1$d || :; } 2>/dev/null' EXIT\n"
    "eval \"shift 2; $1\"\n"
    "{ set -- \"$?\"; set +x; \"$__sandgate\" " SESSION_STATE_VERB " %1$d || :; __sandgate=:; } "
    "2>/dev/null\n"
    "exit \"$1\"\n";

struct session_shell {
    struct session *session;
    struct run *run;
    int state;         /* descriptor of its state file */
    struct env before; /* what it started with */
    char *cwd;         /* where */
    bool moved;        /* the client said where */
    struct session_shell *prev;
    struct session_shell *next;
};

struct session {
    struct sessions *set;
    bool deleted; /* waits for its last shell */
    char id[RAND_UUID_TEXT];
    struct env env;
    char *cwd;
    struct session_shell *shells;
    struct session *prev;
    struct session *next;
};

struct sessions {
    struct runs *runs;
    struct session *head;
    unsigned n;
    struct session *deleted;
    char self[PATH_MAX];
};

struct sessions *sessions_new(struct runs *runs, struct err *e)
{
    struct sessions *ss = calloc(1, sizeof(*ss));
    ssize_t n = ss ? readlink("/proc/self/exe", ss->self, sizeof(ss->self) - 1) : -1;

    if (!ss) {
        (void)err_nomem(e);
        return NULL;
    }
    if (n < 0) /* no /proc: runs work, state is not kept */
        (void)snprintf(ss->self, sizeof(ss->self), ":");
    ss->runs = runs;
    return ss;
}

/* ---- the end of a shell ---- */

static void link_into(struct session **head, struct session *s)
{
    s->prev = NULL;
    s->next = *head;
    if (s->next)
        s->next->prev = s;
    *head = s;
}

static void unlink_from(struct session **head, struct session *s)
{
    if (s->prev)
        s->prev->next = s->next;
    else
        *head = s->next;
    if (s->next)
        s->next->prev = s->prev;
}

static void shell_free(struct session_shell *sh)
{
    struct session *s = sh->session;

    if (sh->prev)
        sh->prev->next = sh->next;
    else
        s->shells = sh->next;
    if (sh->next)
        sh->next->prev = sh->prev;
    if (sh->state >= 0)
        (void)close(sh->state);
    env_free(&sh->before);
    free(sh->cwd);
    free(sh);
}

static void session_free(struct session *s)
{
    while (s->shells)
        shell_free(s->shells);
    env_free(&s->env);
    free(s->cwd);
    free(s);
}

void sessions_free(struct sessions *ss)
{
    struct session *s;

    if (!ss)
        return;
    while ((s = ss->head)) {
        unlink_from(&ss->head, s);
        session_free(s);
    }
    while ((s = ss->deleted)) {
        unlink_from(&ss->deleted, s);
        session_free(s);
    }
    free(ss);
}

/* The value in v of the variable that assignment sets. */
static const char *value_of(const struct env *v, const char *assignment,
                            char name[SESSION_NAME_MAX])
{
    size_t len = strcspn(assignment, "=");

    memcpy(name, assignment, len);
    name[len] = '\0';
    return env_get(v, name);
}

/* What the shell changed, and nothing else, goes into the session. */
static void take_state(struct session *s, const struct session_shell *sh, struct session_state *st)
{
    char name[SESSION_NAME_MAX];
    size_t i;

    for (i = 0; i < st->env.n; i++) {
        const char *now = strchr(st->env.vars[i], '=') + 1;
        const char *was = value_of(&sh->before, st->env.vars[i], name);

        if (!was || strcmp(was, now) != 0)
            (void)env_put(&s->env, st->env.vars[i]);
    }
    for (i = 0; i < sh->before.n; i++)
        if (session_state_lasting(sh->before.vars[i]) &&
            !value_of(&st->env, sh->before.vars[i], name))
            env_unset(&s->env, name);
    if (st->cwd && (sh->moved || strcmp(st->cwd, sh->cwd) != 0)) {
        free(s->cwd);
        s->cwd = TAKE_PTR(st->cwd);
    }
}

static void on_end(void *owner, struct run_end *end)
{
    struct session_shell *sh = owner;
    struct session *s = sh->session;
    struct session_state st;
    struct err e = { 0 };

    (void)end;
    if (!s->deleted && session_state_read(sh->state, &st, &e) == 0) {
        take_state(s, sh, &st);
        session_state_free(&st);
    }
    shell_free(sh);
    if (s->deleted && !s->shells) {
        unlink_from(&s->set->deleted, s);
        session_free(s);
    }
}

/* ---- the start of a shell ---- */

/* Where the run begins, as the client says it. */
static int directory(const struct session *s, const char *asked, char **out, struct err *e)
{
    AUTO_FREE char *path = NULL;

    if (expand_path(asked, &s->env, &path, e) < 0)
        return -1;
    if (path[0] == '/')
        *out = TAKE_PTR(path);
    else if (asprintf(out, "%s/%s", s->cwd, path) < 0)
        return err_nomem(e);
    return 0;
}

static int prepare(struct launch *l, const struct session *s, const struct session_req *rq,
                   char **dir, struct err *e)
{
    bool asked = rq->cwd && *rq->cwd;

    if (env_put_all(&l->env, s->env.vars) < 0)
        return err_nomem(e);
    if (asked && directory(s, rq->cwd, dir, e) < 0)
        return -1;
    if (!asked) {
        *dir = strdup(s->cwd);
        if (!*dir)
            return err_nomem(e);
    }
    return launch_enter(l, *dir, e);
}

static struct session_shell *shell_new(struct session *s, const struct launch *l, char *cwd,
                                       bool moved, struct err *e)
{
    struct session_shell *sh = calloc(1, sizeof(*sh));

    if (!sh) {
        (void)err_nomem(e);
        return NULL;
    }
    sh->session = s;
    sh->next = s->shells;
    if (sh->next)
        sh->next->prev = sh;
    s->shells = sh;
    sh->moved = moved;
    sh->cwd = strdup(cwd);
    sh->state = session_state_open(e);
    if (!sh->cwd || env_put_all(&sh->before, l->env.vars) < 0)
        (void)err_nomem(e);
    else if (sh->state >= 0)
        return sh;
    shell_free(sh);
    return NULL;
}

static int start(struct session_shell *sh, struct launch *l, const struct session_req *rq,
                 struct http_stream **stream, struct err *e)
{
    const char *name = strrchr(l->path, '/') ? strrchr(l->path, '/') + 1 : l->path;
    bool bash = strcmp(name, "bash") == 0;
    char text[sizeof(script) + 32];
    const char *argv[9] = { name, "--noprofile", "--norc" };
    size_t n = bash ? 3 : 1;
    struct run_started started;
    struct run_req run = {
        .init = sh->session->id,
        .timeout_ms = rq->timeout_ms ? rq->timeout_ms : SESSION_TIMEOUT_MS,
        .merged = true,
        .drop_blank = true,
        .tied = true,
        .on_end = on_end,
        .owner = sh,
    };

    (void)snprintf(text, sizeof(text), script, sh->state);
    argv[n++] = "-c";
    argv[n++] = text;
    argv[n++] = name;
    argv[n++] = rq->command;
    argv[n++] = sh->session->set->self;
    run.spawn = launch_spawn(l);
    run.spawn.argv = (char *const *)argv;
    run.spawn.keep = sh->state;
    if (run_start(sh->session->set->runs, &run, &started, e) < 0) {
        launch_explain(l, e);
        return -1;
    }
    sh->run = started.run;
    *stream = started.stream;
    return 0;
}

int session_run(struct session *s, const struct session_req *rq, struct http_stream **stream,
                struct err *e)
{
    AUTO_LAUNCH struct launch l = { 0 };
    AUTO_FREE char *dir = NULL;
    struct session_shell *sh;

    if (prepare(&l, s, rq, &dir, e) < 0 || launch_shell(&l, &s->env, e) < 0)
        return -1;
    sh = shell_new(s, &l, dir, rq->cwd && *rq->cwd, e);
    if (!sh)
        return -1;
    if (start(sh, &l, rq, stream, e) < 0) {
        shell_free(sh);
        return -1;
    }
    return 0;
}

/* ---- the set ---- */

/* The first directory: absolute, there. */
static int first_directory(struct session *s, const char *cwd, struct err *e)
{
    char here[PATH_MAX];

    if (!getcwd(here, sizeof(here)))
        (void)snprintf(here, sizeof(here), "/");
    s->cwd = strdup(here);
    if (!s->cwd)
        return err_nomem(e);
    if (!cwd || !*cwd)
        return 0;

    AUTO_FREE char *dir = NULL;

    if (directory(s, cwd, &dir, e) < 0)
        return -1;
    path_clean(dir);
    if (path_make(dir, 0777, e) < 0)
        return -1;
    free(s->cwd);
    s->cwd = TAKE_PTR(dir);
    return 0;
}

struct session *sessions_add(struct sessions *ss, const struct env *base, const char *cwd,
                             struct err *e)
{
    const struct launch_req none = { 0 };
    AUTO_LAUNCH struct launch l = { 0 };
    struct session *s;

    if (ss->n >= SESSIONS_MAX) {
        (void)err_set(e, ERRC_BUSY, "there are %d sessions already: delete some", SESSIONS_MAX);
        return NULL;
    }
    if (launch_prepare(&l, &none, base, e) < 0)
        return NULL;
    s = calloc(1, sizeof(*s));
    if (!s) {
        (void)err_nomem(e);
        return NULL;
    }
    s->set = ss;
    s->env = l.env;
    l.env = (struct env){ 0 };
    env_unset(&s->env, "EXECD_ENVS"); /* contract/execd.md 6.1 */
    if (first_directory(s, cwd, e) < 0) {
        session_free(s);
        return NULL;
    }
    rand_uuid4(s->id);
    link_into(&ss->head, s);
    ss->n++;
    return s;
}

struct session *sessions_find(const struct sessions *ss, const char *id)
{
    struct session *s = ss->head;

    while (s && strcmp(s->id, id) != 0)
        s = s->next;
    return s;
}

const char *session_id(const struct session *s)
{
    return s->id;
}

void session_delete(struct session *s)
{
    struct session_shell *sh;

    unlink_from(&s->set->head, s);
    s->set->n--;
    if (!s->shells) {
        session_free(s);
        return;
    }
    s->deleted = true;
    link_into(&s->set->deleted, s);
    for (sh = s->shells; sh; sh = sh->next)
        run_kill(sh->run); /* on_end comes later, never from in here */
}
