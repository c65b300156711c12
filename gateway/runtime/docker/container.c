#include "gateway/runtime/docker/container.h"

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/json/jx.h"
#include "common/json/utf8.h"
#include "gateway/runtime/docker/engine.h"
#include "gateway/runtime/docker/frames.h"
#include "gateway/runtime/docker/inspect.h"

#include <string.h>
#include <time.h>

enum { GONE_POLL_MS = 25, TAIL_LINES = 5, TEXT_MAX = 400, STOP_EXTRA_MS = 30000 };

/* ---- remove ---- */

/* One DELETE. 1: gone; 0: still being removed; -1: err set. */
static int remove_once(struct engine *en, const char *name, int timeout_ms, struct err *e)
{
    char path[CONTAINER_PATH];
    char text[TEXT_MAX];
    const struct engine_call c = { .method = "DELETE", .path = path, .timeout_ms = timeout_ms };
    AUTO_REPLY struct engine_reply r = { 0 };

    (void)snprintf(path, sizeof(path), "/containers/%s?force=1&v=1", name);
    if (engine_send(en, &c, &r, e) < 0)
        return -1;
    if (r.status == 204 || r.status == 404)
        return 1;
    if (r.status == 409) /* "removal is already in progress" */
        return 0;
    return err_api(e, ERRC_INTERNAL, "DOCKER::SANDBOX_DELETE_FAILED", "%s could not be removed: %s",
                   name, engine_text(&r, text, sizeof(text)));
}

int container_remove(struct engine *en, const char *name, int timeout_ms, struct err *e)
{
    const struct timespec nap = { .tv_nsec = GONE_POLL_MS * 1000000L };
    const int64_t until = clock_mono_ms() + timeout_ms;
    int64_t left;
    int rc = 0;

    while (rc == 0) {
        left = until - clock_mono_ms();
        if (left <= 0)
            return err_api(e, ERRC_TIMEOUT, "DOCKER::SANDBOX_DELETE_FAILED",
                           "%s is still being removed after %d ms", name, timeout_ms);
        rc = remove_once(en, name, (int)left, e);
        if (rc == 0)
            (void)nanosleep(&nap, NULL);
    }
    return rc > 0 ? 0 : -1;
}

/* ---- stop ---- */

/* What it answers is of no interest: a container that is not frozen, or gone, is the usual case, and
 * stop fails for one that stays frozen. */
static int thaw(struct engine *en, const char *name, struct err *e)
{
    char path[CONTAINER_PATH];
    const struct engine_call c = { .method = "POST", .path = path, .timeout_ms = STOP_EXTRA_MS };
    AUTO_REPLY struct engine_reply r = { 0 };

    (void)snprintf(path, sizeof(path), "/containers/%s/unpause", name);
    return engine_send(en, &c, &r, e);
}

int container_stop(struct engine *en, const char *name, int grace_ms, struct err *e)
{
    int grace_s = grace_ms > 0 ? (grace_ms - 1) / 1000 + 1 : 0;
    char path[CONTAINER_PATH];
    char text[TEXT_MAX];
    /* after the grace the engine kills and waits once more */
    const struct engine_call c = { .method = "POST",
                                   .path = path,
                                   .timeout_ms = grace_s * 1000 + STOP_EXTRA_MS };
    AUTO_REPLY struct engine_reply r = { 0 };

    (void)snprintf(path, sizeof(path), "/containers/%s/stop?t=%d", name, grace_s);
    if (thaw(en, name, e) < 0 || engine_send(en, &c, &r, e) < 0)
        return -1;
    if (r.status == 204 || r.status == 304 || r.status == 404)
        return 0;
    return err_api(e, ERRC_INTERNAL, "DOCKER::SANDBOX_DELETE_FAILED", "%s could not be stopped: %s",
                   name, engine_text(&r, text, sizeof(text)));
}

/* ---- status ---- */

int container_about(struct engine *en, const char *name, int timeout_ms, json_t **out,
                    struct err *e)
{
    char path[CONTAINER_PATH];
    const struct engine_call c = { .method = "GET", .path = path, .timeout_ms = timeout_ms };
    AUTO_REPLY struct engine_reply r = { 0 };
    json_t *about;

    (void)snprintf(path, sizeof(path), "/containers/%s/json", name);
    if (engine_send(en, &c, &r, e) < 0)
        return -1;
    if (r.status == 404)
        return err_api(e, ERRC_NOT_FOUND, "DOCKER::SANDBOX_NOT_FOUND", "%s not found", name);
    if (r.status != 200) {
        (void)engine_refused(&r, "read the sandbox", e);
        if (e)
            e->api_code = "DOCKER::SANDBOX_QUERY_FAILED";
        return -1;
    }
    about = jx_parse_foreign(r.body.data, r.body.len, e);
    if (!about) {
        if (e)
            e->code = ERRC_BAD_GATEWAY;
        return err_wrap(e, "reply of the container engine");
    }
    *out = about;
    return 0;
}

int container_status(struct engine *en, const char *name, const char *network, int timeout_ms,
                     struct runtime_status *out, struct err *e)
{
    json_auto_t *about = NULL;

    if (container_about(en, name, timeout_ms, &about, e) < 0)
        return -1;
    return inspect_status(about, network, out, e);
}

/* ---- output ---- */

static void on_log(void *arg, int stream, const char *data, size_t len)
{
    (void)stream;
    (void)buf_append(arg, data, len); /* a few lines; a full buffer keeps their beginning */
}

/* The last bytes of text that fit, from the beginning of a character. */
static void take_end(struct buf *text, char out[CONTAINER_TAIL])
{
    size_t from;
    size_t i;

    for (i = 0; i < text->len; i++)
        if ((unsigned char)text->data[i] < ' ')
            text->data[i] = ' ';
    while (text->len > 0 && text->data[text->len - 1] == ' ')
        text->len--;
    from = text->len < CONTAINER_TAIL ? 0 : text->len - CONTAINER_TAIL + 1;
    while (from < text->len && ((unsigned char)text->data[from] & 0xc0) == 0x80)
        from++;
    memcpy(out, text->data + from, text->len - from);
    out[text->len - from] = '\0';
}

void container_tail(struct engine *en, const char *name, int timeout_ms, char out[CONTAINER_TAIL])
{
    char path[CONTAINER_PATH];
    const struct engine_call c = { .method = "GET", .path = path, .timeout_ms = timeout_ms };
    AUTO_REPLY struct engine_reply r = { 0 };
    AUTO_BUF struct buf raw = BUF_INIT(64 << 10);
    AUTO_BUF struct buf text = BUF_INIT(256 << 10);
    struct frames f = { 0 };

    out[0] = '\0';
    (void)snprintf(path, sizeof(path), "/containers/%s/logs?stdout=1&stderr=1&tail=%d", name,
                   TAIL_LINES);
    if (engine_send(en, &c, &r, NULL) < 0 || r.status != 200 || !r.body.data)
        return;
    if (frames_feed(&f, r.body.data, r.body.len, on_log, &raw) < 0 || !raw.data)
        return;
    if (utf8_repair(raw.data, raw.len, &text) == 0 && text.data)
        take_end(&text, out);
}
