/* One sandbox on its way from a request to a usable container: what create.c checked and decided,
 * carried through the steps of making.c. Owned by one thread at a time. */
#pragma once
#include "gateway/domain/lifecycle_internal.h"

#include <jansson.h>

struct creation;
struct resources;
struct volume_plan;

struct making {
    struct lifecycle *lc;
    struct creation *creation; /* NULL: lc has no creates */
    struct sandbox sb;
    struct runtime_spec spec; /* its strings are below or in sb */
    char claim_sha256[SANDBOX_TOKEN];
    char *registry_user; /* owned; NULL: anonymous */
    char *registry_password;
    json_t *claim;            /* owned */
    struct volume_plan *plan; /* owned; NULL: no volumes */
    int claim_ms;             /* deadline of the claim */
    int64_t timeout_s;
    bool isolation;       /* isolated sessions are asked for */
    bool hooked;          /* the claim waits for a preStart hook */
    bool pulling;         /* failed while it got the image */
    bool no_image;        /* the last start found none: it has to be pulled */
    bool held;            /* the runtime may have something of it */
    bool claimed;         /* something of the user may have run */
    bool apart;           /* goes on without its request */
    int64_t told_mono_ms; /* when the record last got a progress */
    int64_t began_us;     /* as metrics_now_us */
};

/* rq was checked; what it borrows is copied. NULL: err set. */
struct making *making_new(struct lifecycle *lc, const struct create_req *rq,
                          const struct resources *res, struct err *e);
void making_free(struct making *m); /* takes NULL */

/* Makes the held container. The caller holds the id's lock, the record is Pending. -1 with no_image
 * set: the image has to be pulled first, nothing was made. */
int making_start(struct making *m, struct err *e);
/* Pulls, then making_start. Without the id's lock. */
int making_pull(struct making *m, struct err *e);
/* Hands over the claim and confirms. Without the id's lock. */
int making_finish(struct making *m, struct err *e);
/* A create that failed leaves nothing but the record of its end, which says why. When the engine
 * does not let us, the intent to remove stays and the sweep carries it out. Without the id's lock;
 * *why changes when the sandbox was deleted meanwhile. */
void making_undo(struct making *m, struct err *why);
