/* The agent's sockets: the front (common/front) takes every connection, passes /proxy/{port} on to
 * the sandbox's own programs, and everything else to the API's server over socket pairs.
 * No token is asked for another port (design decision 8), and none reaches it. Until the claim and
 * once the agent stops nothing is passed on: the API's server refuses.
 * Lives in the app's loop. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct app;
struct err;
struct proxy;

/* Keeps app, whose loop and server must outlive it. NULL: err set. */
struct proxy *proxy_new(struct app *app, struct err *e);
/* Takes over a listening, non-blocking socket, bound to port. */
int proxy_listen(struct proxy *p, int fd, uint16_t port, struct err *e);
/* Are answers of the API still on their way? */
bool proxy_busy(const struct proxy *p);
/* Cuts everything. NULL is fine. */
void proxy_free(struct proxy *p);
