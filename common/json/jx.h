/* Field tables over jansson: one row per member decodes a JSON object into a struct, checks types
 * and limits, and names the field in the error. Knows nothing of HTTP. Thread-safe as jansson is:
 * one thread per value; call jx_init once before threads start. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

enum jx_kind {
    JX_STR,      /* const char *: borrowed from the JSON value */
    JX_I64,      /* int64_t within [min, max]; 30.0 counts as 30 */
    JX_BOOL,     /* bool */
    JX_STR_MAP,  /* json_t *: object whose values are strings, or null with JX_NULL_VALUES */
    JX_STR_LIST, /* json_t *: array of strings, min..max items */
    JX_OBJ,      /* json_t *: any object */
    JX_LIST,     /* json_t *: any array, min..max items */
};

enum {
    JX_REQUIRED = 1,    /* absent is an error */
    JX_NULLABLE = 2,    /* null counts as absent (else: an error) */
    JX_LAX = 4,         /* "120" is a number, "true"/"1"/"yes"/"on" a boolean (contract 1.3) */
    JX_NULL_VALUES = 8, /* map values may be null */
    JX_NONEMPTY = 16,   /* string of at least one character */
};

/* Absent members leave the target as the caller initialised it. */
struct jx_field {
    const char *name;
    enum jx_kind kind;
    size_t offset;
    unsigned flags;
    int64_t min; /* of a number or of the item count; both 0: no limit */
    int64_t max;
    size_t max_len; /* of each string, bytes; 0: JX_STR_MAX */
};

enum { JX_STR_MAX = 1 << 20, JX_DEPTH_MAX = 64 };

void jx_init(void); /* seeds jansson's hash once, from the kernel */

/* Parses one JSON value. strict: nothing may follow it; otherwise what follows is ignored.
 * Duplicate keys, depth beyond JX_DEPTH_MAX and invalid UTF-8 are errors (ERRC_INVALID).
 * The caller owns the result. */
json_t *jx_parse(const char *text, size_t len, bool strict, struct err *e);
/* For one who repeats what others said (an engine, with an image's labels in it), so that no word of
 * theirs makes the whole unreadable: a NUL, which jansson takes in no key, becomes U+FFFD, in text
 * itself; of duplicate keys the last one counts. Otherwise as jx_parse, strict. */
json_t *jx_parse_foreign(char *text, size_t len, struct err *e);

/* Decodes obj into the struct at out by the table. at names the object in errors ("" for the
 * root). Unknown members are ignored unless `closed`. Strings and json_t pointers are borrowed
 * from obj. A null obj decodes as an empty object. */
int jx_decode(const json_t *obj, const char *at, const struct jx_field *fields, size_t n,
              bool closed, void *out, struct err *e);

/* A string of bytes that may not be UTF-8: repaired first. NULL only when memory is out. */
json_t *jx_bytes(const char *s, size_t len);

/* Compact text, non-ASCII escaped as \uXXXX if ascii. The caller frees; NULL: out of memory. */
char *jx_dump(const json_t *v, bool ascii);
