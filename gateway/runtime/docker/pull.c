#include "gateway/runtime/docker/pull.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/base/rand.h"
#include "gateway/runtime/docker/engine.h"
#include "gateway/runtime/docker/progress.h"

#include <stdint.h>
#include <string.h>

#define PULL_FAILED "DOCKER::SANDBOX_IMAGE_PULL_FAILED"

/* A running pull. The thread that made it performs it; others wait for done. */
struct pull {
    char key[RAND_SECRET_TEXT];
    bool done;
    int rc;
    struct err err;
    unsigned users; /* performer and waiters */
    struct pull *next;
};

struct pulls {
    int timeout_ms;
    pthread_mutex_t guard; /* guards all below and every pull */
    pthread_cond_t finished;
    struct pull *head;
};

struct pulls *pulls_new(int timeout_ms)
{
    struct pulls *ps = calloc(1, sizeof(*ps));

    if (!ps)
        return NULL;
    ps->timeout_ms = timeout_ms;
    (void)pthread_mutex_init(&ps->guard, NULL);
    (void)pthread_cond_init(&ps->finished, NULL);
    return ps;
}

void pulls_free(struct pulls *ps)
{
    if (!ps)
        return;
    (void)pthread_cond_destroy(&ps->finished);
    (void)pthread_mutex_destroy(&ps->guard);
    free(ps);
}

int pull_split(const char *image, struct pull_ref *out)
{
    const char *at = strchr(image, '@');
    size_t len = at ? (size_t)(at - image) : strlen(image);
    const char *slash = memrchr(image, '/', len);
    const char *base = slash ? slash + 1 : image;
    const char *colon = memchr(base, ':', len - (size_t)(base - image));
    size_t name_len = colon ? (size_t)(colon - image) : len;
    const char *tag = at ? at + 1 : colon ? colon + 1 : "latest";

    if (strncmp(image, "sha256:", 7) == 0 || name_len >= PULL_REF || strlen(tag) >= PULL_REF)
        return -1;
    memcpy(out->name, image, name_len);
    out->name[name_len] = '\0';
    memcpy(out->tag, tag, strlen(tag) + 1);
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
static void registry_of(const char *name, char out[PULL_REF])
{
    size_t len = strcspn(name, "/");
    bool host = name[len] && (memchr(name, '.', len) || memchr(name, ':', len) ||
                              (len == 9 && memcmp(name, "localhost", 9) == 0));

    (void)snprintf(out, PULL_REF, "%.*s", host ? (int)len : 27,
                   host ? name : "https://index.docker.io/v1/");
}

static int make_auth(const struct runtime_image *image, const struct pull_ref *ref, struct buf *out)
{
    char registry[PULL_REF];
    json_auto_t *v = NULL;
    AUTO_FREE char *text = NULL;

    if (!image->registry_user)
        return 0;
    registry_of(ref->name, registry);
    v = json_pack("{s:s, s:s, s:s}", "username", image->registry_user, "password",
                  image->registry_password ? image->registry_password : "", "serveraddress",
                  registry);
    text = v ? json_dumps(v, JSON_COMPACT) : NULL;
    return text ? base64url(text, strlen(text), out) : -1;
}

static int on_progress(void *arg, const char *data, size_t len)
{
    progress_feed(arg, data, len);
    return 0;
}

static void auto_progress(struct progress *p)
{
    progress_free(p);
}

static int failed(const struct runtime_image *image, const char *why, struct err *e)
{
    return err_api(e, ERRC_INTERNAL, PULL_FAILED,
                   "image %.200s is not on the engine and could not be pulled: %.200s; check its "
                   "name, the registry and the credentials, or load it with docker pull",
                   image->ref, why);
}

static int make_path(const struct runtime_image *image, const struct pull_ref *ref, struct buf *out)
{
    char platform[64];

    if (buf_puts(out, "/images/create") < 0 || engine_query(out, "fromImage", ref->name) < 0 ||
        engine_query(out, "tag", ref->tag) < 0)
        return -1;
    if (!image->platform_os || !image->platform_arch)
        return 0;
    (void)snprintf(platform, sizeof(platform), "%s/%s", image->platform_os, image->platform_arch);
    return engine_query(out, "platform", platform);
}

static int perform(struct pulls *ps, struct engine *en, const struct runtime_image *image,
                   struct err *e)
{
    AUTO_BUF struct buf path = BUF_INIT(4 * PULL_REF);
    AUTO_BUF struct buf auth = BUF_INIT(32 << 10);
    AUTO_REPLY struct engine_reply r = { 0 };
    AUTO(auto_progress) struct progress p;
    struct engine_call c = { .method = "POST", .timeout_ms = ps->timeout_ms, .sink = on_progress };
    struct pull_ref ref;
    char text[PROGRESS_TEXT];

    progress_init(&p);
    if (pull_split(image->ref, &ref) < 0)
        return failed(image, "an image id cannot be pulled", e);
    if (make_path(image, &ref, &path) < 0 || make_auth(image, &ref, &auth) < 0)
        return failed(image, "the reference or the credentials are too long", e);
    c.path = path.data;
    c.registry_auth = auth.data;
    c.sink_arg = &p;
    log_info("pulling image", LOG_S("image", image->ref));
    if (engine_send(en, &c, &r, e) < 0) {
        if (e && e->code == ERRC_TIMEOUT && p.status[0])
            return failed(image, p.status, e); /* how far it came */
        return err_wrap(e, "pull image %.200s", image->ref);
    }
    progress_end(&p);
    if (r.status != 200)
        return failed(image, engine_text(&r, text, sizeof(text)), e);
    if (p.error[0])
        return failed(image, p.error, e);
    return 0;
}

/* ---- sharing ---- */

/* Who may share: same image, platform and credentials, as one hash (no secret is kept). */
static int make_key(const struct runtime_image *image, char out[RAND_SECRET_TEXT])
{
    const char *const parts[] = { image->ref, image->platform_os, image->platform_arch,
                                  image->registry_user, image->registry_password };
    AUTO_BUF struct buf b = BUF_INIT(64 << 10);
    size_t i;

    for (i = 0; i < ARRAY_LEN(parts); i++)
        if (buf_append(&b, parts[i] ? parts[i] : "", parts[i] ? strlen(parts[i]) + 1 : 1) < 0)
            return -1;
    sha256_hex(b.data, b.len, out);
    explicit_bzero(b.data, b.len);
    return 0;
}

/* Joins the pull of key, or makes it: then *mine is set and the caller performs it. */
static struct pull *join(struct pulls *ps, const char *key, bool *mine)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&ps->guard);
    struct pull *p;

    for (p = ps->head; p; p = p->next)
        if (!p->done && strcmp(p->key, key) == 0)
            break;
    *mine = !p;
    if (!p) {
        p = calloc(1, sizeof(*p));
        if (!p)
            return NULL;
        memcpy(p->key, key, RAND_SECRET_TEXT);
        p->next = ps->head;
        ps->head = p;
    }
    p->users++;
    return p;
}

/* Caller holds the lock. */
static void leave(struct pulls *ps, struct pull *p)
{
    struct pull **at;

    if (--p->users > 0)
        return;
    for (at = &ps->head; *at != p;)
        at = &(*at)->next;
    *at = p->next;
    free(p);
}

int pulls_get(struct pulls *ps, struct engine *en, const struct runtime_image *image, struct err *e)
{
    char key[RAND_SECRET_TEXT];
    struct err mine_err = { 0 };
    struct pull *p;
    bool mine;
    int rc = 0;

    if (make_key(image, key) < 0)
        return err_set(e, ERRC_INVALID, "the image reference or its credentials are too long");
    p = join(ps, key, &mine);
    if (!p)
        return err_nomem(e);
    if (mine)
        rc = perform(ps, en, image, &mine_err);

    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&ps->guard);
    if (mine) {
        p->rc = rc;
        p->err = mine_err;
        p->done = true;
        (void)pthread_cond_broadcast(&ps->finished);
    }
    while (!p->done)
        (void)pthread_cond_wait(&ps->finished, &ps->guard);
    rc = p->rc;
    if (rc < 0 && e)
        *e = p->err;
    leave(ps, p);
    return rc;
}
