/* What the files of common/front share with each other and with nobody else.
 *
 * Life of objects: what is closed goes to the front's list of dead objects and is reused only when
 * the loop calls the front again, so that a function may close its own object and return. */
#pragma once
#include "common/base/clock.h"
#include "common/base/loop.h"
#include "common/base/macros.h"
#include "common/front/chunks.h"
#include "common/front/front.h"

enum {
    BLOCK_SMALL = 4096, /* holds most request heads on their way out */
    BLOCK_LARGE = FRONT_ADDED_MAX + FRONT_OUT_MAX,
    BLOCKS_KEPT = 256, /* small ones */
    OBJECTS_KEPT = 256,
    POOL_BUCKETS = 256,
    PUMP_ROUNDS = 16, /* full reads in a row before others get their turn */
    PEER_TEXT = 64,
};

/* ---- list with a sentinel; a node out of a list points to itself or is zero ---- */

struct node {
    struct node *prev;
    struct node *next;
};

static inline void node_init(struct node *n)
{
    n->prev = n->next = n;
}

static inline void node_take(struct node *n)
{
    if (!n->next)
        return;
    n->prev->next = n->next;
    n->next->prev = n->prev;
    node_init(n);
}

static inline void node_put_before(struct node *at, struct node *n)
{
    n->prev = at->prev;
    n->next = at;
    at->prev->next = n;
    at->prev = n;
}

/* ---- deadlines: one sorted list per kind, so that setting one is cheap (timeouts.c) ---- */

enum timeout {
    TIMEOUT_HEAD,
    TIMEOUT_IDLE,
    TIMEOUT_PARK,
    TIMEOUT_CONNECT,
    TIMEOUT_RESPONSE,
    TIMEOUT_POOL,
    TIMEOUT_LINGER,
    TIMEOUT_HALF,
    TIMEOUT_MAX_
};

struct timed {
    struct node node; /* in front.deadlines[kind] */
    int64_t at_mono_ms;
    enum timeout kind;
    void (*on_timeout)(struct timed *t);
};

void timeout_set(struct front *f, struct timed *t, enum timeout kind);
void timeout_set_ms(struct front *f, struct timed *t, enum timeout kind, int64_t ms);
void timeout_clear(struct timed *t);
void timeouts_init(struct front *f);

/* ---- bytes at rest ---- */

/* Received and not yet understood or relayed, with the state of the head parser. */
struct stash {
    struct head head;
    size_t off;
    size_t len; /* end of the content */
    size_t cap;
    char data[];
};

/* Bytes that the receiver did not take. */
struct pending {
    char *data;
    size_t off;
    size_t len;
};

int pending_add(struct pending *p, const char *data, size_t len);
void pending_free(struct pending *p);
static inline bool pending_any(const struct pending *p)
{
    return p->len > p->off;
}
/* -1: the socket is broken; else what does not fit stays pending. */
int pending_flush(struct pending *p, int fd);
/* Sends after what is pending; keeps what does not fit. -1: broken, or out of memory. */
int pending_send(struct pending *p, int fd, const char *data, size_t len);

/* Appends to *st (NULL: a new one). -1: out of memory. */
int stash_add(struct stash **st, const char *data, size_t len);
/* Bytes taken, 0 when the socket is full, -1 when it is broken. */
ssize_t sock_send(int fd, const char *data, size_t len);
/* Bytes, 0 at the end, -1 when broken, -2 when there is nothing now. */
ssize_t sock_recv(int fd, char *data, size_t cap);

/* No delays, and dead peers of idle streams are found. */
void sock_options(const struct front *f, int fd);

/* Holds what an exchange needs until its response begins: fields for the response, then the
 * request as it goes to the backend. */
struct block {
    struct block *next; /* in the free list */
    size_t cap;
    char data[];
};

struct block *block_get(struct front *f, size_t need);
void block_put(struct front *f, struct block *b);

/* ---- bodies (body.c) ---- */

enum body_kind { BODY_NONE, BODY_LENGTH, BODY_CHUNKED, BODY_CLOSE };

struct body {
    enum body_kind kind;
    uint64_t left;
    struct chunks chunks;
    bool done;
};

void body_init(struct body *b, enum body_kind kind, uint64_t length);
/* How many of the bytes belong to it; -1: broken. */
ssize_t body_take(struct body *b, const char *data, size_t len);

/* ---- connections ---- */

struct pool;

enum backend_state {
    BACKEND_CONNECTING,
    BACKEND_HEAD, /* request under way, no response head yet */
    BACKEND_BODY,
    BACKEND_TUNNEL,
    BACKEND_IDLE,
    BACKEND_DEAD,
};

struct backend {
    struct loop_fd watch;
    struct timed timed;
    struct node node; /* in pool->idle, or front->dead_backends */
    struct front *front;
    struct pool *pool;
    struct caller *caller; /* NULL while idle */
    struct stash *in;      /* part of a response head */
    struct pending out;    /* body bytes for it */
    enum backend_state state;
    bool reused;     /* has served a request before */
    bool received;   /* a byte of this response */
    bool persistent; /* it keeps the connection */
    bool write_broken;
    bool eof; /* tunnel: its side has ended */
    bool forgotten;
    bool shut; /* tunnel: we have told it the client's end */
};

enum caller_state {
    CALLER_HEAD,     /* waits for a head, or reads one */
    CALLER_DECIDE,   /* the owner has it */
    CALLER_EXCHANGE, /* a backend works on it */
    CALLER_DISCARD,  /* answered; the rest of the request body is thrown away */
    CALLER_FLUSH,    /* the answer is not yet taken; then the next request or the end */
    CALLER_LINGER,   /* our side is shut; reads until it notices */
    CALLER_FILE,     /* takes a file; no backend any longer */
    CALLER_TUNNEL,
    CALLER_DEAD,
};

struct caller {
    struct loop_fd watch;
    struct timed timed;
    struct node node; /* in front->clients, or front->dead_clients */
    struct front *front;
    struct backend *backend;
    struct stash *in;        /* part of a head, a parked request, or what came too early */
    struct pending out;      /* response bytes for it */
    struct front_loan *loan; /* its request's body is read by somebody else */
    struct front_file file;  /* goes out behind them; fd -1: none */
    struct block *block;     /* until the response begins */
    const char *const *drop; /* response fields to remove */
    const char *refused;     /* message when the backend's port is closed; NULL: a standard one */
    size_t added_len;        /* at the start of block: lines to add to the response ... */
    size_t prefix_len;       /* ... then the prefix for Location */
    size_t request_off;      /* of block: what is to be sent */
    size_t request_len;
    size_t request_start;
    struct front_req rq;
    struct front_result result;
    struct body request;
    struct body response;
    enum caller_state state;
    bool open;       /* decide was called and done was not */
    bool parked;     /* the decision comes later */
    bool running;    /* inside caller_run: no recursion */
    bool held;       /* the head under decision lies in `in` */
    bool keep;       /* the connection goes on after this response */
    bool minor;      /* HTTP/1.minor */
    bool is_head;    /* HEAD request: its response has no body */
    bool safe;       /* idempotent: may be sent twice */
    bool expects;    /* 100-continue */
    bool upgrade;    /* Upgrade was passed on */
    bool replayable; /* the block still holds all that was sent */
    bool internal;
    bool responded; /* the response head is out */
    bool early;     /* bytes came that are not yet wanted */
    bool eof;       /* tunnel: its side has ended */
    bool shut;      /* tunnel: we have told it the backend's end */
    struct sockaddr_storage peer;
    char peer_text[PEER_TEXT];
};

struct listener {
    struct front *front;
    struct loop_fd watch;
    struct loop_timer pause;
    const void *tag;
    struct listener *next;
};

/* Backends of one address. */
struct pool {
    struct pool *next; /* in the bucket */
    struct node idle;  /* most recently used first */
    unsigned n_idle;
    unsigned n_all;
    bool internal;
    struct front_addr addr;
};

struct front {
    struct loop *loop;
    const struct front_ops *ops;
    void *owner;
    struct front_options opt;
    struct front_stats stats;
    struct listener *listeners;
    struct node clients;
    struct node dead_clients;
    struct node dead_backends;
    struct node free_clients;
    struct node free_backends;
    unsigned n_free_clients;
    unsigned n_free_backends;
    struct block *blocks;
    unsigned n_blocks;
    struct pool *pools[POOL_BUCKETS];
    struct pool internal;
    struct node deadlines[TIMEOUT_MAX_];
    int timeout_ms[TIMEOUT_MAX_];
    struct loop_timer tick;
    int64_t tick_at; /* by the front's clock */
    bool draining;
    struct head request_head; /* of the request or response being looked at */
    struct head response_head;
    const char *rest; /* what came behind a head that lies in `in` ... */
    size_t rest_len;  /* ... while decide runs */
    char *in;         /* FRONT_READ bytes: what was just received */
    char *out;        /* FRONT_OUT_MAX bytes: a head being written */
};

static inline int64_t front_now(const struct front *f)
{
    return f->opt.clock->mono_ms();
}

/* front.c */
void front_reap(struct front *f);

/* caller.c: the client's side */
struct caller *caller_new(struct front *f, int fd, const struct sockaddr *peer, socklen_t len,
                          const void *tag);
void caller_close(struct caller *c); /* and its backend */
void caller_watch(struct caller *c);
void caller_next(struct caller *c); /* the response is out: the next request, or the end */
/* Behind the head, received already. */
const char *caller_rest(const struct caller *c, size_t *len);
/* The head and n bytes behind it are used; keeps the others. -1: out of memory. */
int caller_rest_used(struct caller *c, size_t n);
/* Forgets n bytes of c->in. */
void caller_in_used(struct caller *c, size_t n);
/* Ends the request towards the owner. */
void caller_done(struct caller *c, bool complete);

/* answer.c: responses of our own */
void answer_send(struct caller *c, const struct front_answer *a);
void answer_error(struct caller *c, int status, const char *code, const char *message);
/* Before a head was understood; closes. */
void answer_refuse(struct caller *c, int status, const char *why);

/* backend.c: connections and pools */
struct pool *pool_of(struct front *f, const struct front_addr *a);
/* An empty pool goes away; not while it is held. */
void pool_hold(struct pool *p);
void pool_release(struct front *f, struct pool *p);
/* An idle connection (look: after a look whether it still lives) or a new one (fresh: never an
 * idle one). NULL: *sys is why. */
struct backend *backend_get(struct pool *p, struct front *f, bool fresh, bool look, int *sys);
void backend_put(struct backend *b); /* done with a request: back to the pool, or closed */
void backend_close(struct backend *b);
void backend_watch(struct backend *b);
void pools_close_idle(struct front *f);

/* exchange.c: one request through a backend; c->block holds the request's head */
void exchange_start(struct caller *c, struct pool *p);
void exchange_fail(struct caller *c, int status, const char *code, const char *message);
/* Writes a response head; -1: it does not fit. */
ssize_t exchange_head(struct caller *c, const struct head *h, const char *connection);
void exchange_upload(struct caller *c);
void exchange_on_backend(struct backend *b, uint32_t events);

/* file.c: c->file goes out, then comes the next request */
void file_start(struct caller *c);
void file_send(struct caller *c);

/* loan.c: the response begins, or the client is closed; what the reader read too much comes back to c->in */
void loan_return(struct caller *c);

/* tunnel.c */
void tunnel_start(struct caller *c, const char *data, size_t len);
void tunnel_on_client(struct caller *c, uint32_t events);
void tunnel_on_backend(struct backend *b, uint32_t events);

/* Bytes of a message that pass: of the request's, of the response's. */
static inline void count_bytes(struct caller *c, uint64_t up, uint64_t down)
{
    c->result.request_bytes += up;
    c->result.response_bytes += down;
    if (c->internal)
        return;
    c->front->stats.request_bytes += up;
    c->front->stats.response_bytes += down;
}
