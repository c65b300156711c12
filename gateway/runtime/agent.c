#include "gateway/runtime/agent.h"

#include "common/agent/wire.h"
#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/macros.h"
#include "common/json/jx.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

enum {
    REPLY_MAX = 64 << 10,
    RETRY_MS = 2,
    CONNECT_MS = 100, /* then the connection attempt starts anew: the first packet may be lost */
    ALIVE_MS = 100,
    TEXT_MAX = 400,
};

#define KEEPALIVE_S 5L

#define START_FAILED "DOCKER::SANDBOX_EXECD_START_FAILED"

static size_t on_reply(char *data, size_t size, size_t n, void *arg)
{
    return buf_append(arg, data, size * n) < 0 ? 0 : size * n;
}

static void auto_curl(CURL **c)
{
    curl_easy_cleanup(*c);
}

static void auto_slist(struct curl_slist **l)
{
    curl_slist_free_all(*l);
}

static struct curl_slist *make_headers(void)
{
    struct curl_slist *l = curl_slist_append(NULL, "Content-Type: application/json");
    struct curl_slist *more = l ? curl_slist_append(l, "Expect:") : NULL;

    if (!more)
        curl_slist_free_all(l);
    return more;
}

/* What is said goes to place and nowhere else: no proxy, no redirect. */
static void set_up(CURL *c, const struct runtime_place *place, const char *path, const char *body,
                   struct curl_slist *headers, struct buf *reply)
{
    bool v6 = strchr(place->address, ':') != NULL;
    char url[RUNTIME_ADDR + 64];

    (void)snprintf(url, sizeof(url), "http://%s%s%s:%u%s", v6 ? "[" : "", place->address,
                   v6 ? "]" : "", (unsigned)place->agent_port, path);
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_PROXY, "");
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(c, CURLOPT_FORBID_REUSE, 1L);
    /* the answer may wait for a hook for hours; a sandbox that is removed says nothing any more */
    curl_easy_setopt(c, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(c, CURLOPT_TCP_KEEPIDLE, KEEPALIVE_S);
    curl_easy_setopt(c, CURLOPT_TCP_KEEPINTVL, KEEPALIVE_S);
    curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(body));
    curl_easy_setopt(c, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_reply);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, reply);
}

/* What a claim that cannot be carried out (400) means for the client; the agent's code decides. */
static int cannot(const char *code, const char *text, struct err *e)
{
    static const struct {
        const char *code;
        enum errc class;
        const char *api_code;
    } rows[] = {
        { AGENT_LIFECYCLE_INVALID, ERRC_INVALID, "SANDBOX::INVALID_PARAMETER" },
        { AGENT_PRE_START_FAILED, ERRC_INTERNAL, "DOCKER::SANDBOX_START_FAILED" },
        { AGENT_MOUNT_REFUSED, ERRC_INVALID, "VOLUME::INVALID_HOST_PATH" },
        { AGENT_CA_REFUSED, ERRC_INTERNAL, START_FAILED },
    };
    size_t i;

    for (i = 0; code && i < ARRAY_LEN(rows); i++)
        if (strcmp(code, rows[i].code) == 0)
            return err_api(e, rows[i].class, rows[i].api_code, "%.*s", TEXT_MAX, text);
    return err_api(e, ERRC_INVALID, "DOCKER::INVALID_ENTRYPOINT", "%.*s", TEXT_MAX, text);
}

static int judge(long status, const struct buf *reply, struct err *e)
{
    json_auto_t *v = reply->len ? jx_parse(reply->data, reply->len, true, NULL) : NULL;
    const char *text = json_string_value(json_object_get(v, "message"));

    if (!text)
        text = "no reason given";
    switch (status) {
    case 200:
        return 0;
    case 400:
        return cannot(json_string_value(json_object_get(v, "code")), text, e);
    case 403:
        return err_set(e, ERRC_FORBIDDEN, "the agent refused the claim: %.*s", TEXT_MAX, text);
    case 409:
        return err_set(e, ERRC_CONFLICT, "the sandbox was claimed before");
    default:
        return err_api(e, ERRC_BUSY, START_FAILED, "the agent answered the claim with %ld: %.*s",
                       status, TEXT_MAX, text);
    }
}

/* One attempt. 1: an answer is there; 0: there was no connection; -1: err set. */
static int attempt(CURL *c, int left_ms, struct err *e)
{
    curl_off_t connected = 0;
    CURLcode rc;

    curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)left_ms);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS,
                     (long)(left_ms < CONNECT_MS ? left_ms : CONNECT_MS));
    rc = curl_easy_perform(c);
    if (rc == CURLE_OK)
        return 1;
    (void)curl_easy_getinfo(c, CURLINFO_CONNECT_TIME_T, &connected);
    if (rc == CURLE_COULDNT_CONNECT || (rc == CURLE_OPERATION_TIMEDOUT && connected == 0))
        return 0;
    if (rc == CURLE_OPERATION_TIMEDOUT)
        return err_api(e, ERRC_TIMEOUT, START_FAILED, "the agent took too long over the claim");
    return err_api(e, ERRC_BUSY, START_FAILED, "the agent broke the claim off (%s)",
                   curl_easy_strerror(rc));
}

/* Repeats until there is an answer. */
static int converse(CURL *c, int deadline_ms, agent_alive_fn alive, void *arg, struct err *e)
{
    const struct timespec nap = { .tv_nsec = RETRY_MS * 1000000L };
    const int64_t start = clock_mono_ms();
    int64_t asked = start;
    int64_t now;
    int rc;

    for (;;) {
        now = clock_mono_ms();
        if (now - start >= deadline_ms)
            return err_api(e, ERRC_TIMEOUT, START_FAILED, "the agent did not answer within %d ms",
                           deadline_ms);
        rc = attempt(c, (int)(deadline_ms - (now - start)), e);
        if (rc != 0)
            return rc;
        now = clock_mono_ms();
        if (alive && now - asked >= ALIVE_MS) {
            if (alive(arg, e) < 0)
                return -1;
            asked = clock_mono_ms();
        }
        (void)nanosleep(&nap, NULL);
    }
}

int agent_claim(const struct runtime_place *place, const json_t *claim, int deadline_ms,
                agent_alive_fn alive, void *arg, struct err *e)
{
    AUTO_BUF struct buf reply = BUF_INIT(REPLY_MAX);
    AUTO_FREE char *body = json_dumps(claim, JSON_COMPACT);
    AUTO(auto_slist) struct curl_slist *headers = make_headers();
    AUTO(auto_curl) CURL *c = curl_easy_init();
    long status = 0;
    int rc;

    if (!body || !headers || !c)
        return err_nomem(e);
    if (strlen(body) > AGENT_CLAIM_MAX)
        return err_set(e, ERRC_INVALID, "env and entrypoint are larger than %d bytes",
                       AGENT_CLAIM_MAX);
    set_up(c, place, AGENT_CLAIM_PATH, body, headers, &reply);
    rc = converse(c, deadline_ms, alive, arg, e);
    explicit_bzero(body, strlen(body)); /* token and secret */
    if (rc < 0)
        return -1;
    (void)curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
    return judge(status, &reply, e);
}

/* The headers of who knows the token. */
static struct curl_slist *add_token(struct curl_slist *l, const char *token)
{
    char line[sizeof(AGENT_TOKEN_HEADER ": ") + RUNTIME_TEXT];

    (void)snprintf(line, sizeof(line), AGENT_TOKEN_HEADER ": %s", token);
    return curl_slist_append(l, line);
}

int agent_tell_deadline(const struct runtime_place *place, const char *token, int64_t deadline_ms,
                        int64_t now_ms, int timeout_ms, struct err *e)
{
    AUTO_BUF struct buf reply = BUF_INIT(REPLY_MAX);
    AUTO(auto_slist) struct curl_slist *headers = make_headers();
    AUTO(auto_curl) CURL *c = curl_easy_init();
    char body[96];
    long status = 0;
    CURLcode rc;

    if (!c || !headers || !add_token(headers, token))
        return err_nomem(e);
    (void)snprintf(body, sizeof(body), "{\"deadline\":%" PRId64 ",\"now\":%" PRId64 "}",
                   deadline_ms, now_ms);
    set_up(c, place, AGENT_DEADLINE_PATH, body, headers, &reply);
    curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    rc = curl_easy_perform(c);
    if (rc != CURLE_OK)
        return err_set(e, ERRC_BUSY, "the agent cannot be told (%s)", curl_easy_strerror(rc));
    (void)curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
    if (status == 200)
        return 0;
    return err_set(e, status == 404 ? ERRC_UNSUPPORTED : ERRC_BUSY,
                   "the agent answered its deadline with %ld", status);
}
