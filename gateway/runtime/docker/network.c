#include "gateway/runtime/docker/network.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/base/macros.h"
#include "common/base/num.h"
#include "gateway/runtime/docker/docker.h"
#include "gateway/runtime/docker/engine.h"
#include "gateway/runtime/docker/names.h"
#include "gateway/runtime/docker/nft.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <string.h>

enum { SUBNETS_MAX = 8, RESOLV_MAX = 8192, RENEW_MS = 60000 };

/* IPv4 is held in its mapped form ::ffff:a.b.c.d. */
struct subnet {
    unsigned char net[16];
    int bits;
    unsigned char host[16]; /* the host's own end of the bridge; zero when unknown */
};

struct network {
    struct runtime_config cfg;
    char name[128];
    bool own;
    char suffix[INSTANCE_SHORT + 1]; /* of names, when own */
    pthread_mutex_t closing;
    bool warned;       /* under closing: that the host cannot be closed */
    int64_t closed_ms; /* under closing: monotonic time of the latest attempt; 0: none */
    pthread_mutex_t guard;
    struct subnet subnets[SUBNETS_MAX]; /* guarded */
    size_t n_subnets;                   /* guarded */
};

struct network *network_new(const struct runtime_config *cfg, struct err *e)
{
    const char *mode = cfg->network_mode ? cfg->network_mode : "bridge";
    struct network *n;

    if (strcmp(mode, "host") == 0 || strcmp(mode, "none") == 0 || strchr(mode, ':')) {
        (void)err_set(e, ERRC_INVALID,
                      "docker.network_mode \"%.60s\" is not supported; use \"bridge\", "
                      "\"default-bridge\" or the name of a network",
                      mode);
        return NULL;
    }
    n = calloc(1, sizeof(*n));
    if (!n) {
        (void)err_nomem(e);
        return NULL;
    }
    (void)pthread_mutex_init(&n->guard, NULL);
    (void)pthread_mutex_init(&n->closing, NULL);
    n->cfg = *cfg;
    n->own = strcmp(mode, "bridge") == 0;
    (void)snprintf(n->suffix, sizeof(n->suffix), "%.*s", INSTANCE_SHORT, cfg->instance);
    if (n->own)
        (void)snprintf(n->name, sizeof(n->name), NETWORK_NAME "%s", n->suffix);
    else
        (void)snprintf(n->name, sizeof(n->name), "%s",
                       strcmp(mode, "default-bridge") == 0 ? "bridge" : mode);
    return n;
}

void network_free(struct network *n)
{
    if (!n)
        return;
    (void)pthread_mutex_destroy(&n->closing);
    (void)pthread_mutex_destroy(&n->guard);
    free(n);
}

const char *network_name(const struct network *n)
{
    return n->name;
}

/* ---- addresses ---- */

/* Text to the mapped form; 4 or 6, -1 when it is no address. */
static int parse_addr(const char *text, unsigned char out[16])
{
    static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };
    struct in_addr v4;
    struct in6_addr v6;

    if (inet_pton(AF_INET, text, &v4) == 1) {
        memcpy(out, mapped, sizeof(mapped));
        memcpy(out + sizeof(mapped), &v4, 4);
        return 4;
    }
    if (inet_pton(AF_INET6, text, &v6) == 1) {
        memcpy(out, &v6, 16);
        return 6;
    }
    return -1;
}

static int parse_subnet(const char *cidr, const char *gateway, struct subnet *out)
{
    const char *slash = strchr(cidr, '/');
    char text[INET6_ADDRSTRLEN];
    int64_t bits;
    int family;

    *out = (struct subnet){ 0 };
    if (!slash || (size_t)(slash - cidr) >= sizeof(text))
        return -1;
    memcpy(text, cidr, (size_t)(slash - cidr));
    text[slash - cidr] = '\0';
    family = parse_addr(text, out->net);
    if (family < 0 || num_parse_i64(slash + 1, 0, family == 4 ? 32 : 128, &bits) < 0)
        return -1;
    out->bits = (int)bits + (family == 4 ? 96 : 0);
    if (gateway)
        (void)parse_addr(gateway, out->host); /* zero when odd: then nothing is excepted */
    return 0;
}

static bool covers(const struct subnet *s, const unsigned char addr[16])
{
    int whole = s->bits / 8;
    int rest = s->bits % 8;
    unsigned char mask = (unsigned char)(0xff00 >> rest);

    if (memcmp(s->net, addr, (size_t)whole) != 0)
        return false;
    if (rest && ((s->net[whole] ^ addr[whole]) & mask))
        return false;
    return memcmp(s->host, addr, 16) != 0;
}

bool network_has(struct network *n, const char *addr)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&n->guard);
    unsigned char raw[16];
    size_t i;

    if (parse_addr(addr, raw) < 0)
        return false;
    for (i = 0; i < n->n_subnets; i++)
        if (covers(&n->subnets[i], raw))
            return true;
    return false;
}

static void take_subnets(struct network *n, json_t *about)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&n->guard);
    json_t *list = NULL;
    json_t *item;
    size_t i;

    (void)json_unpack(about, "{s?{s?o}}", "IPAM", "Config", &list);
    n->n_subnets = 0;
    json_array_foreach(list, i, item) {
        const char *cidr = json_string_value(json_object_get(item, "Subnet"));
        const char *gateway = json_string_value(json_object_get(item, "Gateway"));

        if (cidr && n->n_subnets < SUBNETS_MAX &&
            parse_subnet(cidr, gateway, &n->subnets[n->n_subnets]) == 0)
            n->n_subnets++;
    }
}

/* ---- finding and making ---- */

/* 0: *out is the network, NULL when there is none of that name. One of that name that belongs to
 * somebody else is an error. */
static int find_own(struct network *n, struct engine *en, json_t **out, struct err *e)
{
    struct engine_call c = { .method = "GET" };
    AUTO_BUF struct buf path = BUF_INIT(512);
    char filter[192];
    json_auto_t *list = NULL;
    json_t *item;
    size_t i;

    (void)snprintf(filter, sizeof(filter), "{\"name\":[\"%s\"]}", n->name);
    if (buf_puts(&path, "/networks") < 0 || engine_query(&path, "filters", filter) < 0)
        return err_nomem(e);
    c.path = path.data;
    if (engine_do(en, &c, "look for the network of the sandboxes", &list, e) < 0)
        return -1;
    *out = NULL;
    json_array_foreach(list, i, item) /* the filter also finds parts of names */
    {
        const char *name = "";
        const char *owner = "";

        (void)json_unpack(item, "{s?s, s?{s?s}}", "Name", &name, "Labels", LABEL_INSTANCE, &owner);
        if (strcmp(name, n->name) != 0)
            continue;
        if (strcmp(owner, n->cfg.instance) != 0)
            return err_set(e, ERRC_CONFLICT,
                           "the engine has a network \"%s\" that is not of this gateway; remove it "
                           "with: docker network rm %s",
                           n->name, n->name);
        *out = json_incref(item);
        return 0;
    }
    return 0;
}

/* 409 means that it exists by now: the caller looks again. */
static int make_own(struct network *n, struct engine *en, struct err *e)
{
    AUTO_REPLY struct engine_reply r = { 0 };
    struct engine_call c = { .method = "POST", .path = "/networks/create" };
    char bridge[16];
    json_auto_t *body = NULL;

    (void)snprintf(bridge, sizeof(bridge), BRIDGE_NAME "%s", n->suffix);
    body =
        json_pack("{s:s, s:s, s:b, s:b, s:{s:s, s:s}, s:{s:s, s:s}}", "Name", n->name, "Driver",
                  "bridge", "CheckDuplicate", 1, "EnableIPv6", 0, "Options",
                  "com.docker.network.bridge.enable_icc", "false", "com.docker.network.bridge.name",
                  bridge, "Labels", LABEL_INSTANCE, n->cfg.instance, LABEL_ROLE, ROLE_NETWORK);
    if (!body)
        return err_nomem(e);
    c.json = body;
    if (engine_send(en, &c, &r, e) < 0)
        return -1;
    if (r.status == 201 || r.status == 409)
        return 0;
    (void)engine_refused(&r, "make the network of the sandboxes", e);
    if (r.body.data && strstr(r.body.data, "address pool"))
        return err_wrap(e,
                        "the engine has too many networks (docker network prune removes unused)");
    return -1;
}

static int prepare_own(struct network *n, struct engine *en, struct err *e)
{
    json_auto_t *about = NULL;

    if (find_own(n, en, &about, e) < 0)
        return -1;
    if (!about) {
        if (make_own(n, en, e) < 0)
            return -1;
        crash_step(&n->cfg, "network.made");
        if (find_own(n, en, &about, e) < 0)
            return -1;
        if (!about)
            return err_set(e, ERRC_INTERNAL, "the network %s was made but cannot be found",
                           n->name);
    }
    take_subnets(n, about);
    return 0;
}

static int prepare_named(struct network *n, struct engine *en, struct err *e)
{
    AUTO_REPLY struct engine_reply r = { 0 };
    AUTO_BUF struct buf path = BUF_INIT(512);
    struct engine_call c = { .method = "GET" };
    json_auto_t *about = NULL;

    if (buf_printf(&path, "/networks/%s", n->name) < 0)
        return err_nomem(e);
    c.path = path.data;
    if (engine_send(en, &c, &r, e) < 0)
        return -1;
    if (r.status == 404)
        return err_api(e, ERRC_INVALID, "SANDBOX::INVALID_PARAMETER",
                       "docker.network_mode: the engine has no network \"%s\"; make it with: "
                       "docker network create %s",
                       n->name, n->name);
    if (r.status != 200)
        return engine_refused(&r, "read the network of the sandboxes", e);
    about = json_loadb(r.body.data, r.body.len, 0, NULL);
    take_subnets(n, about);
    return 0;
}

/* ---- closing the host ---- */

/* The resolver's file that the engine uses: systemd's upstream list when the usual one only names
 * systemd's stub (as the engine itself decides). */
static void read_resolv(char out[RESOLV_MAX])
{
    static const char *const files[] = { "/etc/resolv.conf", "/run/systemd/resolve/resolv.conf" };
    size_t i;
    size_t at = 0;

    for (i = 0; i < ARRAY_LEN(files); i++) {
        AUTO_FD int fd = open(files[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        ssize_t len = fd < 0 ? -1 : read(fd, out + at, RESOLV_MAX / 2 - 2);

        if (len > 0) {
            at += (size_t)len;
            out[at++] = '\n';
        }
    }
    out[at] = '\0';
}

/* Caller holds closing. */
static void close_host(struct network *n)
{
    AUTO_BUF struct buf script = BUF_INIT(8192);
    struct err e = { 0 };
    char table[32];
    char bridge[16];
    char resolv[RESOLV_MAX];

    n->closed_ms = clock_mono_ms();
    (void)snprintf(table, sizeof(table), NFT_TABLE "%s", n->suffix);
    (void)snprintf(bridge, sizeof(bridge), BRIDGE_NAME "%s", n->suffix);
    read_resolv(resolv);
    if (nft_script(&script, table, bridge, resolv) < 0)
        (void)err_nomem(&e);
    else if (nft_apply(script.data, &e) == 0)
        return;
    if (!n->warned)
        log_warn("sandboxes can reach the host and the cloud's metadata service: the gateway "
                 "cannot set nft rules; run it as root with nft installed, or close them yourself",
                 LOG_S("bridge", bridge), LOG_S("reason", e.msg));
    n->warned = true;
}

void network_drop(struct network *n, struct engine *en, int timeout_ms)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&n->closing);
    char path[256];
    char script[128];
    const struct engine_call c = { .method = "DELETE", .path = path, .timeout_ms = timeout_ms };

    (void)snprintf(path, sizeof(path), "/networks/%s", n->name);
    if (!n->own || engine_do(en, &c, "remove the network", NULL, NULL) < 0)
        return;
    (void)snprintf(script, sizeof(script),
                   "add table inet " NFT_TABLE "%s\ndelete table inet " NFT_TABLE "%s\n", n->suffix,
                   n->suffix);
    if (!n->cfg.keep_host_open)
        (void)nft_apply(script, NULL);
}

void network_keep_closed(struct network *n)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&n->closing);

    if (n->own && !n->cfg.keep_host_open &&
        (!n->closed_ms || clock_mono_ms() - n->closed_ms >= RENEW_MS))
        close_host(n);
}

static void warn_shared(struct network *n)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&n->closing);

    if (!n->warned)
        log_warn("sandboxes share a network that is not the gateway's own: the host and other "
                 "containers are not closed to them",
                 LOG_S("network", n->name));
    n->warned = true;
}

int network_prepare(struct network *n, struct engine *en, struct err *e)
{
    if (!n->own) {
        if (prepare_named(n, en, e) < 0)
            return -1;
        warn_shared(n);
        return 0;
    }
    if (prepare_own(n, en, e) < 0)
        return -1;

    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&n->closing);
    if (!n->cfg.keep_host_open)
        close_host(n);
    return 0;
}
