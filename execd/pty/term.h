/* Pseudo-terminals. Knows the kernel's calls, no processes of ours. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct err;

enum { TERM_COLS = 80, TERM_ROWS = 24 };

/* 0: *master (non-blocking) and *slave are open, both close-on-exec, 80 by 24. -1: there are none here; err says
 * what is missing. */
int term_open(int *master, int *slave, struct err *e);
void term_resize(int master, uint16_t cols, uint16_t rows);
/* The process group that the terminal's keys go to; 0: none. */
pid_t term_foreground(int master);
