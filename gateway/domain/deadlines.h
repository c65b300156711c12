/* Which id is due when: a heap over times with an index over ids, so that a time can be moved.
 * Pure; not thread-safe. Times are milliseconds of whatever clock the caller uses throughout. */
#pragma once
#include "gateway/sandbox.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct deadlines;
struct err;

struct deadlines *deadlines_new(void); /* NULL: out of memory */
void deadlines_free(struct deadlines *d);

/* Adds id or moves it. -1: out of memory, nothing has changed. */
int deadlines_put(struct deadlines *d, const char *id, int64_t at_ms, struct err *e);
/* The same, but a time that is earlier already stays. */
int deadlines_put_earlier(struct deadlines *d, const char *id, int64_t at_ms, struct err *e);
void deadlines_drop(struct deadlines *d, const char *id); /* harmless when it is not there */
bool deadlines_get(struct deadlines *d, const char *id, int64_t *at_ms);

/* The earliest time; false when there is none. */
bool deadlines_next(const struct deadlines *d, int64_t *at_ms);
/* Takes out the earliest that is due (at or before now_ms); false when none is. */
bool deadlines_take(struct deadlines *d, int64_t now_ms, char id[RUNTIME_ID]);
/* Everything is due at at_ms. */
void deadlines_all_at(struct deadlines *d, int64_t at_ms);
size_t deadlines_len(const struct deadlines *d);
