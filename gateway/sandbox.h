/* The record of a sandbox: plain data shared by domain, store and api. */
#pragma once
#include "gateway/runtime/runtime.h"

#include <stddef.h>
#include <stdint.h>

enum sandbox_state {
    SANDBOX_PENDING, /* intent is written, the engine is being asked */
    SANDBOX_RUNNING,
    SANDBOX_PAUSED,
    SANDBOX_STOPPING,   /* removal is written, the engine is being asked */
    SANDBOX_TERMINATED, /* ended by itself with status 0, kept until deleted or expired; or removed */
    SANDBOX_FAILED,     /* ended by itself otherwise, or never came up */
    SANDBOX_STATE_MAX_,
};

const char *sandbox_state_to_string(enum sandbox_state s); /* as on the wire: "Running" */
int sandbox_state_parse(const char *s);                    /* exact; -1 when unknown */

enum {
    SANDBOX_REASON = 64,
    SANDBOX_MESSAGE = 512,
    SANDBOX_TOKEN = 65,
    SANDBOX_PORTS = 128,
    SANDBOX_LOGS_MAX = 64 << 10, /* bytes of output that are kept after the end */
    SANDBOX_NO_EXIT_CODE = -1,
};

struct sandbox {
    char id[RUNTIME_ID];
    enum sandbox_state state;
    char reason[SANDBOX_REASON];
    char message[SANDBOX_MESSAGE];
    int64_t transition_ms; /* wall */
    int64_t created_ms;
    int64_t expires_ms;           /* 0 = never */
    int64_t ended_ms;             /* wall; 0: it exists */
    int exit_code;                /* of its container; SANDBOX_NO_EXIT_CODE when none is known */
    char snapshot_id[RUNTIME_ID]; /* what it was made from; "": from image */
    char *image;          /* owned strings; JSON where it says so; "" when from a snapshot */
    char *entrypoint;     /* JSON array */
    char *metadata;       /* JSON object */
    char *extensions;     /* JSON object */
    char platform_os[16]; /* "" when not requested */
    char platform_arch[16];
    char token[SANDBOX_TOKEN];
    struct runtime_place place;
    char secure_token[SANDBOX_TOKEN]; /* callers of the proxy present it; "": they need not */
    char login_ports[SANDBOX_PORTS]; /* get Authorization and Cookie through the proxy: ",80,81," */
    int64_t renew_s; /* an access through the proxy renews it by so much; 0: it does not */
};

void sandbox_done(struct sandbox *sb); /* frees what it owns; safe on a zeroed one */
#define AUTO_SANDBOX __attribute__((cleanup(sandbox_done)))

void sandbox_set_state(struct sandbox *sb, enum sandbox_state state, const char *reason,
                       const char *message, int64_t now_ms);

/* How and when a sandbox that is gone ended. */
struct sandbox_end {
    enum sandbox_state state; /* SANDBOX_TERMINATED or SANDBOX_FAILED */
    int64_t ended_ms;
    int exit_code;
    const char *logs; /* its last output, UTF-8; borrowed; NULL: none */
    char reason[SANDBOX_REASON];
    char message[SANDBOX_MESSAGE];
};

/* A page of a list; owns its items. */
struct sandbox_page {
    struct sandbox *items;
    size_t len;
    int64_t total; /* of all that match */
};
void sandbox_page_done(struct sandbox_page *p);
#define AUTO_PAGE __attribute__((cleanup(sandbox_page_done)))

/* What a list shows. */
struct sandbox_query {
    const char *states;   /* JSON array of names, compared without case; NULL: any */
    const char *metadata; /* JSON object of strings, all must match exactly; NULL: any */
    bool with_ended;
    int64_t offset;
    int64_t limit;
};
