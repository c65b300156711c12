/* The platform of a create request (contract/lifecycle.md 3.1). Pure. */
#pragma once

struct err;

/* Turns what the client wrote into the words of the wire (static strings); NULLs, when none was
 * requested, stay. SANDBOX::INVALID_PARAMETER for what is unknown or not supported. */
int platform_check(const char **os, const char **arch, struct err *e);
