/* ip_address — see ip_address.h. */
#include "net/ip_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>

#include "base/text.h"

struct ip_address_block {
    uint32_t first;
    int bits;
};

/* IPv4 addresses that are not globally reachable. */
static const struct ip_address_block closed[] = {
    {0x00000000, 8},  /* this network */
    {0x0a000000, 8},  /* private */
    {0x64400000, 10}, /* carrier-grade NAT */
    {0x7f000000, 8},  /* loopback */
    {0xa9fe0000, 16}, /* link-local, and cloud metadata */
    {0xac100000, 12}, /* private */
    {0xc0000000, 24}, /* protocol assignments */
    {0xc0000200, 24}, /* documentation */
    {0xc0586300, 24}, /* 6to4 relays */
    {0xc0a80000, 16}, /* private */
    {0xc6120000, 15}, /* benchmarking */
    {0xc6336400, 24}, /* documentation */
    {0xcb007100, 24}, /* documentation */
    {0xe0000000, 4},  /* multicast */
    {0xf0000000, 4},  /* reserved, and broadcast */
};

static bool is_public_v4(uint32_t ip)
{
    for (size_t i = 0; i < sizeof closed / sizeof closed[0]; i++)
        if ((ip ^ closed[i].first) >> (32 - closed[i].bits) == 0)
            return false;
    return true;
}

static uint32_t inner_v4(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static bool is_public_v6(const uint8_t ip[16])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff},
                         nat64[12] = {0x00, 0x64, 0xff, 0x9b};
    if (memcmp(ip, mapped, 12) == 0 || memcmp(ip, nat64, 12) == 0)
        return is_public_v4(inner_v4(ip + 12));
    if (ip[0] == 0x20 && ip[1] == 0x02) /* 6to4 */
        return is_public_v4(inner_v4(ip + 2));
    if (ip[0] == 0x20 && ip[1] == 0x01 && (ip[2] < 0x02 || (ip[2] == 0x0d && ip[3] == 0xb8)))
        return false; /* protocol assignments with Teredo; documentation */
    if (ip[0] == 0x3f && ip[1] == 0xff && ip[2] < 0x10) /* documentation */
        return false;
    return ip[0] >> 5 == 1; /* only 2000::/3 is allocated */
}

bool ip_address_is_public(const struct sockaddr *address, size_t bytes)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (bytes >= sizeof v4 && address->sa_family == AF_INET) {
        memcpy(&v4, address, sizeof v4);
        return is_public_v4(ntohl(v4.sin_addr.s_addr));
    }
    if (bytes >= sizeof v6 && address->sa_family == AF_INET6) {
        memcpy(&v6, address, sizeof v6);
        return is_public_v6(v6.sin6_addr.s6_addr);
    }
    return false;
}

const char *ip_address_text(const struct sockaddr *address, size_t bytes, char *out, size_t cap)
{
    const void *ip = NULL;
    if (bytes >= sizeof(struct sockaddr_in) && address->sa_family == AF_INET)
        ip = &((const struct sockaddr_in *)(const void *)address)->sin_addr;
    if (bytes >= sizeof(struct sockaddr_in6) && address->sa_family == AF_INET6)
        ip = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    if (ip == NULL || inet_ntop(address->sa_family, ip, out, (socklen_t)cap) == NULL)
        text_copy(out, cap, "no IP address");
    return out;
}
