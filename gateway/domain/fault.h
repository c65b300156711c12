/* Test hook for the crash matrix: SANDGATE_FAULT=crash:<step> kills this process with SIGKILL when
 * it reaches the step, hold:<step> stops the thread there for good. Steps are named where they
 * are passed. Costs one string comparison when set, nothing else. */
#pragma once
#include <stdbool.h>

/* Always returns true; the type fits runtime_config.crash. */
bool fault_point(const char *step);
