/* What a proxy changes in a head, and how it writes the changed one. Pure: from a parsed head and a
 * description of the edits to the bytes of the next hop's head. Everything that no rule names keeps
 * its order, its letters and its number of lines.
 *
 * Always: what Connection lists and what is hop-by-hop by itself goes; framing (Content-Length,
 * Transfer-Encoding, Host) stays whatever Connection says; Trailer stays with a chunked body, since
 * trailers are relayed; TE becomes "trailers" or nothing. */
#pragma once
#include "common/front/head.h"

#include <stdint.h>

struct rules_field {
    const char *name;
    const char *value; /* NULL: the field is left out */
};

struct rules_edit {
    /* Names to remove, NULL at the end; "x-foo-*" is a prefix. NULL: none. */
    const char *const *drop;
    const struct rules_field *add; /* appended in this order */
    size_t n_add;
};

struct rules_request {
    const char *target; /* sent instead of the received one; NULL: the received path */
    size_t target_len;
    const char *host; /* value of Host; NULL: the received one */
    struct rules_edit edit;
    const char *peer_header; /* removed when a client sends it; NULL: none */
    const char *peer_value;  /* sent as peer_header; NULL: not sent */
    bool
        keep_forwarded; /* pass Forwarded, X-Forwarded-* and X-Real-IP; else they are removed and: */
    const char *forwarded_for;   /* X-Forwarded-For; NULL: none */
    const char *forwarded_proto; /* X-Forwarded-Proto; NULL: none. X-Forwarded-Host is the Host */
    bool upgrade;                /* let Upgrade through (never h2c) */
    bool no_body;                /* neither Content-Length nor Transfer-Encoding */
};

struct rules_response {
    const char *const *drop; /* as in rules_edit */
    const char *added;       /* whole field lines, each with its line end; NULL: none */
    size_t added_len;
    const char *location_prefix; /* goes in front of a Location that starts with a single '/' */
    size_t location_prefix_len;
    const char *connection;  /* value of Connection; NULL: none */
    bool upgrade;            /* Upgrade stays: the status is 101 */
    bool no_framing;         /* 1xx and 204 have no Content-Length and no Transfer-Encoding */
    const char *file_header; /* goes, and with it the received framing; NULL: none */
    uint64_t file_length;    /* Content-Length with file_header */
};

/* A bounded writer: once full, nothing more is written. */
struct rules_out {
    char *data;
    size_t len;
    size_t cap;
    bool full;
};

void rules_put(struct rules_out *o, const char *data, size_t len);
void rules_puts(struct rules_out *o, const char *s);
void rules_put_field(struct rules_out *o, const char *name, const char *value);

/* Would rules_request let this head's Upgrade through? */
bool rules_upgrades(const struct head *h);
/* The head for the next hop; o->full when it did not fit. */
void rules_request(const struct head *h, const struct rules_request *r, struct rules_out *o);
void rules_response(const struct head *h, const struct rules_response *r, struct rules_out *o);
