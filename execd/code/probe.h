/* A listener where the code interpreter's client looks for a Jupyter server before it uses /code
 * (contract/sdks.md 3.5): it opens a connection from inside of the sandbox, and is content when that
 * works. Connections are accepted and closed. For the loop's thread. */
#pragma once
#include <stdint.h>

struct err;
struct loop;
struct probe;

enum { PROBE_PORT = 44771 }; /* on 127.0.0.1 */

/* NULL: somebody else listens there, or memory is out. */
struct probe *probe_new(struct loop *l, uint16_t port, struct err *e);
void probe_free(struct probe *p); /* takes NULL */
