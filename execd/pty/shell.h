/* A shell on a pseudo-terminal or on three pipes: starting, output, input, its end (contract/execd.md 9). Knows
 * processes and descriptors; nothing of clients. For the loop's thread. */
#pragma once
#include "execd/exec/launch.h"
#include "execd/exec/leftover.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct loop;
struct shell;
struct signals;

enum {
    SHELL_CHUNK = 32 * 1024,     /* output at a time */
    SHELL_INPUT_MAX = 2 << 20,   /* input that waits for the program; more is refused */
    SHELL_INPUT_HIGH = 64 << 10, /* from here on no more should be taken from the client */
};

/* What all shells need. */
struct shell_home {
    struct loop *loop;
    struct signals *signals;
    const struct env *base;
    struct leftovers leftovers; /* pipes that outlive their shell */
};

struct shell_ops {
    void (*on_output)(void *owner, bool is_stderr, const char *data, size_t len);
    /* The input that waits is less than SHELL_INPUT_HIGH again. */
    void (*on_input_room)(void *owner);
    /* The program no longer takes what shell_write has taken; once. */
    void (*on_input_gone)(void *owner);
    /* All output is delivered; the shell is freed after it. code: exit status; -1: ended by a signal. */
    void (*on_exit)(void *owner, int code);
};

struct shell_req {
    const char *command; /* NULL: interactive */
    bool tty;
    struct launch_req launch; /* cwd, identity, environment; command and argv are set here */
};

/* NULL: err set. */
struct shell *shell_start(struct shell_home *home, const struct shell_req *rq,
                          const struct shell_ops *ops, void *owner, struct err *e);
bool shell_running(const struct shell *sh); /* false: ended, some output is not delivered yet */
bool shell_has_tty(const struct shell *sh);
/* -1: the program takes no input any longer, or too much waits for it already. What comes after its end is
 * swallowed. */
int shell_write(struct shell *sh, const char *data, size_t len, struct err *e);
bool shell_input_full(const struct shell *sh);
/* No output while paused. Off may call on_output and on_exit. */
void shell_pause(struct shell *sh, bool on);
void shell_resize(struct shell *sh, uint16_t cols, uint16_t rows);
/* INT and QUIT go where the terminal's keys would send them; others to the shell's group as well. */
void shell_signal(struct shell *sh, int sig);
void shell_kill(struct shell *sh); /* with everything in its session */
/* For the sandbox's end: closes the terminal, which the programs notice. No more calls of ops but on_exit. */
void shell_hang_up(struct shell *sh);
void shell_free(struct shell *sh); /* forgets the processes. NULL is fine */
