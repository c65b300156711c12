/* Tells agents when the end of their sandbox has moved: they end it by themselves some time after the
 * end they know of (common/agent/wire.h), should this server not be there to do it. Nobody waits for
 * it; what an agent did not hear is told again, up to every 30 s, until it did. What to tell is read
 * from the store when it is told. Any thread. */
#pragma once

struct err;
struct lifecycle;
struct teller;

/* NULL: err set. */
struct teller *teller_new(struct lifecycle *lc, struct err *e);
/* The expiry of id may have changed, or its agent may not know of it. */
void teller_want(struct teller *t, const char *id);
void teller_free(struct teller *t); /* takes NULL */
