/* delay_link MILLISECONDS[@MBIT] CMD...: runs a command on one of two machines that a slow link joins.  The link
 * carries MBIT Mbit/s each way (without @MBIT as many as it can, some 600).
 *
 * The machines are network namespaces of this one, `near` (10.77.0.1), where the command runs, and `far` (10.77.0.2),
 * which it enters by `nsenter -t $DELAY_LINK_FAR -n -u`.  The device `link` of each is a TUN device; a process reads
 * packets from one and writes them in the same order to the other, after the delay and up to a tenth of it more.
 * SIGUSR1 to that process, $DELAY_LINK_FAR, cuts the link.  At the end the program says on standard error how much went
 * over the link.
 *
 * Exit status: the command's; 77 where there are no namespaces or TUN devices, or without root. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <math.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ptq/base/threads.h"

#define MTU 1500
#define QUEUE 4096    /* packets that wait in one direction: 80 ms at 600 Mbit/s */
#define NEAR 0x0a4d0001u
#define FAR 0x0a4d0002u

/* ---- machines ---- */

static bool set_address(int control, struct ifreq *of, unsigned long request, unsigned address)
{
    const struct sockaddr_in value = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};
    memcpy(&of->ifr_addr, &value, sizeof value);
    return ioctl(control, request, of) == 0;
}

static bool set_up(int control, struct ifreq *of)
{
    of->ifr_flags = IFF_UP | IFF_RUNNING;
    return ioctl(control, SIOCSIFFLAGS, of) == 0;
}

/* Moves this process into namespaces of its own, with the host name `name` and a device `link` to `peer`.  Returns
 * the descriptor of the device's packets, or -1. */
static int become(const char *name, int namespaces, unsigned own, unsigned peer)
{
    struct ifreq loopback = {.ifr_name = "lo"}, link = {.ifr_name = "link"};
    if (unshare(namespaces) != 0 || sethostname(name, strlen(name)) != 0)
        return -1;
    const int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
    link.ifr_flags = IFF_TUN | IFF_NO_PI;
    if (control < 0 || fd < 0 || !set_up(control, &loopback) || ioctl(fd, TUNSETIFF, &link) != 0 ||
        !set_address(control, &link, SIOCSIFADDR, own) || !set_address(control, &link, SIOCSIFDSTADDR, peer) ||
        !set_up(control, &link))
        return -1;
    close(control);
    return fd;
}

/* Writes the names of both machines into a hosts file that only this mount namespace sees. */
static bool name_machines(void)
{
    static const char names[] = "127.0.0.1 localhost\n10.77.0.1 near\n10.77.0.2 far\n";
    char path[] = "/tmp/delay_link.XXXXXX";
    const int fd = mkstemp(path);
    if (fd < 0)
        return false;
    const bool named = write(fd, names, sizeof names - 1) == (ssize_t)sizeof names - 1 && fchmod(fd, 0644) == 0 &&
                       mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                       mount(path, "/etc/hosts", NULL, MS_BIND, NULL) == 0;
    close(fd);
    unlink(path);
    return named;
}

/* ---- the link ---- */

typedef struct packet {
    double due;
    size_t n;
    char bytes[MTU];
} packet;

/* One direction of the link. */
typedef struct lane {
    int from, to;
    double free;                       /* when a packet that comes now leaves */
    double last;                       /* when the latest packet is due       */
    size_t n_in, n_out, n_bytes;       /* packets read and written            */
    packet queue[QUEUE];
} lane;

static volatile sig_atomic_t over, cut;

static void on_signal(int number)
{
    if (number == SIGUSR1)
        cut = 1;
    else
        over = 1;
}

/* Reads packets while the queue has room; they leave at `rate` bytes a second.  The others wait in the device, which
 * drops those that do not fit. */
static void take(lane *l, double delay, double rate)
{
    while (l->n_in - l->n_out < QUEUE) {
        packet *p = &l->queue[l->n_in % QUEUE];
        const ssize_t n = read(l->from, p->bytes, sizeof p->bytes);
        if (n <= 0)
            return;
        p->n = (size_t)n;
        const double now = calm_seconds();
        l->free = (l->free > now ? l->free : now) + (double)n / rate;
        const double due = l->free + delay * (1 + 0.1 * (double)(l->n_in * 7 % 11) / 10);
        p->due = l->last = due > l->last ? due : l->last;
        l->n_in++;
    }
}

/* Writes the packets that are due.  Returns the seconds until the next one is, at most `most`. */
static double give(lane *l, double most)
{
    while (l->n_out < l->n_in) {
        const packet *p = &l->queue[l->n_out % QUEUE];
        const double left = p->due - calm_seconds();
        if (left > 0)
            return left < most ? left : most;
        if (!cut && write(l->to, p->bytes, p->n) == (ssize_t)p->n)
            l->n_bytes += p->n;
        l->n_out++;
    }
    return most;
}

static void carry(int near, int far, double delay, double rate)
{
    static lane lanes[2];
    lanes[0].from = lanes[1].to = near;
    lanes[1].from = lanes[0].to = far;
    fcntl(near, F_SETFL, O_NONBLOCK);
    fcntl(far, F_SETFL, O_NONBLOCK);
    while (!over) {
        struct pollfd polled[2];
        double wait = 0.1;
        for (int i = 0; i < 2; i++) {
            take(&lanes[i], delay, rate);
            wait = give(&lanes[i], wait);
            polled[i] = (struct pollfd){.fd = lanes[i].from,
                                        .events = lanes[i].n_in - lanes[i].n_out < QUEUE ? POLLIN : 0};
        }
        poll(polled, 2, (int)(wait * 1000) + 1);
    }
    fprintf(stderr, "delay_link: %zu packets and %zu bytes to far, %zu and %zu to near, each after %.0f ms\n",
            lanes[0].n_out, lanes[0].n_bytes, lanes[1].n_out, lanes[1].n_bytes, delay * 1000);
}

/* The process of the far machine, which also carries the packets; it writes a byte to `ready` when it has started. */
static void be_far(int near, int ready, double delay, double rate)
{
    const int far = become("far", CLONE_NEWNET | CLONE_NEWUTS, FAR, NEAR);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal(SIGUSR1, on_signal);
    signal(SIGTERM, on_signal);
    signal(SIGINT, SIG_IGN);
    if (far < 0 || write(ready, "r", 1) != 1)
        _exit(1);
    close(ready);
    carry(near, far, delay, rate);
    _exit(0);
}

/* ---- the command ---- */

/* Runs the command, then ends the link. */
static int run(char **words, pid_t link)
{
    int status = 0, of_link;
    char number[16];
    snprintf(number, sizeof number, "%ld", (long)link);
    setenv("DELAY_LINK_FAR", number, 1);
    const pid_t child = fork();
    if (child == 0) {
        execvp(words[0], words);
        fprintf(stderr, "delay_link: %s: %s\n", words[0], strerror(errno));
        _exit(127);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    kill(link, SIGTERM);
    waitpid(link, &of_link, 0);
    return child < 0 ? 126 : WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
    char byte, *end = argv[0];
    const double milliseconds = argc > 2 ? strtod(argv[1], &end) : 0;
    const double mbit = *end == '@' ? strtod(end + 1, &end) : INFINITY;
    int ready[2];
    if (argc < 3 || end == argv[1] || *end || !(milliseconds >= 0) || !(mbit > 0)) {
        fprintf(stderr, "delay_link MILLISECONDS[@MBIT] CMD...\n");
        return 2;
    }
    const int near = become("near", CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWNS, NEAR, FAR);
    if (near < 0 || !name_machines() || pipe(ready) != 0) {
        fprintf(stderr, "delay_link: no machines joined by a link: %s (needs root and TUN)\n", strerror(errno));
        return 77;
    }
    const pid_t link = fork();
    if (link == 0)
        be_far(near, ready[1], milliseconds / 1000, mbit * 1e6 / 8);
    close(near);
    close(ready[1]);
    if (link < 0 || read(ready[0], &byte, 1) != 1) {
        fprintf(stderr, "delay_link: no second machine (needs root and TUN)\n");
        return 77;
    }
    close(ready[0]);
    return run(argv + 2, link);
}
