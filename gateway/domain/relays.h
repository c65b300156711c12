/* Ports of ours that lead to ports of sandboxes, on demand and for as long as the sandbox lives
 * ([relay] in the configuration). Keeps the record; what listens is told through `open`.
 * Blocks; any thread but the loop's. */
#pragma once
#include <stdint.h>

struct db;
struct err;
struct relays;

struct relays_config {
    struct db *db;
    const char *host; /* address to listen on */
    /* Takes over the listening socket that leads to port of the sandbox. Any thread. */
    void (*open)(void *arg, const char *id, uint16_t port, int listen_fd);
    void *arg;
};

struct relays *relays_new(const struct relays_config *cfg, struct err *e);
void relays_free(struct relays *r); /* takes NULL */
/* Listens again on what is on record; once, at start. A port that somebody else took meanwhile is
 * given up, with a warning. */
int relays_restore(struct relays *r, struct err *e);
/* 0: *listen_port leads to port of the sandbox, the same one each time. */
int relays_port(struct relays *r, const char *id, uint16_t port, uint16_t *listen_port,
                struct err *e);
