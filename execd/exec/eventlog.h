/* The events of one execution as one text, in order, with the numbers (eid) of a part of them: what a
 * slow client has not read yet, and what one that lost its connection asks for again
 * (contract/newest.md 3.1). Positions count every byte there ever was. In memory while it is short,
 * then in an unlinked file used as a ring; without a place for files, less is kept. Bounded each and in
 * all: logs of ended executions make room, the oldest first. For the loop's thread. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct buf;
struct err;
struct eventlog;

enum {
    EVENTLOG_FILE_MAX = 8 << 20,     /* bytes kept of one execution */
    EVENTLOG_MEMORY_MAX = 256 << 10, /* the same where no file can be made */
    EVENTLOG_EVENT_MAX = 7 << 20,    /* one event: a unit of 1 MiB, each byte escaped */
    EVENTLOGS_DISK_MAX = 256 << 20,  /* of all executions */
    EVENTLOGS_FILES_MAX = 256,
    EVENTLOGS_MEMORY_MAX = 2 << 20, /* of ended executions */
};

/* All logs of an agent. Zero-initialise it. */
struct eventlogs {
    char tmpdir[256];        /* where files are tried first; may be empty */
    struct eventlog *oldest; /* of the ended ones */
    struct eventlog *newest;
    uint64_t disk;
    uint64_t memory;
    unsigned files;
};

struct eventlog *eventlog_new(struct eventlogs *set); /* NULL: out of memory */
void eventlog_free(struct eventlog *g);               /* takes NULL */

/* Where the next event is to be appended as text, then its end. eid 0: it has no number. What is
 * not committed must be taken off again. */
struct buf *eventlog_begin(struct eventlog *g);
void eventlog_commit(struct eventlog *g, uint64_t eid);
/* Nothing comes any more: from now on it may be dropped to make room, unless it is pinned. */
void eventlog_end(struct eventlog *g);
bool eventlog_dropped(const struct eventlog *g);

/* Bytes that may follow without overwriting what a reader at pos has not read. */
size_t eventlog_room(const struct eventlog *g, uint64_t pos);
/* What lies before pos need not be kept in memory; UINT64_MAX: there is no reader. */
void eventlog_pin(struct eventlog *g, uint64_t pos);
/* Moves what is too much for memory to the file. After the reader had its chance. */
void eventlog_spill(struct eventlog *g);

uint64_t eventlog_size(const struct eventlog *g); /* end of the last event */
/* At most max bytes at pos < size, in *data until the next call of any function here.
 * -1: they cannot be read back. */
ssize_t eventlog_read(struct eventlog *g, uint64_t pos, size_t max, const char **data);
/* The position after event number eid (0: before the first). -1: what follows it is not kept
 * (ERRC_GONE), or there was no such event yet (ERRC_INVALID). */
int eventlog_find(struct eventlog *g, uint64_t eid, uint64_t *pos, struct err *e);
