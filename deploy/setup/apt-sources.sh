#!/usr/bin/env bash
# Prints the distribution's own package sources of this machine, one line each, in the one-line format of
# sources.list. Entries of third parties are left out: an entry counts when its Release file says that its origin is
# Debian or Ubuntu.
#
# Usage:   apt-sources.sh [deb|deb-src]     deb is the default; deb-src gives the same entries as source entries
# Output:  "deb [signed-by=KEYRING] URI SUITE COMPONENT" on stdout
# Exit:    1 when there is none, which means that the package lists are missing (apt-get update)
set -eu
shopt -s inherit_errexit

# The distribution's keyring where it has one; without it apt falls back to the keys it trusts.
signed_by() {
    local keyring
    keyring=/usr/share/keyrings/$(echo "$1" | tr '[:upper:]' '[:lower:]')-archive-keyring.gpg
    if [ -r "$keyring" ]; then echo "[signed-by=$keyring] "; fi
}

main() {
    local type=${1:-deb} uri suite component origin found=0
    while IFS='|' read -r uri suite component origin; do
        case $origin in Debian | Ubuntu) ;; *) continue ;; esac
        echo "$type $(signed_by "$origin")$uri $suite $component"
        found=1
    done < <(apt-get indextargets --format "\$(REPO_URI)|\$(RELEASE)|\$(COMPONENT)|\$(ORIGIN)" \
        'Created-By: Packages' | sort -u)
    if [ "$found" = 0 ]; then
        echo "apt-sources: no Debian or Ubuntu package list on this machine; run: apt-get update" >&2
        return 1
    fi
}

main "$@"
