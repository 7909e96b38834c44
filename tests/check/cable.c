/* cable — a link of their own between two nodes in network namespaces, with a delay, a rate or a
 * loss (packet_switch.h): for scripts, on kernels without netem.
 *
 *   cable NAMESPACE ADDRESS NAMESPACE ADDRESS DELAY_US MBIT LOSS_PER_MILLE [SEED]
 *
 * ADDRESS: the last byte of a node's IPv4 address. Makes the TUN device "own" in both namespaces
 * and writes "ready"; whoever started it brings them up, and ends it by a signal. */
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>

#include "base/text.h"
#include "check/packet_switch.h"

static int fail(const char *what)
{
    fprintf(stderr, "cable: %s: %s\n", what, strerror(errno));
    _exit(1);
}

static int64_t number(const char *word, int64_t most)
{
    int64_t value = 0;
    if (text_parse_i64(word, 0, most, &value) != TEXT_OK)
        fail(word);
    return value;
}

static int open_device(const char *namespace)
{
    char path[128];
    struct ifreq ask = {.ifr_flags = IFF_TUN | IFF_NO_PI, .ifr_name = "own"};
    text_format(path, sizeof path, "/run/netns/%s", namespace);
    int ns = open(path, O_RDONLY | O_CLOEXEC);
    if (ns < 0 || setns(ns, CLONE_NEWNET) != 0)
        fail(path);
    close(ns);
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &ask) != 0)
        fail("/dev/net/tun");
    return fd;
}

int main(int argc, char **argv)
{
    static struct packet_switch link = {.nodes = PACKET_SWITCH_NODES};
    sigset_t ends;
    int node[2], got;
    if (argc < 8)
        return fprintf(stderr, "cable NS ADDRESS NS ADDRESS DELAY_US MBIT LOSS_PER_MILLE\n"), 64;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    for (int i = 0; i < PACKET_SWITCH_NODES; i++)
        link.fds[i] = -1;
    for (int i = 0; i < 2; i++) {
        node[i] = (int)number(argv[2 + 2 * i], PACKET_SWITCH_NODES) - 1;
        link.fds[node[i]] = open_device(argv[1 + 2 * i]);
    }
    for (int i = 0; i < 2; i++)
        link.way[node[i]][node[1 - i]] =
            (struct packet_switch_way){.delay_us = number(argv[5], 1000000),
                                       .rate = (double)number(argv[6], 1000000) / 8000,
                                       .loss = (double)number(argv[7], 1000) / 1000};
    link.seed = argc > 8 ? (uint64_t)number(argv[8], INT32_MAX) : 1;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    if (!packet_switch_start(&link))
        fail("thread");
    printf("ready\n");
    fflush(stdout);
    sigwait(&ends, &got);
    packet_switch_stop(&link);
    return 0;
}
