/* Whether cages can be built here, found out by building one. Safe from any thread; the result is kept. */
#pragma once
#include <stdbool.h>

struct err;

enum { CAGES_MESSAGE_MAX = 512 };

struct cages {
    bool available;
    bool userns;                     /* uid_mode userns as well */
    char message[CAGES_MESSAGE_MAX]; /* why not, or what is missing; else "" */
};

/* Builds one on the first call; blocks for some milliseconds, at most for seconds. */
void cages_probe(struct cages *out);
/* 0, or -1: ERRC_BUSY with the reason. Never blocks: without a probe so far it asks for the capability. */
int cages_gate(struct err *e);
/* The reason why a cage could not be built, as the contract has it: ERRC_BUSY. */
int cages_explain(struct err *e);
