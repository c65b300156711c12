/* An answer that is an array of files: written as they are found, in constant memory. */
#pragma once
#include "execd/fs/info.h"
#include "execd/fs/spill.h"

struct err;
struct http_resp;
struct stat;

struct listing {
    struct spill text;
    struct names names;
};

#define AUTO_LISTING __attribute__((cleanup(listing_free)))

/* tmpdir is borrowed; may be NULL. To be freed also when this fails. */
int listing_begin(struct listing *l, const char *tmpdir, struct err *e);
/* Of tree_visit.entry's form: arg is the listing. */
int listing_add(void *arg, const char *path, const struct stat *st, struct err *e);
/* The answer is the list. */
int listing_send(struct listing *l, struct http_resp *rs, struct err *e);
void listing_free(struct listing *l);
