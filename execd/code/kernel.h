/* A kernel: something that runs code of one language and keeps state in between. Two kinds: a program of
 * the image driven by the agent (embedded.h), and a kernel of a Jupyter server (jupyter.h). Contexts
 * (contexts.h) know them by this table only. For the loop's thread; nothing here blocks. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct env;
struct err;
struct kernel;

enum { KERNEL_ID_TEXT = 64, KERNEL_LANGUAGE_MAX = 32 };

/* What becomes of a kernel and of the code it runs. Called from the loop, never from inside a call of
 * kernel_ops; may call kernel_ops in turn, destroy as well. After on_dead nothing more is called. */
struct kernel_events {
    /* After create, once: e NULL and the context's id, or why there is no kernel (then only destroy is
     * left). ERRC_INVALID: there is no such language here. */
    void (*on_ready)(void *owner, const char *id, const struct err *e);
    /* Output of the execution under way; comes at other times as well, and is then of no execution. */
    void (*on_text)(void *owner, bool is_stderr, const char *text, size_t len);
    /* A result (count > 0) or a shown value such as a plot (count 0): MIME type to value, borrowed. */
    void (*on_result)(void *owner, int64_t count, const json_t *mime);
    /* traceback: array of strings. */
    void (*on_error)(void *owner, const char *ename, const char *evalue, const json_t *traceback);
    /* The execution is over, after on_error as well. count: 0 when not known. */
    void (*on_idle)(void *owner, int64_t count);
    /* The kernel is gone; an execution under way ends with it. Only destroy is left. */
    void (*on_dead)(void *owner, const struct err *why);
};

/* What an embedded kernel is started by and in (execd/isolated): stdout and stderr are one pipe then, and the
 * end is asked for by TERM, the rest of the work is that program's. */
struct kernel_cage {
    const char *path;  /* program */
    char *const *argv; /* n_argv strings; the kernel's own program and arguments follow */
    size_t n_argv;
    const struct env *env;        /* instead of the agent's base */
    int keep;                     /* a descriptor that it gets under the same number; 0: none */
    void (*on_gone)(void *owner); /* after destroy, when it was still there then: now it is not */
};

struct kernel_req {
    const char *language; /* lower case */
    const char *cwd;      /* absolute, exists; NULL: the agent's */
    const struct kernel_events *events;
    void *owner;
    const struct kernel_cage *cage; /* NULL: none; valid during the call of create */
};

struct kernel_ops {
    /* A kernel that is starting; on_ready follows, within a bounded time. NULL: err set
     * (ERRC_INVALID: there is no such language here). */
    struct kernel *(*create)(void *provider, const struct kernel_req *rq, struct err *e);
    /* One at a time: ERRC_BUSY meanwhile. code: UTF-8, copied. */
    int (*execute)(struct kernel *k, const char *code, struct err *e);
    int (*interrupt)(struct kernel *k, struct err *e); /* no-op when idle */
    void (*hold)(struct kernel *k,
                 bool on);             /* back-pressure: while on, nothing comes but on_dead */
    void (*destroy)(struct kernel *k); /* no event comes after it */
};
