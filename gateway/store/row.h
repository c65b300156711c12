/* Binding values and reading rows, for the files of the store. */
#pragma once
#include "gateway/sandbox.h"

#include <sqlite3.h>

struct db_conn;
struct err;

#define SANDBOX_COLUMNS                                                                            \
    "id, state, reason, message, transition_ms, created_ms, expires_ms, image, entrypoint,"        \
    " metadata, extensions, platform_os, platform_arch, token, address, agent_port,"               \
    " host_address, host_port, renew_s, secure_token, login_ports, ended_ms, exit_code,"           \
    " snapshot_id"

enum column {
    COL_ID,
    COL_STATE,
    COL_REASON,
    COL_MESSAGE,
    COL_TRANSITION,
    COL_CREATED,
    COL_EXPIRES,
    COL_IMAGE,
    COL_ENTRYPOINT,
    COL_METADATA,
    COL_EXTENSIONS,
    COL_OS,
    COL_ARCH,
    COL_TOKEN,
    COL_ADDRESS,
    COL_AGENT_PORT,
    COL_HOST_ADDRESS,
    COL_HOST_PORT,
    COL_RENEW,
    COL_SECURE,
    COL_LOGIN,
    COL_ENDED,
    COL_EXIT_CODE,
    COL_SNAPSHOT,
    COL_MAX_,
};

/* Fills *sb, which the caller owns, from a row of SANDBOX_COLUMNS. */
int row_read_sandbox(sqlite3_stmt *st, struct sandbox *sb, struct err *e);

int row_bind_text(struct db_conn *c, sqlite3_stmt *st, int at, const char *s, struct err *e);
int row_bind_num(struct db_conn *c, sqlite3_stmt *st, int at, int64_t n, struct err *e);
const char *row_text(sqlite3_stmt *st, int col); /* never NULL */
