/* Where live sandboxes are, in memory: what the data plane asks for every request, without touching
 * the store. Loaded from the store at start, kept in step by lifecycle.c after each commit. Safe from
 * any thread; never blocks for longer than a copy. */
#pragma once
#include "gateway/sandbox.h"

#include <stdbool.h>

struct err;
struct places;

struct place {
    enum sandbox_state state;
    struct runtime_place at;
    char token[SANDBOX_TOKEN];
    char secure_token[SANDBOX_TOKEN]; /* these three as in struct sandbox */
    char login_ports[SANDBOX_PORTS];
    int64_t renew_s;
};

struct places *places_new(void); /* NULL: out of memory */
void places_free(struct places *p);

/* Adds or updates the sandbox; ended and stopping ones are dropped. -1: out of memory. */
int places_put(struct places *p, const struct sandbox *sb, struct err *e);
void places_drop(struct places *p, const char *id);
/* False when no such sandbox is live. */
bool places_get(struct places *p, const char *id, struct place *out);

/* Told when a sandbox is no longer where it was (dropped): its address may be somebody else's soon.
 * Called from the thread that dropped it, without locks: it may still run when it is replaced. One
 * listener; NULL: none. */
void places_on_drop(struct places *p,
                    void (*fn)(void *arg, const char *id, const struct place *was), void *arg);
