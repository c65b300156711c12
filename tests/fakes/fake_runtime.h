/* A runtime in memory for unit tests of the domain: the whole verb table, failures on demand,
 * counters. Thread-safe. */
#pragma once
#include "common/base/err.h"
#include "gateway/runtime/runtime.h"

#include <stdbool.h>

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

/* ---- what takes its time ---- */

/* The image is not there until a pull has got it. */
void fake_runtime_miss_image(struct runtime *rt);
/* While held, a pull goes on (its slices are short here) and a claim waits; a claim whose sandbox is
 * removed meanwhile breaks off. */
void fake_runtime_hold(struct runtime *rt, const char *verb, bool held);
/* What a pull that is held reports. */
void fake_runtime_progress(struct runtime *rt, const char *text);
/* Waits until verb was called n times; false at the deadline. */
bool fake_runtime_wait_calls(struct runtime *rt, const char *verb, int n, int ms);
