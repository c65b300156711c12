/* What gateway and agent agree on beyond the public API (contract/execd.md): how a held agent is
 * started and claimed. Constants only.
 *
 * A container starts as
 *     execd --held --id=<sandbox id> --claim-sha256=<hex of SHA-256 of the claim secret's text>
 * and answers nothing but GET /ping and the claim until it is claimed. The claim is
 *     POST /internal/claim  {"secret","token","env","entrypoint","lineEndings","closedPorts",
 *                            "mounts","lifecycle","ca","deadline","now"}
 * 200 {"status":"claimed","pid":N}  the entrypoint runs
 * 400 {"code","message"}: the claim cannot be carried out (bad field, entrypoint not found, a mount is not what it should
 *     be, the preStart hook failed); the agent ends
 * 403 wrong secret; the agent ends with AGENT_EXIT_REFUSED
 * 409 already claimed
 * closedPorts true: /proxy/{port} of other ports needs the token as well (secure access).
 * mounts: [{"path","dev","ino"}]: what stat(2) must say about the path before anything of the user
 *     runs (design decision 19); dev and ino are decimal texts, for JSON numbers are too short. At
 *     most 64. Links in the path are followed, as the engine did.
 * ca: certificates (PEM, at most 64 KiB, 16 of them) that the sandbox's programs are to trust. They go
 *     into the image's bundles where these can be written, and SSL_CERT_FILE, REQUESTS_CA_BUNDLE,
 *     CURL_CA_BUNDLE, GIT_SSL_CAINFO and NODE_EXTRA_CA_CERTS lead there unless env or image set them.
 * lifecycle: {"preStart":{"command":[...],"timeoutSeconds"},"periodic":[{"name","schedule",
 *     "command":[...],"timeoutSeconds"}]} (contract/newest.md 3.5). Strict: unknown members are
 *     refused; at most 64 periodic hooks. The order: mounts, preStart, the scheduler, the
 *     entrypoint, the answer. Whoever claims waits up to preStart's timeout (60 s when it has none)
 *     and 15 s more; meanwhile GET /ping answers 200, a second claim 409, everything else 503. If
 *     preStart fails the answer is 400, its message has the outcome and the end of the output
 *     (about 300 bytes), and the agent ends with preStart's exit status, 128 + signal, 124 after a
 *     timeout or 127 when it could not be started. A claimer that goes away ends nothing: preStart
 *     goes on and the entrypoint starts when it succeeds. So a gateway that finds such a sandbox
 *     without having confirmed it removes it.
 * deadline: when the sandbox's time is over, Unix ms; 0 or absent: never. now: the claimer's clock, for
 *     clocks differ. The agent ends the sandbox WATCHDOG_GRACE_MS (execd/exec/watchdog.h) after it if
 *     nobody else does. It counts from when the entrypoint runs. A deadline that moves is told by
 *     POST /internal/deadline {"deadline","now"} with the token: 200; 400 bad field; 503 not yet open.
 *     Agents before this one answer 404 and have no such watch.
 * Once claimed every route but /ping needs the token in AGENT_TOKEN_HEADER. */
#pragma once

#define AGENT_PORT 44772
#define AGENT_TOKEN_HEADER "X-EXECD-ACCESS-TOKEN"
#define AGENT_CLAIM_PATH "/internal/claim"
#define AGENT_DEADLINE_PATH "/internal/deadline"
#define AGENT_ARG_HELD "--held"
#define AGENT_ARG_ID "--id="
#define AGENT_ARG_CLAIM_SHA256 "--claim-sha256="
#define AGENT_ARG_ISOLATION "--isolation" /* CAP_SYS_ADMIN is for isolated sessions alone */
/* Upper layers of isolated sessions: a tmpfs of such a sandbox, as an overlay cannot lie on another. */
#define AGENT_ISOLATION_DIR "/var/lib/execd/isolation"
#define AGENT_HOME "/opt/opensandbox"      /* small tmpfs of the sandbox, writable */
#define AGENT_DIR "/opt/opensandbox/agent" /* read-only volume with the agent */
#define AGENT_PATH "/opt/opensandbox/agent/execd"
/* codes of a refused claim (400) that are not about the entrypoint */
#define AGENT_LIFECYCLE_INVALID "EXECD::LIFECYCLE_INVALID"
#define AGENT_PRE_START_FAILED "EXECD::PRE_START_FAILED"
#define AGENT_MOUNT_REFUSED "EXECD::MOUNT_REFUSED"
#define AGENT_CA_REFUSED "EXECD::CA_REFUSED"
#define AGENT_ENV_FILE "/opt/opensandbox/.env" /* default of EXECD_ENVS */

enum {
    AGENT_CLAIM_MAX = 1 << 20,       /* bytes of the claim's body */
    AGENT_PRE_START_MORE_MS = 15000, /* of the claim's answer: to end a hook that takes too long */
    AGENT_EXIT_REFUSED = 126,        /* exit status after a refused claim */
};
