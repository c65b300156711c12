/* A container engine for unit tests, on a unix socket: answers what the gateway asks from a small
 * model (images, containers, volumes, one network), keeps a log of the calls, and fails as told
 * by rules: other statuses, delays, cut bodies, broken connections, death and return. Safe from
 * any thread. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct fake_docker;

enum fake_how {
    FAKE_REPLY,    /* answer with status and body */
    FAKE_PASS,     /* answer as usual (after delay_ms) */
    FAKE_CLOSE,    /* break the connection instead of the call */
    FAKE_CARRIED,  /* carry the call out, then break the connection instead of answering */
    FAKE_TRUNCATE, /* announce the body, send half of it, break the connection */
    FAKE_DIE,      /* the engine dies when the call comes */
};

/* The first rule that fits a call decides; rules are asked newest first. Strings are copied. */
struct fake_rule {
    const char *method; /* NULL: any */
    const char *path;   /* beginning of the path behind /v1.NN; NULL: any */
    const char *part;   /* must occur in the path; NULL: anything */
    enum fake_how how;
    int status;
    const char *body;
    size_t body_len; /* of a body that holds NUL bytes; 0: up to the first */
    int delay_ms;
    int skip;  /* fits only after this many calls that would have fitted */
    int times; /* and then for so many; 0: for ever */
};

/* NULL on failure. */
struct fake_docker *fake_docker_start(void);
void fake_docker_stop(struct fake_docker *f); /* joins all threads, removes the socket */
const char *fake_docker_socket(const struct fake_docker *f);

void fake_docker_rule(struct fake_docker *f, const struct fake_rule *r);
void fake_docker_no_rules(struct fake_docker *f);
/* Value of Api-Version; "" sends none. */
void fake_docker_api(struct fake_docker *f, const char *version);
/* The version of the latest call's path ("1.41"), "" when it had none. */
void fake_docker_spoken(struct fake_docker *f, char out[16]);
/* An image for linux/amd64 that needs no pull. A pull of any other name or platform succeeds and
 * makes it. */
void fake_docker_image(struct fake_docker *f, const char *name);

void fake_docker_die(struct fake_docker *f);
void fake_docker_revive(struct fake_docker *f); /* with the state it had */
/* Somebody removes what the gateway prepared. */
void fake_docker_prune(struct fake_docker *f);
/* The volumes' content is not what was filled in, in those that exist now. */
void fake_docker_spoil(struct fake_docker *f);
/* The container's process ended. */
void fake_docker_end(struct fake_docker *f, const char *name, int exit_code);

/* Calls whose "METHOD /path?query" (without version) begins with this; "" counts all but pings. */
unsigned fake_docker_calls(struct fake_docker *f, const char *beginning);
void fake_docker_reset_calls(struct fake_docker *f);
/* How many containers exist; state NULL: in any state ("created", "running", "paused", "exited"). */
unsigned fake_docker_containers(struct fake_docker *f, const char *state);
/* Copies the body of the latest call that begins so, "" when none; as fake_docker_calls. */
void fake_docker_body(struct fake_docker *f, const char *beginning, char *out, size_t size);

/* ---- parts of the engine that a test models itself ---- */

struct buf;

/* One call; all but status and reply is only to be read. */
struct fake_call {
    const char *method;
    const char *path; /* without version */
    const char *body;
    size_t body_len;
    int fd; /* of its connection */
    int status;
    struct buf *reply;
};

enum fake_answer {
    FAKE_NOT_MINE, /* the fake's own model answers */
    FAKE_ANSWERED, /* status and reply are filled */
    FAKE_TAKEN,    /* the answer went to fd by itself, the connection is to be closed */
};

typedef enum fake_answer (*fake_model_fn)(void *arg, struct fake_call *c);

/* fn is asked in the connection's thread, without a lock, for every call that no rule answers. It may
 * block as long as fd is not shut down. To be set before the first call. */
void fake_docker_model(struct fake_docker *f, fake_model_fn fn, void *arg);
