/* netdev — an interface as /sys/class/net and as calls of the system tell it, in this network
 * namespace and in another one; the interface of an address. */
#include "harness.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/if_tun.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netdb.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>

#include "base/text.h"
#include "check/host/static.h"

static bool is_in(const struct check_file_names *all, const char *name)
{
    for (int i = 0; i < all->n; i++)
        if (strcmp(all->name[i], name) == 0)
            return true;
    return false;
}

static struct check_file_names files, calls;

static void test_both_ways_agree(void **state)
{
    if (!check_netdev_has_files(""))
        HARNESS_SKIP("/sys shows another network namespace here");
    check_netdev_list("", true, &files);
    check_netdev_list("", false, &calls);
    assert_true(calls.n > 0);
    for (int i = 0; i < calls.n; i++) {
        struct check_netdev by_file, by_call;
        assert_true(is_in(&files, calls.name[i]));
        check_netdev_read("", true, calls.name[i], &by_file);
        check_netdev_read("", false, calls.name[i], &by_call);
        assert_string_equal(by_call.name, calls.name[i]);
        assert_int_equal(by_call.type, by_file.type);
        assert_int_equal(by_call.mtu, by_file.mtu);
        assert_true(by_call.packets >= 0 && by_call.errors >= 0);
        if (by_file.speed_mbps > 0)
            assert_int_equal(by_call.speed_mbps, by_file.speed_mbps);
        if (strcmp(by_file.state, "up") == 0)
            assert_true(by_call.is_up);
    }
}

/* Of a process in a namespace of its own, in which lo is all there is; 77: not allowed. */
static int look_from_inside(void)
{
    struct check_netdev lo;
    if (unshare(CLONE_NEWNET) != 0)
        return 77;
    if (check_netdev_has_files(""))
        return 1;
    check_netdev_list("", false, &calls);
    if (calls.n < 1 || !is_in(&calls, "lo"))
        return 2;
    check_netdev_read("", false, "lo", &lo);
    return lo.type == CHECK_NETDEV_LOOPBACK && lo.mtu == 65536 && !lo.is_up ? 0 : 3;
}

static void test_another_namespace(void **state)
{
    int wait_status = 0;
    check_netdev_list("", true, &files);
    pid_t pid = fork();
    if (pid == 0)
        _exit(look_from_inside());
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    if (WEXITSTATUS(wait_status) == 77 || files.n < 2)
        HARNESS_SKIP("no network namespaces here, or no interface but lo");
    assert_int_equal(wait_status, 0);
}

/* The line that is wrong, as the exit code of a process in a namespace of its own. */
#define MUST(is_so) \
    if (!(is_so))   \
    return 128 + (__LINE__ & 63)

/* A tun, which has no hardware address, and "lo:1", a label with an address. 77: not allowed. */
static int make_interfaces(int *fd_out)
{
    struct ifreq tun = {.ifr_flags = IFF_TUN | IFF_NO_PI, .ifr_name = "tun9"},
                 label = {.ifr_name = "lo:1"};
    struct sockaddr_in address = {.sin_family = AF_INET};
    inet_pton(AF_INET, "127.9.9.9", &address.sin_addr);
    memcpy(&label.ifr_addr, &address, sizeof address);
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC), s = socket(AF_INET, SOCK_DGRAM, 0);
    *fd_out = s;
    return fd >= 0 && ioctl(fd, TUNSETIFF, &tun) == 0 && ioctl(s, SIOCSIFADDR, &label) == 0 ? 0
                                                                                            : 77;
}

static int look_at_virtual(void)
{
    struct check_netdev found;
    char name[CHECK_NETDEV_NAME];
    int fd;
    if (unshare(CLONE_NEWNET | CLONE_NEWNS) != 0 || make_interfaces(&fd) != 0)
        return 77;
    check_netdev_list("", false, &calls);
    MUST(is_in(&calls, "tun9") && is_in(&calls, "lo"));
    check_netdev_read("", false, "tun9", &found);
    MUST(found.type == ARPHRD_NONE && found.mtu == 1500 && !found.is_physical && !found.is_up);
    MUST(found.errors == 0 && found.packets == 0);
    MUST(check_netdev_of_address("127.9.9.9", name, sizeof name) && !strcmp(name, "lo"));
    if (ioctl(fd, SIOCBRADDBR, "br9") == 0) {
        check_netdev_read("", false, "br9", &found);
        MUST(found.type == ARPHRD_ETHER && !found.is_physical);
    }
    /* a name that a shell would read as a command */
    struct ifreq rename = {.ifr_name = "tun9", .ifr_newname = "t$(id)"};
    MUST(check_netdev_has_files("") == false);
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("sysfs", "/sys", "sysfs", MS_RDONLY, NULL) != 0)
        return 77;
    MUST(check_netdev_has_files(""));
    MUST(ioctl(fd, SIOCSIFNAME, &rename) == 0);
    MUST(check_netdev_has_files(""));
    check_netdev_list("", false, &calls);
    MUST(is_in(&calls, "lo") && !is_in(&calls, "t$(id)") && !is_in(&calls, "t??id?"));
    return 0;
}

static void test_virtual(void **state)
{
    int wait_status = 0;
    pid_t pid = fork();
    if (pid == 0)
        _exit(look_at_virtual());
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    if (WEXITSTATUS(wait_status) == 77)
        HARNESS_SKIP("no namespaces, tun or mounts here");
    assert_int_equal(wait_status, 0);
}

static void test_a_root_is_the_machine(void **state)
{
    assert_true(check_netdev_has_files("/nowhere"));
    check_netdev_list("/nowhere", true, &files);
    assert_int_equal(files.n, 0);
}

static void test_addresses(void **state)
{
    struct ifaddrs *all = NULL;
    char text[NI_MAXHOST], name[CHECK_NETDEV_NAME];
    assert_int_equal(getifaddrs(&all), 0);
    for (struct ifaddrs *at = all; at; at = at->ifa_next) {
        const int family = at->ifa_addr ? at->ifa_addr->sa_family : 0;
        const socklen_t n =
            family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        if ((family != AF_INET && family != AF_INET6) ||
            getnameinfo(at->ifa_addr, n, text, sizeof text, NULL, 0, NI_NUMERICHOST) != 0)
            continue;
        assert_true(check_netdev_of_address(text, name, sizeof name));
        assert_int_not_equal(if_nametoindex(name), 0);
        if (strcmp(text, "127.0.0.1") == 0)
            assert_string_equal(name, at->ifa_name);
    }
    freeifaddrs(all);
    static const char *const wrong[] = {"",          "192.0.2.77", "2001:db8::77", "eth0",
                                        "localhost", "1.2.3.4.5",  "%s",           "::ffff:1/64"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_false(check_netdev_of_address(wrong[i], name, sizeof name));
        assert_string_equal(name, "");
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_both_ways_agree), cmocka_unit_test(test_another_namespace),
    cmocka_unit_test(test_virtual), cmocka_unit_test(test_a_root_is_the_machine),
    cmocka_unit_test(test_addresses)};
HARNESS_MAIN(tests)
