#include "common/base/listen.h"

#include "common/base/err.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int listen_addr(const char *host, uint16_t port, struct sockaddr_storage *ss, socklen_t *len)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)ss;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ss;

    memset(ss, 0, sizeof(*ss));
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        *len = sizeof(*v4);
        return 0;
    }
    if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        *len = sizeof(*v6);
        return 0;
    }
    return -1;
}

int listen_tcp(const char *host, uint16_t port, int backlog, int *fd, uint16_t *bound_port,
               struct err *e)
{
    struct sockaddr_storage ss;
    socklen_t len;
    int one = 1;
    int zero = 0;
    int s;

    if (listen_addr(host, port, &ss, &len) < 0)
        return err_set(e, ERRC_INVALID, "listen address %s is not an IPv4 or IPv6 address", host);
    s = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0)
        return err_sys(e, errno, "make socket for %s", host);
    (void)setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (ss.ss_family == AF_INET6)
        (void)setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
    if (bind(s, (struct sockaddr *)&ss, len) < 0 || listen(s, backlog) < 0 ||
        getsockname(s, (struct sockaddr *)&ss, &len) < 0) {
        (void)err_sys(e, errno, "listen on %s port %u", host, port);
        (void)close(s);
        return -1;
    }
    *bound_port = ntohs(ss.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&ss)->sin6_port
                                                 : ((struct sockaddr_in *)&ss)->sin_port);
    *fd = s;
    return 0;
}
