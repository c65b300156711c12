/* What the files of common/http share with each other and with nobody else. */
#pragma once
#include "common/base/buf.h"
#include "common/base/loop.h"
#include "common/http/http.h"

#include <microhttpd.h>
#include <stdatomic.h>

/* A file for who stands in front, or a source from there (lend.c). */
struct lent {
    struct lent *next;
    char name[HTTP_NAME_MAX];
    const struct peer *peer; /* a file's connection */
    struct http_file file;   /* fd -1: it is a source */
    struct http_source source;
};

struct http_server {
    struct loop *loop;
    struct http_service svc;
    struct MHD_Daemon *mhd;
    struct loop_fd mhd_fd;
    struct loop_hook hook;
    struct listener *listeners;
    struct http_stream *streams; /* all that have a connection; for the final cut */
    struct exchange *deferred; /* all that wait for http_complete or a source; for the final cut */
    struct lent *lent;         /* files and sources that nobody took yet */
    uint64_t names;
    unsigned connections;
    unsigned active;
    bool draining;
    bool closing; /* being freed: nothing new is begun */
    atomic_bool given_up;
    bool resumed; /* libmicrohttpd has to be run before the next wait */
};

/* Lets a suspended connection go on. libmicrohttpd does not count it as a reason to run when it
 * has no thread of its own, so the loop's hook is told. */
static inline void server_resume(struct http_server *s, struct MHD_Connection *conn)
{
    s->resumed = true;
    MHD_resume_connection(conn);
}

/* The other end of a connection: libmicrohttpd's socket context. */
struct peer {
    struct http_server *server;
    struct MHD_Connection *conn;
    struct loop_fd watch;
    struct http_stream *stream; /* the response under way when it is one */
    atomic_bool gone;           /* it has shut down its sending side; jobs look at it */
};

/* NULL when memory was out as it came: its leaving is then seen by the idle timeout only. */
struct peer *server_peer(struct MHD_Connection *conn);

enum phase {
    PHASE_NEW,   /* head received, nothing decided */
    PHASE_BODY,  /* taking the body */
    PHASE_REPLY, /* rs or err is the answer, to be queued */
    PHASE_SENT,  /* queued */
};

/* One request and its answer. */
struct exchange {
    struct http_server *server;
    struct MHD_Connection *conn;
    const struct peer *from; /* NULL when memory was out */
    struct http_req rq;
    struct http_resp rs;
    struct err err;
    bool failed;   /* err is the answer */
    bool answered; /* the answer is known before the body: what is left of that is dropped */
    bool counted;  /* in server->active */
    bool head;
    bool sink_opened;
    bool deferred;  /* in server->deferred */
    bool suspended; /* by http_defer */
    struct exchange *deferred_prev;
    struct exchange *deferred_next;
    enum phase phase;
    struct buf body;
    size_t swallowed;      /* body bytes discarded after a failure */
    struct loop_call done; /* posted by the job */
    struct buf stage;    /* body bytes for a sink in the pool: libmicrohttpd moves its own about */
    bool sinking;        /* a job works on stage */
    struct lent *source; /* the body comes from there */
    struct loop_fd source_watch;
    bool source_over;
    bool source_dry; /* nothing now */
    struct sockaddr_storage peer;
    struct MHD_UpgradeResponseHandle *upgraded; /* from on_open to http_upgraded_close */
    char request_id[HTTP_REQUEST_ID_MAX + 1];
    char method[16];
    int status;
    int64_t start_mono_ms;
};

/* Memory one connection may use for its head, bytes: a larger head is answered 431. */
enum { HTTP_CONN_MEMORY = 32 * 1024, HTTP_SWALLOW_MAX = 8 << 20, HTTP_STAGE = 64 * 1024 };

/* exchange.c: libmicrohttpd's callbacks */
void *exchange_begin(void *server, const char *target, struct MHD_Connection *conn);
enum MHD_Result exchange_access(void *server, struct MHD_Connection *conn, const char *url,
                                const char *method, const char *version, const char *upload,
                                size_t *upload_len, void **con_cls);
void exchange_end(void *server, struct MHD_Connection *conn, void **con_cls,
                  enum MHD_RequestTerminationCode code);

/* router.c: 0 and rq->route, params, mount set; -1 with 404/405. *allow lists methods for 405. */
int router_match(const struct http_service *svc, struct http_req *rq, const char **allow,
                 struct err *e);

/* lend.c: -1: out of memory, file is the caller's. */
int lend_file(struct http_server *s, const struct peer *p, const struct http_file *file,
              char name[HTTP_NAME_MAX]);
struct lent *lend_take_source(struct http_server *s, const char *name);
void lend_free(struct lent *l); /* closes what it holds; NULL is fine */
/* Closes the files of a connection; NULL: all there is. */
void lend_drop(struct http_server *s, const struct peer *p);

/* source.c: the body of x comes from its source: suspends x, and has exchange_access called again when it is here */
void source_pump(struct exchange *x);
void source_close(struct exchange *x);

/* exchange.c, for source.c: runs fn in the pool of the route, then done in the loop; false: the pool is full, and the
 * answer says so. */
bool exchange_post(struct exchange *x, void (*fn)(void *arg), void (*done)(void *arg));
void exchange_sink(struct exchange *x, const char *data, size_t len);
void exchange_undefer(struct exchange *x);

/* resp.c: queues the answer of x on its connection. */
enum MHD_Result resp_queue(struct exchange *x);
/* upgrade.c */
void upgrade_check(struct exchange *x); /* before the answer is made: it may become an error */
struct MHD_Response *upgrade_response(struct exchange *x);
void upgrade_conn_gone(struct exchange *x); /* the request is over */
/* error.c: turns err into status, headers and body of rs. */
void error_fill(const struct http_service *svc, const struct err *e, struct http_req *rq,
                struct http_resp *rs);

/* stream.c */
struct http_stream *stream_next(const struct http_stream *st);
struct MHD_Response *stream_response(struct http_stream *st, struct MHD_Connection *conn);
void stream_conn_gone(struct http_stream *st); /* the connection's reference is dropped */
