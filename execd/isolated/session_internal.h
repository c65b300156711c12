/* Between isolated.c (sessions) and turns.c (what their shells run). */
#pragma once
#include "common/base/err.h"
#include "common/base/jobs.h"
#include "common/base/loop.h"
#include "execd/code/kernel.h"
#include "execd/exec/units.h"
#include "execd/isolated/isolated.h"
#include "execd/isolated/plan.h"
#include "execd/isolated/store.h"

#include <pthread.h>

struct feed;

/* A piece of code for the shell, waiting or under way. */
struct turn {
    struct isolated_session *session;
    struct feed *feed; /* NULL: the start of a background run, or its client has what it gets */
    struct background *background;
    struct units units;
    char *code;
    int64_t timeout_ms;
    int64_t start_mono_ms;
    struct loop_timer timer; /* of the current one */
    int status;              /* of the shell's last command */
    bool timed_out;
    bool over;    /* the shell is done with it; output may be left */
    bool blocked; /* the feed is full */
    struct turn *next;
};

struct isolated_session {
    struct isolated *set;
    char id[RAND_UUID_TEXT];
    struct plan plan;
    json_t *echo;
    struct kernel *kernel; /* NULL: none any more */
    int report;            /* descriptor; see cage.h */
    int ns;                /* its mount namespace; -1: not yet */
    int lock;              /* of dir */
    char dir[STORE_PATH_MAX];
    bool ready;
    bool dead;
    int64_t created_ms;
    int64_t last_run_ms;
    int64_t idle_ms;
    struct loop_timer idle;
    struct turn *current;
    struct turn *queue; /* first to run first */
    unsigned queued;
    struct backgrounds backgrounds;
    isolated_fn on_ready;
    isolated_fn on_gone;
    void *arg;          /* of both */
    struct err removed; /* how the removal of dir went */
    struct loop_call call;
    struct isolated_session *next; /* younger */
};

struct isolated {
    struct isolated_home home;
    pthread_mutex_t lock; /* sessions as a list, their ready, ns and identity: for isolated_view */
    struct isolated_session *head;
    struct isolated_session *ending; /* not to be found any more */
    unsigned n;
};

/* turns.c */
void turns_text(struct isolated_session *s, const char *text, size_t len);
void turns_error(struct isolated_session *s, const char *evalue);
void turns_idle(struct isolated_session *s);
void turns_next(struct isolated_session *s);
/* Every run of the session ends with this error. */
void turns_fail(struct isolated_session *s, const char *why);

/* isolated.c: the countdown begins anew, or stops while something runs. */
void session_touch(struct isolated_session *s);
