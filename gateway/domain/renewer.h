/* Renewal by access (contract/lifecycle.md 8.3): the data plane notes accesses, a few job threads
 * renew, at most once per sandbox and interval. Noting never blocks; when the queue is full the
 * note is dropped and logged, and the next access makes it good. */
#pragma once
#include <stdint.h>

struct err;
struct lifecycle;
struct renewer;

/* interval_ms: between two renewals of one sandbox. NULL: err set. */
struct renewer *renewer_new(struct lifecycle *lc, int64_t interval_ms, struct err *e);
/* An access to the sandbox. Any thread. */
void renewer_note(struct renewer *r, const char *id);
void renewer_free(struct renewer *r); /* waits for renewals under way; takes NULL */
