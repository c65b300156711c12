/* Parser of the engine's multiplexed log and attach streams (Content-Type
 * application/vnd.docker.multiplexed-stream): frames of an 8-byte head {stream, 0, 0, 0, length
 * in big endian} and that many bytes. Pure and incremental: pieces may be cut anywhere. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FRAMES_STDIN, FRAMES_STDOUT, FRAMES_STDERR, FRAMES_SYSTEM };

/* Zero-initialise. */
struct frames {
    unsigned char head[8];
    unsigned head_len;
    uint32_t left; /* bytes of the current frame still to come */
    bool broken;
};

/* One piece of a frame's content; a frame may come in several. */
typedef void (*frames_fn)(void *arg, int stream, const char *data, size_t len);

/* 0, or -1 when the bytes are not such a stream (a container with a terminal sends raw bytes);
 * then every later call fails too. */
int frames_feed(struct frames *f, const char *data, size_t len, frames_fn fn, void *arg);
/* True between frames: a stream that ends elsewhere was cut. */
bool frames_at_boundary(const struct frames *f);
