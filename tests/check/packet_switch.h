/* packet_switch — a network of our own between processes: each has a network namespace with one TUN
 * device, and a thread of the test carries the packets, with the delay, rate and loss that a test
 * gives a link. For kernels without netem. Needs root and /dev/net/tun. */
#ifndef CONVOY_TESTS_CHECK_PACKET_SWITCH_H
#define CONVOY_TESTS_CHECK_PACKET_SWITCH_H

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rand.h"

#define PACKET_SWITCH_NODES 16
#define PACKET_SWITCH_MTU 9000
#define PACKET_SWITCH_QUEUE_BYTES (1 << 20) /* of a link with a rate: more is dropped */
#define PACKET_SWITCH_LATE_NS 1000000       /* where the links were not what the test asked for */

/* What one way of a link does to packets. */
struct packet_switch_way {
    int64_t delay_us;
    double rate; /* GB/s; 0: no limit */
    double loss; /* of 1 */
    /* inside */
    struct packet_switch_packet *first, *last;
    int64_t queued, free_ns; /* bytes that wait; when the last one has left */
};

struct packet_switch_packet {
    struct packet_switch_packet *next;
    int64_t due_ns;
    ssize_t bytes;
    char data[];
};

struct packet_switch {
    int nodes;
    int fds[PACKET_SWITCH_NODES]; /* of each node's device */
    struct packet_switch_way way[PACKET_SWITCH_NODES][PACKET_SWITCH_NODES];
    pthread_t thread;
    atomic_bool ends;
    uint64_t seed, drawn;
    int64_t carried, dropped; /* packets */
    int64_t late;             /* of them, those that left PACKET_SWITCH_LATE_NS after their time */
};

/* ---- the node's side ---- */

/* packet_switch_join — in the node's process: a namespace of its own with the device t0 and the
 * address 10.78.0.(node + 1). Returns the device, or -1: it cannot be made here. */
static inline int packet_switch_join(int node)
{
    struct ifreq ask = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    char command[256];
    memcpy(ask.ifr_name, "t0", 3);
    if (unshare(CLONE_NEWNET) != 0)
        return -1;
    const int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &ask) != 0)
        return -1;
    snprintf(command, sizeof command,
             "ip link set lo up && ip link set t0 mtu %d && ip addr add 10.78.0.%d/24 dev t0 && ip "
             "link set t0 up",
             PACKET_SWITCH_MTU, node + 1);
    return system(command) == 0 ? fd : -1;
}

/* packet_switch_send_fd, _recv_fd — a device from the node's process to the test, over a socket. */
static inline bool packet_switch_send_fd(int socket, int fd)
{
    char byte = fd >= 0, room[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1};
    if (fd >= 0) {
        m.msg_control = room;
        m.msg_controllen = sizeof room;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    return sendmsg(socket, &m, 0) == 1;
}

static inline int packet_switch_recv_fd(int socket)
{
    int fd = -1;
    char byte = 0, room[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr m = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    if (recvmsg(socket, &m, 0) != 1 || byte == 0 || CMSG_FIRSTHDR(&m) == NULL)
        return -1;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    return fd;
}

/* ---- the switch ---- */

/* A packet leaves when the ones before it have left at the link's rate, and arrives later by the
 * delay. */
static inline void packet_switch_receive(struct packet_switch *s, int from, const char *data,
                                         ssize_t bytes)
{
    const int to = (unsigned char)data[19] - 1; /* the last byte of IPv4's destination */
    if (bytes < 20 || (data[0] & 0xf0) != 0x40 || to < 0 || to >= s->nodes || to == from)
        return;
    struct packet_switch_way *way = &s->way[from][to];
    const int64_t now = clock_ns();
    const bool is_lost = way->loss > 0 && rand_uniform(s->seed, 0, s->drawn++) < way->loss;
    if (is_lost || way->queued + bytes > PACKET_SWITCH_QUEUE_BYTES) {
        s->dropped++;
        return;
    }
    struct packet_switch_packet *packet = malloc(sizeof *packet + (size_t)bytes);
    const int64_t from_ns = way->free_ns > now ? way->free_ns : now;
    way->free_ns = from_ns + (way->rate > 0 ? (int64_t)((double)bytes / way->rate) : 0);
    *packet = (struct packet_switch_packet){.due_ns = way->free_ns + way->delay_us * 1000,
                                            .bytes = bytes};
    memcpy(packet->data, data, (size_t)bytes);
    way->queued += bytes;
    *(way->first == NULL ? &way->first : &way->last->next) = packet;
    way->last = packet;
}

/* Delivers what is due; returns when the next packet is. */
static inline int64_t packet_switch_deliver(struct packet_switch *s)
{
    int64_t next = INT64_MAX;
    for (int i = 0; i < s->nodes * s->nodes; i++) {
        struct packet_switch_way *way = &s->way[i / s->nodes][i % s->nodes];
        int64_t now = 0;
        while (way->first != NULL && way->first->due_ns <= (now = clock_ns())) {
            struct packet_switch_packet *packet = way->first;
            s->late += now - packet->due_ns > PACKET_SWITCH_LATE_NS;
            way->first = packet->next;
            way->queued -= packet->bytes;
            if (write(s->fds[i % s->nodes], packet->data, (size_t)packet->bytes) > 0)
                s->carried++;
            free(packet);
        }
        if (way->first != NULL && way->first->due_ns < next)
            next = way->first->due_ns;
    }
    return next;
}

static inline void *packet_switch_thread(void *arg)
{
    struct packet_switch *s = arg;
    char data[PACKET_SWITCH_MTU + 256];
    while (!atomic_load(&s->ends)) {
        struct pollfd polls[PACKET_SWITCH_NODES];
        int64_t next = packet_switch_deliver(s), now = clock_ns();
        int64_t wait = next == INT64_MAX ? 20000000 : next > now ? next - now : 0;
        const struct timespec limit = {.tv_nsec = wait < 20000000 ? wait : 20000000};
        for (int i = 0; i < s->nodes; i++)
            polls[i] = (struct pollfd){.fd = s->fds[i], .events = POLLIN};
        if (ppoll(polls, (nfds_t)s->nodes, &limit, NULL) <= 0)
            continue;
        for (int i = 0; i < s->nodes; i++) {
            ssize_t n;
            for (int k = 0; k < 16 && (polls[i].revents & POLLIN) != 0 &&
                            (n = read(s->fds[i], data, sizeof data)) > 0;
                 k++)
                packet_switch_receive(s, i, data, n);
        }
    }
    return NULL;
}

/* packet_switch_start — fds and ways are set. _stop closes the devices. */
static inline bool packet_switch_start(struct packet_switch *s)
{
    return pthread_create(&s->thread, NULL, packet_switch_thread, s) == 0;
}

static inline void packet_switch_stop(struct packet_switch *s)
{
    atomic_store(&s->ends, true);
    pthread_join(s->thread, NULL);
    for (int i = 0; i < s->nodes * s->nodes; i++) {
        struct packet_switch_way *way = &s->way[i / s->nodes][i % s->nodes];
        while (way->first != NULL) {
            struct packet_switch_packet *packet = way->first;
            way->first = packet->next;
            free(packet);
        }
    }
    for (int i = 0; i < s->nodes; i++)
        close(s->fds[i]);
}

#endif
