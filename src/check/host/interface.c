/* check_interface — a node's network interfaces: whether one is up, its speed and MTU, and its
 * errors. Nodes are compared by their main interface. It is the interface of DATA_ADDR, else of the
 * default route of IPv4 or IPv6, else a card that is up, else any interface that is up. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "check/host/file.h"
#include "check/host/static.h"
#include "check/report/text.h"

#define ERRORS_MIN 100    /* fewer errors since the interface came up are ignored */
#define ERRORS_SHARE 1e-5 /* share of all packets; a lower share of errors is ignored */

/* Reads the line "eth0 00000000 …" of /proc/net/route. */
static void route_line(void *arg, char *line)
{
    char *rest = line, *name = check_file_word(&rest), *to = check_file_word(&rest), *out = arg;
    if (name && to && out[0] == 0 && strcmp(to, "00000000") == 0)
        text_copy(out, CHECK_NETDEV_NAME, name);
}

/* Reads the line "to 00 from 00 via metric … eth0" of /proc/net/ipv6_route. The default route over
 * lo is ignored, because it rejects packets. */
static void route6_line(void *arg, char *line)
{
    char *rest = line, *word = check_file_word(&rest), *out = arg, *last = NULL;
    bool is_default = word && strspn(word, "0") == 32 && (word = check_file_word(&rest)) &&
                      strcmp(word, "00") == 0;
    while ((word = check_file_word(&rest)) != NULL)
        last = word;
    if (is_default && last && out[0] == 0 && strcmp(last, "lo") != 0)
        text_copy(out, CHECK_NETDEV_NAME, last);
}

static bool is_listed(const struct check_file_names *found, const char *name)
{
    for (int i = 0; i < found->n; i++)
        if (strcmp(found->name[i], name) == 0)
            return true;
    return false;
}

/* Returns true if `i` is more likely to carry the data than `than`. */
static bool is_better(const struct check_netdev *i, const struct check_netdev *than,
                      const char *route)
{
    bool is_route = strcmp(i->name, route) == 0, was_route = strcmp(than->name, route) == 0;
    if (!i->is_up || than->name[0] == 0)
        return i->is_up;
    return is_route != was_route ? is_route : i->is_physical && !than->is_physical && !was_route;
}

static bool is_bad(const struct check_netdev *i)
{
    return i->is_up && i->errors >= ERRORS_MIN &&
           (double)i->errors > ERRORS_SHARE * (double)i->packets;
}

static void add_errors(struct check_static *s, const struct check_netdev *i)
{
    char remedy[192], name[CHECK_TEXT_WORD];
    text_format(remedy, sizeof remedy,
                "ethtool -S %s | grep err # replace the cable or transceiver",
                check_text_word(name, sizeof name, i->name, "DEVICE"));
    check_static_add(s,
                     check_static_found(s, CHECK_POINT_INTERFACES, "interface errors",
                                        CHECK_VERDICT_WARN, "%lld errors in %lld packets",
                                        (long long)i->errors, (long long)i->packets),
                     i->name, remedy);
}

/* ---- bonds ---- */

struct bond {
    int members, down;
    char member[CHECK_NETDEV_NAME], first_down[CHECK_NETDEV_NAME];
};

static void bond_line(void *arg, char *line)
{
    struct bond *b = arg;
    if (text_starts(line, "Slave Interface: ")) {
        b->members++;
        text_copy(b->member, sizeof b->member, line + strlen("Slave Interface: "));
    } else if (b->members > 0 && strcmp(line, "MII Status: down") == 0) {
        b->down++;
        text_copy(b->first_down, sizeof b->first_down, b->member);
    }
}

static void add_bond(struct check_static *s, const char *name)
{
    struct bond b = {0};
    char path[96], remedy[192], word[CHECK_TEXT_WORD];
    text_format(path, sizeof path, "/proc/net/bonding/%s", name);
    if (!check_file_lines(s->root, path, 1 << 16, bond_line, &b) || b.down == 0)
        return;
    text_format(remedy, sizeof remedy, "ip link set %s up # check its cable and the switch port",
                check_text_word(word, sizeof word, b.first_down, "DEVICE"));
    check_static_add(s,
                     check_static_found(s, CHECK_POINT_INTERFACES, "bond", CHECK_VERDICT_WARN,
                                        "%d of %d links are down: %s", b.down, b.members,
                                        b.first_down),
                     name, remedy);
}

/* ---- the main interface ---- */

static void add_value(struct check_static *s, const struct check_netdev *i, const char *name,
                      const char *unit, int64_t value, const char *remedy)
{
    struct check_row row = check_static_found(s, CHECK_POINT_INTERFACES, name,
                                              CHECK_VERDICT_MEASURED, "the main interface");
    check_static_measured(s, row, (double)value, unit, i->name, remedy);
}

static void add_main(struct check_static *s, const struct check_netdev *i, int up)
{
    bool is_half = strcmp(i->duplex, "half") == 0;
    char remedy[192] = "", name[CHECK_TEXT_WORD];
    check_text_word(name, sizeof name, i->name, "DEVICE");
    if (is_half)
        text_format(remedy, sizeof remedy, "ethtool -s %s autoneg on", name);
    check_static_add(s,
                     check_static_found(s, CHECK_POINT_INTERFACES, "interfaces",
                                        is_half ? CHECK_VERDICT_WARN : CHECK_VERDICT_PASS,
                                        "%d up; the main one is %s%s", up, i->name,
                                        is_half ? ", in half duplex" : ""),
                     is_half ? i->name : "", remedy);
    if (i->mtu > 0) {
        text_format(remedy, sizeof remedy, "ip link set %s mtu N # N: the mtu of the other nodes",
                    name);
        add_value(s, i, "interface mtu", "bytes", i->mtu, remedy);
    }
    if (i->speed_mbps > 0) {
        text_format(remedy, sizeof remedy, "ethtool %s # replace the cable or transceiver", name);
        add_value(s, i, "interface speed", "Mb/s", i->speed_mbps, remedy);
    }
}

static void add_none(struct check_static *s)
{
    bool is_needed = s->config->place.nodes > 1;
    check_static_add(s,
                     check_static_found(s, CHECK_POINT_INTERFACES, "interfaces",
                                        is_needed ? CHECK_VERDICT_FAIL : CHECK_VERDICT_PASS,
                                        "no network interface is up%s",
                                        is_needed ? "" : "; a single node needs none"),
                     "",
                     is_needed ? check_static_flag(s, "ip link # then: ip link set INTERFACE up",
                                                   "docker run --network host", "hostNetwork: true")
                               : "");
}

void check_interface_rows(struct check_static *s)
{
    struct check_file_names *found = memory_new(1, sizeof *found);
    struct check_netdev main_one = {0}, i;
    char route[CHECK_NETDEV_NAME];
    int up = 0, bad = 0;
    const bool has_files = check_netdev_has_files(s->root);
    check_netdev_list(s->root, has_files, found);
    /* Addresses are compared only on the machine: a tree of files has none. */
    const char *asked = s->config->data_addr;
    route[0] = 0;
    if (asked && asked[0] && is_listed(found, asked))
        text_copy(route, CHECK_NETDEV_NAME, asked);
    else if (asked && asked[0] && s->root[0] == 0)
        (void)check_netdev_of_address(asked, route, CHECK_NETDEV_NAME);
    if (route[0] == 0)
        check_file_lines(s->root, "/proc/net/route", 1 << 16, route_line, route);
    if (route[0] == 0)
        check_file_lines(s->root, "/proc/net/ipv6_route", 1 << 20, route6_line, route);
    for (int k = 0; k < found->n; k++) {
        check_netdev_read(s->root, has_files, found->name[k], &i);
        up += i.is_up;
        if (is_better(&i, &main_one, route))
            main_one = i;
        bad += is_bad(&i);
        if (is_bad(&i))
            add_errors(s, &i);
        add_bond(s, i.name);
    }
    free(found);
    if (main_one.name[0] == 0)
        add_none(s);
    else
        add_main(s, &main_one, up);
    if (main_one.name[0] && bad == 0)
        check_static_add(s,
                         check_static_found(s, CHECK_POINT_INTERFACES, "interface errors",
                                            CHECK_VERDICT_PASS, "few or none on %d interfaces", up),
                         "", "");
}
