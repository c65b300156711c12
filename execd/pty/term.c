#include "execd/pty/term.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static int no_terminals(struct err *e, int errnum, const char *what)
{
    return err_sys(
        e, errnum,
        "no pseudo-terminal can be opened here (mount devpts on /dev/pts with /dev/ptmx, or connect "
        "with pty=0 to go without): %s",
        what);
}

/* By way of the master: /dev/pts may be another mount's, or none. Older kernels lack the call. */
static int open_slave(int master)
{
    int flags = O_RDWR | O_NOCTTY | O_CLOEXEC;
    int fd = ioctl(master, TIOCGPTPEER, flags);
    char path[32];
    unsigned n;

    if (fd >= 0 || ioctl(master, TIOCGPTN, &n) < 0)
        return fd;
    (void)snprintf(path, sizeof(path), "/dev/pts/%u", n);
    return open(path, flags);
}

int term_open(int *master, int *slave, struct err *e)
{
    AUTO_FD int m = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    AUTO_FD int s = -1;
    struct termios t;
    int unlock = 0;

    if (m < 0)
        return no_terminals(e, errno, "/dev/ptmx");
    if (ioctl(m, TIOCSPTLCK, &unlock) < 0)
        return no_terminals(e, errno, "unlock");
    s = open_slave(m);
    if (s < 0)
        return no_terminals(e, errno, "the other end");
    term_resize(m, TERM_COLS, TERM_ROWS);
    if (tcgetattr(s, &t) == 0) {
        t.c_iflag |= IUTF8; /* erasing takes whole characters */
        (void)tcsetattr(s, TCSANOW, &t);
    }
    *master = TAKE_FD(m);
    *slave = TAKE_FD(s);
    return 0;
}

void term_resize(int master, uint16_t cols, uint16_t rows)
{
    struct winsize size = { .ws_col = cols, .ws_row = rows };

    (void)ioctl(master, TIOCSWINSZ, &size); /* also tells the programs: SIGWINCH */
}

pid_t term_foreground(int master)
{
    pid_t group = 0;

    return ioctl(master, TIOCGPGRP, &group) < 0 || group < 0 ? 0 : group;
}
