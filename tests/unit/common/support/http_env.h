/* A server of common/http in a thread of its own, on loopback, and a client that shows every byte.
 * All functions fail the running test when something does not happen within TEST_DEADLINE_MS. */
#pragma once
#include "common/base/err.h"
#include "common/http/http.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stddef.h>

struct http_env {
    struct loop *loop;
    struct jobs *jobs;
    struct http_server *server;
    pthread_t thread;
    bool running;
    uint16_t port;
    struct err e;
};

/* Zero members of svc get test defaults (64 connections, 30 s); jobs is filled in. */
void http_env_start(struct http_env *env, const struct http_service *svc, unsigned threads,
                    size_t queue_max);
/* Stops the thread as a program would: loop, jobs, server. Takes a stopped one as well. */
void http_env_stop(struct http_env *env);
/* Only the first part of it: the loop's thread has ended, everything else is as it was. */
void http_env_halt(struct http_env *env);
/* Runs fn(arg) in the loop's thread and waits for its end. */
void http_env_call(struct http_env *env, void (*fn)(void *arg), void *arg);
void http_env_wait(sem_t *sem); /* sem_wait with the deadline */

struct client {
    int fd;
    char *in; /* bytes received and not yet taken: inside mem */
    size_t in_len;
    char *mem;
    size_t cap;
};

/* What came back. head is the status line and the headers, NUL-terminated. */
struct reply {
    int status; /* 0: the connection ended before a head */
    char *head;
    char *body;
    size_t body_len;
    size_t body_cap;
    bool clean; /* the body ended as its framing says */
};

void client_open(struct client *c, const struct http_env *env);
void client_close(struct client *c);
void client_send(struct client *c, const void *data, size_t len);
void client_text(struct client *c, const char *text);
/* Sends "<first line> HTTP/1.1", Host, the extra header lines (each ends in \r\n) and a body with its
 * length unless it is NULL. */
void client_request(struct client *c, const char *first, const char *headers, const char *body);
/* Reads one response; head_only for the answer of a HEAD request. Release with reply_free. */
void client_reply(struct client *c, bool head_only, struct reply *r);
/* Waits until at least len bytes of the raw input are there; 0 at the end of the connection. */
int client_wait(struct client *c, size_t len);
/* True when the server closes the connection without sending anything more. */
bool client_at_end(struct client *c);
void reply_free(struct reply *r);
/* Value of a header in a static buffer; NULL when absent. */
const char *reply_header(const struct reply *r, const char *name);
unsigned reply_header_count(const struct reply *r, const char *name);
/* Opens, sends, reads, closes. */
void http_once(const struct http_env *env, const char *first, const char *headers, const char *body,
               struct reply *r);
