/* Between the files of the cage. These run in the cage's own processes, which have one thread. */
#pragma once
struct cage;
struct err;

/* All mounts of the cage, in a mount namespace of its own; "/" is the cage's root afterwards. */
int cage_build(const struct cage *c, struct err *e);
/* Identity, capabilities, no_new_privs, system calls; before exec, for good. */
int cage_floor(const struct cage *c, struct err *e);
