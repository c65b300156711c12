/* Configuration: upstream's TOML keys (contract/lifecycle.md 13) and our own tables, with
 * environment overrides. One row per option in config.c. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct buf;
struct err;
struct json_t;

enum { CONFIG_LIST_MAX = 48 };

struct config {
    /* [server] */
    char *host; /* listen address; "0.0.0.0" listens on IPv6 as well */
    int64_t port;
    char *api_key; /* NULL: none */
    char *eip;     /* host of endpoints as clients reach us; NULL: see api/endpoints.c */
    int64_t max_sandbox_timeout_s; /* 0: no cap */
    int64_t keep_alive_s;
    int64_t max_connections; /* limit_concurrency; 0: our own bound */
    int64_t graceful_s;
    int64_t backlog;
    int64_t job_threads;
    char *trusted_proxies[CONFIG_LIST_MAX + 1]; /* addresses whose X-Forwarded-* count */
    /* [log] */
    char *log_level;
    /* [runtime] */
    char *runtime_type;
    char *line_endings; /* auto, keep, strip: design decision 21 */
    /* [docker] */
    char *network_mode;
    int64_t api_timeout_s;
    char *publish_host;
    char *drop_capabilities[CONFIG_LIST_MAX + 1]; /* NULL-terminated, as all lists */
    char *sandbox_binds[CONFIG_LIST_MAX + 1];     /* "source:target[:ro|:rw]", for every sandbox */
    char *apparmor_profile;
    char *seccomp_profile;
    bool no_new_privileges;
    int64_t pids_limit;
    struct json_t *sandbox_env; /* object of strings for every sandbox; NULL: none */
    /* [store] */
    char *store_path;
    /* [storage] */
    char *allowed_host_paths[CONFIG_LIST_MAX + 1];
    char *ossfs_mount_root;
    /* [secure_runtime] */
    char *secure_type;
    char *secure_docker_runtime;
    /* [proxy] */
    bool proxy_require_key; /* proxied requests need the key as well */
    bool proxy_pass_login;  /* Authorization and Cookie reach the sandboxes' ports */
    /* [renew_intent] */
    bool renew_enabled;
    int64_t renew_interval_s; /* between two renewals of one sandbox */
    /* [relay] */
    bool relay_enabled; /* ports of ours lead to ports of sandboxes, on demand */
    char *relay_host;
    /* [snapshots] */
    bool snapshots_allow_paused; /* of paused sandboxes as well */
    int64_t snapshots_timeout_s; /* for one capture */
    int64_t snapshots_workers;   /* captures at a time */
    int64_t snapshots_max;       /* that are kept */
    /* ours */
    char *engine;              /* [engine] socket, or DOCKER_HOST */
    int64_t pull_timeout_s;    /* [engine] pull_timeout_seconds */
    bool read_only_root;       /* [sandbox] read_only_root */
    int64_t log_max_mb;        /* [sandbox] log_max_mb: of output, in two files each; 0: no cap */
    int64_t ready_timeout_s;   /* [sandbox] ready_timeout_seconds */
    int64_t create_wait_s;     /* [sandbox] create_wait_seconds */
    int64_t default_timeout_s; /* [sandbox] default_timeout_seconds; 0: none */
    bool cpu_hints;            /* [sandbox] cpu_hints */
    int64_t stop_grace_s;      /* [sandbox] stop_grace_seconds */
    int64_t sweep_interval_s;  /* [sandbox] sweep_interval_seconds */
    int64_t ended_keep_s;      /* [sandbox] keep_ended_seconds */
    int64_t quarantine_s;      /* [sandbox] quarantine_seconds */
    char *agent_dir;           /* [agent] dir: a development agent */
    char *file;                /* what was read; NULL: none */
    bool insecure;             /* OPENSANDBOX_INSECURE_SERVER=YES: may run without a key */
};

/* Defaults, then the file at path (NULL: none), then the environment. What deserves a word at
 * start (unknown keys with their lines, keys without effect, differences from upstream's
 * defaults) is appended to notes, one line each. The result needs config_done. */
int config_load(const char *path, struct config *out, struct buf *notes, struct err *e);
void config_done(struct config *c);

/* Exact match in a NULL-terminated list; NULL list: false. */
bool config_list_has(const char *const *list, const char *s);

/* --config, then SANDBOX_CONFIG_PATH, then ~/.sandbox.toml if it exists, else NULL. The caller
 * frees. */
char *config_find(const char *option);
