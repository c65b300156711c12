#include "gateway/runtime/docker/pull.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/base/rand.h"
#include "common/base/thread.h"
#include "gateway/runtime/docker/engine.h"
#include "gateway/runtime/docker/image.h"
#include "gateway/runtime/docker/progress.h"

#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>

#define PULL_FAILED "DOCKER::SANDBOX_IMAGE_PULL_FAILED"

enum { RETRY_AFTER_S = 5 };

/* What is pulled: a copy, for the pull outlives its askers. */
struct wanted {
    char *ref;
    char *user;
    char *password;
    char platform[IMAGE_PLATFORM]; /* "": the engine's own */
};

struct pull {
    struct pulls *ps;
    char key[RAND_SECRET_TEXT];
    struct wanted want;
    pthread_t thread;
    struct progress parser; /* of its thread */
    /* guarded: */
    bool done;
    int rc;
    struct err err;
    int64_t done_mono_ms;
    unsigned waiting; /* callers inside pulls_get */
    unsigned owed;    /* callers that were told to ask again and have not */
    char text[RUNTIME_TEXT];
    struct pull *next;
};

struct pulls {
    struct engine *engine;
    int timeout_ms;
    int stop_fd;           /* eventfd; readable for ever once the pulls are to end */
    pthread_mutex_t guard; /* guards all below and the marked part of every pull */
    pthread_cond_t finished;
    struct pull *head;
};

struct pulls *pulls_new(struct engine *en, int timeout_ms)
{
    struct pulls *ps = calloc(1, sizeof(*ps));

    if (!ps)
        return NULL;
    ps->engine = en;
    ps->timeout_ms = timeout_ms;
    (void)pthread_mutex_init(&ps->guard, NULL);
    thread_cond_init(&ps->finished);
    ps->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ps->stop_fd < 0) {
        pulls_free(ps);
        return NULL;
    }
    return ps;
}

/* ---- what is wanted ---- */

static void wipe(char *secret)
{
    if (secret)
        explicit_bzero(secret, strlen(secret));
    free(secret);
}

static void wanted_done(struct wanted *w)
{
    free(w->ref);
    wipe(w->user);
    wipe(w->password);
    *w = (struct wanted){ 0 };
}

static int copy(char **out, const char *s)
{
    *out = s ? strdup(s) : NULL;
    return s && !*out ? -1 : 0;
}

static int wanted_set(struct wanted *w, const struct runtime_image *image, struct err *e)
{
    image_ref_platform(image->platform_os, image->platform_arch, w->platform);
    if (copy(&w->ref, image->ref) < 0 || copy(&w->user, image->registry_user) < 0 ||
        copy(&w->password, image->registry_password) < 0)
        return err_nomem(e);
    return 0;
}

/* Who may share: same image, platform and credentials, as one hash (no secret is kept). */
static int make_key(const struct runtime_image *image, char out[RAND_SECRET_TEXT])
{
    AUTO_BUF struct buf b = BUF_INIT(64 << 10);
    char platform[IMAGE_PLATFORM];
    const char *const parts[] = { image->ref, platform, image->registry_user,
                                  image->registry_password };
    size_t i;

    image_ref_platform(image->platform_os, image->platform_arch, platform);
    for (i = 0; i < ARRAY_LEN(parts); i++)
        if (buf_append(&b, parts[i] ? parts[i] : "", parts[i] ? strlen(parts[i]) + 1 : 1) < 0)
            return -1;
    sha256_hex(b.data, b.len, out);
    explicit_bzero(b.data, b.len);
    return 0;
}

/* ---- the pull itself ---- */

/* Base64 with the URL alphabet, as the engine wants it. */
static int base64url(const char *in, size_t len, struct buf *out)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const unsigned char *p = (const unsigned char *)in;
    char four[4];
    size_t n;
    uint32_t v;

    for (; len > 0; len -= n, p += n) {
        n = len < 3 ? len : 3;
        v = (uint32_t)p[0] << 16 | (n > 1 ? (uint32_t)p[1] << 8 : 0) | (n > 2 ? p[2] : 0);
        four[0] = digit[v >> 18];
        four[1] = digit[v >> 12 & 63];
        four[2] = n > 1 ? digit[v >> 6 & 63] : '=';
        four[3] = n > 2 ? digit[v & 63] : '=';
        if (buf_append(out, four, sizeof(four)) < 0)
            return -1;
    }
    return 0;
}

/* The registry that a name begins with, as the engine tells it from a path: a first part with a
 * dot, a colon or "localhost". */
static void registry_of(const char *name, char out[IMAGE_REF])
{
    size_t len = strcspn(name, "/");
    bool host = name[len] && (memchr(name, '.', len) || memchr(name, ':', len) ||
                              (len == 9 && memcmp(name, "localhost", 9) == 0));

    (void)snprintf(out, IMAGE_REF, "%.*s", host ? (int)len : 27,
                   host ? name : "https://index.docker.io/v1/");
}

static int make_auth(const struct wanted *w, const struct image_ref *ref, struct buf *out)
{
    char registry[IMAGE_REF];
    json_auto_t *v = NULL;
    AUTO_FREE char *text = NULL;

    if (!w->user)
        return 0;
    registry_of(ref->name, registry);
    v = json_pack("{s:s, s:s, s:s}", "username", w->user, "password",
                  w->password ? w->password : "", "serveraddress", registry);
    text = v ? json_dumps(v, JSON_COMPACT) : NULL;
    return text ? base64url(text, strlen(text), out) : -1;
}

static int on_progress(void *arg, const char *data, size_t len)
{
    struct pull *p = arg;
    char text[RUNTIME_TEXT];

    progress_feed(&p->parser, data, len);
    progress_text(&p->parser, text, sizeof(text));

    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&p->ps->guard);
    memcpy(p->text, text, sizeof(text));
    return 0;
}

static int failed(const struct wanted *w, const char *why, struct err *e)
{
    return err_api(e, ERRC_INTERNAL, PULL_FAILED,
                   "image %.200s is not on the engine%s%.24s and could not be pulled: %.200s; "
                   "check its name, the registry and the credentials, or load it with docker pull",
                   w->ref, *w->platform ? " for " : "", w->platform, why);
}

static int make_path(const struct wanted *w, const struct image_ref *ref, struct buf *out)
{
    if (buf_puts(out, "/images/create") < 0 || engine_query(out, "fromImage", ref->name) < 0 ||
        engine_query(out, "tag", ref->tag) < 0)
        return -1;
    return *w->platform ? engine_query(out, "platform", w->platform) : 0;
}

/* How far it came is what helps when the time is over. */
static int broken_off(const struct pull *p, struct err *e)
{
    char why[PROGRESS_TEXT + 128];

    if (e->code != ERRC_TIMEOUT)
        return err_wrap(e, "pull image %.200s", p->want.ref);
    (void)snprintf(why, sizeof(why),
                   "it took longer than engine.pull_timeout_seconds = %d and had come to: %s",
                   p->ps->timeout_ms / 1000, p->parser.status[0] ? p->parser.status : "nothing");
    return failed(&p->want, why, e);
}

static int fetch(struct pull *p, struct err *e)
{
    AUTO_BUF struct buf path = BUF_INIT(4 * IMAGE_REF);
    AUTO_BUF struct buf auth = BUF_INIT(32 << 10);
    AUTO_REPLY struct engine_reply r = { 0 };
    struct engine_call c = { .method = "POST",
                             .timeout_ms = p->ps->timeout_ms,
                             .sink = on_progress,
                             .sink_arg = p,
                             .stop_fd = &p->ps->stop_fd };
    struct image_ref ref;
    char text[PROGRESS_TEXT];
    int rc;

    if (image_ref_split(p->want.ref, &ref) < 0)
        return failed(&p->want, "an image id cannot be pulled", e);
    if (make_path(&p->want, &ref, &path) < 0 || make_auth(&p->want, &ref, &auth) < 0)
        return failed(&p->want, "the reference or the credentials are too long", e);
    c.path = path.data;
    c.registry_auth = auth.data;
    rc = engine_send(p->ps->engine, &c, &r, e);
    if (auth.data)
        explicit_bzero(auth.data, auth.len);
    if (rc < 0)
        return broken_off(p, e);
    progress_end(&p->parser);
    if (r.status != 200)
        return failed(&p->want, engine_text(&r, text, sizeof(text)), e);
    return p->parser.error[0] ? failed(&p->want, p->parser.error, e) : 0;
}

/* A registry that has the image for one platform only gives that one, whatever was asked for. */
static int check_platform(const struct pull *p, struct err *e)
{
    const char *slash = strchr(p->want.platform, '/');
    struct runtime_image image = { .ref = p->want.ref };
    struct image_found found;
    char os[IMAGE_PLATFORM];
    char why[2 * IMAGE_PLATFORM + 64];

    if (!slash)
        return 0;
    (void)snprintf(os, sizeof(os), "%.*s", (int)(slash - p->want.platform), p->want.platform);
    image.platform_os = os;
    image.platform_arch = slash + 1;
    if (image_look(p->ps->engine, &image, &found, e) < 0)
        return -1;
    if (found.fits)
        return 0;
    (void)snprintf(why, sizeof(why), "the registry has it for %s, not for %s",
                   found.there ? found.platform : "no platform", p->want.platform);
    return failed(&p->want, why, e);
}

static void *perform(void *arg)
{
    struct pull *p = arg;
    struct err e = { 0 };
    int64_t began = clock_mono_ms();
    int rc;

    log_info("pulling an image", LOG_S("image", p->want.ref));
    rc = fetch(p, &e);
    if (rc == 0)
        rc = check_platform(p, &e);
    if (rc < 0)
        log_warn("an image could not be pulled", LOG_S("image", p->want.ref),
                 LOG_S("reason", e.msg));
    else
        log_info("image pulled", LOG_S("image", p->want.ref), LOG_N("ms", clock_mono_ms() - began));
    progress_free(&p->parser);
    wanted_done(&p->want);

    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&p->ps->guard);
    p->rc = rc;
    p->err = e;
    p->done_mono_ms = clock_mono_ms();
    p->done = true;
    (void)pthread_cond_broadcast(&p->ps->finished);
    return NULL;
}

/* ---- sharing: all of these with the lock held ---- */

static bool is_over(const struct pull *p)
{
    bool owes = p->rc < 0 && p->owed && clock_mono_ms() - p->done_mono_ms < PULL_KEPT_MS;

    return p->done && !p->waiting && !owes;
}

/* Joins and frees those that are over: their threads take no lock any more. */
static void reap(struct pulls *ps)
{
    struct pull **at = &ps->head;
    struct pull *p;

    while ((p = *at)) {
        if (!is_over(p)) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        (void)pthread_join(p->thread, NULL);
        free(p);
    }
}

/* The one that runs, or whose failure is still owed to somebody. */
static struct pull *find(struct pulls *ps, const char *key)
{
    struct pull *p;

    reap(ps);
    for (p = ps->head; p; p = p->next)
        if (strcmp(p->key, key) == 0 && (!p->done || p->owed))
            return p;
    return NULL;
}

static unsigned count_running(const struct pulls *ps)
{
    const struct pull *p;
    unsigned n = 0;

    for (p = ps->head; p; p = p->next)
        n += !p->done;
    return n;
}

static int launch(struct pulls *ps, const struct runtime_image *image, const char *key,
                  struct pull **out, struct err *e)
{
    struct pull *p;
    int rc;

    if (count_running(ps) >= PULLS_MAX) {
        (void)err_api(e, ERRC_BUSY, PULL_FAILED,
                      "image %.200s: %d other images are being pulled; try again later", image->ref,
                      PULLS_MAX);
        if (e)
            e->retry_after_s = RETRY_AFTER_S;
        return -1;
    }
    p = calloc(1, sizeof(*p));
    if (!p)
        return err_nomem(e);
    p->ps = ps;
    memcpy(p->key, key, RAND_SECRET_TEXT);
    progress_init(&p->parser);
    rc = wanted_set(&p->want, image, e);
    if (rc == 0) {
        rc = thread_start(&p->thread, false, perform, p);
        if (rc != 0)
            rc = err_sys(e, rc, "start the pull of image %.200s", image->ref);
    }
    if (rc < 0) {
        wanted_done(&p->want);
        free(p);
        return -1;
    }
    p->next = ps->head;
    ps->head = p;
    *out = p;
    return 0;
}

/* Until it is done or the time is over. */
static void wait_for(struct pulls *ps, struct pull *p, int wait_ms)
{
    const int64_t until = clock_mono_ms() + wait_ms;

    p->waiting++;
    while (!p->done && thread_wait_until(&ps->finished, &ps->guard, until))
        ;
    p->waiting--;
}

static int answer(struct pull *p, char progress[RUNTIME_TEXT], struct err *e)
{
    if (p->done) {
        if (p->rc < 0 && e)
            *e = p->err;
        return p->rc;
    }
    p->owed++;
    (void)snprintf(progress, RUNTIME_TEXT, "%s", p->text[0] ? p->text : "asking the registry");
    return 1;
}

/* 0: the image is there and fits. 1: it is to be pulled. -1: err set. */
static int look(struct pulls *ps, const struct runtime_image *image, struct err *e)
{
    struct image_found found;

    if (image_look(ps->engine, image, &found, e) < 0)
        return -1;
    if (found.fits)
        return 0;
    if (image->snapshot_id)
        return image_no_snapshot(image, found.there ? found.platform : "it is gone", e);
    return 1;
}

/* Waits for the pull of key, if there is one: then *rc is its answer. */
static bool join(struct pulls *ps, const char *key, int wait_ms, char progress[RUNTIME_TEXT],
                 int *rc, struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&ps->guard);
    struct pull *p = find(ps, key);

    if (!p)
        return false;
    if (p->owed)
        p->owed--;
    wait_for(ps, p, wait_ms);
    *rc = answer(p, progress, e);
    return true;
}

int pulls_get(struct pulls *ps, const struct runtime_image *image, int wait_ms,
              char progress[RUNTIME_TEXT], struct err *e)
{
    char key[RAND_SECRET_TEXT];
    char name[IMAGE_REF];
    struct pull *p;
    int rc;

    progress[0] = '\0';
    if (image_ref_name(image, name, e) < 0)
        return -1;
    if (image->snapshot_id)
        return look(ps, image, e);
    if (make_key(image, key) < 0)
        return err_set(e, ERRC_INVALID, "image.auth: the credentials are too long");
    if (join(ps, key, wait_ms, progress, &rc, e))
        return rc;
    rc = look(ps, image, e);
    if (rc <= 0)
        return rc;

    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&ps->guard);
    p = find(ps, key); /* somebody else may have been faster */
    if (!p && launch(ps, image, key, &p, e) < 0)
        return -1;
    wait_for(ps, p, wait_ms);
    return answer(p, progress, e);
}

unsigned pulls_running(struct pulls *ps)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&ps->guard);

    return count_running(ps);
}

void pulls_free(struct pulls *ps)
{
    struct pull *p;

    if (!ps)
        return;
    if (ps->stop_fd >= 0)
        (void)eventfd_write(ps->stop_fd, 1);
    while ((p = ps->head)) {
        ps->head = p->next;
        (void)pthread_join(p->thread, NULL);
        free(p);
    }
    if (ps->stop_fd >= 0)
        (void)close(ps->stop_fd);
    (void)pthread_cond_destroy(&ps->finished);
    (void)pthread_mutex_destroy(&ps->guard);
    free(ps);
}
