/* Test hook for the crash matrix: SANDGATE_FAULT=crash:<step> kills this process with SIGKILL when
 * it reaches the step; hold:<step> stops the thread there for good; wait:<step> until the file
 * named by SANDGATE_FAULT_FILE exists. Steps are named where they are passed. */
#pragma once
#include <stdbool.h>

/* Always returns true; the type fits runtime_config.crash. */
bool fault_point(const char *step);
