/* The state machine of sandboxes over store and runtime. Knows no HTTP, no SQL, no engine.
 *
 * Crash safety (design decision 5): an intent is in the store before the runtime is asked, and is
 * confirmed after; each step may be the process's last, and reconcile.c finishes or undoes it.
 * All functions block and are safe from any thread; operations on one id are serialised by a
 * keyed lock. Errors carry the contract's codes (lifecycle.md 1.6). */
#pragma once
#include "gateway/domain/volume_rules.h"
#include "gateway/sandbox.h"

#include <jansson.h>
#include <stdbool.h>

struct captures;
struct clock;
struct creates;
struct db;
struct err;
struct expiry;
struct keyed_locks;
struct metrics;
struct places;
struct sandbox_query;
struct teller;
struct volumes;

enum {
    LIFECYCLE_TIMEOUT_MIN_S = 60,
    LIFECYCLE_KEY_KEEP_MS = 24 * 3600 * 1000, /* how long an Idempotency-Key is remembered */
};

struct lifecycle {
    struct db *db;
    struct runtime *rt;
    struct keyed_locks *locks;
    struct places *places;   /* kept in step with the store; NULL in tests without one */
    struct volumes *volumes; /* NULL: no sandbox may have any */
    const struct clock *clock;
    struct expiry *expiry; /* told when an expiry changes; NULL in tests without one */
    struct teller *teller; /* the same, for agents; NULL: they are not told */
    int64_t started_ms;    /* Pending rows older than this are leftovers of an earlier process */
    int64_t max_timeout_s; /* 0: no cap */
    int64_t default_timeout_s; /* of creates that say nothing of it; 0: they never expire */
    int ready_timeout_ms;      /* for the claim of a started sandbox */
    int stop_grace_ms;         /* between TERM and KILL at its end; 0: KILL at once */
    const char *line_endings;
    struct creates *creates;   /* NULL (tests): a create runs in its caller's thread to the end */
    int create_wait_ms;        /* how long a request waits for a create that takes long */
    bool cpu_hints;            /* tell programs that cannot see a quota how many threads to start */
    const json_t *env;         /* of every sandbox, below what a request names; object of strings */
    struct captures *captures; /* sandboxes whose files are being captured; NULL: never any */
    int capture_wait_ms;       /* how long a change waits for the end of a capture */
    struct metrics *metrics;   /* NULL: nothing is counted */
};

/* What a client asks for; borrowed. JSON values are type-checked by the decoder. */
struct create_req {
    const char *image;         /* NULL when snapshot_id is set */
    const char *snapshot_id;   /* NULL: image */
    const char *registry_user; /* NULL: anonymous */
    const char *registry_password;
    const char *platform_os; /* as the client wrote it; NULL: not requested */
    const char *platform_arch;
    int64_t timeout_s;               /* 0: never expires */
    bool timeout_unsaid;             /* the server's default counts, not timeout_s */
    const json_t *resources;         /* object of strings or NULL */
    const json_t *env;               /* object of strings or nulls, or NULL */
    const json_t *metadata;          /* object of strings or NULL */
    const json_t *entrypoint;        /* array of strings */
    const json_t *extensions;        /* object of strings or NULL */
    int64_t renew_s;                 /* renewal by access, seconds; 0: none */
    char login_ports[SANDBOX_PORTS]; /* as struct sandbox has it */
    struct volume_list volumes;
    bool isolation;       /* isolated sessions are asked for */
    bool secure_access;   /* callers of its ports have to present a token */
    const json_t *hooks;  /* "lifecycle" of common/agent/wire.h, complete; NULL: none */
    int64_t pre_start_s;  /* longest time the preStart hook may take; 0: there is none */
    const char *key;      /* Idempotency-Key; NULL: none */
    char body_sha256[65]; /* of the request's canonical body; with key */
};

/* Fills lc->places and lc->expiry from the store; once, at start. */
int lifecycle_load_places(struct lifecycle *lc, struct err *e);

/* Returns when the sandbox is usable (its agent was claimed), or, still SANDBOX_PENDING, when that
 * takes longer than create_wait_ms: then the create goes on by itself, its progress and, if it
 * fails, its end are in the record. With a key that was used before: the sandbox it made, or
 * ERRC_CONFLICT. *out is owned by the caller. */
int lifecycle_create(struct lifecycle *lc, const struct create_req *rq, struct sandbox *out,
                     struct err *e);
/* DOCKER::SANDBOX_NOT_FOUND, saying when and why it ended where that is known. */
int lifecycle_get(struct lifecycle *lc, const char *id, struct sandbox *out, struct err *e);
/* The same for those that ended, too: ended_ms tells. */
int lifecycle_find(struct lifecycle *lc, const char *id, struct sandbox *out, struct err *e);
/* As sandbox_store_list. */
int lifecycle_list(struct lifecycle *lc, const struct sandbox_query *q, struct sandbox_page *out,
                   struct err *e);
/* Ends and removes it. by says who asked, as in "Deleted by %s."; NULL: nobody in particular. */
int lifecycle_delete(struct lifecycle *lc, const char *id, const char *by, struct err *e);
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

/* At the end of the server: what goes on without its request is undone, or finished if that is a
 * matter of moments. Before the job pool stops. */
void lifecycle_stop(struct lifecycle *lc);

/* ---- for expiry.c, reconcile.c and watch.c ---- */

/* Removes the sandbox if its time has come; 0 also when it was renewed or is gone. ERRC_BUSY as for
 * the others when its files are captured for long. */
int lifecycle_expire(struct lifecycle *lc, const char *id, struct err *e);
/* The same without waiting: 1 when somebody else is changing the sandbox, or its files are
 * captured. Also finishes a removal
 * that was begun. *next_ms: when its time comes, 0 when there is nothing to wait for. */
int lifecycle_try_expire(struct lifecycle *lc, const char *id, int64_t *next_ms, struct err *e);
/* Brings the record of id in line with what the runtime says about it now. */
int lifecycle_settle(struct lifecycle *lc, const char *id, struct err *e);
/* The same without waiting: 1 when somebody else is changing the sandbox, or its files are captured:
 * the engine freezes it meanwhile. */
int lifecycle_try_settle(struct lifecycle *lc, const char *id, struct err *e);
