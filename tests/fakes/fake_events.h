/* The fake engine's event stream: a test opens, feeds, breaks and silences it. Safe from any thread. */
#pragma once
#include <stddef.h>

struct fake_docker;
struct fake_events;

/* Becomes the model of f. */
struct fake_events *fake_events_new(struct fake_docker *f);
void fake_events_free(struct fake_events *ev); /* after fake_docker_stop */

/* Waits until so many streams were opened in all. 0: path is the newest one's, -1: deadline. */
int fake_events_wait(struct fake_events *ev, unsigned opened, char *path, size_t size);
/* Waits until none is open. */
int fake_events_wait_closed(struct fake_events *ev);
/* Streams that are opened from now on get no head. */
void fake_events_hang(struct fake_events *ev);
/* To the newest stream, as one chunk. */
void fake_events_send(struct fake_events *ev, const char *text, size_t len);
/* Breaks the newest stream, or ends it as an engine that shuts down. */
void fake_events_cut(struct fake_events *ev);
void fake_events_end(struct fake_events *ev);
