/* What clients say (contract/execd.md 9). Pure: from a message to what it asks for. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* First byte of binary messages */
enum { PTY_STDIN = 0, PTY_STDOUT = 1, PTY_STDERR = 2, PTY_REPLAY = 3 };

enum pty_ask {
    PTY_ASK_NOTHING, /* to be ignored */
    PTY_ASK_INPUT,
    PTY_ASK_RESIZE,
    PTY_ASK_SIGNAL,
    PTY_ASK_PING,
    PTY_ASK_UNKNOWN,
};

struct pty_message {
    enum pty_ask ask;
    const char *data; /* input: inside the message or json */
    size_t len;
    uint16_t cols; /* 0: absent or out of range */
    uint16_t rows;
    int signal;   /* 0: none that may be sent */
    json_t *json; /* holds data; the caller releases it. NULL: none */
};

void pty_parse(bool text, const char *data, size_t len, struct pty_message *out);
