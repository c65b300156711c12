/* A commit takes over the container's labels and command line, even those that it is told to leave
 * empty (design decision 3). So the engine commits under a name of its own, only to get the layer,
 * and the snapshot is loaded as a second image that has the same layers under a clean
 * configuration: no bytes are copied. */
#include "gateway/runtime/docker/snapshot.h"

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/base/rand.h"
#include "common/json/jx.h"
#include "gateway/runtime/docker/docker.h"
#include "gateway/runtime/docker/engine.h"
#include "gateway/runtime/docker/names.h"
#include "gateway/runtime/docker/progress.h"
#include "gateway/runtime/docker/snapshot_image.h"

#include <string.h>

#define CREATE_FAILED "SNAPSHOT::RUNTIME_CREATE_FAILED"
#define PART "-part" /* beginning of what follows the id in the tags of committed images */

enum {
    ATTEMPT_BYTES = 6,   /* of chance in the tag of an attempt */
    TIMEOUT_MS = 600000, /* when the caller names none */
    CLEANUP_MS = 15000,
    REMOVE_MS = 120000,
    NAME_MAX_BYTES = 128,
    PATH_BYTES = 1024,
    ARCHIVE_MAX = 16 << 20, /* a configuration: labels and environment of the image */
    TEXT_MAX = 400,
};

/* One snapshot on its way. */
struct making {
    struct docker *d;
    const char *sandbox_id;
    const char *id;
    int64_t until_mono_ms;
    char name[NAME_MAX_BYTES]; /* SNAPSHOT_REPO:<id> */
    /* The committed image, under a tag that no other attempt has: the engine may still be at work on
     * one whose answer nobody waits for, and a tag that is given away leaves an image without a name. */
    char part[NAME_MAX_BYTES];
    json_t *committed; /* GET /images/{part}/json */
    json_t *base;      /* of the image that the sandbox was made from; NULL: gone */
};

static struct docker *docker_of(struct runtime *rt)
{
    return (struct docker *)rt; /* rt is its first member */
}

static void image_name(char out[NAME_MAX_BYTES], const char *id, const char *suffix)
{
    (void)snprintf(out, NAME_MAX_BYTES, SNAPSHOT_REPO ":%s%s", id, suffix);
}

/* "/images/{name}{verb}" */
static int image_path(struct buf *out, const char *name, const char *verb)
{
    if (buf_puts(out, "/images/") < 0 || engine_segment(out, name) < 0)
        return -1;
    return buf_puts(out, verb);
}

/* ---- calls within the deadline ---- */

static int failed(const struct engine_reply *r, const char *what, struct err *e)
{
    char text[TEXT_MAX];

    return err_api(e, ERRC_INTERNAL, CREATE_FAILED, "%s: the container engine says (%d): %s", what,
                   r->status, engine_text(r, text, sizeof(text)));
}

static int make_call(const struct making *m, struct engine_call *c, struct engine_reply *r,
                     struct err *e)
{
    int64_t left = m->until_mono_ms - clock_mono_ms();

    if (left <= 0)
        return err_set(e, ERRC_TIMEOUT, "the snapshot took too long");
    c->timeout_ms = left < INT32_MAX ? (int)left : INT32_MAX;
    return engine_send(m->d->engine, c, r, e);
}

/* Reads a JSON description. 1: *out is the caller's; 0: there is no such thing. */
static int look(const struct making *m, const char *path, const char *what, json_t **out,
                struct err *e)
{
    struct engine_call c = { .method = "GET", .path = path };
    AUTO_REPLY struct engine_reply r = { 0 };

    if (make_call(m, &c, &r, e) < 0)
        return -1;
    if (r.status == 404)
        return 0;
    if (r.status != 200)
        return failed(&r, what, e);
    *out = jx_parse_foreign(r.body.data, r.body.len, e);
    if (*out)
        return 1;
    return err_api(e, ERRC_BAD_GATEWAY, CREATE_FAILED, "%s: the engine's reply cannot be read",
                   what);
}

static int look_at_image(const struct making *m, const char *name, const char *verb, json_t **out,
                         struct err *e)
{
    AUTO_BUF struct buf path = BUF_INIT(PATH_BYTES);

    if (image_path(&path, name, verb) < 0)
        return err_nomem(e);
    return look(m, path.data, "read an image", out, e);
}

/* ---- removing images ---- */

/* Takes the tag away, and the image with its last tag; never another image. 0 also when it is gone. */
static int drop_image(struct docker *d, const char *name, int timeout_ms, struct err *e)
{
    AUTO_BUF struct buf path = BUF_INIT(PATH_BYTES);
    AUTO_REPLY struct engine_reply r = { 0 };
    struct engine_call c = { .method = "DELETE", .timeout_ms = timeout_ms };
    char text[TEXT_MAX];

    if (image_path(&path, name, "?noprune=1") < 0)
        return err_nomem(e);
    c.path = path.data;
    if (engine_send(d->engine, &c, &r, e) < 0)
        return -1;
    if (r.status == 200 || r.status == 404)
        return 0;
    if (r.status == 409)
        return err_api(e, ERRC_CONFLICT, "SNAPSHOT::DELETE_CONFLICT",
                       "the snapshot is in use; delete the sandboxes made from it first: %s",
                       engine_text(&r, text, sizeof(text)));
    return engine_refused(&r, "remove a snapshot's image", e);
}

/* What attempts at the snapshot left behind: GET /images/json of their tags. */
static int list_parts(struct docker *d, const char *id, int timeout_ms, json_t **out, struct err *e)
{
    AUTO_BUF struct buf path = BUF_INIT(PATH_BYTES);
    struct engine_call c = { .method = "GET", .timeout_ms = timeout_ms };
    char filter[NAME_MAX_BYTES + 32];
    char name[NAME_MAX_BYTES];

    image_name(name, id, PART "*");
    (void)snprintf(filter, sizeof(filter), "{\"reference\":[\"%s\"]}", name);
    if (buf_puts(&path, "/images/json") < 0 || engine_query(&path, "filters", filter) < 0)
        return err_nomem(e);
    c.path = path.data;
    return engine_do(d->engine, &c, "look for what is left of a snapshot", out, e);
}

/* Removes what all attempts at the snapshot left, and nothing else. */
static int drop_parts(struct docker *d, const char *id, int timeout_ms, struct err *e)
{
    json_auto_t *images = NULL;
    char part[NAME_MAX_BYTES];
    json_t *image;
    json_t *tag;
    size_t i;
    size_t j;

    if (list_parts(d, id, timeout_ms, &images, e) < 0)
        return -1;
    image_name(part, id, PART);
    json_array_foreach(images, i, image) {
        json_array_foreach(json_object_get(image, "RepoTags"), j, tag) {
            const char *name = json_string_value(tag);

            if (name && strncmp(name, part, strlen(part)) == 0 &&
                drop_image(d, name, timeout_ms, e) < 0)
                return -1;
        }
    }
    return 0;
}

/* A leftover does no harm: it goes with the snapshot at the latest. */
static void tidy(const struct making *m)
{
    struct err e = { 0 };

    if (drop_parts(m->d, m->id, CLEANUP_MS, &e) < 0)
        log_warn("what was needed to make a snapshot could not be removed yet",
                 LOG_S("snapshot", m->id), LOG_S("reason", e.msg));
}

/* ---- the steps ---- */

static int find_base(struct making *m, struct err *e)
{
    json_auto_t *about = NULL;
    const char *image;
    char path[PATH_BYTES];
    int rc;

    (void)snprintf(path, sizeof(path), "/containers/" SANDBOX_NAME "%s/json", m->sandbox_id);
    rc = look(m, path, "read the sandbox", &about, e);
    if (rc == 0)
        return err_api(e, ERRC_NOT_FOUND, "DOCKER::SANDBOX_NOT_FOUND", "sandbox %s not found",
                       m->sandbox_id);
    if (rc < 0)
        return -1;
    image = json_string_value(json_object_get(about, "Image"));
    if (!image || !*image)
        return 0;
    return look_at_image(m, image, "/json", &m->base, e) < 0 ? -1 : 0;
}

static int commit_path(const struct making *m, struct buf *out)
{
    const char *tag = strchr(m->part, ':') + 1;

    if (buf_printf(out, "/commit?container=" SANDBOX_NAME "%s&pause=1", m->sandbox_id) < 0 ||
        engine_query(out, "repo", SNAPSHOT_REPO) < 0)
        return -1;
    return engine_query(out, "tag", tag);
}

/* Freezes the sandbox meanwhile unless it is paused or has ended. */
static int commit(const struct making *m, struct err *e)
{
    AUTO_BUF struct buf path = BUF_INIT(PATH_BYTES);
    AUTO_REPLY struct engine_reply r = { 0 };
    json_auto_t *body = snapshot_image_blank();
    struct engine_call c = { .method = "POST", .json = body, .once = true };
    char text[TEXT_MAX];

    if (!body || commit_path(m, &path) < 0)
        return err_nomem(e);
    c.path = path.data;
    if (make_call(m, &c, &r, e) < 0)
        return -1;
    if (r.status == 404)
        return err_api(e, ERRC_NOT_FOUND, "DOCKER::SANDBOX_NOT_FOUND", "sandbox %s not found",
                       m->sandbox_id);
    if (r.status == 409)
        return err_api(e, ERRC_CONFLICT, "SNAPSHOT::RUNTIME_CREATE_CONFLICT",
                       "sandbox %s cannot be snapshotted now: %s", m->sandbox_id,
                       engine_text(&r, text, sizeof(text)));
    if (r.status != 201)
        return failed(&r, "commit the sandbox", e);
    crash_step(&m->d->cfg, "snapshot.committed");
    return 0;
}

/* What the snapshot adds: the image's newest layer. */
static int read_size(const struct making *m, const char *name, int64_t *size_bytes, struct err *e)
{
    json_auto_t *history = NULL;
    json_t *size;
    int rc = look_at_image(m, name, "/history", &history, e);

    if (rc < 0)
        return -1;
    size = json_object_get(json_array_get(history, 0), "Size");
    if (!json_is_integer(size))
        return err_api(e, ERRC_BAD_GATEWAY, CREATE_FAILED,
                       "the container engine does not tell the size of %s", name);
    *size_bytes = json_integer_value(size);
    return 0;
}

static int on_progress(void *arg, const char *data, size_t len)
{
    progress_feed(arg, data, len);
    return 0;
}

/* 1: sent, and the engine named no error, which comes in the stream after a 200; 0: refused, why
 * says how. */
static int send_archive(const struct making *m, const struct buf *tar, struct err *why,
                        struct err *e)
{
    AUTO_REPLY struct engine_reply r = { 0 };
    struct progress p;
    struct engine_call c = { .method = "POST",
                             .path = "/images/load?quiet=1",
                             .body = tar->data,
                             .body_len = tar->len,
                             .content_type = "application/x-tar",
                             .sink = on_progress,
                             .sink_arg = &p };
    int rc;

    progress_init(&p);
    rc = make_call(m, &c, &r, e);
    progress_end(&p);
    progress_free(&p);
    if (rc < 0)
        return -1;
    if (r.status != 200)
        (void)failed(&r, "load the snapshot's image", why);
    else if (p.error[0])
        (void)err_set(why, ERRC_INTERNAL, "load the snapshot's image: %s", p.error);
    return r.status == 200 && !p.error[0];
}

static json_t *layers_of(json_t *image)
{
    return json_object_get(json_object_get(image, "RootFS"), "Layers");
}

/* 1: the image has exactly the committed layers. */
static int check_loaded(const struct making *m, struct err *why, struct err *e)
{
    json_auto_t *loaded = NULL;
    int rc = look_at_image(m, m->name, "/json", &loaded, e);

    if (rc < 0)
        return -1;
    if (rc > 0 && json_equal(layers_of(loaded), layers_of(m->committed)))
        return 1;
    (void)err_set(why, ERRC_INTERNAL, "the loaded image has other layers");
    return 0;
}

/* 1: the snapshot's image is there; 0: the engine does not take an image without its layers. */
static int load(const struct making *m, struct err *why, struct err *e)
{
    AUTO_BUF struct buf tar = BUF_INIT(ARCHIVE_MAX);
    json_auto_t *config = snapshot_image_config(m->committed, m->base);
    int rc;

    if (!config)
        return err_api(e, ERRC_BAD_GATEWAY, CREATE_FAILED,
                       "the container engine described an image oddly");
    if (snapshot_image_archive(config, m->name, &tar) < 0)
        return err_nomem(e);
    rc = send_archive(m, &tar, why, e);
    if (rc <= 0)
        return rc;
    rc = check_loaded(m, why, e);
    if (rc > 0)
        crash_step(&m->d->cfg, "snapshot.loaded");
    return rc;
}

/* For an engine whose image store wants the layers too: the committed image as it is. Its labels are
 * blank; its history names the sandbox's id and the hash of its claim. */
static int tag_committed(const struct making *m, const struct err *why, struct err *e)
{
    AUTO_BUF struct buf path = BUF_INIT(PATH_BYTES);
    AUTO_REPLY struct engine_reply r = { 0 };
    struct engine_call c = { .method = "POST" };

    if (!atomic_exchange(&m->d->load_refused, true))
        log_warn("the container engine does not load an image without its layers; snapshots keep "
                 "the id of their sandbox",
                 LOG_S("reason", why->msg));
    if (image_path(&path, m->part, "/tag") < 0 || engine_query(&path, "repo", SNAPSHOT_REPO) < 0 ||
        engine_query(&path, "tag", m->id) < 0)
        return err_nomem(e);
    c.path = path.data;
    if (make_call(m, &c, &r, e) < 0)
        return -1;
    if (r.status != 201)
        return failed(&r, "name the snapshot", e);
    crash_step(&m->d->cfg, "snapshot.tagged");
    return 0;
}

/* From the committed image to the snapshot. */
static int publish(struct making *m, int64_t *size_bytes, struct err *e)
{
    struct err why = { 0 };
    int64_t size;
    int rc = look_at_image(m, m->part, "/json", &m->committed, e);

    if (rc == 0)
        return err_api(e, ERRC_INTERNAL, CREATE_FAILED,
                       "somebody removed the snapshot while it was being made");
    if (rc < 0 || read_size(m, m->part, &size, e) < 0)
        return -1;
    rc = load(m, &why, e);
    if (rc < 0 || (rc == 0 && tag_committed(m, &why, e) < 0))
        return -1;
    *size_bytes = size;
    return 0;
}

static int make_new(struct making *m, int64_t *size_bytes, struct err *e)
{
    int rc;

    if (find_base(m, e) < 0)
        return -1;
    tidy(m); /* an earlier attempt may have ended since */
    if (commit(m, e) < 0)
        return -1;
    rc = publish(m, size_bytes, e);
    tidy(m);
    crash_step(&m->d->cfg, "snapshot.cleaned");
    return rc;
}

/* ---- verbs ---- */

int docker_snapshot_make(struct runtime *rt, const char *sandbox_id, const char *snapshot_id,
                         int timeout_ms, int64_t *size_bytes, struct err *e)
{
    struct making m = { .d = docker_of(rt), .sandbox_id = sandbox_id, .id = snapshot_id };
    char attempt[2 * ATTEMPT_BYTES + 1];
    char suffix[sizeof(PART) + sizeof(attempt)];
    json_t *there = NULL;
    int rc;

    m.until_mono_ms = clock_mono_ms() + (timeout_ms > 0 ? timeout_ms : TIMEOUT_MS);
    image_name(m.name, snapshot_id, "");
    rand_hex(attempt, ATTEMPT_BYTES);
    (void)snprintf(suffix, sizeof(suffix), PART "-%s", attempt);
    image_name(m.part, snapshot_id, suffix);
    rc = look_at_image(&m, m.name, "/json", &there, e);
    if (rc > 0) {
        tidy(&m);
        rc = read_size(&m, m.name, size_bytes, e);
    } else if (rc == 0) {
        rc = make_new(&m, size_bytes, e);
    }
    json_decref(there);
    json_decref(m.committed);
    json_decref(m.base);
    return rc;
}

int docker_snapshot_get(struct runtime *rt, const char *snapshot_id, struct err *e)
{
    AUTO_BUF struct buf path = BUF_INIT(PATH_BYTES);
    AUTO_REPLY struct engine_reply r = { 0 };
    struct engine_call c = { .method = "GET" };
    char name[NAME_MAX_BYTES];

    image_name(name, snapshot_id, "");
    if (image_path(&path, name, "/json") < 0)
        return err_nomem(e);
    c.path = path.data;
    if (engine_send(docker_of(rt)->engine, &c, &r, e) < 0)
        return -1;
    if (r.status == 404)
        return err_api(e, ERRC_NOT_FOUND, "SNAPSHOT::NOT_FOUND",
                       "the image of snapshot %s is not on the container engine", snapshot_id);
    return r.status == 200 ? 0 : engine_refused(&r, "read a snapshot's image", e);
}

int docker_snapshot_remove(struct runtime *rt, const char *snapshot_id, struct err *e)
{
    struct docker *d = docker_of(rt);
    char name[NAME_MAX_BYTES];

    if (drop_parts(d, snapshot_id, REMOVE_MS, e) < 0)
        return -1;
    image_name(name, snapshot_id, "");
    if (drop_image(d, name, REMOVE_MS, e) < 0)
        return -1;
    crash_step(&d->cfg, "snapshot.removed");
    return 0;
}
