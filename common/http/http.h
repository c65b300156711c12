/* HTTP/1.1 server layer over libmicrohttpd, driven by our own event loop. The rest of the project
 * sees requests, responses, streams and a route table; only common/http includes microhttpd.h.
 *
 * Threads: the server lives in one loop's thread. Handlers run there, or in the job pool when
 * their route says HTTP_BLOCKING or HTTP_BRIEF (the connection is suspended meanwhile). http_stream_* is for
 * the loop's thread only.
 * What every response gets without a handler's doing: X-Request-ID, CORS headers, and for errors
 * the body {"code","message"}. */
#pragma once
#include "common/base/arena.h"
#include "common/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct buf;
struct http_server;
struct http_stream;
struct jobs;
struct loop;

enum {
    HTTP_TARGET_MAX = 8192,    /* request target, bytes: 414 beyond */
    HTTP_PARAMS_MAX = 4,       /* {name} segments of a route */
    HTTP_PARAM_LEN_MAX = 128,  /* decoded length of one of them */
    HTTP_REQUEST_ID_MAX = 128, /* longer ones are replaced by our own */
    HTTP_HEADERS_OUT_MAX = 12, /* headers a handler may add */
    HTTP_ARENA_MAX = 1 << 20,
};

struct http_header {
    const char *name;
    const char *value;
};

struct http_req {
    struct arena arena; /* lives until the response is out */
    const char *method; /* a HEAD request shows as GET here */
    const char *target; /* raw, as received */
    const char *path;   /* raw (still percent-encoded), without query and mount prefix */
    const char *query;  /* raw, "" when there is none */
    const char *mount;  /* the prefix the client used: service.prefix or "" */
    const char *request_id;
    const struct http_route *route;
    const char *params[HTTP_PARAMS_MAX]; /* decoded, NUL-free, in order of the pattern */
    const char *body;                    /* NUL-terminated; NULL when there is none */
    size_t body_len;
    void *sink; /* what http_sink.open returned */
    const struct sockaddr *peer;
    void *conn; /* private */
};

struct http_resp {
    int status; /* 200 unless set */
    char *body; /* malloc'ed, taken over; NULL: none */
    size_t body_len;
    const char *content_type; /* static or arena; NULL with a body: application/json */
    struct http_header headers[HTTP_HEADERS_OUT_MAX]; /* static or arena strings */
    unsigned n_headers;
    int file_fd; /* >= 0: send file_len bytes from file_off and close it */
    uint64_t file_off;
    uint64_t file_len;
    struct http_stream *stream;             /* the body comes from it */
    const struct http_upgrade_ops *upgrade; /* 101: the connection becomes upgrade_owner's */
    void *upgrade_owner;
};

/* 0: rs is the answer. -1: err is. */
typedef int (*http_handler)(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);

/* Takes a request body as it arrives instead of having it collected. All calls of one request
 * come one after another; open and write in the job pool when the route is HTTP_BLOCKING, else in
 * the loop; close always in the loop. open comes with the first bytes, or before the handler. */
struct http_sink {
    int (*open)(void *app, struct http_req *rq, void **sink, struct err *e);
    int (*write)(void *sink, const char *data, size_t len, struct err *e); /* takes all of it */
    void (*close)(void *sink); /* after the handler, or when the request was given up */
};

enum {
    HTTP_OPEN = 1,        /* no authorization */
    HTTP_BLOCKING = 2,    /* may block: runs in the job pool */
    HTTP_BARE_ONLY = 4,   /* not below service.prefix */
    HTTP_PREFIX_ONLY = 8, /* only below service.prefix */
    HTTP_BRIEF = 16,      /* blocks for moments, as a database does: a pool of its own */
};

struct http_route {
    const char *method;
    const char *pattern; /* "/a/{x}/b"; a last segment "{*}" takes the rest of the path */
    http_handler handler;
    unsigned flags;
    size_t max_body; /* 0: no body is read; larger ones are answered 413 */
    const struct http_sink *sink;
};

/* A request body that comes by another way than the request. All calls come one after another, from the job pool
 * or from the loop. */
struct http_source {
    int fd; /* readable when read has something again; watched by the server, never closed by it */
    /* Bytes; 0: the body is over; -1: it breaks off, err set; -2: nothing now. */
    ssize_t (*read)(void *arg, char *out, size_t cap, struct err *e);
    void (*close)(void *arg); /* the last call */
    void *arg;
};

struct http_service {
    void *app;
    const struct http_route *routes;
    size_t n_routes;
    const char *prefix;       /* e.g. "/v1": routes answer with and without it; NULL: none */
    const char *strip;        /* a path prefix that is removed before routing; NULL: none */
    const char *const *codes; /* default "code" per enum errc */
    /* Runs in the loop for every route without HTTP_OPEN; NULL: everything is open. */
    int (*authorize)(void *app, struct http_req *rq, struct err *e);
    bool cors;
    bool log_requests; /* one info line per request */
    unsigned max_connections;
    unsigned idle_timeout_s;
    /* For who stands in front of the server, in the same process, and would have to copy every byte. Clients must
     * not be able to send or see these headers. */
    const char
        *file_header; /* a response with a file is sent without a body, with this header and a
                                name for http_server_take_file; NULL: the file is sent. Static. */
    const char *body_header; /* a request with this header has its body in the source of that name;
                                for routes with a sink that are HTTP_BLOCKING. NULL: none. Static. */
    struct jobs *jobs;       /* needed when a route is HTTP_BLOCKING */
    struct jobs *brief_jobs; /* needed when a route is HTTP_BRIEF: what is quick does not wait */
};

/* svc is copied; what it points to must outlive the server. NULL: err set. */
struct http_server *http_server_new(struct loop *l, const struct http_service *svc, struct err *e);
/* Takes over a listening, non-blocking socket. May be called several times, or never: connections
 * can also be handed in with http_server_adopt. */
int http_server_listen(struct http_server *s, int listen_fd, struct err *e);
/* Takes over one connected socket. */
int http_server_adopt(struct http_server *s, int fd, const struct sockaddr *peer, socklen_t len,
                      struct err *e);
/* Makes a connection inside the process: one end is the server's, the other, non-blocking and
 * close-on-exec, is returned and is the caller's to close. -1: err set. */
int http_server_connect(struct http_server *s, struct err *e);
enum { HTTP_NAME_MAX = 24 }; /* of a lent file or source, with its NUL */

struct http_file {
    int fd; /* the taker's to close */
    uint64_t off;
    uint64_t len;
};

/* What a response named in file_header. -1: there is none (any longer): it goes with its connection. */
int http_server_take_file(struct http_server *s, const char *name, size_t len,
                          struct http_file *out);
/* Lends src to the request that will come with the name in body_header. -1: out of memory, src is the caller's. */
int http_server_lend(struct http_server *s, const struct http_source *src,
                     char name[HTTP_NAME_MAX]);
/* That request will not come: closes the source unless one took it. */
void http_server_take_back(struct http_server *s, const char *name);
/* Stops accepting; running requests go on, connections close after their response. */
void http_server_drain(struct http_server *s);
/* From now on nobody waits for answers: long jobs that ask http_req_gone end early. Takes NULL. */
void http_server_give_up(struct http_server *s);
unsigned http_server_active(const struct http_server *s); /* requests under way */
/* Aborts what still runs (streams are cut), frees. Jobs must have ended and the loop must no longer
 * run: jobs_free first. Answers of the last jobs go out as far as the sockets take them. */
void http_server_free(struct http_server *s);

/* ---- request ---- */

/* NULL when absent. */
const char *http_req_header(const struct http_req *rq, const char *name);
/* The n-th value of a query parameter, decoded ('+' is a space) into the arena.
 * 1: *out set; 0: absent; -1: broken encoding, NUL inside, or out of memory. */
int http_req_query(struct http_req *rq, const char *name, unsigned nth, const char **out,
                   struct err *e);
/* Decodes %XX (and '+' when plus); -1 when broken or when it holds a NUL. */
int http_percent_decode(struct arena *a, const char *s, size_t len, bool plus, const char **out);

/* Whether nobody waits for the answer any longer: the client has left (one that shuts down its
 * sending side counts as gone), or the server gives up. For long work in the job pool, which asks
 * now and then. */
bool http_req_gone(const struct http_req *rq);

/* ---- response ---- */

void http_resp_header(struct http_resp *rs, const char *name, const char *value);
/* Takes over text (malloc'ed) as a JSON body; NULL text is out of memory. */
int http_resp_json(struct http_resp *rs, int status, char *text, struct err *e);

int http_status_of(const struct err *e);

/* ---- answers that come later ---- */

/* Called by a handler that runs in the loop: after its return the connection waits, without a
 * thread, until http_complete. rq and rs stay valid until then; the client's leaving is not seen
 * meanwhile. What nobody has completed is answered 503 by http_server_free. */
void http_defer(struct http_req *rq);
/* The answer is what rs holds, or e when it is not NULL. Once per http_defer. */
void http_complete(struct http_req *rq, const struct err *e);

/* ---- streams: a response body that is produced over time ---- */

struct http_stream_ops {
    void (*on_drain)(void *owner); /* room again after a write was refused */
    /* The client is gone (one that shuts down its sending side counts as gone) or has everything;
     * last call. */
    void (*on_close)(void *owner);
};

/* The owner holds one reference until http_stream_release; the connection another. Set rs->stream
 * and return 0 from the handler. max: bytes held for a slow client. NULL: out of memory. */
struct http_stream *http_stream_new(struct http_server *s, size_t max,
                                    const struct http_stream_ops *ops, void *owner);
/* Takes all of data, or nothing and returns -1 (full; on_drain follows). Writes to a closed
 * stream are swallowed. One write larger than max is taken when the buffer is empty. */
int http_stream_write(struct http_stream *st, const void *data, size_t len);
bool http_stream_closed(const struct http_stream *st);
void http_stream_end(struct http_stream *st);   /* clean end of the body after what is buffered */
void http_stream_abort(struct http_stream *st); /* cuts the connection: the client sees an error */
/* No call of ops comes after it. Without an end before it is an abort. */
void http_stream_release(struct http_stream *st);

/* ---- upgrades: a connection that goes on in another protocol ---- */

struct http_upgraded;

/* A handler sets status 101, the header Upgrade, rs->upgrade and rs->upgrade_owner; the answer is sent only to
 * a GET, a HEAD is answered 400. Exactly one of the two follows, in the loop's thread. */
struct http_upgrade_ops {
    /* The 101 is on its way and fd (non-blocking) is the owner's to read, write and watch, not to close:
     * http_upgraded_close does. early: what the client sent meanwhile, valid during the call. */
    void (*on_open)(void *owner, struct http_upgraded *up, int fd, const void *early, size_t len);
    /* The client is gone, or the answer became another one. */
    void (*on_lost)(void *owner);
};

/* Closes the connection; fd must not be watched any longer, up is no longer valid. All have to be closed before
 * http_server_free. */
void http_upgraded_close(struct http_upgraded *up);
