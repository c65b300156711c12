#include "gateway/runtime/docker/nft.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/proc/spawn.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

enum { NFT_MS = 10000, NFT_TEXT_MAX = 4096, SERVERS_MAX = 8 };

#define NFT_PATHS "/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin"

/* The IPv4 name servers of resolv but loopback ones, as "a, b"; how many. */
static int name_servers(const char *resolv, struct buf *out)
{
    static const char key[] = "nameserver";
    const char *line = resolv;
    char addr[INET_ADDRSTRLEN];
    struct in_addr in;
    size_t len;
    int n = 0;

    for (; *line && n < SERVERS_MAX; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *p = line;

        if (strncmp(p, key, sizeof(key) - 1) != 0)
            continue;
        p += sizeof(key) - 1;
        p += strspn(p, " \t");
        len = strcspn(p, " \t\r\n#;");
        if (len >= sizeof(addr))
            continue;
        memcpy(addr, p, len);
        addr[len] = '\0';
        if (inet_pton(AF_INET, addr, &in) != 1 || (ntohl(in.s_addr) >> 24) == 127)
            continue;
        if (buf_printf(out, "%s%s", n ? ", " : "", addr) == 0)
            n++;
    }
    return n;
}

int nft_script(struct buf *out, const char *table, const char *bridge, const char *resolv)
{
    AUTO_BUF struct buf servers = BUF_INIT(SERVERS_MAX * (INET_ADDRSTRLEN + 2));
    AUTO_BUF struct buf dns = BUF_INIT(NFT_TEXT_MAX);

    if (name_servers(resolv, &servers) > 0 &&
        buf_printf(&dns, "ip daddr { %s } meta l4proto { tcp, udp } th dport 53 accept",
                   servers.data) < 0)
        return -1;
    return buf_printf(out,
                      "add table inet %s\n"
                      "delete table inet %s\n"
                      "table inet %s {\n"
                      "  chain input {\n"
                      "    type filter hook input priority -10; policy accept;\n"
                      "    iifname != \"%s\" accept\n"
                      "    ct state established,related accept\n"
                      "    %s\n"
                      "    drop\n"
                      "  }\n"
                      "  chain forward {\n"
                      "    type filter hook forward priority -10; policy accept;\n"
                      "    iifname != \"%s\" accept\n"
                      "    %s\n"
                      "    ip daddr 169.254.0.0/16 drop\n"
                      "    ip6 daddr { fe80::/10, fd00:ec2::254 } drop\n"
                      "  }\n"
                      "}\n",
                      table, table, table, bridge, dns.data ? dns.data : "", bridge,
                      dns.data ? dns.data : "");
}

/* Reads until end of file or the deadline; 1 at the end, 0 when time is up. */
static int read_all(int fd, struct buf *out, int64_t until_mono_ms)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    char piece[1024];
    int64_t left;
    ssize_t n;

    for (;;) {
        left = until_mono_ms - clock_mono_ms();
        if (left <= 0)
            return 0;
        if (poll(&p, 1, (int)left) <= 0)
            continue;
        n = read(fd, piece, sizeof(piece));
        if (n == 0)
            return 1;
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return 1;
        if (n > 0)
            (void)buf_append(out, piece, (size_t)n); /* the beginning is enough */
    }
}

/* A pipe that already holds text: it is far smaller than a pipe's buffer. */
static int filled_pipe(const char *text, int *rd, struct err *e)
{
    int fds[2];
    size_t len = strlen(text);
    ssize_t n;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(e, errno, "make pipe");
    do
        n = write(fds[1], text, len);
    while (n < 0 && errno == EINTR);
    (void)close(fds[1]);
    if (n != (ssize_t)len) {
        (void)close(fds[0]);
        return err_set(e, ERRC_INTERNAL, "hand the rules to nft");
    }
    *rd = fds[0];
    return 0;
}

/* How it ended: 0 well. Another part of the process may collect children; then what it wrote to
 * its error output decides. */
static int collect(pid_t pid, bool in_time, bool silent)
{
    int status = 0;
    pid_t got;

    if (!in_time)
        (void)kill(-pid, SIGKILL);
    do
        got = waitpid(pid, &status, 0);
    while (got < 0 && errno == EINTR);
    if (!in_time)
        return -1;
    if (got < 0)
        return silent ? 0 : -1;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

int nft_apply(const char *script, struct err *e)
{
    static char name[] = "nft", flag[] = "-f", input[] = "-";
    static char path[] = "PATH=" NFT_PATHS, locale[] = "LC_ALL=C";
    static char *const argv[] = { name, flag, input, NULL };
    static char *const envp[] = { path, locale, NULL };
    AUTO_BUF struct buf said = BUF_INIT(NFT_TEXT_MAX);
    AUTO_FREE char *nft = NULL;
    struct spawn_req rq = { .argv = argv, .envp = envp, .out = -1 };
    int fds[2];
    int in = -1;
    int in_time;
    pid_t pid;

    if (spawn_which("nft", NFT_PATHS, &nft, e) < 0 || filled_pipe(script, &in, e) < 0)
        return -1;
    AUTO_FD int script_fd = in;
    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(e, errno, "make pipe");
    AUTO_FD int rd = fds[0];
    AUTO_FD int wr = fds[1];

    rq.path = nft;
    rq.in = script_fd;
    rq.err = wr;
    if (spawn(&rq, &pid, e) < 0)
        return -1;
    (void)close(TAKE_FD(wr));
    in_time = read_all(rd, &said, clock_mono_ms() + NFT_MS);
    if (collect(pid, in_time, said.len == 0) < 0)
        return err_set(e, ERRC_SYS, "nft: %.200s", said.len ? said.data : "gave up");
    return 0;
}
