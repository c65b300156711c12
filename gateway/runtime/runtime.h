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

struct buf;
struct err;
struct runtime;

enum {
    RUNTIME_ID = 37,
    RUNTIME_ADDR = 64,
    RUNTIME_TEXT = 256,
    RUNTIME_VOLUME = 256, /* a volume's name */
    RUNTIME_PATH = 1024,  /* a path on the engine's host */
    RUNTIME_GPUS_ALL = -1,
};

/* An image as a client names it. Strings are borrowed for the call. */
struct runtime_image {
    const char *ref;           /* NULL when snapshot_id is set */
    const char *snapshot_id;   /* made by snapshot_make; NULL: ref */
    const char *registry_user; /* NULL: anonymous */
    const char *registry_password;
    const char *platform_os; /* NULL: the engine's own */
    const char *platform_arch;
};

/* A directory or file, or a named volume, at a path of the sandbox. */
struct runtime_mount {
    bool named; /* source is a volume's name; else a path on the engine's host, which exists */
    const char *source;
    const char *target; /* absolute */
    bool read_only;
};

/* What to make. Strings are borrowed for the call. */
struct runtime_spec {
    const char *id;
    struct runtime_image image;
    int64_t memory_bytes; /* 0: no limit; swap is not added to it */
    int64_t nano_cpus;    /* 0: no limit */
    int64_t disk_bytes;   /* of the writable layer; 0: no limit */
    int gpus;             /* 0: none; RUNTIME_GPUS_ALL */
    const struct runtime_mount *mounts;
    size_t n_mounts;
    const char *claim_sha256; /* 64 hex digits: common/agent/wire.h */
    bool isolation;           /* its agent may build cages: CAP_SYS_ADMIN, see README */
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
    int64_t ended_ms; /* wall, of its last end, though it may run again; 0: it never ended */
    struct runtime_place place;
};

struct runtime_list {
    struct runtime_status *items;
    size_t len;
};

/* News of the runtime about a sandbox of this instance. It is old when it arrives: a snapshot, for
 * one, freezes its sandbox for a moment and tells PAUSED and RESUMED. Look at status before acting. */
enum runtime_event_kind {
    RUNTIME_EVENT_STARTED,
    RUNTIME_EVENT_PAUSED,
    RUNTIME_EVENT_RESUMED,
    RUNTIME_EVENT_OOM,   /* a process was killed for want of memory; the sandbox may live on */
    RUNTIME_EVENT_ENDED, /* exit_code is set */
    RUNTIME_EVENT_REMOVED,
    RUNTIME_EVENT_SYNC, /* no id: the stream runs (again), something may have been missed */
    RUNTIME_EVENT_LOST, /* no id: the stream broke; it is being opened again */
};

struct runtime_event {
    enum runtime_event_kind kind;
    char id[RUNTIME_ID];
    int64_t at_ms; /* wall, the runtime's clock */
    int exit_code;
};

/* Called in a thread of the runtime, one event at a time; must not block for long. */
typedef void (*runtime_event_fn)(void *arg, const struct runtime_event *ev);

struct runtime_log_query {
    int tail;         /* lines from the end; 0: all */
    int64_t since_ms; /* wall; 0: from the beginning */
    bool timestamps;  /* each line begins with its RFC 3339 time and a space */
};

struct runtime_volume {
    char driver[64];
    char path[RUNTIME_PATH];   /* its directory on the engine's host; "" when the driver has none */
    char made_for[RUNTIME_ID]; /* the sandbox whose create made it; "": somebody else did */
    bool internal;             /* part of the server itself (agent): no sandbox may mount it */
};

/* One const instance per backend, listed in registry.c. A NULL verb means "this backend cannot":
 * the wrappers below answer ERRC_UNSUPPORTED. */
struct runtime_ops {
    const char *name; /* value of runtime.type in the configuration */

    /* Prepares what every sandbox needs (network, agent volume). Idempotent, and cheap while the
     * engine stays the same: call it at start and before every sweep. start_held does it too when
     * something is missing. */
    int (*prepare)(struct runtime *rt, struct err *e);
    /* Gets image onto the engine: starts the pull or joins the one that runs, and waits up to
     * wait_ms. A pull has a thread and a time budget of its own and goes on when nobody waits.
     * 0: it is there. 1: still being pulled, progress says how far. -1 with
     * DOCKER::SANDBOX_IMAGE_PULL_FAILED, or ERRC_BUSY when too many pulls run. Looks at the engine
     * first: an image that is there and fits the platform is not pulled. */
    int (*pull)(struct runtime *rt, const struct runtime_image *image, int wait_ms,
                char progress[RUNTIME_TEXT], struct err *e);
    /* Makes and starts a held sandbox and tells where it is. Not idempotent: the id must be new.
     * Never pulls: ERRC_NOT_FOUND when the image is not there or of another platform, and for
     * nothing else (with snapshot_id: SNAPSHOT::INVALID_RESTORE_CONFIG and ERRC_CONFLICT). On failure nothing of it is left, or
     * what is left carries the id so that remove finds it. Other errors carry the contract's codes
     * (lifecycle.md 1.6): DOCKER::SANDBOX_START_FAILED, SANDBOX::INVALID_PARAMETER (ERRC_INVALID)
     * for what the client can put right. */
    int (*start_held)(struct runtime *rt, const struct runtime_spec *spec,
                      struct runtime_place *place, struct err *e);
    /* Waits until the agent answers and hands it the claim (common/agent/wire.h), within
     * deadline_ms. ERRC_FORBIDDEN when the agent refuses it (a security event), ERRC_INVALID with
     * DOCKER::INVALID_ENTRYPOINT when the claim cannot be carried out. id is for finding out what
     * became of a sandbox that ended meanwhile. */
    int (*claim)(struct runtime *rt, const char *id, const struct runtime_place *place,
                 const json_t *claim, int deadline_ms, struct err *e);
    /* Tells a claimed agent when its sandbox's time is over (common/agent/wire.h), within timeout_ms.
     * ERRC_UNSUPPORTED when it cannot be told: its agent is older. */
    int (*tell_deadline)(struct runtime *rt, const struct runtime_place *place, const char *token,
                         int64_t deadline_ms, int64_t now_ms, int timeout_ms, struct err *e);
    /* Ends it gracefully: TERM, up to grace_ms, KILL. 0 also when it does not run or is gone. */
    int (*stop)(struct runtime *rt, const char *id, int grace_ms, struct err *e);
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
    /* Reports what happens to sandboxes from now on, beginning with RUNTIME_EVENT_SYNC, and
     * reconnects by itself. Once per runtime, before close; unwatch returns when fn runs no more. */
    int (*watch)(struct runtime *rt, runtime_event_fn fn, void *arg, struct err *e);
    void (*unwatch)(struct runtime *rt);

    /* Appends the sandbox's output (stdout and stderr as they came), valid UTF-8, as far as it fits:
     * *cut when its beginning was left out. Works on ended ones. ERRC_NOT_FOUND when gone. */
    int (*logs)(struct runtime *rt, const char *id, const struct runtime_log_query *q,
                struct buf *out, bool *cut, struct err *e);
    /* Appends "name: value" lines about the sandbox for a person: image, state, limits, networks,
     * ports, mounts. Nothing secret. */
    int (*describe)(struct runtime *rt, const char *id, struct buf *out, struct err *e);

    /* Named volumes. get: ERRC_NOT_FOUND when there is none. make: labelled as made for the
     * sandbox; 0 also when it exists (get tells for whom it was made). remove: only when it was
     * made for this sandbox; 0 also when it was not or is gone; ERRC_CONFLICT while in use. */
    int (*volume_get)(struct runtime *rt, const char *name, struct runtime_volume *out,
                      struct err *e);
    int (*volume_make)(struct runtime *rt, const char *name, const char *sandbox_id, struct err *e);
    int (*volume_remove)(struct runtime *rt, const char *name, const char *sandbox_id,
                         struct err *e);

    /* Snapshots of a sandbox's files, without volumes, labels, token or environment of the sandbox.
     * make freezes it meanwhile (paused ones stay so); within timeout_ms; *size_bytes is what it
     * adds to the image. Making it again with the same id is allowed after a crash: it finishes
     * what is complete, without the sandbox, and begins anew else. ERRC_NOT_FOUND when the sandbox
     * is gone, ERRC_TIMEOUT, else SNAPSHOT::RUNTIME_CREATE_FAILED (_CONFLICT: it is being removed).
     * get: ERRC_NOT_FOUND. remove: 0 when gone, ERRC_CONFLICT while a container uses it. */
    int (*snapshot_make)(struct runtime *rt, const char *sandbox_id, const char *snapshot_id,
                         int timeout_ms, int64_t *size_bytes, struct err *e);
    int (*snapshot_get)(struct runtime *rt, const char *snapshot_id, struct err *e);
    int (*snapshot_remove)(struct runtime *rt, const char *snapshot_id, struct err *e);

    /* Appends counters in Prometheus text. */
    void (*metrics)(struct runtime *rt, struct buf *out);
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
int runtime_tell_deadline(struct runtime *rt, const struct runtime_place *place, const char *token,
                          int64_t deadline_ms, int64_t now_ms, int timeout_ms, struct err *e);
int runtime_pull(struct runtime *rt, const struct runtime_image *image, int wait_ms,
                 char progress[RUNTIME_TEXT], struct err *e);
int runtime_stop(struct runtime *rt, const char *id, int grace_ms, struct err *e);
int runtime_remove(struct runtime *rt, const char *id, struct err *e);
int runtime_pause(struct runtime *rt, const char *id, struct err *e);
int runtime_resume(struct runtime *rt, const char *id, struct err *e);
int runtime_status(struct runtime *rt, const char *id, struct runtime_status *out, struct err *e);
int runtime_list(struct runtime *rt, struct runtime_list *out, struct err *e);
int runtime_watch(struct runtime *rt, runtime_event_fn fn, void *arg, struct err *e);
void runtime_unwatch(struct runtime *rt); /* safe without watch */
int runtime_logs(struct runtime *rt, const char *id, const struct runtime_log_query *q,
                 struct buf *out, bool *cut, struct err *e);
int runtime_describe(struct runtime *rt, const char *id, struct buf *out, struct err *e);
int runtime_volume_get(struct runtime *rt, const char *name, struct runtime_volume *out,
                       struct err *e);
int runtime_volume_make(struct runtime *rt, const char *name, const char *sandbox_id,
                        struct err *e);
int runtime_volume_remove(struct runtime *rt, const char *name, const char *sandbox_id,
                          struct err *e);
int runtime_snapshot_make(struct runtime *rt, const char *sandbox_id, const char *snapshot_id,
                          int timeout_ms, int64_t *size_bytes, struct err *e);
int runtime_snapshot_get(struct runtime *rt, const char *snapshot_id, struct err *e);
int runtime_snapshot_remove(struct runtime *rt, const char *snapshot_id, struct err *e);
void runtime_metrics(struct runtime *rt, struct buf *out);
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
    bool keep_host_open;      /* true: no nft rules are set (tests; a firewall of the operator) */
    int pids_limit;           /* 0: none */
    int log_max_mb;           /* size of each of the two files of a sandbox's output; 0: no cap */
    const char *const *binds; /* "source:target[:ro|:rw]" for every sandbox; NULL-terminated */
    const char *agent_dir;    /* directory with a development agent; NULL: the embedded one */
    const void *agent;        /* the embedded execd */
    size_t agent_len;
    bool (*crash)(const char *step); /* test hook called at each step; NULL: none */
};

/* type as in the configuration ("docker"). 0: *out is open (the engine need not answer yet). */
int runtime_open(const char *type, const struct runtime_config *cfg, struct runtime **out,
                 struct err *e);
