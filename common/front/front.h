/* The front: owns listening sockets and request heads, and is an HTTP/1.1 proxy. For each request its
 * owner decides: proxy it to an address, hand it to the internal backend, or answer it. One client
 * connection may mix all three; requests of one connection are worked on one after another.
 *
 * Threads: a front lives in one loop's thread; every function and every callback runs there.
 * Several fronts on several threads share nothing.
 * Bodies are relayed as they come, in both directions at once, with back-pressure: at most one
 * read's worth (FRONT_READ) is held per direction, and only while the receiver is slow. Chunked
 * bodies and whatever follows a 101 pass byte for byte. A stream that idles after its response head
 * is never cut. When either side goes away before the end, the other is closed at once; a client
 * that shuts down its sending side counts as gone (except after a 101). */
#pragma once
#include "common/front/head.h"
#include "common/front/rules.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

struct clock;
struct err;
struct front;
struct loop;

enum {
    FRONT_READ = 128 * 1024, /* bytes taken from a socket at once */
    FRONT_ADDED_MAX = 2048,  /* field lines and Location prefix that an owner adds to a response */
    FRONT_OUT_MAX = 48 * 1024,   /* a head as it goes out, edits included: 431 or 502 beyond */
    FRONT_DRAIN_MAX = 64 * 1024, /* request body thrown away to keep a connection after an answer */
};

struct front_addr {
    union {
        struct sockaddr any;
        struct sockaddr_in in4;
        struct sockaddr_in6 in6;
        struct sockaddr_un un;
    } u;
    socklen_t len;
};

/* 0, or -1 when text is no IPv4 or IPv6 address / the path is too long. */
int front_addr_ip(struct front_addr *a, const char *text, uint16_t port);
int front_addr_unix(struct front_addr *a, const char *path);

/* One request. Valid from decide until done. */
struct front_req {
    const struct head *head; /* valid until a decision is given */
    const struct sockaddr *peer;
    const char *peer_text; /* address without port; "unix" for a socket without one */
    const void *listener;  /* what front_listen was given */
    void *user;            /* the owner's; NULL at first */
};

struct front_result {
    int status;             /* sent to the client; 0: it left before */
    bool complete;          /* both messages went through to their end */
    uint64_t request_bytes; /* of body, or sent into a tunnel */
    uint64_t response_bytes;
    int64_t started_mono_ms;
};

/* What is sent as the body of a response. */
struct front_file {
    int fd; /* the front closes it */
    uint64_t off;
    uint64_t left; /* bytes from off on */
};

struct front_ops {
    /* Gives a decision at once, or calls front_park and gives it later. */
    void (*decide)(void *owner, struct front_req *rq);
    /* The request is over, whatever became of it; the last call about it. It comes for parked
     * requests, too: no decision may be given afterwards. NULL: nobody wants to know. */
    void (*done)(void *owner, struct front_req *rq, const struct front_result *result);
    /* A new connection to the internal backend: one end of a socket pair, non-blocking and
     * close-on-exec, which the front closes. -1: err set. NULL: there is none. */
    int (*internal)(void *owner, struct err *e);
    /* The file that the internal backend named in file_header, and that is now the front's. -1: there is none of
     * that name. Needed with file_header. */
    int (*file)(void *owner, const char *name, size_t len, struct front_file *out);
    /* Whole field lines for answers to requests that never reached decide (a request id, for
     * example); returns their length. NULL: none. */
    size_t (*stamp)(void *owner, char *out, size_t cap);
};

struct front_options {
    const struct clock *clock; /* NULL: clock_system */
    const char *peer_header;   /* carries the client's address to the internal backend; clients
                                  cannot send it. NULL: none. Static. */
    const char *
        body_header; /* names a lent body to the internal backend; clients cannot send it. Static. */
    const char *
        file_header; /* a response of the internal backend with this field has an empty body; what is
                                  sent instead is a file. Never passed on. NULL: none. Static. */
    unsigned max_clients;    /* 0: 8192; one more is answered 503 */
    unsigned pool_idle_max;  /* idle connections kept per backend address; 0: 128 */
    int head_timeout_ms;     /* from the first byte of a head to its end: 408; 0: 30 s */
    int idle_timeout_ms;     /* between requests: closed; 0: 75 s */
    int connect_timeout_ms;  /* 504; 0: 10 s */
    int response_timeout_ms; /* without progress before the response head: 504; 0: 180 s */
    int pool_timeout_ms;     /* idle backend connections are closed; 0: 30 s */
    int linger_timeout_ms;   /* for the client to take a last answer; 0: 5 s */
    int half_timeout_ms;     /* without progress: a tunnel with one direction ended, or a
                                  finished response that the client does not take; 0: 60 s */
    int keepalive_s;         /* TCP keep-alive finds dead peers of idle streams; 0: 60, <0: off */
};

struct front_stats {
    uint64_t accepted;
    uint64_t turned_away; /* over max_clients */
    uint64_t requests;    /* that reached decide */
    uint64_t refused;     /* malformed heads and chunks: 400, 501, 505 */
    uint64_t oversized;   /* 414, 431 */
    uint64_t slow;        /* heads that did not come in time: 408 */
    uint64_t proxied;
    uint64_t internal;
    uint64_t answered;
    uint64_t connects;      /* to backends, tries included */
    uint64_t retries;       /* on a fresh connection after a stale one */
    uint64_t aborted;       /* cut before their end, by either side */
    uint64_t request_bytes; /* of bodies and tunnels, of proxied requests only */
    uint64_t response_bytes;
    unsigned clients;  /* now */
    unsigned backends; /* now, idle ones included */
    unsigned idle_backends;
    unsigned tunnels; /* now */
};

/* options may be NULL; ops must outlive the front. NULL: err set. */
struct front *front_new(struct loop *l, const struct front_ops *ops, void *owner,
                        const struct front_options *options, struct err *e);
/* Takes over a listening, non-blocking socket; tag comes back in front_req.listener. */
int front_listen(struct front *f, int listen_fd, const void *tag, struct err *e);
/* Takes over one connected, non-blocking socket as a client. -1: closed. */
int front_adopt(struct front *f, int fd, const struct sockaddr *peer, socklen_t len,
                const void *tag, struct err *e);
/* Stops accepting, closes idle connections; the others close after their response. */
void front_drain(struct front *f);
/* Cuts everything. NULL is fine. */
void front_free(struct front *f);
/* Closes idle connections to the address, and does not keep the active ones: call it when what
 * listens there is gone. Port 0 means all ports. */
void front_forget(struct front *f, const struct front_addr *a);
const struct front_stats *front_stats(const struct front *f);
/* Does what is due by the clock; the loop does it by itself, a test that moves the clock calls it. */
void front_expire(struct front *f);

/* ---- decisions: one per request ---- */

struct front_proxy {
    const struct front_addr *to;
    /* Used during the call only. peer_header is the front's to set, as is forwarded_for when NULL. */
    struct rules_request request;
    /* drop must outlive the request; added fields are copied. */
    struct rules_edit response;
    const char *location_prefix; /* copied; NULL: none */
    const char *refused; /* message of the 502 when nothing listens there; must outlive the request;
                            NULL: the front's own */
};

void front_proxy(struct front_req *rq, const struct front_proxy *p);
/* The head goes on as it came, but for hop-by-hop fields and the peer's address. Fields added to
 * the response are copied; edit may be NULL. */
void front_internal(struct front_req *rq, const struct rules_edit *edit);

/* The body of a request, read by who gets it instead of being relayed: one copy less each way through a socket.
 * Belongs to the front and to its reader, whoever ends first. */
struct front_loan;

/* Before front_internal_lent. NULL: the body had better be relayed, being short or waited for, or memory is out. */
struct front_loan *front_lend(struct front_req *rq);
/* Instead of front_internal_lent: the body is relayed after all. The reader's loan has to be closed as well. */
void front_unlend(struct front_req *rq);
/* As front_internal, without the body, with name as the body_header. */
void front_internal_lent(struct front_req *rq, const struct rules_edit *edit, const char *name);
int front_loan_fd(const struct front_loan *l); /* readable when there is more */
/* Data bytes, without framing; 0: that was all, -1: it breaks off or is not chunked as it says, -2: nothing now.
 * For one thread at a time, any. Whatever answers the request comes after the last call. */
ssize_t front_loan_read(struct front_loan *l, char *out, size_t cap);
void front_loan_close(struct front_loan *l); /* the reader's; in the front's thread. NULL is fine */

struct front_answer {
    int status;
    const char *code; /* body: {"code","message"} */
    const char *message;
    const char *body; /* instead of it; NULL: none */
    size_t body_len;
    const char *content_type; /* NULL: application/json */
    const struct rules_field *add;
    size_t n_add;
    bool close;
};

void front_answer(struct front_req *rq, const struct front_answer *a);
/* From inside decide only: the decision comes later. After max_ms it is answered 503. */
void front_park(struct front_req *rq, int max_ms);
