#include "execd/exec/eventlog.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "execd/fs/tmpfile.h"

#include <inttypes.h>
#include <string.h>

enum {
    TAIL_MAX = 64 * 1024,   /* held in memory before it goes to the file */
    MARK_EVERY = 32 * 1024, /* bytes between two marks */
    SLACK = 1 << 20,        /* of the ring, for an end that is never refused */
    RING = EVENTLOG_FILE_MAX + SLACK,
    MARKS_MAX = RING / MARK_EVERY + 8,
    BLOCK = 64 * 1024,
};

/* An event whose number and position are known; those in between are found by counting. */
struct mark {
    uint64_t pos;
    uint64_t eid;
};

struct eventlog {
    struct eventlogs *set;
    struct eventlog *prev; /* older; in the list once ended */
    struct eventlog *next;
    struct buf tail; /* the bytes [tail_pos, size) */
    uint64_t tail_pos;
    uint64_t committed;
    uint64_t last_eid;
    uint64_t pin;
    uint64_t disk; /* bytes of the file */
    struct mark *marks;
    unsigned n_marks;
    unsigned cap_marks;
    char *block; /* of the file, read back */
    int fd;
    bool no_file; /* there cannot be one, or it failed */
    bool ended;
    bool dropped;
};

struct eventlog *eventlog_new(struct eventlogs *set)
{
    struct eventlog *g = calloc(1, sizeof(*g));

    if (!g)
        return NULL;
    g->set = set;
    g->tail = BUF_INIT((size_t)2 * EVENTLOG_EVENT_MAX);
    g->pin = UINT64_MAX;
    g->fd = -1;
    return g;
}

static void unlink_ended(struct eventlog *g)
{
    struct eventlogs *set = g->set;

    if (!g->ended || g->dropped)
        return;
    *(g->prev ? &g->prev->next : &set->oldest) = g->next;
    *(g->next ? &g->next->prev : &set->newest) = g->prev;
    set->memory -= g->tail.cap;
}

static void forget(struct eventlog *g)
{
    unlink_ended(g);
    if (g->fd >= 0) {
        (void)close(TAKE_FD(g->fd));
        g->set->files--;
        g->set->disk -= g->disk;
    }
    buf_free(&g->tail);
    free(TAKE_PTR(g->marks));
    free(TAKE_PTR(g->block));
    g->dropped = true;
}

void eventlog_free(struct eventlog *g)
{
    if (!g)
        return;
    forget(g);
    free(g);
}

/* Drops logs of ended executions until one more file, or what is held in memory, fits. */
static void make_room(struct eventlogs *set, unsigned files, uint64_t disk)
{
    struct eventlog *g = set->oldest;
    struct eventlog *next;

    for (; g; g = next) {
        next = g->next;
        if (set->files + files <= EVENTLOGS_FILES_MAX && set->disk + disk <= EVENTLOGS_DISK_MAX &&
            set->memory <= EVENTLOGS_MEMORY_MAX)
            return;
        if (g->pin == UINT64_MAX)
            forget(g);
    }
}

/* ---- writing ---- */

struct buf *eventlog_begin(struct eventlog *g)
{
    return &g->tail;
}

uint64_t eventlog_size(const struct eventlog *g)
{
    return g->committed;
}

static void add_mark(struct eventlog *g, uint64_t pos, uint64_t eid)
{
    unsigned cap = g->cap_marks ? 2 * g->cap_marks : 4;
    struct mark *grown;

    if (g->n_marks && pos - g->marks[g->n_marks - 1].pos < MARK_EVERY)
        return;
    if (g->n_marks == g->cap_marks) {
        grown = realloc(g->marks, cap * sizeof(*grown));
        if (!grown)
            return; /* the events up to the next mark count for this one */
        g->marks = grown;
        g->cap_marks = cap;
    }
    g->marks[g->n_marks++] = (struct mark){ pos, eid };
}

static size_t limit(const struct eventlog *g)
{
    return g->no_file ? EVENTLOG_MEMORY_MAX : EVENTLOG_FILE_MAX;
}

void eventlog_commit(struct eventlog *g, uint64_t eid)
{
    if (eid) {
        add_mark(g, g->committed, eid);
        g->last_eid = eid;
    }
    g->committed = g->tail_pos + g->tail.len;
}

size_t eventlog_room(const struct eventlog *g, uint64_t pos)
{
    uint64_t behind = g->committed - pos;

    if (!behind)
        return SIZE_MAX;
    return behind < limit(g) ? (size_t)(limit(g) - behind) : 0;
}

void eventlog_pin(struct eventlog *g, uint64_t pos)
{
    g->pin = pos;
    if (pos == UINT64_MAX)
        free(TAKE_PTR(g->block));
}

/* Drops marks whose bytes are gone, but the last. */
static void age(struct eventlog *g)
{
    unsigned n = 0;

    while (n + 1 < g->n_marks &&
           (g->committed - g->marks[n].pos > limit(g) || n + MARKS_MAX < g->n_marks))
        n++;
    if (!n)
        return;
    memmove(g->marks, g->marks + n, (g->n_marks - n) * sizeof(*g->marks));
    g->n_marks -= n;
}

static bool have_file(struct eventlog *g)
{
    if (g->fd >= 0 || g->no_file)
        return g->fd >= 0;
    make_room(g->set, 1, RING);
    if (g->set->files < EVENTLOGS_FILES_MAX && g->set->disk + RING <= EVENTLOGS_DISK_MAX)
        g->fd = tmpfile_open(g->set->tmpdir);
    if (g->fd < 0) {
        g->no_file = true;
        return false;
    }
    g->set->files++;
    return true;
}

/* Writes the tail into the ring. false: the disk is full or broken; the tail is still whole. */
static bool write_out(struct eventlog *g)
{
    size_t done = 0;

    while (done < g->tail.len) {
        uint64_t at = (g->tail_pos + done) % RING;
        size_t len = g->tail.len - done < RING - at ? g->tail.len - done : (size_t)(RING - at);
        ssize_t n = pwrite(g->fd, g->tail.data + done, len, (off_t)at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (size_t)n;
        if (at + (uint64_t)n > g->disk) {
            g->set->disk += at + (uint64_t)n - g->disk;
            g->disk = at + (uint64_t)n;
        }
    }
    return true;
}

/* Without a file: keeps what the reader needs, and the marks' worth of EVENTLOG_MEMORY_MAX. */
static void trim_tail(struct eventlog *g)
{
    uint64_t keep = g->n_marks ? g->marks[0].pos : g->committed;

    if (keep > g->pin)
        keep = g->pin;
    if (keep <= g->tail_pos)
        return;
    buf_consume(&g->tail, (size_t)(keep - g->tail_pos));
    g->tail_pos = keep;
}

void eventlog_spill(struct eventlog *g)
{
    if (g->tail.len < TAIL_MAX)
        return;
    if (!g->n_marks && g->pin >= g->committed) { /* read by all, and nobody can ask again */
        g->tail_pos = g->committed;
        buf_clear(&g->tail);
        return;
    }
    if (have_file(g) && write_out(g)) {
        g->tail_pos += g->tail.len;
        if (g->tail.cap > 4 * TAIL_MAX)
            buf_free(&g->tail);
        else
            buf_clear(&g->tail);
        age(g);
        return;
    }
    g->no_file = true; /* what is in the file already is read back, nothing is added */
    age(g);
    trim_tail(g);
}

void eventlog_end(struct eventlog *g)
{
    struct buf small = BUF_INIT(g->tail.max);

    if (g->ended || g->dropped)
        return;
    if (g->tail.cap > 2 * g->tail.len + 512 && buf_append(&small, g->tail.data, g->tail.len) == 0) {
        buf_free(&g->tail);
        g->tail = small;
    }
    g->ended = true;
    g->prev = g->set->newest;
    *(g->prev ? &g->prev->next : &g->set->oldest) = g;
    g->set->newest = g;
    g->set->memory += g->tail.cap;
    make_room(g->set, 0, 0);
}

bool eventlog_dropped(const struct eventlog *g)
{
    return g->dropped;
}

/* ---- reading ---- */

ssize_t eventlog_read(struct eventlog *g, uint64_t pos, size_t max, const char **data)
{
    size_t len;

    if (pos >= g->tail_pos) {
        *data = g->tail.data + (pos - g->tail_pos);
        len = (size_t)(g->committed - pos);
        return (ssize_t)(len < max ? len : max);
    }
    if (g->committed - pos > RING || g->fd < 0)
        return -1;
    if (!g->block && !(g->block = malloc(BLOCK)))
        return -1;
    len = (size_t)(g->tail_pos - pos);
    if (len > max)
        len = max;
    if (len > BLOCK)
        len = BLOCK;
    if (len > RING - pos % RING)
        len = (size_t)(RING - pos % RING);
    *data = g->block;
    return pread(g->fd, g->block, len, (off_t)(pos % RING)) == (ssize_t)len ? (ssize_t)len : -1;
}

/* Moves *pos behind n events; every one ends with two LF, and has none else. */
static int skip_events(struct eventlog *g, uint64_t *pos, uint64_t n)
{
    uint64_t lf = 2 * n;
    const char *data;
    const char *at;
    const char *end;
    ssize_t got;

    while (lf) {
        got = eventlog_read(g, *pos, BLOCK, &data);
        if (got <= 0)
            return -1;
        at = data;
        end = data + got;
        while (lf && (at = memchr(at, '\n', (size_t)(end - at)))) {
            at++;
            lf--;
        }
        *pos += (uint64_t)(lf ? got : at - data);
    }
    return 0;
}

int eventlog_find(struct eventlog *g, uint64_t eid, uint64_t *pos, struct err *e)
{
    unsigned i = g->n_marks;
    uint64_t first = g->n_marks ? g->marks[0].eid : g->last_eid + 1;

    if (eid > g->last_eid)
        return err_set(e, ERRC_INVALID,
                       "after_eid=%" PRIu64 ": the last event so far is number %" PRIu64, eid,
                       g->last_eid);
    if (eid == g->last_eid) {
        *pos = g->committed;
        return 0;
    }
    if (eid + 1 < first)
        return err_api(e, ERRC_GONE, "EVENTS_GONE",
                       "the events after number %" PRIu64 " are not kept any longer; "
                       "the oldest that is kept is number %" PRIu64 " (after_eid=%" PRIu64 ")",
                       eid, first, first - 1);
    while (i > 1 && g->marks[i - 1].eid > eid + 1)
        i--;
    *pos = g->marks[i - 1].pos;
    if (skip_events(g, pos, eid + 1 - g->marks[i - 1].eid) < 0)
        return err_set(e, ERRC_INTERNAL, "the events cannot be read back");
    return 0;
}
