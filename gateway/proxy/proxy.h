/* The data plane of the gateway: the front owns the listening sockets, requests to
 * /sandboxes/{id}/proxy/{port} go to the sandbox, all others to the API (contract/lifecycle.md 8,
 * design decisions 8 and 12). Lives in the loop's thread. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct buf;
struct err;
struct http_server;
struct loop;
struct places;
struct proxy;
struct relay;
struct renewer;
struct runtime;

struct proxy_config {
    struct places *places;
    struct runtime *rt; /* tells sandboxes' addresses from others */
    struct http_server *api;
    struct relay *relay;        /* told of sandboxes that are gone; NULL: there is none */
    struct renewer *renewer;    /* told of accesses; NULL: renewal by access is off */
    int64_t renew_look_ms;      /* how often open streams count as accesses */
    const char *signing_key;    /* of signed routes: domain/signed.h */
    const char *key;            /* NULL: open (insecure mode) */
    const char *const *trusted; /* peers whose X-Forwarded-For and -Proto count; NULL: none */
    const char *eip;            /* server.eip; its path goes in front of a Location; NULL: none */
    bool require_key;           /* proxied requests need the key, too */
    bool pass_login;            /* Authorization and Cookie reach the sandboxes' ports */
    unsigned max_connections;
    int64_t idle_timeout_s;
};

/* cfg is copied, what it points to outlives the proxy. NULL: err set. */
struct proxy *proxy_new(struct loop *l, const struct proxy_config *cfg, struct err *e);
int proxy_listen(struct proxy *p, int fd, struct err *e); /* takes over fd */
void proxy_drain(struct proxy *p);
bool proxy_busy(const struct proxy *p); /* requests are under way */
/* Appends the counters in the text format of Prometheus. */
void proxy_metrics(const struct proxy *p, struct buf *out);
void proxy_free(struct proxy *p);
