#include "gateway/runtime/docker/engine.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/num.h"
#include "common/json/jx.h"
#include "gateway/runtime/docker/calls.h"

#include <ctype.h>
#include <curl/curl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

enum {
    IDLE_MAX = 64,     /* kept connections */
    CONNECT_MS = 5000, /* a unix socket connects at once or its listener is stuck */
    PING_MS = 10000,   /* version negotiation */
    KEEP_S = 3600,     /* the engine closes idle connections itself when it wants to */
    WAIT_MS = 3600000, /* longest sleep of a stream between two looks at its clock */
    URL_MAX = 8192,
    RETRY_AFTER_S = 2,
    TEXT_MAX = 400,
};

/* A kept connection with its curl handle. */
struct conn {
    CURL *curl;
    bool used; /* was connected before: a new connection means that the engine went away */
    struct conn *next;
};

struct engine {
    char *socket;
    int timeout_ms;
    atomic_int version; /* minor of 1.x; 0: to be negotiated */
    atomic_uint breaks;
    struct calls calls;
    pthread_mutex_t guard;
    struct conn *idle; /* guarded */
    unsigned n_idle;   /* guarded */
};

/* One exchange while it runs. */
struct flight {
    const struct engine_call *call;
    struct engine_reply *reply;
    CURL *curl;
    int api_version; /* of the header Api-Version; 0: none */
    bool too_large;
    bool open;            /* the head of a 2xx reply is here */
    bool stopped;         /* by stop_fd */
    int64_t byte_mono_ms; /* when the last one came; the beginning of the call before */
};

struct engine *engine_new(const char *socket, int timeout_ms)
{
    struct engine *en = calloc(1, sizeof(*en));

    (void)curl_global_init(CURL_GLOBAL_DEFAULT); /* thread-safe and counted in this libcurl */
    if (!en)
        return NULL;
    (void)pthread_mutex_init(&en->guard, NULL);
    en->timeout_ms = timeout_ms;
    en->socket = strdup(socket);
    if (!en->socket) {
        engine_free(en);
        return NULL;
    }
    return en;
}

static void conn_free(struct conn *c)
{
    if (c->curl)
        curl_easy_cleanup(c->curl);
    free(c);
}

void engine_free(struct engine *en)
{
    struct conn *c;

    if (!en)
        return;
    while ((c = en->idle)) {
        en->idle = c->next;
        conn_free(c);
    }
    (void)pthread_mutex_destroy(&en->guard);
    free(en->socket);
    free(en);
}

unsigned engine_breaks(struct engine *en)
{
    return atomic_load(&en->breaks);
}

int engine_version(struct engine *en)
{
    return atomic_load(&en->version);
}

void engine_metrics(struct engine *en, struct buf *out)
{
    calls_metrics(&en->calls, out);
}

void engine_reply_free(struct engine_reply *r)
{
    buf_free(&r->body);
}

/* ---- connections ---- */

static struct conn *conn_new(void)
{
    struct conn *c = calloc(1, sizeof(*c));

    if (c)
        c->curl = curl_easy_init();
    if (c && !c->curl) {
        free(c);
        c = NULL;
    }
    return c;
}

static struct conn *conn_take(struct engine *en)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&en->guard);
    struct conn *c = en->idle;

    if (!c)
        return conn_new();
    en->idle = c->next;
    en->n_idle--;
    return c;
}

static void conn_give(struct engine *en, struct conn *c)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&en->guard);

    if (en->n_idle >= IDLE_MAX) {
        conn_free(c);
        return;
    }
    c->next = en->idle;
    en->idle = c;
    en->n_idle++;
}

/* ---- one exchange ---- */

static bool is_success(const struct flight *f)
{
    long status = 0;

    (void)curl_easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &status);
    return status >= 200 && status < 300;
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
    struct flight *f = arg;
    const struct engine_call *c = f->call;

    f->byte_mono_ms = clock_mono_ms();
    if (c->sink && is_success(f))
        return c->sink(c->sink_arg, data, size * n) == 0 ? size * n : 0;
    if (buf_append(&f->reply->body, data, size * n) < 0) {
        f->too_large = true;
        return 0;
    }
    return size * n;
}

/* "1.43" -> 43; 0 for what is not 1.x. */
static int parse_version(const char *s, size_t len)
{
    char text[16];
    int64_t minor;

    while (len > 0 && (s[len - 1] == '\r' || s[len - 1] == '\n' || s[len - 1] == ' '))
        len--;
    while (len > 0 && *s == ' ') {
        s++;
        len--;
    }
    if (len < 3 || len >= sizeof(text) || strncmp(s, "1.", 2) != 0)
        return 0;
    memcpy(text, s + 2, len - 2);
    text[len - 2] = '\0';
    return num_parse_i64(text, 1, 9999, &minor) == 0 ? (int)minor : 0;
}

static size_t on_header(char *data, size_t size, size_t n, void *arg)
{
    static const char name[] = "api-version:";
    struct flight *f = arg;
    size_t len = size * n;

    f->byte_mono_ms = clock_mono_ms();
    if (len > sizeof(name) && strncasecmp(data, name, sizeof(name) - 1) == 0)
        f->api_version = parse_version(data + sizeof(name) - 1, len - (sizeof(name) - 1));
    if (!f->open && len == 2 && data[0] == '\r' && is_success(f)) {
        f->open = true;
        if (f->call->opened)
            f->call->opened(f->call->sink_arg);
    }
    return len;
}

static void auto_slist(struct curl_slist **l)
{
    curl_slist_free_all(*l);
}

static int add_header(struct curl_slist **l, const char *name, const char *value)
{
    AUTO_BUF struct buf b = BUF_INIT(64 << 10);
    struct curl_slist *longer;

    if (buf_printf(&b, "%s: %s", name, value) < 0)
        return -1;
    longer = curl_slist_append(*l, b.data);
    if (!longer)
        return -1;
    *l = longer;
    return 0;
}

/* Headers of the call; "Expect:" keeps curl from waiting for a 100 before a large body. */
static int make_headers(const struct engine_call *c, bool has_body, struct curl_slist **l)
{
    const char *type = c->json ? "application/json" : c->content_type;

    *l = curl_slist_append(NULL, "Expect:");
    if (!*l)
        return -1;
    if (has_body && add_header(l, "Content-Type", type ? type : "application/octet-stream") < 0)
        return -1;
    if (c->registry_auth && add_header(l, "X-Registry-Auth", c->registry_auth) < 0)
        return -1;
    return 0;
}

static void set_common(CURL *curl, const struct engine *en, const struct engine_call *c,
                       int timeout_ms)
{
    int connect_ms = timeout_ms < CONNECT_MS ? timeout_ms : CONNECT_MS;

    curl_easy_reset(curl); /* keeps the connection */
    curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, en->socket);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_MAXAGE_CONN, (long)KEEP_S);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, c->endless ? 0L : (long)timeout_ms);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)connect_ms);
}

static void set_body(CURL *curl, const char *method, const void *body, size_t len)
{
    if (strcmp(method, "GET") == 0) {
        curl_easy_setopt(curl, CURLOPT_HTTPGET, 1L);
        return;
    }
    if (strcmp(method, "POST") == 0 || body) {
        curl_easy_setopt(curl, CURLOPT_POST, 1L);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body ? body : "");
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)len);
    }
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
}

static int transport_error(const struct engine *en, const struct flight *f, CURLcode rc,
                           int timeout_ms, struct err *e)
{
    if (f->stopped)
        return err_set(e, ERRC_BUSY, "the call to the container engine was broken off");
    if (f->too_large)
        return err_set(e, ERRC_BAD_GATEWAY, "the container engine's reply is too large");
    if (rc == CURLE_WRITE_ERROR)
        return err_set(e, ERRC_BAD_GATEWAY, "the container engine's reply cannot be read");
    if (rc == CURLE_OUT_OF_MEMORY)
        return err_nomem(e);
    if (rc == CURLE_OPERATION_TIMEDOUT && f->open && f->call->endless)
        return err_set(e, ERRC_TIMEOUT, "the container engine's stream was silent for %d ms",
                       f->call->silence_ms);
    if (rc == CURLE_OPERATION_TIMEDOUT)
        return err_set(e, ERRC_TIMEOUT, "the container engine did not answer within %d ms",
                       timeout_ms);
    (void)err_api(e, ERRC_BUSY, "DOCKER::INITIALIZATION_ERROR",
                  rc == CURLE_COULDNT_CONNECT
                      ? "the container engine at %s cannot be reached (%s); is it running?"
                      : "the connection to the container engine at %s broke (%s)",
                  en->socket, curl_easy_strerror(rc));
    if (e) {
        e->sys = (int)rc;
        e->retry_after_s = RETRY_AFTER_S;
    }
    return -1;
}

/* Failures that are not the engine's: its reply was refused on our side, or had nothing to say. */
static bool is_break(const struct flight *f, CURLcode rc)
{
    if (f->stopped || (rc == CURLE_OPERATION_TIMEDOUT && f->open && f->call->endless))
        return false;
    return rc != CURLE_OK && rc != CURLE_WRITE_ERROR && rc != CURLE_OUT_OF_MEMORY;
}

/* ---- calls that last or can be broken off ---- */

static void auto_multi(CURLM **m)
{
    if (*m)
        (void)curl_multi_cleanup(*m);
}

/* How long the engine may still be silent. curl itself keeps the deadline of what is not endless. */
static int64_t patience_ms(const struct flight *f, int timeout_ms)
{
    const struct engine_call *c = f->call;
    int limit_ms = f->open ? c->silence_ms : timeout_ms;

    if (!c->endless || !limit_ms)
        return WAIT_MS;
    return f->byte_mono_ms + limit_ms - clock_mono_ms();
}

static CURLcode multi_result(CURLM *multi)
{
    const CURLMsg *m;
    int left = 0;

    while ((m = curl_multi_info_read(multi, &left)))
        if (m->msg == CURLMSG_DONE)
            return m->data.result;
    return CURLE_RECV_ERROR;
}

static CURLcode drive(struct flight *f, CURLM *multi, int timeout_ms)
{
    struct curl_waitfd stop = { .fd = f->call->stop_fd ? *f->call->stop_fd : -1,
                                .events = CURL_WAIT_POLLIN };
    unsigned n_stop = f->call->stop_fd ? 1 : 0;
    int running = 1;
    int64_t left;

    for (;;) {
        if (curl_multi_perform(multi, &running) != CURLM_OK)
            return CURLE_OUT_OF_MEMORY;
        if (!running)
            return multi_result(multi);
        left = patience_ms(f, timeout_ms);
        if (left <= 0)
            return CURLE_OPERATION_TIMEDOUT;
        left = left < WAIT_MS ? left : WAIT_MS;
        if (curl_multi_poll(multi, &stop, n_stop, (int)left, NULL) != CURLM_OK)
            return CURLE_OUT_OF_MEMORY;
        f->stopped = stop.revents != 0;
        if (f->stopped)
            return CURLE_ABORTED_BY_CALLBACK;
    }
}

static CURLcode run_in_pieces(struct flight *f, int timeout_ms)
{
    AUTO(auto_multi) CURLM *multi = curl_multi_init();
    CURLcode rc;

    if (!multi || curl_multi_add_handle(multi, f->curl) != CURLM_OK)
        return CURLE_OUT_OF_MEMORY;
    rc = drive(f, multi, timeout_ms);
    (void)curl_multi_remove_handle(multi, f->curl);
    return rc;
}

/* ---- one call ---- */

static bool in_pieces(const struct engine_call *c)
{
    return c->endless || c->stop_fd;
}

static void set_call(struct flight *f, const char *url, const char *body,
                     struct curl_slist *headers)
{
    const struct engine_call *c = f->call;

    set_body(f->curl, c->method, body, c->json ? strlen(body) : c->body_len);
    curl_easy_setopt(f->curl, CURLOPT_URL, url);
    curl_easy_setopt(f->curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(f->curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(f->curl, CURLOPT_WRITEDATA, f);
    curl_easy_setopt(f->curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(f->curl, CURLOPT_HEADERDATA, f);
}

/* curl sends a request again, whatever it is, when a kept connection breaks without an answer. */
static bool wants_own_connection(const struct engine_call *c)
{
    return in_pieces(c) || c->once;
}

/* Performs f over a kept or new connection, or one of its own.
 * After a failure or a reconnection the engine may be another one: its version is asked again
 * before the next call. */
static int perform(struct engine *en, struct flight *f, const char *url, int timeout_ms,
                   struct err *e)
{
    const struct engine_call *c = f->call;
    AUTO_FREE char *text = c->json ? json_dumps(c->json, JSON_COMPACT) : NULL;
    const void *body = c->json ? text : c->body;
    AUTO(auto_slist) struct curl_slist *headers = NULL;
    struct conn *conn;
    CURLcode rc;
    long status = 0;
    long connects = 0;

    if ((c->json && !text) || make_headers(c, body != NULL, &headers) < 0)
        return err_nomem(e);
    conn = wants_own_connection(c) ? conn_new() : conn_take(en);
    if (!conn)
        return err_nomem(e);
    f->curl = conn->curl;
    f->byte_mono_ms = clock_mono_ms();
    set_common(conn->curl, en, c, timeout_ms);
    set_call(f, url, body, headers);
    rc = in_pieces(c) ? run_in_pieces(f, timeout_ms) : curl_easy_perform(conn->curl);
    (void)curl_easy_getinfo(conn->curl, CURLINFO_RESPONSE_CODE, &status);
    (void)curl_easy_getinfo(conn->curl, CURLINFO_NUM_CONNECTS, &connects);
    if (is_break(f, rc) || (connects > 0 && conn->used)) {
        atomic_store(&en->version, 0);
        atomic_fetch_add(&en->breaks, 1);
    }
    f->reply->status = (int)status;
    if (rc != CURLE_OK) {
        conn_free(conn);
        return transport_error(en, f, rc, timeout_ms, e);
    }
    if (wants_own_connection(c)) {
        conn_free(conn);
        return 0;
    }
    conn->used = true;
    conn_give(en, conn);
    return 0;
}

/* ---- version ---- */

/* The minor version to speak, or -1. */
static int negotiate(struct engine *en, const int *stop_fd, struct err *e)
{
    const struct engine_call ping = { .method = "GET", .path = "/_ping", .stop_fd = stop_fd };
    AUTO_REPLY struct engine_reply r = { .body = BUF_INIT(64 << 10) };
    struct flight f = { .call = &ping, .reply = &r };
    int v = atomic_load(&en->version);

    if (v)
        return v;
    if (perform(en, &f, "http://engine/_ping", PING_MS, e) < 0)
        return -1;
    if (r.status != 200)
        return engine_refused(&r, "ask the engine for its version", e);
    v = f.api_version ? f.api_version : ENGINE_API_MIN;
    if (v < ENGINE_API_MIN)
        return err_set(
            e, ERRC_UNSUPPORTED,
            "the container engine speaks API 1.%d; 1.%d (Docker 20.10) or newer is needed", v,
            ENGINE_API_MIN);
    v = v < ENGINE_API_MAX ? v : ENGINE_API_MAX;
    atomic_store(&en->version, v);
    return v;
}

/* The engine was replaced under a kept version: nothing was carried out. */
static bool wrong_version(const struct engine_reply *r)
{
    return r->status == 400 && r->body.data && strstr(r->body.data, "client version ");
}

static int send_once(struct engine *en, const struct engine_call *c, struct engine_reply *r,
                     struct err *e)
{
    AUTO_BUF struct buf url = BUF_INIT(URL_MAX);
    struct flight f = { .call = c, .reply = r };
    int version = negotiate(en, c->stop_fd, e);

    if (version < 0)
        return -1;
    if (buf_printf(&url, "http://engine/v1.%d%s", version, c->path) < 0)
        return err_set(e, ERRC_INVALID, "the request to the container engine is too long");
    r->body = BUF_INIT(c->reply_max ? c->reply_max : ENGINE_REPLY_MAX);
    return perform(en, &f, url.data, c->timeout_ms ? c->timeout_ms : en->timeout_ms, e);
}

/* A stream counts by how it began: sooner or later each one ends. */
static enum calls_result result_of(const struct engine_call *c, int rc,
                                   const struct engine_reply *r)
{
    if (rc < 0 && !(c->endless && r->status))
        return CALLS_FAILED;
    return (r->status >= 200 && r->status <= 299) || r->status == 304 ? CALLS_OK : CALLS_REFUSED;
}

int engine_send(struct engine *en, const struct engine_call *c, struct engine_reply *r,
                struct err *e)
{
    int rc = send_once(en, c, r, e);

    if (rc == 0 && wrong_version(r)) {
        atomic_store(&en->version, 0);
        engine_reply_free(r);
        rc = send_once(en, c, r, e);
    }
    calls_count(&en->calls, c->method, c->path, result_of(c, rc, r));
    if (rc < 0)
        engine_reply_free(r);
    return rc;
}

/* ---- replies ---- */

const char *engine_text(const struct engine_reply *r, char *out, size_t size)
{
    json_auto_t *v = r->body.len ? jx_parse(r->body.data, r->body.len, true, NULL) : NULL;
    const char *text = json_string_value(json_object_get(v, "message"));
    size_t len;

    if (!text)
        text = r->body.data ? r->body.data : "";
    len = strnlen(text, size - 1);
    memcpy(out, text, len);
    while (len > 0 && (out[len - 1] == '\n' || out[len - 1] == ' '))
        len--;
    out[len] = '\0';
    return out;
}

int engine_refused(const struct engine_reply *r, const char *what, struct err *e)
{
    enum errc code = r->status == 400   ? ERRC_INVALID
                     : r->status == 404 ? ERRC_NOT_FOUND
                     : r->status == 409 ? ERRC_CONFLICT
                                        : ERRC_INTERNAL;
    char text[TEXT_MAX];

    return err_set(e, code, "%s: the container engine says (%d): %s", what, r->status,
                   engine_text(r, text, sizeof(text)));
}

int engine_do(struct engine *en, const struct engine_call *c, const char *what, json_t **out,
              struct err *e)
{
    AUTO_REPLY struct engine_reply r = { 0 };
    json_t *v;

    if (engine_send(en, c, &r, e) < 0)
        return err_wrap(e, "%s", what);
    if ((r.status < 200 || r.status > 299) && r.status != 304)
        return engine_refused(&r, what, e);
    if (!out)
        return 0;
    v = jx_parse_foreign(r.body.data, r.body.len, e);
    if (!v) {
        (void)err_wrap(e, "%s: reply of the container engine", what);
        if (e)
            e->code = ERRC_BAD_GATEWAY;
        return -1;
    }
    *out = v;
    return 0;
}

/* RFC 3986 2.3. */
static bool is_unreserved(unsigned char c)
{
    return isalnum(c) || c == '-' || c == '_' || c == '.' || c == '~';
}

int engine_segment(struct buf *path, const char *text)
{
    static const char digit[] = "0123456789ABCDEF";
    char esc[3] = "%";
    int rc = 0;

    for (; *text && rc == 0; text++) {
        unsigned char c = (unsigned char)*text;

        esc[1] = digit[c >> 4];
        esc[2] = digit[c & 15];
        rc = is_unreserved(c) ? buf_append(path, text, 1) : buf_append(path, esc, sizeof(esc));
    }
    return rc;
}

int engine_query(struct buf *path, const char *key, const char *value)
{
    bool first = !path->data || !strchr(path->data, '?');

    if (buf_printf(path, "%c%s=", first ? '?' : '&', key) < 0)
        return -1;
    return engine_segment(path, value);
}
