/* TCP relays: listening sockets of ours whose connections lead to one port of one sandbox. Bytes pass
 * as they come, both ways at once, with back-pressure; each direction ends by itself. Lives in the
 * loop's thread, but for relay_open and relay_close. */
#pragma once
#include <stdint.h>

struct err;
struct loop;
struct places;
struct relay;
struct runtime;

enum { RELAY_CONNECTIONS_MAX = 4096 }; /* at once, over all relays; one more is closed at once */

/* rt tells sandboxes' addresses from others: they are no clients. NULL: err set. */
struct relay *relay_new(struct loop *l, struct places *places, struct runtime *rt, struct err *e);
void relay_free(struct relay *r); /* cuts everything; takes NULL */
/* Takes over a listening socket that leads to port of the sandbox. Any thread; fits
 * relays_config.open with the relay as arg. */
void relay_open(void *relay, const char *id, uint16_t port, int listen_fd);
/* The sandbox is gone: its listeners are closed, its connections cut. Any thread. */
void relay_close(struct relay *r, const char *id);
