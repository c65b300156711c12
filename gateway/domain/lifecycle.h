/* The state machine of sandboxes over store and runtime. Knows no HTTP, no SQL, no engine.
 *
 * Crash safety (design decision 5): an intent is in the store before the runtime is asked, and is
 * confirmed after; each step may be the process's last, and reconcile.c finishes or undoes it.
 * All functions block and are safe from any thread; operations on one id are serialised by a
 * keyed lock. Errors carry the contract's codes (lifecycle.md 1.6). */
#pragma once
#include "gateway/sandbox.h"

#include <jansson.h>
#include <stdbool.h>

struct clock;
struct db;
struct err;
struct expiry;
struct keyed_locks;
struct metrics;
struct places;
struct sandbox_query;

enum { LIFECYCLE_TIMEOUT_MIN_S = 60 };

struct lifecycle {
    struct db *db;
    struct runtime *rt;
    struct keyed_locks *locks;
    struct places *places; /* kept in step with the store; NULL in tests without one */
    const struct clock *clock;
    struct expiry *expiry; /* told when an expiry changes; NULL in tests without one */
    int64_t started_ms;    /* Pending rows older than this are leftovers of an earlier process */
    int64_t max_timeout_s; /* 0: no cap */
    int ready_timeout_ms;  /* for the claim of a started sandbox */
    const char *line_endings;
    struct metrics *metrics; /* NULL: nothing is counted */
};

/* What a client asks for; borrowed. JSON values are type-checked by the decoder. */
struct create_req {
    const char *image;
    const char *registry_user; /* NULL: anonymous */
    const char *registry_password;
    const char *platform_os; /* NULL: not requested */
    const char *platform_arch;
    int64_t timeout_s;               /* 0: never expires */
    const json_t *resources;         /* object of strings or NULL */
    const json_t *env;               /* object of strings or nulls, or NULL */
    const json_t *metadata;          /* object of strings or NULL */
    const json_t *entrypoint;        /* array of strings */
    const json_t *extensions;        /* object of strings or NULL */
    int64_t renew_s;                 /* renewal by access, seconds; 0: none */
    char login_ports[SANDBOX_PORTS]; /* as struct sandbox has it */
    bool secure_access;              /* callers of its ports have to present a token */
};

/* Fills lc->places from the store; once, at start. */
int lifecycle_load_places(struct lifecycle *lc, struct err *e);

/* Returns when the sandbox is usable (its agent was claimed). *out is owned by the caller. */
int lifecycle_create(struct lifecycle *lc, const struct create_req *rq, struct sandbox *out,
                     struct err *e);
/* DOCKER::SANDBOX_NOT_FOUND, saying when and why it ended where that is known. */
int lifecycle_get(struct lifecycle *lc, const char *id, struct sandbox *out, struct err *e);
/* The same for those that ended, too: ended_ms tells. */
int lifecycle_find(struct lifecycle *lc, const char *id, struct sandbox *out, struct err *e);
/* As sandbox_store_list. */
int lifecycle_list(struct lifecycle *lc, const struct sandbox_query *q, struct sandbox_page *out,
                   struct err *e);
int lifecycle_delete(struct lifecycle *lc, const char *id, struct err *e);
int lifecycle_pause(struct lifecycle *lc, const char *id, struct err *e);
int lifecycle_resume(struct lifecycle *lc, const char *id, struct err *e);
/* Sets a new expiry, earlier or later, on disk before it returns. */
int lifecycle_renew(struct lifecycle *lc, const char *id, int64_t expires_ms, struct err *e);
/* After an access through the proxy: the expiry becomes now + the sandbox's renew_s unless it is
 * later already. Only for running sandboxes that expire and have a renew_s; 0 when it does not
 * apply. */
int lifecycle_renew_by_access(struct lifecycle *lc, const char *id, struct err *e);
/* Merge patch: string sets, null deletes. *out is the record after it. */
int lifecycle_patch_metadata(struct lifecycle *lc, const char *id, const json_t *patch,
                             struct sandbox *out, struct err *e);

/* ---- for expiry.c and reconcile.c ---- */

/* Removes the sandbox if its time has come; 0 also when it was renewed or is gone. */
int lifecycle_expire(struct lifecycle *lc, const char *id, struct err *e);
/* Brings the record of id in line with what the runtime says about it now. */
int lifecycle_settle(struct lifecycle *lc, const char *id, struct err *e);
