/* The agent's command line: held mode of this project's gateway (common/agent/wire.h), classic
 * mode for upstream's server (contract/execd.md 1). Pure but for the log lines about flags that
 * are accepted and ignored. */
#pragma once
#include "common/base/log.h"

#include <stdbool.h>
#include <stdint.h>

struct err;

struct options {
    bool help;
    bool version;
    bool held;
    bool
        isolation; /* CAP_SYS_ADMIN is there for isolated sessions, and kept from everything else */
    const char *id;                /* "" when none was given */
    const char *claim_sha256;      /* 64 hex digits; held mode only */
    int64_t deadline_grace_ms;     /* 0: WATCHDOG_GRACE_MS; other values are for tests */
    uint16_t port;                 /* 0: a free one, named in the log */
    const char *access_token;      /* NULL: not given here */
    const char *jupyter_host;      /* NULL: not given here */
    const char *jupyter_token;     /* NULL: not given here */
    const char *const *entrypoint; /* what follows "--" after --init; NULL: none */
    enum log_level level;
};

extern const char options_usage[];

/* argv is NULL-terminated and begins with the program. Strings point into it. -1: err says what is wrong. */
int options_parse(const char *const *argv, struct options *out, struct err *e);
