/* The pure parts of the Docker runtime: stream frames, pull progress, tar, references, rules. */
#include "tests/unit/test.h"

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/macros.h"
#include "gateway/runtime/docker/engine.h"
#include "gateway/runtime/docker/frames.h"
#include "gateway/runtime/docker/image_ref.h"
#include "gateway/runtime/docker/inspect.h"
#include "gateway/runtime/docker/nft.h"
#include "gateway/runtime/docker/progress.h"
#include "gateway/runtime/docker/tar.h"

#include <stdlib.h>
#include <string.h>

/* ---- frames ---- */

static void collect(void *arg, int stream, const char *data, size_t len)
{
    struct buf *b = arg;

    (void)buf_printf(b, "%d:", stream);
    (void)buf_append(b, data, len);
    (void)buf_puts(b, "|");
}

static const char two_frames[] = "\1\0\0\0\0\0\0\3abc"
                                 "\2\0\0\0\0\0\0\0"
                                 "\2\0\0\0\0\0\0\2de";

static void frames_are_split_by_their_heads(void **state)
{
    struct buf out = BUF_INIT(1024);
    struct frames f = { 0 };

    (void)state;
    assert_int_equal(frames_feed(&f, two_frames, sizeof(two_frames) - 1, collect, &out), 0);
    assert_string_equal(out.data, "1:abc|2:de|");
    assert_true(frames_at_boundary(&f));
    buf_free(&out);
}

/* Wherever the stream is cut, the content is the same. */
static void frames_may_be_cut_anywhere(void **state)
{
    size_t cut;
    size_t i;

    (void)state;
    for (cut = 1; cut < sizeof(two_frames) - 1; cut++) {
        struct frames f = { 0 };
        struct buf out = BUF_INIT(1024);
        char flat[16] = "";
        size_t n = 0;

        assert_int_equal(frames_feed(&f, two_frames, cut, collect, &out), 0);
        assert_int_equal(
            frames_feed(&f, two_frames + cut, sizeof(two_frames) - 1 - cut, collect, &out), 0);
        for (i = 0; i < out.len; i++)
            if (out.data[i] >= 'a' && out.data[i] <= 'e')
                flat[n++] = out.data[i];
        assert_string_equal(flat, "abcde");
        assert_true(frames_at_boundary(&f));
        buf_free(&out);
    }
}

static void frames_refuse_a_raw_stream_for_good(void **state)
{
    struct frames f = { 0 };

    (void)state;
    assert_int_equal(frames_feed(&f, "hello world", 11, collect, NULL), -1);
    assert_int_equal(frames_feed(&f, two_frames, 8, collect, NULL), -1);
    assert_false(frames_at_boundary(&f));
}

static void frames_tell_a_cut_stream(void **state)
{
    struct buf out = BUF_INIT(64);
    struct frames f = { 0 };

    (void)state;
    assert_int_equal(frames_feed(&f, two_frames, 9, collect, &out), 0);
    assert_false(frames_at_boundary(&f));
    buf_free(&out);
}

/* ---- pull progress ---- */

static void feed_bytewise(struct progress *p, const char *text)
{
    for (; *text; text++)
        progress_feed(p, text, 1);
}

static void progress_keeps_the_latest_status(void **state)
{
    struct progress p;

    (void)state;
    progress_init(&p);
    feed_bytewise(&p,
                  "{\"status\":\"Pulling from x\",\"id\":\"latest\"}\r\n"
                  "{\"status\":\"Download complete\",\"progressDetail\":{},\"id\":\"abc\"}\r\n");
    assert_string_equal(p.status, "abc: Download complete");
    assert_string_equal(p.error, "");
    progress_free(&p);
}

static void progress_finds_the_error_after_a_200(void **state)
{
    struct progress p;

    (void)state;
    progress_init(&p);
    feed_bytewise(&p, "{\"status\":\"Pulling\"}\n{\"errorDetail\":{\"message\":\"manifest "
                      "unknown\"},\"error\":\"manifest unknown\"}");
    assert_string_equal(p.error, "");
    progress_end(&p); /* no line feed at the end */
    assert_string_equal(p.error, "manifest unknown");
    progress_free(&p);
}

static void progress_takes_the_detail_when_that_is_all(void **state)
{
    struct progress p;

    (void)state;
    progress_init(&p);
    feed_bytewise(&p, "{\"errorDetail\":{\"message\":\"denied\"}}\n");
    assert_string_equal(p.error, "denied");
    progress_free(&p);
    progress_init(&p);
    feed_bytewise(&p, "{\"error\":\"\"}\n");
    assert_string_equal(p.error, "unknown error");
    progress_free(&p);
}

static void progress_passes_over_rubbish(void **state)
{
    struct progress p;
    char *line = malloc(PROGRESS_LINE_MAX + 1);

    (void)state;
    memset(line, 'x', PROGRESS_LINE_MAX + 1);
    progress_init(&p);
    feed_bytewise(&p, "not json\n[1]\n17\n\n{\"status\":3}\n");
    progress_feed(&p, line, PROGRESS_LINE_MAX + 1);
    feed_bytewise(&p, "\n{\"status\":\"ok\"}\n");
    assert_string_equal(p.status, "ok");
    assert_string_equal(p.error, "");
    progress_free(&p);
    free(line);
}

static void progress_cuts_long_text(void **state)
{
    struct progress p;

    (void)state;
    progress_init(&p);
    feed_bytewise(&p, "{\"id\":\"");
    for (int i = 0; i < 2 * PROGRESS_TEXT; i++)
        progress_feed(&p, "y", 1);
    feed_bytewise(&p, "\",\"status\":\"z\"}\n");
    assert_int_equal(strlen(p.status), PROGRESS_TEXT - 1);
    progress_free(&p);
}

static void expect_text(struct progress *p, const char *line, const char *want)
{
    char text[PROGRESS_TEXT];

    feed_bytewise(p, line);
    feed_bytewise(p, "\r\n");
    progress_text(p, text, sizeof(text));
    assert_string_equal(text, want);
}

#define DOWN(id, current, total)                                                                   \
    "{\"status\":\"Downloading\",\"progressDetail\":{\"current\":" current ",\"total\":" total     \
    "},\"id\":\"" id "\"}"

static void progress_sums_the_layers(void **state)
{
    struct progress p;

    (void)state;
    progress_init(&p);
    expect_text(&p, "", "");
    expect_text(&p, "{\"status\":\"Pulling from x\",\"id\":\"latest\"}", "latest: Pulling from x");
    expect_text(&p, "{\"status\":\"Pulling fs layer\",\"progressDetail\":{},\"id\":\"a\"}",
                "a: Pulling fs layer");
    expect_text(&p, DOWN("a", "1000000", "4000000"), "25% of 4 MB");
    expect_text(&p, DOWN("b", "0", "6000000"), "10% of 10 MB");
    expect_text(&p, DOWN("a", "2000000", "4000000"), "20% of 10 MB");
    /* unpacking counts other bytes; the download is over */
    expect_text(&p,
                "{\"status\":\"Extracting\",\"progressDetail\":{\"current\":1,\"total\":9000000},"
                "\"id\":\"a\"}",
                "40% of 10 MB");
    expect_text(&p, "{\"status\":\"Pull complete\",\"progressDetail\":{},\"id\":\"b\"}",
                "100% of 10 MB");
    progress_free(&p);
}

static void progress_believes_no_nonsense(void **state)
{
    struct progress p;
    char line[256];
    int i;

    (void)state;
    progress_init(&p);
    expect_text(&p, DOWN("a", "5", "0"), "a: Downloading");
    expect_text(&p, DOWN("a", "5", "-9"), "a: Downloading");
    expect_text(&p, DOWN("a", "5", "281474976710657"), "a: Downloading"); /* 2^48 + 1 */
    expect_text(&p, DOWN("a id that is too long", "5", "9"), "a id that is too long: Downloading");
    expect_text(&p, DOWN("a", "9000000", "3000000"), "100% of 3 MB");
    expect_text(&p, DOWN("a", "-7", "3000000"), "0% of 3 MB");
    for (i = 0; i < 2 * PROGRESS_LAYERS; i++) {
        (void)snprintf(line, sizeof(line), DOWN("l%d", "281474976710656", "281474976710656") "\n",
                       i);
        feed_bytewise(&p, line);
    }
    assert_int_equal(p.n_layers, PROGRESS_LAYERS);
    expect_text(&p, "", "99% of 35747322046 MB");
    progress_free(&p);
}

/* ---- tar ---- */

static void tar_reads_what_it_wrote(void **state)
{
    struct buf b = BUF_INIT(1 << 20);
    struct tar_entry t;
    char big[1500];
    size_t pos = 0;

    (void)state;
    memset(big, 'b', sizeof(big));
    assert_int_equal(tar_add_dir(&b, "opt/x", 0755), 0);
    assert_int_equal(tar_add_file(&b, "opt/x/empty", 0644, "", 0), 0);
    assert_int_equal(tar_add_file(&b, "opt/x/big", 0755, big, sizeof(big)), 0);
    assert_int_equal(tar_finish(&b), 0);
    assert_int_equal(b.len % 512, 0);

    assert_int_equal(tar_next(b.data, b.len, &pos, &t), 1);
    assert_string_equal(t.name, "opt/x/");
    assert_int_equal(t.type, '5');
    assert_int_equal(tar_next(b.data, b.len, &pos, &t), 1);
    assert_string_equal(t.name, "opt/x/empty");
    assert_int_equal(t.len, 0);
    assert_int_equal(tar_next(b.data, b.len, &pos, &t), 1);
    assert_string_equal(t.name, "opt/x/big");
    assert_int_equal(t.len, sizeof(big));
    assert_memory_equal(t.data, big, sizeof(big));
    assert_int_equal(tar_next(b.data, b.len, &pos, &t), 0);
    buf_free(&b);
}

static void tar_header_has_the_fields_of_ustar(void **state)
{
    struct buf b = BUF_INIT(4096);

    (void)state;
    assert_int_equal(tar_add_file(&b, "a", 0755, "xyz", 3), 0);
    assert_string_equal(b.data, "a");
    assert_string_equal(b.data + 100, "0000755");
    assert_string_equal(b.data + 124, "00000000003");
    assert_int_equal(b.data[156], '0');
    assert_memory_equal(b.data + 257, "ustar\00000", 8);
    assert_string_equal(b.data + 148, "006104"); /* as Python computes it */
    buf_free(&b);
}

static void tar_splits_long_paths(void **state)
{
    struct buf b = BUF_INIT(8192);
    struct tar_entry t;
    char path[260];
    size_t pos = 0;

    (void)state;
    memset(path, 'p', 150);
    path[149] = '/';
    memset(path + 150, 'n', 100);
    path[250] = '\0';
    assert_int_equal(tar_add_file(&b, path, 0644, "", 0), 0);
    assert_int_equal(tar_next(b.data, b.len, &pos, &t), 1);
    assert_string_equal(t.name, path);

    path[149] = 'p'; /* nowhere to split */
    assert_int_equal(tar_add_file(&b, path, 0644, "", 0), -1);
    assert_int_equal(tar_add_file(&b, "/abs", 0644, "", 0), -1);
    assert_int_equal(tar_add_file(&b, "", 0644, "", 0), -1);
    buf_free(&b);
}

/* An entry that does not fit leaves the archive as it was. */
static void tar_keeps_to_the_limit(void **state)
{
    struct buf b = BUF_INIT(1024);
    char data[600] = { 0 };

    (void)state;
    assert_int_equal(tar_add_file(&b, "one", 0644, data, 512), 0);
    assert_int_equal(tar_add_file(&b, "two", 0644, data, 1), -1);
    assert_int_equal(b.len, 1024);
    buf_free(&b);
}

static void tar_refuses_rubbish_and_cuts(void **state)
{
    struct buf b = BUF_INIT(8192);
    struct tar_entry t;
    size_t pos = 0;

    (void)state;
    assert_int_equal(tar_add_file(&b, "f", 0644, "0123456789", 10), 0);
    assert_int_equal(tar_next(b.data, 511, &pos, &t), -1);
    pos = 0;
    assert_int_equal(tar_next(b.data, 512, &pos, &t), -1); /* the content is missing */
    pos = 0;
    b.data[0] = 'g'; /* the sum is wrong now */
    assert_int_equal(tar_next(b.data, b.len, &pos, &t), -1);
    buf_free(&b);
}

/* ---- references, queries, rules ---- */

static void references_are_split_for_the_api(void **state)
{
    static const struct {
        const char *image;
        const char *name;
        const char *tag;
    } cases[] = {
        { "python", "python", "latest" },
        { "python:3.11-slim", "python", "3.11-slim" },
        { "reg.io:5000/a/b", "reg.io:5000/a/b", "latest" },
        { "reg.io:5000/a/b:v1", "reg.io:5000/a/b", "v1" },
        { "a/b@sha256:12", "a/b", "sha256:12" },
        { "a/b:v1@sha256:12", "a/b", "sha256:12" },
    };
    struct image_ref ref;
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(image_ref_split(cases[i].image, &ref), 0);
        assert_string_equal(ref.name, cases[i].name);
        assert_string_equal(ref.tag, cases[i].tag);
    }
    assert_int_equal(image_ref_split("sha256:0123", &ref), -1);
}

static void references_have_a_limit(void **state)
{
    struct image_ref ref;
    char image[IMAGE_REF + 2];

    (void)state;
    memset(image, 'i', sizeof(image));
    image[IMAGE_REF - 1] = '\0';
    assert_int_equal(image_ref_split(image, &ref), 0);
    image[IMAGE_REF - 1] = 'i';
    image[IMAGE_REF] = '\0';
    assert_int_equal(image_ref_split(image, &ref), -1);
}

static void queries_are_encoded(void **state)
{
    struct buf b = BUF_INIT(256);

    (void)state;
    assert_int_equal(buf_puts(&b, "/x"), 0);
    assert_int_equal(engine_query(&b, "a", "q w&{\xc3\xa9}"), 0);
    assert_int_equal(engine_query(&b, "b", "ok-._~"), 0);
    assert_string_equal(b.data, "/x?a=q%20w%26%7B%C3%A9%7D&b=ok-._~");
    buf_free(&b);
}

static void rules_close_the_host_but_for_its_name_servers(void **state)
{
    struct buf b = BUF_INIT(8192);

    (void)state;
    assert_int_equal(nft_script(&b, "sandgate_0", "sg-0",
                                "search x\nnameserver 169.254.169.254\nnameserver 127.0.0.53\n"
                                "nameserver\t10.0.0.2 # own\nnameserver fe80::1\n"
                                "nameserver 1.2.3.4.5.6.7.8.9.10.11\nnameserver 1;drop\n"),
                     0);
    assert_contains(b.data, "delete table inet sandgate_0");
    assert_contains(b.data, "iifname != \"sg-0\" accept");
    assert_contains(b.data, "ip daddr { 169.254.169.254, 10.0.0.2 } meta l4proto { tcp, udp } th "
                            "dport 53 accept");
    assert_contains(b.data, "ip daddr 169.254.0.0/16 drop");
    assert_null(strstr(b.data, "127.0.0.53"));
    buf_clear(&b);
    assert_int_equal(nft_script(&b, "sandgate_0", "sg-0", ""), 0);
    assert_null(strstr(b.data, "dport 53"));
    buf_free(&b);
}

/* ---- containers ---- */

static void parse(const char *text, const char *network, bool listed, int want,
                  struct runtime_status *st)
{
    json_t *v = json_loads(text, 0, NULL);
    struct err e = { 0 };

    assert_non_null(v);
    assert_int_equal(listed ? inspect_item(v, network, st, &e) : inspect_status(v, network, st, &e),
                     want);
    json_decref(v);
}

static void inspection_reads_the_address_of_our_network_only(void **state)
{
    struct runtime_status st;

    (void)state;
    parse("{\"State\":{\"Status\":\"running\"},\"Config\":{\"Labels\":{\"sandgate.id\":\"i1\"}},"
          "\"NetworkSettings\":{\"IPAddress\":\"9.9.9.9\",\"Networks\":{\"other\":{\"IPAddress\":"
          "\"1.1.1.1\"},\"sg\":{\"IPAddress\":\"10.0.0.2\"}},\"Ports\":{\"80/tcp\":null,"
          "\"44772/tcp\":[{\"HostIp\":\"127.0.0.1\",\"HostPort\":\"32768\"}]}}}",
          "sg", false, 0, &st);
    assert_int_equal(st.state, RUNTIME_RUNNING);
    assert_string_equal(st.id, "i1");
    assert_string_equal(st.place.address, "10.0.0.2");
    assert_int_equal(st.place.agent_port, 44772);
    assert_string_equal(st.place.host_address, "127.0.0.1");
    assert_int_equal(st.place.host_port, 32768);
}

static void inspection_tells_how_it_ended(void **state)
{
    struct runtime_status st;

    (void)state;
    parse("{\"State\":{\"Status\":\"exited\",\"ExitCode\":137,\"OOMKilled\":true,\"FinishedAt\":"
          "\"1970-01-01T00:00:01.5Z\"}}",
          "sg", false, 0, &st);
    assert_int_equal(st.state, RUNTIME_ENDED);
    assert_int_equal(st.exit_code, 137);
    assert_true(st.oom_killed);
    assert_int_equal(st.ended_ms, 1500);
    assert_string_equal(st.place.address, "");
    parse("{\"State\":{\"Status\":\"exited\",\"FinishedAt\":\"0001-01-01T00:00:00Z\"}}", "sg",
          false, 0, &st);
    assert_int_equal(st.ended_ms, 0);
    parse("{\"State\":{\"Status\":\"created\"}}", "sg", false, 0, &st);
    assert_int_equal(st.state, RUNTIME_MADE);
    parse("{\"State\":{\"Status\":\"levitating\"}}", "sg", false, 0, &st);
    assert_int_equal(st.state, RUNTIME_UNKNOWN);
    parse("{\"State\":3}", "sg", false, -1, &st);
    parse("[]", "sg", false, -1, &st);
}

static void listing_takes_only_containers_of_our_name(void **state)
{
    struct runtime_status st;

    (void)state;
    parse("{\"Names\":[\"/sandbox-i1\"],\"State\":\"exited\",\"Status\":\"Exited (7) 3 days ago\","
          "\"Labels\":{\"sandgate.id\":\"i1\"},\"Ports\":[],\"NetworkSettings\":{\"Networks\":{}}}",
          "sg", true, 0, &st);
    assert_int_equal(st.state, RUNTIME_ENDED);
    assert_int_equal(st.exit_code, 7);
    parse("{\"Names\":[\"/sandbox-i1\"],\"State\":\"running\",\"Labels\":{\"sandgate.id\":\"i1\"},"
          "\"Ports\":[{\"PrivatePort\":80,\"Type\":\"tcp\"},{\"IP\":\"127.0.0.1\",\"PrivatePort\":"
          "44772,\"PublicPort\":1234,\"Type\":\"tcp\"}],\"NetworkSettings\":{\"Networks\":{\"sg\":{"
          "\"IPAddress\":\"10.0.0.3\"}}}}",
          "sg", true, 0, &st);
    assert_int_equal(st.place.host_port, 1234);
    assert_string_equal(st.place.address, "10.0.0.3");
    /* run by hand from a committed image: the labels, but another name */
    parse("{\"Names\":[\"/mine\"],\"State\":\"running\",\"Labels\":{\"sandgate.id\":\"i1\"}}", "sg",
          true, -1, &st);
    parse("{\"Names\":[\"/x\"],\"State\":\"running\",\"Labels\":{}}", "sg", true, -1, &st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_are_split_by_their_heads),
        cmocka_unit_test(frames_may_be_cut_anywhere),
        cmocka_unit_test(frames_refuse_a_raw_stream_for_good),
        cmocka_unit_test(frames_tell_a_cut_stream),
        cmocka_unit_test(progress_keeps_the_latest_status),
        cmocka_unit_test(progress_finds_the_error_after_a_200),
        cmocka_unit_test(progress_takes_the_detail_when_that_is_all),
        cmocka_unit_test(progress_passes_over_rubbish),
        cmocka_unit_test(progress_cuts_long_text),
        cmocka_unit_test(progress_sums_the_layers),
        cmocka_unit_test(progress_believes_no_nonsense),
        cmocka_unit_test(tar_reads_what_it_wrote),
        cmocka_unit_test(tar_header_has_the_fields_of_ustar),
        cmocka_unit_test(tar_splits_long_paths),
        cmocka_unit_test(tar_keeps_to_the_limit),
        cmocka_unit_test(tar_refuses_rubbish_and_cuts),
        cmocka_unit_test(references_are_split_for_the_api),
        cmocka_unit_test(references_have_a_limit),
        cmocka_unit_test(queries_are_encoded),
        cmocka_unit_test(rules_close_the_host_but_for_its_name_servers),
        cmocka_unit_test(inspection_reads_the_address_of_our_network_only),
        cmocka_unit_test(inspection_tells_how_it_ended),
        cmocka_unit_test(listing_takes_only_containers_of_our_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
