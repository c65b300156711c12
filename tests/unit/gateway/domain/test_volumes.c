/* Volumes of sandboxes over the fake runtime and a database in memory: who made what, what goes when. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "common/base/keyed_lock.h"
#include "common/base/log.h"
#include "gateway/domain/creates.h"
#include "gateway/domain/lifecycle.h"
#include "gateway/domain/pins.h"
#include "gateway/domain/reconcile.h"
#include "gateway/domain/volumes.h"
#include "gateway/store/db.h"
#include "gateway/store/sandbox_store.h"
#include "gateway/store/volume_store.h"
#include "tests/fakes/fake_runtime.h"

#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define GONE "22222222-2222-4222-8222-222222222222"

struct world {
    char top[64];
    char allowed[96];
    char buckets[128];
    struct db *db;
    struct runtime *rt;
    struct keyed_locks *locks;
    struct volumes *volumes;
    struct lifecycle lc;
    struct reconcile *reconcile;
    json_t *entrypoint;
    struct volume_list list;
    struct err e;
};

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static int setup(void **state)
{
    static const struct reconcile_config cfg = { .interval_ms = 1000,
                                                 .quarantine_ms = 5000,
                                                 .ended_keep_ms = 100000 };
    struct world *w = calloc(1, sizeof(*w));
    struct volumes_config vc = { 0 };

    log_set_level(LOG_OFF);
    (void)snprintf(w->top, sizeof(w->top), "/tmp/sandgate-vol-XXXXXX");
    assert_non_null(mkdtemp(w->top));
    (void)snprintf(w->allowed, sizeof(w->allowed), "%s/allowed", w->top);
    const char *const allowed[] = { w->allowed, NULL };
    assert_int_equal(db_open(":memory:", &w->db, &w->e), 0);
    w->rt = fake_runtime_new();
    w->locks = keyed_locks_new();
    vc.db = w->db;
    vc.rt = w->rt;
    vc.allowed_host_paths = allowed;
    (void)snprintf(w->buckets, sizeof(w->buckets), "%s/oss", w->allowed);
    vc.ossfs.all = w->buckets;
    assert_int_equal(volumes_new(&vc, &w->volumes, &w->e), 0);
    w->lc = (struct lifecycle){ .db = w->db,
                                .rt = w->rt,
                                .locks = w->locks,
                                .volumes = w->volumes,
                                .clock = &clock_system,
                                .ready_timeout_ms = 1000,
                                .line_endings = "auto" };
    w->reconcile = reconcile_new(&w->lc, &cfg, &w->e);
    w->entrypoint = json_pack("[s]", "true");
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    reconcile_free(w->reconcile);
    volumes_free(w->volumes);
    keyed_locks_free(w->locks);
    runtime_close(w->rt);
    db_close(w->db);
    json_decref(w->entrypoint);
    (void)nftw(w->top, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(w);
    return 0;
}

static struct volume_req *add(struct world *w, enum volume_backend backend, const char *name,
                              const char *mount_path)
{
    struct volume_req *v = &w->list.items[w->list.len++];

    *v = (struct volume_req){
        .name = name, .mount_path = mount_path, .backend = backend, .create = true
    };
    return v;
}

static struct volume_req *add_named(struct world *w, const char *name, const char *mount_path,
                                    const char *claim)
{
    struct volume_req *v = add(w, VOLUME_NAMED, name, mount_path);

    v->claim = claim;
    return v;
}

static int create(struct world *w, char id[RUNTIME_ID])
{
    struct create_req rq = { .image = "img:1", .timeout_s = 600, .entrypoint = w->entrypoint };
    AUTO_SANDBOX struct sandbox sb = { 0 };

    rq.volumes = w->list;
    memset(&w->e, 0, sizeof(w->e));
    if (lifecycle_create(&w->lc, &rq, &sb, &w->e) < 0)
        return -1;
    memcpy(id, sb.id, RUNTIME_ID);
    return 0;
}

static size_t rows(struct world *w)
{
    struct volume_rows left = { 0 };
    size_t n;

    assert_int_equal(volume_store_left(w->db, &left, &w->e), 0);
    n = left.len;
    free(left.items);
    return n;
}

static size_t rows_of(struct world *w, const char *id)
{
    struct volume_rows of = { 0 };
    size_t n;

    assert_int_equal(volume_store_of(w->db, id, &of, &w->e), 0);
    n = of.len;
    free(of.items);
    return n;
}

static int64_t records(struct world *w)
{
    struct sandbox_page p;
    int64_t total;

    assert_int_equal(lifecycle_list(&w->lc, &(struct sandbox_query){ .limit = 10 }, &p, NULL), 0);
    total = p.total;
    sandbox_page_done(&p);
    return total;
}

static json_t *claimed_mounts(struct world *w, json_t **doc)
{
    char *text = fake_runtime_last_claim(w->rt);

    *doc = json_loads(text, 0, NULL);
    free(text);
    return json_object_get(*doc, "mounts");
}

static void a_host_directory_is_mounted_and_identified(void **state)
{
    struct world *w = *state;
    struct volume_req *v = add(w, VOLUME_HOST, "h", "/data/");
    char path[160];
    char want[400];
    char id[RUNTIME_ID];
    struct stat st;
    json_t *doc;
    json_t *m;
    char *spec;

    (void)snprintf(path, sizeof(path), "%s/new", w->allowed);
    v->host_path = path;
    v->sub_path = "sub";
    v->read_only = true;
    if (create(w, id) < 0)
        fail_msg("%s", w->e.msg);
    spec = fake_runtime_last_spec(w->rt);
    (void)snprintf(want, sizeof(want), "%s/new/sub:/data:ro", w->allowed);
    assert_contains(spec, want);
    free(spec);
    m = json_array_get(claimed_mounts(w, &doc), 0);
    assert_string_equal(json_string_value(json_object_get(m, "path")), "/data");
    (void)snprintf(path, sizeof(path), "%s/new/sub", w->allowed);
    assert_int_equal(stat(path, &st), 0);
    (void)snprintf(want, sizeof(want), "%ju", (uintmax_t)st.st_ino);
    assert_string_equal(json_string_value(json_object_get(m, "ino")), want);
    (void)snprintf(want, sizeof(want), "%ju", (uintmax_t)st.st_dev);
    assert_string_equal(json_string_value(json_object_get(m, "dev")), want);
    json_decref(doc);
}

static void a_refused_request_leaves_no_record(void **state)
{
    struct world *w = *state;
    struct volume_req *v = add(w, VOLUME_HOST, "h", "/work");
    char id[RUNTIME_ID];

    v->host_path = "/etc";
    assert_int_equal(create(w, id), -1);
    assert_string_equal(w->e.api_code, "VOLUME::HOST_PATH_NOT_ALLOWED");
    assert_int_equal(w->e.code, ERRC_INVALID);
    assert_int_equal(records(w), 0);
    assert_int_equal(fake_runtime_calls(w->rt, "start_held"), 0);
    w->list.len = 0;
    v = add_named(w, "n", "/data", "missing");
    v->create = false;
    assert_int_equal(create(w, id), -1);
    assert_string_equal(w->e.api_code, "VOLUME::PVC_NOT_FOUND");
    fake_runtime_put_volume(w->rt, "missing", "nfs", "", false);
    v->sub_path = "x";
    assert_int_equal(create(w, id), -1);
    assert_string_equal(w->e.api_code, "VOLUME::PVC_SUBPATH_UNSUPPORTED_DRIVER");
    fake_runtime_put_volume(w->rt, "missing", "local", "/x", true);
    assert_int_equal(create(w, id), -1);
    assert_string_equal(w->e.api_code, "VOLUME::INVALID_PVC_NAME");
    fake_runtime_fail(w->rt, "volume_get", 1, ERRC_TIMEOUT, NULL);
    assert_int_equal(create(w, id), -1);
    assert_string_equal(w->e.api_code, "VOLUME::PVC_INSPECT_FAILED");
    w->lc.volumes = NULL;
    assert_int_equal(create(w, id), -1);
    assert_string_equal(w->e.api_code, "VOLUME::UNSUPPORTED_BACKEND");
    assert_int_equal(records(w), 0);
}

static void buckets_of_sandboxes_are_out_of_reach(void **state)
{
    static const char *const rows[] = { "/oss", "/oss/gateway/sandbox/new", "/oss/gateway", "" };
    struct world *w = *state;
    struct volume_req *v = add(w, VOLUME_HOST, "h", "/data");
    char path[160];
    char id[RUNTIME_ID];
    size_t i;

    assert_int_equal(mkdir(w->buckets, 0755), 0);
    (void)snprintf(path, sizeof(path), "%s/gateway", w->buckets);
    assert_int_equal(mkdir(path, 0755), 0);
    v->host_path = path;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s%s", w->allowed, rows[i]);
        assert_int_equal(create(w, id), -1);
        assert_string_equal(w->e.api_code, "VOLUME::HOST_PATH_NOT_ALLOWED");
    }
    (void)snprintf(path, sizeof(path), "%s/gateway/sandbox", w->buckets);
    assert_int_equal(access(path, F_OK), -1); /* nor was anything made there */
    (void)snprintf(path, sizeof(path), "%s/ossify", w->allowed);
    assert_int_equal(create(w, id), 0);
}

static void a_made_volume_is_kept_or_goes_as_asked(void **state)
{
    struct world *w = *state;
    char id[RUNTIME_ID];

    (void)add_named(w, "k", "/k", "keep");
    add_named(w, "g", "/g", "go")->delete_with_sandbox = true;
    (void)add_named(w, "b1", "/b1", "both");
    add_named(w, "b2", "/b2", "both")->delete_with_sandbox = true;
    fake_runtime_put_volume(w->rt, "old", "local", "/x", false);
    add_named(w, "o", "/o", "old")->delete_with_sandbox = true;
    if (create(w, id) < 0)
        fail_msg("%s", w->e.msg);
    assert_int_equal(rows_of(w, id), 1); /* only what has to go is still our concern */
    assert_int_equal(lifecycle_delete(&w->lc, id, NULL, &w->e), 0);
    assert_false(fake_runtime_has_volume(w->rt, "go"));
    assert_true(fake_runtime_has_volume(w->rt, "keep"));
    assert_true(fake_runtime_has_volume(w->rt, "both")); /* one of the two wants it kept */
    assert_true(fake_runtime_has_volume(w->rt, "old"));
    assert_int_equal(rows_of(w, id), 0);
}

static void a_failed_create_removes_what_it_made(void **state)
{
    static const char *const verbs[] = { "start_held", "claim", "volume_make" };
    struct world *w = *state;
    char id[RUNTIME_ID];
    size_t i;

    fake_runtime_put_volume(w->rt, "old", "local", "/x", false);
    (void)add_named(w, "o", "/o", "old");
    (void)add_named(w, "k", "/k", "keep");
    add_named(w, "g", "/g", "go")->delete_with_sandbox = true;
    for (i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        fake_runtime_fail(w->rt, verbs[i], 1, ERRC_INTERNAL, NULL);
        assert_int_equal(create(w, id), -1);
        assert_false(fake_runtime_has_volume(w->rt, "keep"));
        assert_false(fake_runtime_has_volume(w->rt, "go"));
        assert_true(fake_runtime_has_volume(w->rt, "old"));
        assert_int_equal(rows(w), 0);
        assert_int_equal(records(w), 0);
    }
}

static void a_failed_pull_removes_what_was_made_before(void **state)
{
    struct world *w = *state;
    char id[RUNTIME_ID];

    (void)add_named(w, "k", "/k", "keep");
    fake_runtime_pull_slices(w->rt, 1);
    fake_runtime_fail(w->rt, "pull", 1, ERRC_INTERNAL, "DOCKER::SANDBOX_IMAGE_PULL_FAILED");
    assert_int_equal(create(w, id), -1);
    assert_string_equal(w->e.api_code, "DOCKER::SANDBOX_IMAGE_PULL_FAILED");
    assert_false(fake_runtime_has_volume(w->rt, "keep"));
    assert_int_equal(rows(w), 0);
}

/* The request is gone, and what it borrowed with it; then somebody deletes the sandbox. */
static void a_create_that_is_deleted_while_it_pulls(void **state)
{
    struct world *w = *state;
    struct creation *c;
    char claim[] = "keep";
    char id[RUNTIME_ID];

    w->lc.creates = creates_new(4);
    (void)add_named(w, "k", "/k", claim);
    fake_runtime_pull_slices(w->rt, 1);
    fake_runtime_hold(w->rt, "pull", "img:1");
    assert_int_equal(create(w, id), 0);
    memset(claim, 'x', sizeof(claim) - 1);
    memset(&w->list, 0, sizeof(w->list));
    assert_true(fake_runtime_has_volume(w->rt, "keep"));
    assert_int_equal(rows_of(w, id), 1);
    volumes_sweep(w->volumes);
    assert_true(fake_runtime_has_volume(w->rt, "keep"));
    c = creates_find(w->lc.creates, id);
    assert_int_equal(lifecycle_delete(&w->lc, id, NULL, &w->e), 0);
    fake_runtime_release(w->rt);
    if (c) {
        assert_int_equal(creates_wait(w->lc.creates, c, TEST_DEADLINE_MS, &w->e), -1);
        creates_unref(w->lc.creates, c);
    }
    assert_false(fake_runtime_has_volume(w->rt, "keep"));
    assert_int_equal(rows(w), 0);
    lifecycle_stop(&w->lc);
    creates_free(w->lc.creates);
}

static void what_cannot_be_removed_is_tried_again(void **state)
{
    struct world *w = *state;
    char id[RUNTIME_ID];

    add_named(w, "g", "/g", "go")->delete_with_sandbox = true;
    assert_int_equal(create(w, id), 0);
    fake_runtime_fail(w->rt, "volume_remove", 2, ERRC_CONFLICT, NULL); /* another one mounts it */
    assert_int_equal(lifecycle_delete(&w->lc, id, NULL, &w->e), 0);
    assert_int_equal(rows(w), 1);
    assert_int_equal(reconcile_once(w->reconcile, &w->e), 0);
    assert_true(fake_runtime_has_volume(w->rt, "go"));
    assert_int_equal(reconcile_once(w->reconcile, &w->e), 0);
    assert_false(fake_runtime_has_volume(w->rt, "go"));
    assert_int_equal(rows(w), 0);
}

static void a_volume_to_be_kept_that_found_a_use_stays(void **state)
{
    struct world *w = *state;
    char id[RUNTIME_ID];

    (void)add_named(w, "k", "/k", "keep");
    fake_runtime_fail(w->rt, "claim", 1, ERRC_INTERNAL, NULL);
    fake_runtime_fail(w->rt, "volume_remove", 1, ERRC_CONFLICT, NULL);
    assert_int_equal(create(w, id), -1);
    assert_true(fake_runtime_has_volume(w->rt, "keep"));
    assert_int_equal(rows(w), 0);
}

static void *create_and_delete(void *arg)
{
    struct world *w = arg;
    int i;

    for (i = 0; i < 10; i++) {
        struct create_req rq = { .image = "img:1", .timeout_s = 600, .entrypoint = w->entrypoint };
        AUTO_SANDBOX struct sandbox sb = { 0 };
        struct err e = { 0 };

        rq.volumes = w->list;
        if (lifecycle_create(&w->lc, &rq, &sb, &e) == 0)
            (void)lifecycle_delete(&w->lc, sb.id, NULL, &e);
        volumes_sweep(w->volumes);
    }
    return NULL;
}

static void many_at_once(void **state)
{
    struct world *w = *state;
    pthread_t threads[4];
    size_t i;

    add_named(w, "a", "/a", "one")->delete_with_sandbox = true;
    (void)add_named(w, "b", "/b", "two");
    fake_runtime_fail(w->rt, "claim", 7, ERRC_INTERNAL, NULL);
    for (i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, create_and_delete, w), 0);
    for (i = 0; i < 4; i++)
        (void)pthread_join(threads[i], NULL);
    volumes_sweep(w->volumes);
    assert_false(fake_runtime_has_volume(w->rt, "one"));
    assert_int_equal(rows(w), 0);
    assert_int_equal(records(w), 0);
}

/* The states that a kill leaves, taken up by the next sweep. */
static void a_kill_leaves_nothing_behind(void **state)
{
    struct world *w = *state;
    struct volume_row row = { .name = "half", .sandbox_id = GONE, .keep = true };

    assert_int_equal(volume_store_put(w->db, &row, &w->e), 0); /* after the intent */
    volumes_sweep(w->volumes);
    assert_int_equal(rows(w), 0);
    assert_int_equal(volume_store_put(w->db, &row, &w->e), 0); /* after the making */
    assert_int_equal(runtime_volume_make(w->rt, "half", GONE, &w->e), 0);
    volumes_sweep(w->volumes);
    assert_false(fake_runtime_has_volume(w->rt, "half"));
    assert_int_equal(rows(w), 0);
    assert_int_equal(volume_store_put(w->db, &row, &w->e), 0); /* somebody else's by now */
    fake_runtime_put_volume(w->rt, "half", "local", "/x", false);
    volumes_sweep(w->volumes);
    assert_true(fake_runtime_has_volume(w->rt, "half"));
    assert_int_equal(rows(w), 0);
}

static void the_sweep_leaves_creates_and_sandboxes_alone(void **state)
{
    struct world *w = *state;
    struct volume_plan *plan = NULL;
    struct volume_row row = { .name = "go", .sandbox_id = GONE };
    char id[RUNTIME_ID];

    add_named(w, "g", "/g", "go")->delete_with_sandbox = true;
    assert_int_equal(create(w, id), 0);
    assert_int_equal(reconcile_once(w->reconcile, &w->e), 0);
    assert_true(fake_runtime_has_volume(w->rt, "go"));
    assert_int_equal(rows_of(w, id), 1);
    assert_int_equal(lifecycle_delete(&w->lc, id, NULL, &w->e), 0);

    /* a sandbox that is gone left it, and a create that has no container yet is about to mount it */
    assert_int_equal(runtime_volume_make(w->rt, "go", GONE, &w->e), 0);
    assert_int_equal(volume_store_put(w->db, &row, &w->e), 0);
    assert_int_equal(volumes_plan(w->volumes, &w->list, id, &plan, &w->e), 0);
    assert_int_equal(volumes_bring_up(plan, &w->e), 0);
    volumes_sweep(w->volumes);
    assert_true(fake_runtime_has_volume(w->rt, "go"));
    assert_int_equal(rows(w), 1);
    volume_plan_free(plan);
    volumes_sweep(w->volumes);
    assert_false(fake_runtime_has_volume(w->rt, "go"));
}

static void two_parts_of_one_volume(void **state)
{
    struct world *w = *state;
    char dir[160];
    char want[400];
    char id[RUNTIME_ID];
    char *spec;
    json_t *doc;
    struct volume_req *v;

    (void)snprintf(dir, sizeof(dir), "%s/data", w->top);
    assert_int_equal(mkdir(dir, 0755), 0);
    fake_runtime_put_volume(w->rt, "vol", "local", dir, false);
    add_named(w, "a", "/a", "vol")->sub_path = "x/y";
    v = add_named(w, "b", "/b", "vol");
    v->sub_path = "z";
    v->read_only = true;
    (void)add_named(w, "c", "/c", "vol");
    if (create(w, id) < 0)
        fail_msg("%s", w->e.msg);
    spec = fake_runtime_last_spec(w->rt);
    (void)snprintf(want, sizeof(want), "%s/x/y:/a:rw", dir);
    assert_contains(spec, want);
    (void)snprintf(want, sizeof(want), "%s/z:/b:ro", dir);
    assert_contains(spec, want);
    assert_contains(spec, "\"vol:/c:rw\"");
    free(spec);
    assert_int_equal(json_array_size(claimed_mounts(w, &doc)), 2);
    json_decref(doc);
    /* a link that the owner of the volume put there */
    (void)snprintf(want, sizeof(want), "%s/etc", dir);
    assert_int_equal(symlink("/etc", want), 0);
    w->list.items[0].sub_path = "etc";
    assert_int_equal(create(w, id), -1);
    assert_string_equal(w->e.api_code, "VOLUME::INVALID_SUB_PATH");
    fake_runtime_put_volume(w->rt, "vol", "local", "/there/is/no/such/path", false);
    assert_int_equal(create(w, id), -1);
    assert_string_equal(w->e.api_code, "VOLUME::PVC_SUBPATH_UNSUPPORTED_DRIVER");
    assert_int_equal(records(w), 1);
}

static void a_cut_off_create_is_undone_with_its_volumes(void **state)
{
    struct world *w = *state;
    struct volume_row row = { .name = "half", .sandbox_id = GONE, .keep = true };
    char none[] = "{}";
    struct sandbox sb = { .id = GONE, .state = SANDBOX_PENDING, .created_ms = 1, .image = none };

    sb.entrypoint = sb.metadata = sb.extensions = none;
    assert_int_equal(sandbox_store_insert(w->db, &sb, &w->e), 0);
    assert_int_equal(volume_store_put(w->db, &row, &w->e), 0);
    assert_int_equal(runtime_volume_make(w->rt, "half", GONE, &w->e), 0);
    w->lc.started_ms = 2;
    assert_int_equal(reconcile_once(w->reconcile, &w->e), 0);
    assert_int_equal(reconcile_once(w->reconcile, &w->e), 0);
    assert_int_equal(records(w), 0);
    assert_false(fake_runtime_has_volume(w->rt, "half"));
    assert_int_equal(rows(w), 0);
}

/* ---- what the engine mounts ---- */

struct pinned {
    struct volumes *volumes;
    struct volume_plan *plan;
    char pins[128];
    char dir[128];
    struct stat was;
};

/* Volumes that hold their places below the world's directory, and one plan that is brought up. */
static void bring_up_pinned(struct world *w, struct pinned *p)
{
    const char *const allowed[] = { w->allowed, NULL };
    struct volumes_config vc = { .db = w->db, .rt = w->rt, .allowed_host_paths = allowed };

    (void)snprintf(p->pins, sizeof(p->pins), "%s/pins", w->top);
    (void)snprintf(p->dir, sizeof(p->dir), "%s/dir", w->allowed);
    vc.pins = p->pins;
    assert_int_equal(mkdir(p->dir, 0755), 0);
    assert_int_equal(stat(p->dir, &p->was), 0);
    assert_int_equal(volumes_new(&vc, &p->volumes, &w->e), 0);
    add(w, VOLUME_HOST, "h", "/data")->host_path = p->dir;
    assert_int_equal(volumes_plan(p->volumes, &w->list, GONE, &p->plan, &w->e), 0);
    if (volumes_bring_up(p->plan, &w->e) < 0)
        fail_msg("%s", w->e.msg);
}

/* In a mount namespace of the test's own where it may have one; below chroot(2) "/" may be no mount. */
static void may_mount_or_skip(void)
{
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL) < 0)
        skip();
}

static void a_link_put_in_the_place_of_a_checked_directory(void **state)
{
    struct world *w = *state;
    struct pinned p = { 0 };
    const struct runtime_mount *m;
    char aside[140];
    struct stat st;

    may_mount_or_skip();
    bring_up_pinned(w, &p);
    (void)snprintf(aside, sizeof(aside), "%s-aside", p.dir);
    assert_int_equal(rename(p.dir, aside), 0);
    assert_int_equal(symlink("/etc", p.dir), 0);
    assert_int_equal(volume_plan_mounts(p.plan, &m), 1);
    assert_int_equal(stat(m[0].source, &st), 0); /* as the engine will */
    assert_int_equal(st.st_ino, p.was.st_ino);
    assert_int_equal(st.st_dev, p.was.st_dev);
    volume_plan_free(p.plan);
    assert_int_equal(rmdir(p.pins), 0); /* nothing is left in it */
    assert_int_equal(rmdir(aside), 0);
    volumes_free(p.volumes);
}

/* As after a kill: the mount is there, with one below it, and nobody remembers it. */
static void pins_of_a_create_that_died_are_cleared(void **state)
{
    struct world *w = *state;
    struct pinned p = { 0 };
    char below[160];
    char file[170];
    struct stat st;
    int fd;

    may_mount_or_skip();
    (void)snprintf(below, sizeof(below), "%s/dir/below", w->allowed);
    bring_up_pinned(w, &p);
    volume_plan_free(p.plan);
    assert_int_equal(mkdir(below, 0755), 0);
    assert_int_equal(mount("tmpfs", below, "tmpfs", 0, NULL), 0);
    (void)snprintf(file, sizeof(file), "%s/file", below);
    fd = open(file, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    fd = open(p.dir, O_PATH);
    assert_int_equal(pins_add(p.pins, GONE, 0, fd, below, &w->e), 1);
    pins_clear(p.pins);
    (void)close(fd);
    assert_int_equal(rmdir(p.pins), 0);
    assert_int_equal(stat(file, &st), 0); /* what was mounted where it came from still is */
    (void)snprintf(below, sizeof(below), "%s/dir/below", w->allowed);
    assert_int_equal(umount2(below, MNT_DETACH), 0);
    volumes_free(p.volumes);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_host_directory_is_mounted_and_identified),
        T(a_refused_request_leaves_no_record),
        T(buckets_of_sandboxes_are_out_of_reach),
        T(a_made_volume_is_kept_or_goes_as_asked),
        T(a_failed_create_removes_what_it_made),
        T(a_failed_pull_removes_what_was_made_before),
        T(a_create_that_is_deleted_while_it_pulls),
        T(what_cannot_be_removed_is_tried_again),
        T(a_volume_to_be_kept_that_found_a_use_stays),
        T(many_at_once),
        T(a_kill_leaves_nothing_behind),
        T(the_sweep_leaves_creates_and_sandboxes_alone),
        T(two_parts_of_one_volume),
        T(a_cut_off_create_is_undone_with_its_volumes),
        T(a_link_put_in_the_place_of_a_checked_directory),
        T(pins_of_a_create_that_died_are_cleared),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
