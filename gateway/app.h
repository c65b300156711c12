/* The gateway as a whole: builds its parts in order, runs them, takes them down in reverse.
 *
 * Threads: the main thread runs the loop (HTTP, signals) and never blocks; the job pool runs what
 * blocks; one writer thread in store/db.c; one thread each for expiry, for the sweep and for
 * unfinished snapshots; a few that capture files; one for each create that outlasts its request
 * (domain/creates.h).
 * Lock order: a sandbox's keyed lock, then locks inside runtime or store; those never call back. */
#pragma once

struct config;
struct err;

/* Carries a client's address from the front to the API, which sees socket pairs only; the front
 * removes what clients send under this name. */
#define APP_PEER_HEADER "X-Sandgate-Peer"

/* Runs until SIGTERM or SIGINT. 0 after a clean stop; -1 when it could not start. */
int app_serve(const struct config *cfg, struct err *e);
