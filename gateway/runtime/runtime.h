/* The runtime table: what a backend can do with a sandbox, in sandbox verbs. Docker is the first
 * implementation; nothing above this header knows which one runs.
 *
 * Every verb may block (engine calls) and has a deadline of its own; call them from the job pool
 * only. All are safe from any thread; verbs on the same sandbox are serialised by the caller.
 * ids are sandbox ids (UUIDv4), never engine ids. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct runtime;

enum { RUNTIME_ID = 37, RUNTIME_ADDR = 64, RUNTIME_TEXT = 256 };

/* What to make. Strings are borrowed for the call. */
struct runtime_spec {
    const char *id;
    const char *image;
    const char *registry_user; /* NULL: anonymous */
    const char *registry_password;
    const char *platform_os; /* NULL: the engine's own */
    const char *platform_arch;
    int64_t memory_bytes;     /* 0: no limit */
    int64_t nano_cpus;        /* 0: no limit */
    const char *claim_sha256; /* 64 hex digits: common/agent/wire.h */
};

/* Where a started sandbox is reached. */
struct runtime_place {
    char address[RUNTIME_ADDR];      /* as the gateway dials it, no port */
    uint16_t agent_port;             /* on address */
    char host_address[RUNTIME_ADDR]; /* "127.0.0.1": where the agent is published; "" when not */
    uint16_t host_port;
};

enum runtime_state {
    RUNTIME_MADE, /* exists, was never started */
    RUNTIME_RUNNING,
    RUNTIME_PAUSED,
    RUNTIME_ENDED,
    RUNTIME_UNKNOWN,
};

struct runtime_status {
    char id[RUNTIME_ID];
    enum runtime_state state;
    int exit_code; /* of RUNTIME_ENDED */
    bool oom_killed;
    int64_t ended_ms; /* wall; 0 when not ended */
    struct runtime_place place;
};

struct runtime_list {
    struct runtime_status *items;
    size_t len;
};

/* One const instance per backend, listed in registry.c. A NULL verb means "this backend cannot":
 * the wrappers below answer ERRC_UNSUPPORTED. */
struct runtime_ops {
    const char *name; /* value of runtime.type in the configuration */

    /* Prepares what every sandbox needs (network, agent volume). Idempotent, and cheap while the
     * engine stays the same: call it at start and before every sweep. start_held does it too when
     * something is missing. */
    int (*prepare)(struct runtime *rt, struct err *e);
    /* Makes and starts a held sandbox and tells where it is. Not idempotent: the id must be new.
     * May pull the image first. On failure nothing of it is left, or what is left carries the
     * id so that remove finds it. Errors carry the contract's codes (lifecycle.md 1.6):
     * image cannot be had: DOCKER::SANDBOX_IMAGE_PULL_FAILED; else DOCKER::SANDBOX_START_FAILED. */
    int (*start_held)(struct runtime *rt, const struct runtime_spec *spec,
                      struct runtime_place *place, struct err *e);
    /* Waits until the agent answers and hands it the claim (common/agent/wire.h), within
     * deadline_ms. ERRC_FORBIDDEN when the agent refuses it (a security event), ERRC_INVALID with
     * DOCKER::INVALID_ENTRYPOINT when the claim cannot be carried out. id is for finding out what
     * became of a sandbox that ended meanwhile. */
    int (*claim)(struct runtime *rt, const char *id, const struct runtime_place *place,
                 const json_t *claim, int deadline_ms, struct err *e);
    /* Ends and removes the sandbox and all that belongs to it. Idempotent: 0 when it is gone. */
    int (*remove)(struct runtime *rt, const char *id, struct err *e);
    /* ERRC_CONFLICT when the sandbox is not running / not paused; ERRC_NOT_FOUND when gone. */
    int (*pause)(struct runtime *rt, const char *id, struct err *e);
    int (*resume)(struct runtime *rt, const char *id, struct err *e);
    /* ERRC_NOT_FOUND when there is none. */
    int (*status)(struct runtime *rt, const char *id, struct runtime_status *out, struct err *e);
    /* All of this instance, whatever their state. The caller frees with runtime_list_free.
     * Cheap: oom_killed and ended_ms of ended ones are filled by status only. */
    int (*list)(struct runtime *rt, struct runtime_list *out, struct err *e);
    /* True when addr (text form) belongs to the network of the sandboxes. Never blocks. */
    bool (*is_sandbox_address)(struct runtime *rt, const char *addr);
    /* Frees. Sandboxes keep running; without any, what was prepared for them is removed. */
    void (*close)(struct runtime *rt);
};

struct runtime {
    const struct runtime_ops *ops; /* backends embed this struct as their first member */
};

/* Wrappers with the ops' contracts. */
int runtime_prepare(struct runtime *rt, struct err *e);
int runtime_start_held(struct runtime *rt, const struct runtime_spec *spec,
                       struct runtime_place *place, struct err *e);
int runtime_claim(struct runtime *rt, const char *id, const struct runtime_place *place,
                  const json_t *claim, int deadline_ms, struct err *e);
int runtime_remove(struct runtime *rt, const char *id, struct err *e);
int runtime_pause(struct runtime *rt, const char *id, struct err *e);
int runtime_resume(struct runtime *rt, const char *id, struct err *e);
int runtime_status(struct runtime *rt, const char *id, struct runtime_status *out, struct err *e);
int runtime_list(struct runtime *rt, struct runtime_list *out, struct err *e);
bool runtime_is_sandbox_address(struct runtime *rt, const char *addr);
void runtime_close(struct runtime *rt); /* takes NULL */
void runtime_list_free(struct runtime_list *l);

/* What a backend is told by the configuration. Strings are borrowed and outlive the runtime. */
struct runtime_config {
    const char *instance;     /* UUID of this gateway's database: labels and names */
    const char *engine;       /* unix socket path of the engine */
    int api_timeout_s;        /* deadline of one engine call; contract default 180 */
    int pull_timeout_s;       /* deadline of one image pull */
    const char *network_mode; /* "bridge": our own network; "default-bridge"; else a name */
    const char *publish_host; /* address the agent's port is published on; default 127.0.0.1 */
    const char *const *drop_capabilities; /* NULL-terminated */
    const char *apparmor_profile;         /* NULL or "": engine default */
    const char *seccomp_profile;          /* path of a JSON file; NULL or "": engine default */
    const char *docker_runtime;           /* "runsc", ...; NULL: engine default */
    bool no_new_privileges;
    bool read_only_root;
    bool keep_host_open;   /* true: no nft rules are set (tests; a firewall of the operator) */
    int pids_limit;        /* 0: none */
    const char *agent_dir; /* directory with a development agent; NULL: the embedded one */
    const void *agent;     /* the embedded execd */
    size_t agent_len;
    bool (*crash)(const char *step); /* test hook called at each step; NULL: none */
};

/* type as in the configuration ("docker"). 0: *out is open (the engine need not answer yet). */
int runtime_open(const char *type, const struct runtime_config *cfg, struct runtime **out,
                 struct err *e);
