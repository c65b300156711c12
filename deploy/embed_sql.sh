#!/bin/sh
# Writes a C table of the migrations given as arguments, in order, to stdout.
set -eu
echo '#include "gateway/store/migrate.h"'
echo 'const struct migration migrations[] = {'
for f in "$@"; do
    name=$(basename "$f" .sql)
    number=${name%%_*}
    number=${number#"${number%%[!0]*}"} # a leading zero would make it octal
    printf '    { %d, "%s",\n' "$number" "$name"
    sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/      "/' -e 's/$/\\n"/' "$f"
    echo '    },'
done
echo '};'
echo 'const unsigned migrations_len = sizeof(migrations) / sizeof(migrations[0]);'
