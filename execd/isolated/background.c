#include "execd/isolated/background.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/num.h"
#include "execd/isolated/store.h"

#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

enum { CHUNK = 64 * 1024 - 1, EXIT_MAX = 255 };

static void fifo_path(const struct background *b, const char *kind, char out[BACKGROUND_PATH_MAX])
{
    (void)snprintf(out, BACKGROUND_PATH_MAX, "%s/%s.%s", b->set->dir, b->id, kind);
}

void background_paths(const struct background *b, char log[BACKGROUND_PATH_MAX],
                      char exit[BACKGROUND_PATH_MAX])
{
    (void)snprintf(log, BACKGROUND_PATH_MAX, STORE_IO_INSIDE "/%s.log", b->id);
    (void)snprintf(exit, BACKGROUND_PATH_MAX, STORE_IO_INSIDE "/%s.code", b->id);
}

static void fifo_close(struct background *b, struct loop_fd *w, const char *kind)
{
    char path[BACKGROUND_PATH_MAX];

    if (w->fd < 0)
        return;
    loop_del(b->set->loop, w);
    (void)close(w->fd);
    w->fd = -1;
    fifo_path(b, kind, path);
    (void)unlink(path);
}

/* At most max bytes. The number of bytes; 0: nothing now, or the end. */
static size_t read_log(struct background *b, size_t max)
{
    char chunk[4096];
    size_t total = 0;

    while (total < max && b->log.fd >= 0) {
        ssize_t n = read(b->log.fd, chunk, sizeof(chunk));

        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            fifo_close(b, &b->log, "log");
        if (n <= 0)
            break;
        spool_append(b->spool, chunk, (size_t)n);
        total += (size_t)n;
    }
    return total;
}

static void on_log(struct loop_fd *w, uint32_t events)
{
    (void)events;
    (void)read_log(CONTAINER_OF(w, struct background, log), CHUNK);
}

static void end(struct background *b, const char *error)
{
    if (!b->running)
        return;
    b->running = false;
    b->error = error;
    b->finished_ms = clock_wall_ms();
    b->set->running--;
    fifo_close(b, &b->exit, "code");
}

/* The status is out: what was written before it is in the other pipe. */
static void finish(struct background *b)
{
    int64_t code = -1;
    int left = 0;

    if (b->log.fd >= 0)
        (void)ioctl(b->log.fd, FIONREAD, &left);
    (void)read_log(b, (size_t)left);
    b->said[strcspn(b->said, "\n")] = '\0';
    if (num_parse_i64(b->said, 0, EXIT_MAX, &code) < 0) {
        end(b, "the run did not say how it ended");
    } else {
        b->exit_code = (int)code;
        end(b, NULL);
    }
    b->set->on_end(b->set->owner);
}

static void on_code(struct loop_fd *w, uint32_t events)
{
    struct background *b = CONTAINER_OF(w, struct background, exit);
    size_t room = sizeof(b->said) - 1 - b->said_len;
    ssize_t n = read(w->fd, b->said + b->said_len, room);

    (void)events;
    if (n > 0)
        b->said_len += (size_t)n;
    else if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || memchr(b->said, '\n', b->said_len) || b->said_len == sizeof(b->said) - 1)
        finish(b);
}

/* Anyone inside may write into it, nobody may read. */
static int fifo_open(struct background *b, struct loop_fd *w, const char *kind, struct err *e)
{
    char path[BACKGROUND_PATH_MAX];

    fifo_path(b, kind, path);
    if (mkfifo(path, 0622) < 0 || chmod(path, 0622) < 0)
        return err_sys(e, errno, "make %s", path);
    w->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (w->fd < 0) {
        (void)err_sys(e, errno, "open %s", path);
        (void)unlink(path);
        return -1;
    }
    return loop_add(b->set->loop, w, EPOLLIN, e);
}

static void background_free(struct background *b)
{
    end(b, NULL);
    fifo_close(b, &b->log, "log");
    fifo_close(b, &b->exit, "code");
    spool_unref(b->spool);
    b->set->n--;
    free(b);
}

/* The oldest one that has ended makes room. */
static void make_room(struct backgrounds *set)
{
    struct background **at = &set->head;
    struct background *b;

    while (*at && (*at)->running)
        at = &(*at)->next;
    b = *at;
    if (set->n < BACKGROUND_KEPT || !b)
        return;
    *at = b->next;
    background_free(b);
}

struct background *background_add(struct backgrounds *set, struct err *e)
{
    struct background **at = &set->head;
    struct background *b;

    if (set->running >= BACKGROUND_MAX) {
        (void)err_set(e, ERRC_BUSY, "%d background runs are active in this session already",
                      BACKGROUND_MAX);
        return NULL;
    }
    make_room(set);
    b = calloc(1, sizeof(*b));
    if (!b) {
        (void)err_nomem(e);
        return NULL;
    }
    b->set = set;
    b->log = (struct loop_fd){ .fd = -1, .on_event = on_log };
    b->exit = (struct loop_fd){ .fd = -1, .on_event = on_code };
    b->started_ms = clock_wall_ms();
    b->running = true;
    rand_uuid4(b->id);
    set->n++;
    set->running++;
    b->spool = spool_new(set->spools, NULL, e);
    if (!b->spool || fifo_open(b, &b->log, "log", e) < 0 || fifo_open(b, &b->exit, "code", e) < 0) {
        background_free(b);
        return NULL;
    }
    while (*at)
        at = &(*at)->next;
    *at = b;
    return b;
}

const struct background *background_find(const struct backgrounds *set, const char *id)
{
    const struct background *b = set->head;

    while (b && strcmp(b->id, id) != 0)
        b = b->next;
    return b;
}

void background_fail(struct background *b, const char *error)
{
    end(b, error);
}

void backgrounds_fail(struct backgrounds *set, const char *error)
{
    struct background *b;

    for (b = set->head; b; b = b->next) {
        (void)read_log(b, SPOOL_MEMORY_MAX);
        end(b, error);
    }
}

void backgrounds_free(struct backgrounds *set)
{
    struct background *b;

    while ((b = set->head)) {
        set->head = b->next;
        background_free(b);
    }
}
