/* check_netdev — what the kernel tells of a network interface: from /sys/class/net, or where that
 * shows another network namespace than this process has (nsenter, some containers), by ioctl. Must
 * not judge. */
#ifndef CONVOY_CHECK_CHECK_NETDEV_H
#define CONVOY_CHECK_CHECK_NETDEV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check/check_file.h"

#define CHECK_NETDEV_NAME 40
#define CHECK_NETDEV_LOOPBACK 772 /* type */

struct check_netdev {
    char name[CHECK_NETDEV_NAME], state[16], duplex[16];
    int64_t type, speed_mbps, mtu, errors, packets; /* CHECK_FILE_NONE: not known */
    bool is_up, is_physical;
};

/* check_netdev_has_files — are the interfaces below root those of this process? root: a folder that
 * stands for the machine, which always is right, or "". */
bool check_netdev_has_files(const char *root);
/* check_netdev_list, _read — has_files: of the function above. */
void check_netdev_list(const char *root, bool has_files, struct check_file_names *out);
void check_netdev_read(const char *root, bool has_files, const char *name,
                       struct check_netdev *out);
/* check_netdev_of_address — the interface of this process that has an IPv4 or IPv6 address, given
 * as a number. false: none has, or it is no number, and out is "". */
bool check_netdev_of_address(const char *address, char *out, size_t cap);

#endif
