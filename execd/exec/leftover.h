/* Output pipes that outlive their command: a server that the user left running still writes to
 * them. Closing them would kill it, leaving them unread would block it; so they are read until
 * the last writer is gone. For the loop's thread. */
#pragma once

struct leftover;
struct loop;
struct spool;

enum { LEFTOVERS_MAX = 4096 };

struct leftovers {
    struct loop *loop;
    struct leftover *head;
    unsigned n;
};

/* Takes over fd (non-blocking). What comes goes to spool (a reference is taken), or nowhere. */
void leftover_add(struct leftovers *ls, int fd, struct spool *spool);
void leftovers_free(struct leftovers *ls);
