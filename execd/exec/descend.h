/* All processes below this one, for the end of the sandbox. */
#pragma once
#include <sys/types.h>

/* Sends sig to every process but the agent itself: as PID 1 to all of the container, else to its
 * descendants as they are now. */
void descend_signal(int sig);
/* Sends sig to every process of the session whose leader is not collected yet. */
void descend_signal_session(pid_t sid, int sig);
/* 1 when the agent has no child left, running or dead. */
int descend_none_left(void);
