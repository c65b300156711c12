/* What the files of execd/pty share with each other and with nobody else. */
#pragma once
#include "common/ws/ws.h"
#include "execd/pty/message.h"
#include "execd/pty/pty.h"
#include "execd/pty/ring.h"
#include "execd/pty/shell.h"

enum {
    PTY_QUEUE_MAX = 256 << 10, /* bytes on their way to a client */
    PTY_REPLY_MAX = 64 << 10,  /* beyond it, for answers; more are not sent */
    PTY_MESSAGE_MAX = 1 << 20, /* of a client */
};

struct pty_client {
    struct pty *pty;
    struct ws *ws; /* NULL: the handshake is under way */
    struct pty_entry how;
    uint64_t at; /* viewer: the offset of the next byte it gets */
    unsigned refused;
    struct pty_client *prev;
    struct pty_client *next;
};

struct ptys {
    struct shell_home home;
    struct ws_set sockets;
    struct pty *head;
    unsigned n; /* deleted ones that are not over yet included */
    bool stopping;
    bool cut; /* no connection is taken any longer */
};

struct pty {
    struct ptys *set;
    char id[RAND_UUID_TEXT];
    char *command;
    char *cwd;
    char **envs; /* pairs */
    size_t n_envs;
    struct launch_req launch;
    struct ring ring;
    struct shell *shell; /* NULL: none since the last exit frame */
    struct pty_client *holder;
    struct pty_client *clients; /* all, also those whose handshake is under way */
    unsigned n_viewers;
    unsigned entering; /* holders whose handshake is under way */
    bool deleted;
    bool pinned; /* in use further up the stack */
    bool launch_attempted;
    bool launch_failed;
    struct pty *prev;
    struct pty *next;
};

/* frames.c: what is said to a client; none of them fails visibly */
void pty_say_connected(struct pty_client *c);
void pty_say_exit(struct pty_client *c, int code);
void pty_say_error(struct pty_client *c, const char *code, const char *text);
void pty_say_pong(struct pty_client *c);
/* Output from the ring; all of it, whatever the queue holds. -1: out of memory. */
int pty_replay(struct pty_client *c, uint64_t since);

/* client.c */
/* Closes c with the code and forgets it. within_ms: 0, or as ws_close. */
void pty_client_close(struct pty_client *c, unsigned code, const char *reason, int within_ms);
void pty_client_feed(
    struct pty_client *c); /* a viewer gets what is new, as far as its queue goes */

/* pty.c */
int pty_start_shell(struct pty *p, bool pipe, struct err *e);
void pty_unref(struct pty *p); /* frees it when it is deleted and nothing needs it */
