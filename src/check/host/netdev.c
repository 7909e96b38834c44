/* check_netdev — see host/static.h. */
#include "check/host/static.h"

#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"

/* ---- does /sys show the namespace of this process? ---- */

static bool has_mac(const char *name, const struct sockaddr_ll *link)
{
    char mac[3 * sizeof link->sll_addr + 1] = "", text[64];
    for (int i = 0; i < link->sll_halen && i < (int)sizeof link->sll_addr; i++)
        text_format(mac + strlen(mac), sizeof mac - strlen(mac), "%s%02x", i > 0 ? ":" : "",
                    link->sll_addr[i]);
    check_file_read("", text, sizeof text, "/sys/class/net/%s/address", name);
    return link->sll_halen > 6 || strcmp(text, mac) == 0;
}

static int count_files(void)
{
    struct check_file_names *found = memory_new(1, sizeof *found);
    int n = 0;
    check_file_list("", found, "/sys/class/net");
    for (int i = 0; i < found->n; i++)
        n += check_file_is("", "/sys/class/net/%s/ifindex", found->name[i]);
    free(found);
    return n;
}

/* Compares names and numbers of interfaces. Tunnels (wireguard, tun, ppp) have no hardware address,
 * but they have numbers. */
static bool has_numbers(void)
{
    struct if_nameindex *all = if_nameindex();
    bool is_same = true;
    int n = 0;
    if (all == NULL)
        return true;
    for (int i = 0; is_same && all[i].if_index != 0; i++) {
        if (!check_file_is_name(all[i].if_name))
            continue;
        is_same = check_file_number("", "/sys/class/net/%s/ifindex", all[i].if_name) ==
                  (int64_t)all[i].if_index;
        n++;
    }
    if_freenameindex(all);
    return is_same && n == count_files();
}

/* Compares hardware addresses: numbers are often equal in several namespaces. */
static bool has_macs(void)
{
    struct ifaddrs *all = NULL;
    bool is_same = true;
    if (getifaddrs(&all) != 0)
        return true;
    for (struct ifaddrs *at = all; at && is_same; at = at->ifa_next) {
        struct sockaddr_ll link;
        if (!at->ifa_addr || at->ifa_addr->sa_family != AF_PACKET ||
            !check_file_is_name(at->ifa_name))
            continue;
        memcpy(&link, at->ifa_addr, sizeof link);
        is_same = has_mac(at->ifa_name, &link);
    }
    freeifaddrs(all);
    return is_same;
}

bool check_netdev_has_files(const char *root) { return root[0] || (has_numbers() && has_macs()); }

void check_netdev_list(const char *root, bool has_files, struct check_file_names *out)
{
    if (has_files) {
        check_file_list(root, out, "/sys/class/net");
        return;
    }
    struct if_nameindex *all = if_nameindex();
    out->n = 0;
    for (int i = 0; all && all[i].if_index != 0 && out->n < CHECK_FILE_NAMES_MAX; i++)
        if (check_file_is_name(all[i].if_name))
            text_copy(out->name[out->n++], sizeof out->name[0], all[i].if_name);
    if (all)
        if_freenameindex(all);
}

/* ---- from files ---- */

static int64_t read_stat(const char *root, const char *name, const char *which)
{
    int64_t n = check_file_number(root, "/sys/class/net/%s/statistics/%s", name, which);
    return n > 0 ? n : 0;
}

/* ---- by ioctl ---- */

/* The counters of one interface in /proc/net/dev, which shows the namespace of this process. They
 * have 64 bits. The counters of getifaddrs have 32 bits, which overflow in a minute on a fast
 * network. */
struct counters {
    const char *name;
    struct check_netdev *out;
};

/* Reads "eth0: bytes packets errs drop fifo frame compressed multicast bytes packets errs …". */
static void counter_line(void *arg, char *line)
{
    const struct counters *c = arg;
    char *rest = line + strspn(line, " "), *name = strsep(&rest, ":"), *word;
    int64_t n[16] = {0}, i = 0;
    if (rest == NULL || strcmp(name, c->name) != 0)
        return;
    while (i < 11 && (word = check_file_word(&rest)) != NULL &&
           text_parse_i64(word, 0, INT64_MAX, &n[i]) == TEXT_OK)
        i++;
    if (i < 11)
        return;
    c->out->packets = n[1] + n[9];
    c->out->errors = n[2] + n[10];
}

/* Returns true for the name of a bus; a bridge, a tap and a tun have other words in its place. */
static bool is_bus(const char *info)
{
    static const char *const none[] = {"", "N/A", "tap", "tun"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (strcmp(info, none[i]) == 0)
            return false;
    return true;
}

static void read_calls(const char *name, struct check_netdev *out)
{
    struct ifreq request = {.ifr_flags = 0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    out->type = out->speed_mbps = out->mtu = CHECK_FILE_NONE;
    struct counters c = {name, out};
    out->errors = out->packets = CHECK_FILE_NONE;
    check_file_lines("", "/proc/net/dev", 1 << 20, counter_line, &c);
    text_copy(request.ifr_name, sizeof request.ifr_name, name);
    if (fd < 0)
        return;
    if (ioctl(fd, SIOCGIFFLAGS, &request) == 0)
        text_copy(out->state, sizeof out->state, request.ifr_flags & IFF_RUNNING ? "up" : "down");
    if (ioctl(fd, SIOCGIFHWADDR, &request) == 0)
        out->type = request.ifr_hwaddr.sa_family;
    if (ioctl(fd, SIOCGIFMTU, &request) == 0)
        out->mtu = request.ifr_mtu;
    struct ethtool_cmd speed = {.cmd = ETHTOOL_GSET};
    struct ethtool_drvinfo driver = {.cmd = ETHTOOL_GDRVINFO};
    request.ifr_data = (char *)&speed;
    if (ioctl(fd, SIOCETHTOOL, &request) == 0 &&
        ethtool_cmd_speed(&speed) != (__u32)SPEED_UNKNOWN) {
        out->speed_mbps = ethtool_cmd_speed(&speed);
        text_copy(out->duplex, sizeof out->duplex, speed.duplex == DUPLEX_HALF ? "half" : "full");
    }
    request.ifr_data = (char *)&driver;
    out->is_physical = ioctl(fd, SIOCETHTOOL, &request) == 0 && is_bus(driver.bus_info);
    close(fd);
}

void check_netdev_read(const char *root, bool has_files, const char *name, struct check_netdev *out)
{
    *out = (struct check_netdev){.is_up = false};
    text_copy(out->name, sizeof out->name, name);
    if (has_files) {
        check_file_read(root, out->state, sizeof out->state, "/sys/class/net/%s/operstate", name);
        check_file_read(root, out->duplex, sizeof out->duplex, "/sys/class/net/%s/duplex", name);
        out->type = check_file_number(root, "/sys/class/net/%s/type", name);
        out->speed_mbps = check_file_number(root, "/sys/class/net/%s/speed", name);
        out->mtu = check_file_number(root, "/sys/class/net/%s/mtu", name);
        out->errors = read_stat(root, name, "rx_errors") + read_stat(root, name, "tx_errors");
        out->packets = read_stat(root, name, "rx_packets") + read_stat(root, name, "tx_packets");
        out->is_physical = check_file_is(root, "/sys/class/net/%s/device", name);
    } else
        read_calls(name, out);
    /* "unknown": the driver does not report the state, for example of a tunnel */
    out->is_up = out->type != CHECK_NETDEV_LOOPBACK &&
                 (strcmp(out->state, "up") == 0 || strcmp(out->state, "unknown") == 0);
}

/* ---- addresses ---- */

static bool is_equal(const struct sockaddr *a, const struct sockaddr *b)
{
    struct sockaddr_in a4, b4;
    struct sockaddr_in6 a6, b6;
    if (!a || a->sa_family != b->sa_family)
        return false;
    if (a->sa_family == AF_INET) {
        memcpy(&a4, a, sizeof a4);
        memcpy(&b4, b, sizeof b4);
        return a4.sin_addr.s_addr == b4.sin_addr.s_addr;
    }
    if (a->sa_family != AF_INET6)
        return false;
    memcpy(&a6, a, sizeof a6);
    memcpy(&b6, b, sizeof b6);
    return memcmp(&a6.sin6_addr, &b6.sin6_addr, sizeof a6.sin6_addr) == 0;
}

bool check_netdev_of_address(const char *address, char *out, size_t cap)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    struct addrinfo *wanted = NULL;
    struct ifaddrs *all = NULL;
    out[0] = 0;
    if (getaddrinfo(address, NULL, &hints, &wanted) != 0)
        return false;
    if (getifaddrs(&all) == 0)
        for (struct ifaddrs *at = all; at && !out[0]; at = at->ifa_next)
            if (is_equal(at->ifa_addr, wanted->ai_addr))
                text_copy(out, cap, at->ifa_name);
    out[strcspn(out, ":")] = 0; /* "eth0:1" is a label of an address of eth0 */
    freeifaddrs(all);
    freeaddrinfo(wanted);
    return out[0] != 0;
}
