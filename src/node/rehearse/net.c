/* rehearse_net — see rehearse/net.h.
 *
 *   namespace of node i                     namespace of this process
 *   eth0 10.201.i.2/30 ───── veth pair ───── node<i> 10.201.i.1/30, forwards
 *
 * Addresses, routes and flags are set by ioctl; only a veth pair needs netlink. */
#include "node/rehearse/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <net/route.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/text.h"

#define NODE_INTERFACE "eth0"

static enum status fail_with_errno(const char *what)
{
    return FAIL(ST_RETRY, "%s: %s", what, strerror(errno));
}

/* ---- a veth pair ---- */

struct request {
    struct nlmsghdr head;
    struct ifinfomsg info;
    char attributes[256];
};

/* add_attribute — appends an attribute and returns it, for an attribute that holds others. */
static struct rtattr *add_attribute(struct request *r, int type, const void *data, size_t n)
{
    struct rtattr *at = (struct rtattr *)((char *)r + NLMSG_ALIGN(r->head.nlmsg_len));
    ASSERT(NLMSG_ALIGN(r->head.nlmsg_len) + RTA_SPACE(n) <= sizeof *r);
    at->rta_type = (unsigned short)type;
    at->rta_len = (unsigned short)RTA_LENGTH(n);
    if (n > 0)
        memcpy(RTA_DATA(at), data, n);
    r->head.nlmsg_len = NLMSG_ALIGN(r->head.nlmsg_len) + (unsigned)RTA_ALIGN(at->rta_len);
    return at;
}

static void end_attribute(struct request *r, struct rtattr *at)
{
    at->rta_len = (unsigned short)((char *)r + r->head.nlmsg_len - (char *)at);
}

/* set_pair — describes a pair: eth0 here, and its other end in another namespace. */
static void set_pair(struct request *r, const char *peer_name, int peer_namespace)
{
    static const struct ifinfomsg peer_info;
    *r = (struct request){
        .head = {.nlmsg_len = NLMSG_LENGTH(sizeof r->info),
                 .nlmsg_type = RTM_NEWLINK,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK}};
    add_attribute(r, IFLA_IFNAME, NODE_INTERFACE, sizeof NODE_INTERFACE);
    struct rtattr *link = add_attribute(r, IFLA_LINKINFO, NULL, 0);
    add_attribute(r, IFLA_INFO_KIND, "veth", 4);
    struct rtattr *data = add_attribute(r, IFLA_INFO_DATA, NULL, 0);
    struct rtattr *peer = add_attribute(r, VETH_INFO_PEER, &peer_info, sizeof peer_info);
    add_attribute(r, IFLA_IFNAME, peer_name, strlen(peer_name) + 1);
    add_attribute(r, IFLA_NET_NS_FD, &peer_namespace, sizeof peer_namespace);
    end_attribute(r, peer);
    end_attribute(r, data);
    end_attribute(r, link);
}

/* send_request — sends a request; errno is the kernel's answer. */
static bool send_request(const struct request *r)
{
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char rest[512];
    } answer = {.error.error = -EPROTO};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    bool is_sent = fd >= 0 && send(fd, r, r->head.nlmsg_len, 0) == (ssize_t)r->head.nlmsg_len &&
                   recv(fd, &answer, sizeof answer, 0) > 0;
    if (fd >= 0)
        close(fd);
    if (is_sent)
        errno = -answer.error.error;
    return is_sent && answer.error.error == 0;
}

/* ---- interfaces ---- */

static void set_address(struct sockaddr *out, uint32_t address)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};
    memcpy(out, &in, sizeof in);
}

static bool set_up(int fd, const char *name, bool is_up)
{
    struct ifreq r = {0};
    text_copy(r.ifr_name, sizeof r.ifr_name, name);
    if (ioctl(fd, SIOCGIFFLAGS, &r) != 0)
        return false;
    r.ifr_flags = (short)(is_up ? r.ifr_flags | IFF_UP : r.ifr_flags & ~IFF_UP);
    return ioctl(fd, SIOCSIFFLAGS, &r) == 0;
}

static bool set_interface(int fd, const char *name, uint32_t address)
{
    struct ifreq r = {0};
    text_copy(r.ifr_name, sizeof r.ifr_name, name);
    set_address(&r.ifr_addr, address);
    if (ioctl(fd, SIOCSIFADDR, &r) != 0)
        return false;
    set_address(&r.ifr_netmask, 0xFFFFFFFC);
    return ioctl(fd, SIOCSIFNETMASK, &r) == 0 && set_up(fd, name, true);
}

static bool set_default_route(int fd, uint32_t gateway)
{
    struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY};
    set_address(&route.rt_dst, 0);
    set_address(&route.rt_genmask, 0);
    set_address(&route.rt_gateway, gateway);
    return ioctl(fd, SIOCADDRT, &route) == 0;
}

static uint32_t address_of(int node, bool is_hub)
{
    return 10u << 24 | 201u << 16 | (uint32_t)node << 8 | (is_hub ? 1u : 2u);
}

/* any_socket — opens a socket in the present namespace of this process; -1: errno. */
static int any_socket(void) { return socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0); }

/* ---- namespaces ---- */

static bool write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool is_written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return is_written;
}

/* become_owner — enters a user namespace in which this user, with the same number, may set up
 * networks. Otherwise only root may. */
static enum status become_owner(void)
{
    char uids[64], gids[64];
    unsigned uid = geteuid(), gid = getegid();
    text_format(uids, sizeof uids, "%u %u 1", uid, uid);
    text_format(gids, sizeof gids, "%u %u 1", gid, gid);
    if (unshare(CLONE_NEWUSER) != 0)
        return fail_with_errno("no user namespace can be made");
    if (!write_file("/proc/self/setgroups", "deny") || !write_file("/proc/self/uid_map", uids) ||
        !write_file("/proc/self/gid_map", gids))
        return fail_with_errno("the user of a new namespace cannot be set");
    return ST_OK;
}

static int own_namespace(void) { return open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC); }

static bool set_loopback(void)
{
    int fd = any_socket();
    bool is_set = fd >= 0 && set_up(fd, "lo", true);
    if (fd >= 0)
        close(fd);
    return is_set;
}

/* enter_hub — moves this process into a network namespace that forwards. */
static enum status enter_hub(int *hub_out)
{
    if (unshare(CLONE_NEWNET) != 0) {
        TRY(become_owner());
        if (unshare(CLONE_NEWNET) != 0)
            return fail_with_errno("no network namespace can be made");
    }
    if ((*hub_out = own_namespace()) < 0 || !set_loopback() ||
        !write_file("/proc/sys/net/ipv4/ip_forward", "1"))
        return fail_with_errno("a network namespace cannot be set up");
    return ST_OK;
}

/* set_node_end — sets up a node's end of the pair. Called in the node's namespace. */
static enum status set_node_end(int node, const char *peer, int hub)
{
    struct request r;
    set_pair(&r, peer, hub);
    if (!send_request(&r))
        return fail_with_errno("no pair of virtual Ethernet interfaces can be made");
    int fd = any_socket();
    bool is_set = fd >= 0 && set_up(fd, "lo", true) &&
                  set_interface(fd, NODE_INTERFACE, address_of(node, false)) &&
                  set_default_route(fd, address_of(node, true));
    enum status st = is_set ? ST_OK : fail_with_errno("a virtual interface cannot be set up");
    if (fd >= 0)
        close(fd);
    return st;
}

static void name_of(int node, char out[16]) { text_format(out, 16, "node%d", node); }

/* add_node — adds the namespace of a node. Afterwards this process is in the hub's namespace again,
 * unless it fails. */
static enum status add_node(int node, int hub, int *namespace_out)
{
    char peer[16];
    name_of(node, peer);
    if (unshare(CLONE_NEWNET) != 0 || (*namespace_out = own_namespace()) < 0)
        return fail_with_errno("no network namespace can be made");
    TRY(set_node_end(node, peer, hub));
    if (setns(hub, CLONE_NEWNET) != 0)
        return fail_with_errno("a network namespace cannot be entered");
    int fd = any_socket();
    bool is_set = fd >= 0 && set_interface(fd, peer, address_of(node, true));
    enum status st = is_set ? ST_OK : fail_with_errno("a virtual interface cannot be set up");
    if (fd >= 0)
        close(fd);
    return st;
}

enum status rehearse_net_open(int nodes_n, struct rehearse_net *out)
{
    int hub = -1;
    *out = (struct rehearse_net){.nodes_n = 0};
    enum status st = enter_hub(&hub);
    for (int i = 0; st == ST_OK && i < nodes_n; i++) {
        out->namespace_fd[i] = -1;
        st = add_node(i, hub, &out->namespace_fd[i]);
        out->nodes_n = i + 1;
    }
    if (hub >= 0)
        close(hub);
    return st;
}

void rehearse_net_close(struct rehearse_net *net)
{
    for (int i = 0; i < net->nodes_n; i++)
        if (net->namespace_fd[i] >= 0)
            close(net->namespace_fd[i]);
    net->nodes_n = 0;
}

enum status rehearse_net_try(void)
{
    char why[256];
    int ends[2], wait_status = 0;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return fail_with_errno("no pipe can be opened");
    pid_t pid = fork();
    if (pid == 0) {
        /* The child tries it, and sends the reason why it failed, or an empty text. */
        struct rehearse_net net;
        const char *reason = rehearse_net_open(2, &net) == ST_OK ? "" : status_message();
        _exit(write(ends[1], reason, strlen(reason)) == (ssize_t)strlen(reason) ? 0 : 1);
    }
    close(ends[1]);
    ssize_t n = pid < 0 ? 0 : read(ends[0], why, sizeof why - 1);
    close(ends[0]);
    if (pid < 0)
        return fail_with_errno("no process can be started");
    while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR)
        ;
    why[n > 0 ? n : 0] = 0;
    if (why[0] == 0 && wait_status != 0)
        return FAIL(ST_RETRY, "the process that tried to make network namespaces ended");
    return why[0] == 0 ? ST_OK : FAIL(ST_RETRY, "%s", why);
}

void rehearse_net_address(int node, char *out, size_t cap)
{
    uint32_t a = address_of(node, false);
    text_format(out, cap, "%u.%u.%u.%u", a >> 24, a >> 16 & 255, a >> 8 & 255, a & 255);
}

enum status rehearse_net_cut(int node, bool is_cut)
{
    char name[16];
    name_of(node, name);
    int fd = any_socket();
    bool is_done = fd >= 0 && set_up(fd, name, !is_cut);
    enum status st = is_done ? ST_OK : fail_with_errno("a virtual interface cannot be set up");
    if (fd >= 0)
        close(fd);
    return st;
}
