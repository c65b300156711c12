/* A runtime in memory for unit tests of the domain: the whole verb table, failures on demand,
 * counters. Thread-safe, but for fake_runtime_cannot. */
#pragma once
#include "common/base/err.h"
#include "gateway/runtime/runtime.h"

struct fake_runtime;

struct runtime *fake_runtime_new(void);
/* The backend has no such verb ("watch", "logs"). Before it is used. */
void fake_runtime_cannot(struct runtime *rt, const char *verb);

/* ---- verbs, by their names in runtime_ops: a string constant ---- */

/* The next calls of verb fail with this error; times < 0: every call. */
void fake_runtime_fail(struct runtime *rt, const char *verb, int times, enum errc code,
                       const char *api_code);
int fake_runtime_calls(struct runtime *rt, const char *verb);
/* Waits until verb was called so often; false after 10 s. */
bool fake_runtime_wait_calls(struct runtime *rt, const char *verb, int calls);
/* Calls of verb about id (both string constants or outliving the runtime) hang, after they were
 * counted, until fake_runtime_release. One at a time. */
void fake_runtime_hold(struct runtime *rt, const char *verb, const char *id);
void fake_runtime_release(struct runtime *rt);

/* ---- sandboxes ---- */

/* What the outside world does to a sandbox behind the gateway's back. */
void fake_runtime_put(struct runtime *rt, const char *id, enum runtime_state state, int exit_code);
void fake_runtime_end(struct runtime *rt, const char *id, int exit_code, bool oom_killed,
                      int64_t ended_ms);
/* It ended at ended_ms, and runs again. */
void fake_runtime_restart(struct runtime *rt, const char *id, int64_t ended_ms);
void fake_runtime_move(struct runtime *rt, const char *id, const char *address, uint16_t host_port);
void fake_runtime_drop(struct runtime *rt, const char *id);
/* RUNTIME_UNKNOWN when there is none. */
enum runtime_state fake_runtime_state(struct runtime *rt, const char *id);
/* The last claim, as JSON text; the caller frees. */
char *fake_runtime_last_claim(struct runtime *rt);
/* What an agent was told last; 0: none was. */
int64_t fake_runtime_last_deadline(struct runtime *rt);
/* The last spec of start_held as JSON text: image, snapshot, memory, cpus, disk, gpus, mounts (each
 * "source:target:rw" or ":ro"); the caller frees. */
char *fake_runtime_last_spec(struct runtime *rt);
/* Of the last stop; -1: none. */
int fake_runtime_last_grace(struct runtime *rt);

/* ---- images, output, events ---- */

/* Images are there unless slices > 0: then start_held answers ERRC_NOT_FOUND until pull has
 * answered 1 so often. */
void fake_runtime_pull_slices(struct runtime *rt, int slices);
/* While held, every pull goes on, in short slices, and reports this progress. */
void fake_runtime_hold_pulls(struct runtime *rt, bool held);
void fake_runtime_progress(struct runtime *rt, const char *text);
/* While held, every claim waits; it breaks off when its sandbox ends or is removed. */
void fake_runtime_hold_claims(struct runtime *rt, bool held);
/* Output of all sandboxes; "" at first. */
void fake_runtime_set_logs(struct runtime *rt, const char *text);
/* Reports ev to the watcher, in the calling thread; false when nobody watches. */
bool fake_runtime_emit(struct runtime *rt, const struct runtime_event *ev);
/* The same in short; exit_code counts for RUNTIME_EVENT_ENDED only. */
bool fake_runtime_tell(struct runtime *rt, enum runtime_event_kind kind, const char *id,
                       int exit_code);

/* ---- volumes and snapshots ---- */

/* A volume that somebody else made. */
void fake_runtime_put_volume(struct runtime *rt, const char *name, const char *driver,
                             const char *path, bool internal);
bool fake_runtime_has_volume(struct runtime *rt, const char *name);
bool fake_runtime_has_snapshot(struct runtime *rt, const char *id);
