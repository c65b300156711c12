#include "gateway/runtime/docker/frames.h"

#include <string.h>

/* Takes bytes of the head; how many. */
static size_t take_head(struct frames *f, const char *data, size_t len)
{
    size_t n = sizeof(f->head) - f->head_len;

    if (n > len)
        n = len;
    memcpy(f->head + f->head_len, data, n);
    f->head_len += (unsigned)n;
    return n;
}

static int read_head(struct frames *f)
{
    const unsigned char *h = f->head;

    if (h[0] > FRAMES_SYSTEM || h[1] || h[2] || h[3])
        return -1;
    f->left = (uint32_t)h[4] << 24 | (uint32_t)h[5] << 16 | (uint32_t)h[6] << 8 | h[7];
    if (!f->left)
        f->head_len = 0; /* an empty frame is over */
    return 0;
}

int frames_feed(struct frames *f, const char *data, size_t len, frames_fn fn, void *arg)
{
    size_t n;

    while (len > 0 && !f->broken) {
        if (f->head_len < sizeof(f->head)) {
            n = take_head(f, data, len);
            if (f->head_len == sizeof(f->head) && read_head(f) < 0)
                f->broken = true;
        } else {
            n = len < f->left ? len : f->left;
            fn(arg, f->head[0], data, n);
            f->left -= (uint32_t)n;
            if (!f->left)
                f->head_len = 0;
        }
        data += n;
        len -= n;
    }
    return f->broken ? -1 : 0;
}

bool frames_at_boundary(const struct frames *f)
{
    return !f->broken && !f->head_len;
}
