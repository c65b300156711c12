/* What is known of commands, running and ended: for status, logs and interrupt
 * (contract/execd.md 6.3, 6.4). Bounded: the oldest ended ones make room. For the loop's thread. */
#pragma once
#include "execd/exec/spool.h"

#include <stdbool.h>
#include <stdint.h>

struct feed;
struct run;

enum {
    RECORD_ID_TEXT = 33,
    RECORD_ERROR_TEXT = 160,
    RECORDS_BYTES_MAX = 4 << 20,       /* of all records, without their output */
    RECORDS_BACKGROUND_MAX = 256,      /* ended commands whose output is kept */
    RECORD_KEEP_MS = 24 * 3600 * 1000, /* after the end */
};

struct record {
    char id[RECORD_ID_TEXT];
    char *content; /* the command as text */
    int64_t started_ms;
    int64_t finished_ms;
    bool running;
    bool background;
    int exit_code;
    char error[RECORD_ERROR_TEXT]; /* "" when there is none */
    struct run *run;               /* while it runs */
    struct spool *spool;           /* of a background command */
    struct feed *feed;             /* of any other: for resume */
    struct record *prev;           /* newer */
    struct record *next;           /* older */
};

struct records {
    struct record *newest;
    struct record *oldest;
    uint64_t bytes;
    unsigned kept_spools;
    struct spools spools;
};

/* A running record with a fresh id; content is copied. NULL: out of memory. */
struct record *records_add(struct records *rs, const char *content, int64_t now_ms);
void records_end(struct records *rs, struct record *r, int exit_code, const char *error,
                 int64_t now_ms);
/* For a command that never started and of which nothing is to be known. */
void records_forget(struct records *rs, struct record *r);
struct record *records_find(const struct records *rs, const char *id);
void records_free(struct records *rs);
