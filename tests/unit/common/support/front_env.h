/* A front with scripted peers, all in one thread: clients and backends are raw sockets that the test
 * reads and writes, and the loop is stepped in between. */
#pragma once
#include "common/front/front.h"

#include <stdbool.h>
#include <sys/types.h>

enum { FE_TEXT = 4096 };

struct fe {
    struct loop *loop;
    struct front *front;
    struct front_addr to; /* the scripted backend */
    int backend_fd;       /* it listens here */
    uint16_t port;        /* of the front */
    uint16_t backend_port;
    int inner[8]; /* the far ends of the internal connections */
    unsigned n_inner;
    struct front_proxy proxy; /* what is decided about /p... */
    struct front_req *parked; /* a request to /park... */
    unsigned decided;
    unsigned done;
    unsigned done_parked;
    struct front_result last;
    int socket_buffer; /* > 0: for sockets made from now on */
};

/* options NULL: small timeouts are of no use, the clock stands still until fe_advance. */
struct fe *fe_new(const struct front_options *options);
void fe_free(struct fe *fe);
void fe_advance(struct fe *fe, int64_t ms);
void fe_step(struct fe *fe);
/* Lets everything happen that can without anything from outside. */
void fe_settle(struct fe *fe);

int fe_connect(struct fe *fe);
int fe_accept(struct fe *fe); /* the next connection that reaches the backend */
bool fe_none_waiting(struct fe *fe);
void fe_send(struct fe *fe, int fd, const char *text);
void fe_send_bytes(struct fe *fe, int fd, const char *data, size_t len);
/* Reads exactly this text. */
void fe_expect(struct fe *fe, int fd, const char *text);
/* Reads a head, or more: until the text ends in `end`. Static storage. */
const char *fe_until(struct fe *fe, int fd, const char *end);
/* The other side ends: with an end of file (true) or a reset (false). */
bool fe_end(struct fe *fe, int fd);
/* Nothing to read now, and still open. */
bool fe_quiet(struct fe *fe, int fd);
void fe_close(int fd);
void fe_reset(int fd); /* close with a reset */
/* Sockets that the front has open: clients and backends. */
unsigned fe_sockets(const struct fe *fe);
