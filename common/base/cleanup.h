/* Scope-bound release of resources (gcc/clang cleanup attribute) and ownership hand-over.
 * Declare a resource where it is acquired; the declaration order reversed is the release order,
 * so a lock is declared before what it guards. */
#pragma once
#include "common/base/macros.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define AUTO(fn) __attribute__((cleanup(fn)))
#define AUTO_FREE AUTO(auto_free)
#define AUTO_FD AUTO(auto_fd)
#define AUTO_FILE AUTO(auto_file)
#define AUTO_UNLOCK __attribute__((cleanup(auto_unlock), unused)) /* clang calls it unused */

#define TAKE_PTR(p)                                                                                \
    ({                                                                                             \
        __typeof__(p) take_tmp_ = (p);                                                             \
        (p) = NULL;                                                                                \
        take_tmp_;                                                                                 \
    })
#define TAKE_FD(fd)                                                                                \
    ({                                                                                             \
        int take_tmp_ = (fd);                                                                      \
        (fd) = -1;                                                                                 \
        take_tmp_;                                                                                 \
    })

static inline void auto_free(void *p)
{
    free(*(void **)p);
}

/* Closes when >= 0. close(2) errors carry nothing a caller could act on here. */
static inline void auto_fd(const int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
}

static inline void auto_file(FILE **f)
{
    if (*f)
        (void)fclose(*f);
}

/* For a variable that holds a locked mutex: AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&m); */
static inline void auto_unlock(pthread_mutex_t **m)
{
    if (*m)
        (void)pthread_mutex_unlock(*m);
}

static inline pthread_mutex_t *mutex_lock(pthread_mutex_t *m)
{
    (void)pthread_mutex_lock(m);
    return m;
}
