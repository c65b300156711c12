#include "execd/exec/records.h"

#include "common/base/rand.h"
#include "execd/exec/feed.h"
#include "execd/exec/spool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t weight(const struct record *r)
{
    return sizeof(*r) + strlen(r->content);
}

void records_forget(struct records *rs, struct record *r)
{
    if (r->prev)
        r->prev->next = r->next;
    else
        rs->newest = r->next;
    if (r->next)
        r->next->prev = r->prev;
    else
        rs->oldest = r->prev;
    rs->bytes -= weight(r);
    if (r->spool && !r->running)
        rs->kept_spools--;
    spool_unref(r->spool);
    feed_unref(r->feed);
    free(r->content);
    free(r);
}

/* Drops what is too old, and the oldest of what is too much. */
static void sweep(struct records *rs, int64_t now_ms)
{
    struct record *r = rs->oldest;
    struct record *newer;

    for (; r; r = newer) {
        newer = r->prev;
        if (r->running)
            continue;
        if (now_ms - r->finished_ms > RECORD_KEEP_MS || rs->bytes > RECORDS_BYTES_MAX)
            records_forget(rs, r);
        else if (rs->kept_spools <= RECORDS_BACKGROUND_MAX && rs->spools.bytes <= SPOOLS_MAX)
            break;
        else if (r->spool)
            records_forget(rs, r);
    }
}

struct record *records_add(struct records *rs, const char *content, int64_t now_ms)
{
    struct record *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->content = strdup(content);
    if (!r->content) {
        free(r);
        return NULL;
    }
    rand_hex(r->id, (RECORD_ID_TEXT - 1) / 2);
    r->started_ms = now_ms;
    r->running = true;
    r->next = rs->newest;
    if (r->next)
        r->next->prev = r;
    else
        rs->oldest = r;
    rs->newest = r;
    rs->bytes += weight(r);
    sweep(rs, now_ms);
    return r;
}

void records_end(struct records *rs, struct record *r, int exit_code, const char *error,
                 int64_t now_ms)
{
    r->running = false;
    r->run = NULL;
    r->finished_ms = now_ms;
    r->exit_code = exit_code;
    (void)snprintf(r->error, sizeof(r->error), "%s", error);
    if (r->spool)
        rs->kept_spools++;
}

struct record *records_find(const struct records *rs, const char *id)
{
    struct record *r;

    for (r = rs->newest; r; r = r->next)
        if (strcmp(r->id, id) == 0)
            return r;
    return NULL;
}

void records_free(struct records *rs)
{
    while (rs->newest)
        records_forget(rs, rs->newest);
}
