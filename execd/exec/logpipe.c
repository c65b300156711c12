#include "execd/exec/logpipe.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/json/utf8.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>

enum { READ_SIZE = 16 * 1024 };

/* ---- the tail ---- */

void logtail_add(struct logtail *t, const char *data, size_t len)
{
    size_t keep = t->len;

    if (len > sizeof(t->data)) {
        data += len - sizeof(t->data);
        len = sizeof(t->data);
    }
    if (keep > sizeof(t->data) - len)
        keep = sizeof(t->data) - len;
    memmove(t->data, t->data + t->len - keep, keep);
    memcpy(t->data + keep, data, len);
    t->len = keep + len;
}

static bool continues(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t';
}

/* Terminals obey control characters, readers of an error text do not want them. */
static void blank_controls(struct buf *b)
{
    size_t i;

    for (i = 0; i < b->len; i++)
        if (((unsigned char)b->data[i] < ' ' || b->data[i] == 0x7f) && !is_space(b->data[i]))
            b->data[i] = ' ';
}

void logtail_text(const struct logtail *t, char *out)
{
    AUTO_BUF struct buf b = BUF_INIT(3 * LOGTAIL_MAX); /* U+FFFD has three bytes */
    const char *p = t->data;
    size_t len = t->len;
    size_t i;

    for (i = 0; t->len == sizeof(t->data) && i < 3 && len && continues(*p); i++, len--)
        p++; /* the beginning of a longer text: what is left of a character */
    *out = '\0';
    if (utf8_repair(p, len, &b) < 0 || !b.len)
        return;
    blank_controls(&b);
    while (b.len && is_space(b.data[b.len - 1]))
        b.len--;
    i = b.len > LOGTAIL_MAX ? b.len - LOGTAIL_MAX : 0;
    while (i < b.len && (continues(b.data[i]) || is_space(b.data[i])))
        i++;
    memcpy(out, b.data + i, b.len - i);
    out[b.len - i] = '\0';
}

/* ---- writing without waiting ---- */

/* The descriptor is shared with the user's programs, so its O_NONBLOCK is not ours to set. Kernels
 * that cannot refuse to wait for one write are asked first whether a page fits; then only a program
 * that fills the pipe in between can make the agent wait, for as long as the log is not read. */
static ssize_t put(const struct logpipe *p)
{
    struct iovec iov = { p->held.data, p->held.len };
    struct pollfd room = { .fd = p->to.fd, .events = POLLOUT };
    ssize_t n;

    if (p->fifo) {
        n = pwritev2(p->to.fd, &iov, 1, -1, RWF_NOWAIT);
        if (n >= 0 || (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL))
            return n;
    }
    if (poll(&room, 1, 0) == 0) {
        errno = EAGAIN;
        return -1;
    }
    return write(p->to.fd, p->held.data, p->held.len < PIPE_BUF ? p->held.len : PIPE_BUF);
}

static void give_up_log(struct logpipe *p)
{
    loop_del(p->loop, &p->to);
    p->to.fd = -1;
    buf_free(&p->held);
}

/* Writes what is held; true when nothing is left. */
static bool flush(struct logpipe *p)
{
    ssize_t n;

    while (p->held.len && p->to.fd >= 0) {
        n = put(p);
        if (n > 0)
            buf_consume(&p->held, (size_t)n);
        else if (n < 0 && errno == EAGAIN)
            return false;
        else if (n == 0 || errno != EINTR)
            give_up_log(p);
    }
    buf_free(&p->held);
    return true;
}

/* ---- reading ---- */

static void stop_reading(struct logpipe *p)
{
    loop_del(p->loop, &p->from);
    (void)close(p->from.fd);
    p->from.fd = -1;
}

/* One read of at most max bytes; their number. */
static size_t take(struct logpipe *p, size_t max)
{
    char *at = buf_reserve(&p->held, max < READ_SIZE ? max : READ_SIZE);
    ssize_t n = at ? read(p->from.fd, at, max < READ_SIZE ? max : READ_SIZE) : 0;

    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            stop_reading(p);
        return 0;
    }
    p->held.len += (size_t)n;
    if (p->tail)
        logtail_add(p->tail, at, (size_t)n);
    return (size_t)n;
}

/* Either of the two is watched: input when nothing is held, else room for what is. */
static void watch(struct logpipe *p)
{
    bool clear = flush(p);

    if (clear) {
        loop_del(p->loop, &p->to);
        if (p->from.fd >= 0 && !p->from.events && loop_add(p->loop, &p->from, EPOLLIN, NULL) < 0)
            stop_reading(p);
        return;
    }
    if (p->from.fd >= 0)
        loop_del(p->loop, &p->from);
    if (!p->to.events && loop_add(p->loop, &p->to, EPOLLOUT, NULL) < 0) {
        give_up_log(p);
        watch(p);
    }
}

static void on_input(struct loop_fd *w, uint32_t events)
{
    struct logpipe *p = CONTAINER_OF(w, struct logpipe, from);

    (void)events;
    (void)take(p, READ_SIZE);
    watch(p);
}

static void on_room(struct loop_fd *w, uint32_t events)
{
    (void)events;
    watch(CONTAINER_OF(w, struct logpipe, to));
}

void logpipe_drain(struct logpipe *p)
{
    int left = 0;
    size_t n = 1;

    if (!p->loop || p->from.fd < 0)
        return;
    (void)ioctl(p->from.fd, FIONREAD, &left);
    while (left > 0 && n && p->from.fd >= 0) {
        n = take(p, (size_t)left);
        left -= (int)n;
    }
    watch(p);
}

int logpipe_open(struct logpipe *p, struct loop *l, int to, struct logtail *tail, struct err *e)
{
    struct stat st;
    int fds[2];

    *p = (struct logpipe){ .held = BUF_INIT(LOGPIPE_HELD_MAX) };
    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(e, errno, "make a pipe for the output");
    (void)fcntl(fds[0], F_SETFL, O_NONBLOCK);
    p->loop = l;
    p->from = (struct loop_fd){ .fd = fds[0], .on_event = on_input };
    p->to = (struct loop_fd){ .fd = to, .on_event = on_room };
    p->tail = tail;
    p->fifo = fstat(to, &st) == 0 && S_ISFIFO(st.st_mode);
    if (loop_add(l, &p->from, EPOLLIN, e) < 0) {
        (void)close(fds[1]);
        return -1;
    }
    return fds[1];
}

void logpipe_close(struct logpipe *p)
{
    if (!p->loop)
        return;
    p->tail = NULL;
    logpipe_drain(p);
    if (p->from.fd >= 0)
        stop_reading(p);
    (void)flush(p); /* what a full log does not take now is lost */
    loop_del(p->loop, &p->to);
    buf_free(&p->held);
    p->loop = NULL;
}
