/* ip_address — public addresses, tested at the edges of every block that is not public. */
#include "harness.h"

#include <arpa/inet.h>

#include "net/ip_address.h"

static bool is_public(const char *text)
{
    struct sockaddr_storage at = {0};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&at;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&at;
    char back[64];
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1)
        at.ss_family = AF_INET;
    else {
        assert_int_equal(inet_pton(AF_INET6, text, &v6->sin6_addr), 1);
        at.ss_family = AF_INET6;
    }
    assert_string_equal(ip_address_text((struct sockaddr *)&at, sizeof at, back, sizeof back),
                        text);
    return ip_address_is_public((struct sockaddr *)&at, sizeof at);
}

TEST(test_closed)
{
    static const char *const closed[] = {"0.0.0.0",
                                         "0.255.255.255",
                                         "10.0.0.0",
                                         "10.255.255.255",
                                         "100.64.0.0",
                                         "100.127.255.255",
                                         "127.0.0.1",
                                         "127.255.255.255",
                                         "169.254.0.0",
                                         "169.254.169.254",
                                         "172.16.0.0",
                                         "172.31.255.255",
                                         "192.0.0.1",
                                         "192.0.2.1",
                                         "192.88.99.1",
                                         "192.168.0.0",
                                         "192.168.255.255",
                                         "198.18.0.0",
                                         "198.19.255.255",
                                         "198.51.100.7",
                                         "203.0.113.9",
                                         "224.0.0.1",
                                         "239.255.255.255",
                                         "240.0.0.1",
                                         "255.255.255.255",
                                         "::",
                                         "::1",
                                         "::ffff:127.0.0.1",
                                         "::ffff:10.1.2.3",
                                         "::ffff:169.254.169.254",
                                         "64:ff9b::7f00:1",
                                         "64:ff9b:1::1",
                                         "fc00::1",
                                         "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                                         "fe80::1",
                                         "fec0::1",
                                         "ff02::1",
                                         "2001:db8::1",
                                         "2001::1",
                                         "2001:10::1",
                                         "2002:7f00:1::",
                                         "2002:a00:1::1",
                                         "3fff::1",
                                         "100::1",
                                         "4000::1",
                                         "5f00::1"};
    for (size_t i = 0; i < sizeof closed / sizeof closed[0]; i++)
        if (is_public(closed[i]))
            fail_msg("%s is not public", closed[i]);
}

TEST(test_open)
{
    static const char *const open[] = {
        "1.1.1.1",         "9.255.255.255",    "11.0.0.0",
        "100.63.255.255",  "100.128.0.0",      "126.255.255.255",
        "128.0.0.1",       "169.253.255.255",  "169.255.0.0",
        "172.15.255.255",  "172.32.0.0",       "192.167.255.255",
        "192.169.0.0",     "198.17.255.255",   "198.20.0.0",
        "223.255.255.255", "2606:4700::1111",  "2001:4860:4860::8888",
        "::ffff:8.8.8.8",  "64:ff9b::808:808", "2002:808:808::1",
        "2a00::1"};
    for (size_t i = 0; i < sizeof open / sizeof open[0]; i++)
        if (!is_public(open[i]))
            fail_msg("%s is public", open[i]);
}

TEST(test_other_kinds)
{
    struct sockaddr at = {.sa_family = AF_UNIX};
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x01010101)};
    char text[64];
    assert_false(ip_address_is_public(&at, sizeof at));
    assert_false(ip_address_is_public((struct sockaddr *)&v4, 4)); /* cut */
    assert_true(ip_address_is_public((struct sockaddr *)&v4, sizeof v4));
    assert_string_equal(ip_address_text(&at, sizeof at, text, sizeof text), "no IP address");
}

HARNESS_RUN_ALL()
