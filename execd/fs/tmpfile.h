/* Files without a name, for bytes that are on their way to somewhere else. */
#pragma once

/* An unlinked file in tmpdir (may be NULL), /tmp or /var/tmp. -1: none can be made. */
int tmpfile_open(const char *tmpdir);
