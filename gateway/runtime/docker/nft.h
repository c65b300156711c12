/* Closes the host to the sandboxes' bridge with an nft table of our own (design decision 10):
 * nothing that a sandbox starts reaches an address of the host or the link-local range with the
 * cloud's metadata service; name servers of the host stay reachable on port 53, because the
 * engine's resolver asks them from inside the sandbox. The table replaces an earlier one
 * atomically and is never removed: sandboxes outlive the gateway. */
#pragma once

struct buf;
struct err;

/* The table as nft reads it. resolv is the text of a resolv.conf, "" for none. Pure. */
int nft_script(struct buf *out, const char *table, const char *bridge, const char *resolv);

/* Runs nft with script on its input. May block up to ten seconds.
 * -1: nft is missing (ERRC_NOT_FOUND), may not set rules or refused the script. */
int nft_apply(const char *script, struct err *e);
