/* A runtime in memory for unit tests of the domain: the whole verb table, failures on demand,
 * counters. Thread-safe. */
#pragma once
#include "common/base/err.h"
#include "gateway/runtime/runtime.h"

struct fake_runtime;

struct runtime *fake_runtime_new(void);
/* The next call of verb ("start_held", "claim", "remove", "pause", "status", "list", "prepare")
 * fails with this error; times < 0: every call. */
void fake_runtime_fail(struct runtime *rt, const char *verb, int times, enum errc code,
                       const char *api_code);
int fake_runtime_calls(struct runtime *rt, const char *verb);
/* What the outside world does to a sandbox behind the gateway's back. */
void fake_runtime_put(struct runtime *rt, const char *id, enum runtime_state state, int exit_code);
void fake_runtime_drop(struct runtime *rt, const char *id);
/* RUNTIME_UNKNOWN when there is none. */
enum runtime_state fake_runtime_state(struct runtime *rt, const char *id);
/* The last claim, as JSON text; the caller frees. */
char *fake_runtime_last_claim(struct runtime *rt);
