#include "gateway/domain/deadlines.h"

#include "common/base/err.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct due {
    char id[RUNTIME_ID]; /* first: entries compare as their ids */
    int64_t at_ms;
    size_t slot; /* in heap */
};

struct deadlines {
    struct due **heap; /* the parent of i is (i - 1) / 2 and not later */
    size_t len;
    size_t cap;
    void *root; /* tsearch(3) tree of the same entries */
};

static int by_id(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void nothing(void *entry)
{
    (void)entry;
}

struct deadlines *deadlines_new(void)
{
    return calloc(1, sizeof(struct deadlines));
}

void deadlines_free(struct deadlines *d)
{
    size_t i;

    if (!d)
        return;
    tdestroy(d->root, nothing);
    for (i = 0; i < d->len; i++)
        free(d->heap[i]);
    free(d->heap);
    free(d);
}

/* ---- the heap ---- */

static void place(struct deadlines *d, struct due *en, size_t slot)
{
    d->heap[slot] = en;
    en->slot = slot;
}

static void sift_up(struct deadlines *d, struct due *en)
{
    size_t at = en->slot;

    while (at > 0 && d->heap[(at - 1) / 2]->at_ms > en->at_ms) {
        place(d, d->heap[(at - 1) / 2], at);
        at = (at - 1) / 2;
    }
    place(d, en, at);
}

static void sift_down(struct deadlines *d, struct due *en)
{
    size_t at = en->slot;
    size_t child;

    for (;;) {
        child = 2 * at + 1;
        if (child >= d->len)
            break;
        if (child + 1 < d->len && d->heap[child + 1]->at_ms < d->heap[child]->at_ms)
            child++;
        if (d->heap[child]->at_ms >= en->at_ms)
            break;
        place(d, d->heap[child], at);
        at = child;
    }
    place(d, en, at);
}

static void settle(struct deadlines *d, struct due *en)
{
    sift_up(d, en);
    sift_down(d, en);
}

static struct due *find(struct deadlines *d, const char *id)
{
    struct due **found = tfind(id, &d->root, by_id);

    return found ? *found : NULL;
}

static int make_room(struct deadlines *d)
{
    size_t cap = d->cap ? d->cap * 2 : 16;
    struct due **grown;

    if (d->len < d->cap)
        return 0;
    grown = realloc(d->heap, cap * sizeof(struct due *));
    if (!grown)
        return -1;
    d->heap = grown;
    d->cap = cap;
    return 0;
}

static int add(struct deadlines *d, const char *id, int64_t at_ms, struct err *e)
{
    struct due *en = make_room(d) == 0 ? calloc(1, sizeof(*en)) : NULL;

    if (!en)
        return err_nomem(e);
    (void)snprintf(en->id, sizeof(en->id), "%s", id);
    en->at_ms = at_ms;
    if (!tsearch(en, &d->root, by_id)) {
        free(en);
        return err_nomem(e);
    }
    place(d, en, d->len++);
    sift_up(d, en);
    return 0;
}

static void take_out(struct deadlines *d, struct due *en)
{
    struct due *last = d->heap[--d->len];

    (void)tdelete(en->id, &d->root, by_id);
    if (last != en) {
        place(d, last, en->slot);
        settle(d, last);
    }
    free(en);
}

/* ---- what callers do ---- */

int deadlines_put(struct deadlines *d, const char *id, int64_t at_ms, struct err *e)
{
    struct due *en = find(d, id);

    if (!en)
        return add(d, id, at_ms, e);
    en->at_ms = at_ms;
    settle(d, en);
    return 0;
}

int deadlines_put_earlier(struct deadlines *d, const char *id, int64_t at_ms, struct err *e)
{
    const struct due *en = find(d, id);

    return en && en->at_ms <= at_ms ? 0 : deadlines_put(d, id, at_ms, e);
}

void deadlines_drop(struct deadlines *d, const char *id)
{
    struct due *en = find(d, id);

    if (en)
        take_out(d, en);
}

bool deadlines_get(struct deadlines *d, const char *id, int64_t *at_ms)
{
    const struct due *en = find(d, id);

    if (en)
        *at_ms = en->at_ms;
    return en != NULL;
}

bool deadlines_next(const struct deadlines *d, int64_t *at_ms)
{
    if (d->len)
        *at_ms = d->heap[0]->at_ms;
    return d->len > 0;
}

bool deadlines_take(struct deadlines *d, int64_t now_ms, char id[RUNTIME_ID])
{
    if (!d->len || d->heap[0]->at_ms > now_ms)
        return false;
    memcpy(id, d->heap[0]->id, RUNTIME_ID);
    take_out(d, d->heap[0]);
    return true;
}

void deadlines_all_at(struct deadlines *d, int64_t at_ms)
{
    size_t i;

    for (i = 0; i < d->len; i++)
        d->heap[i]->at_ms = at_ms;
}

size_t deadlines_len(const struct deadlines *d)
{
    return d->len;
}
