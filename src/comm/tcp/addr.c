/* tcp_addr — the address of an interface, of a name, or of the route to the master. */
#include "comm/tcp/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

static void set_port(struct sockaddr_storage *at, uint16_t port)
{
    if (at->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)at)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)(void *)at)->sin_port = htons(port);
}

static bool is_any(const struct sockaddr_storage *at)
{
    if (at->ss_family == AF_INET6)
        return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)(const void *)at)->sin6_addr);
    return ((const struct sockaddr_in *)(const void *)at)->sin_addr.s_addr == htonl(INADDR_ANY);
}

static socklen_t size_of(const struct sockaddr_storage *at)
{
    return at->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

/* Finds an interface's first address: IPv4 before IPv6, and a link-local IPv6 address last. */
static bool find_interface(const char *name, struct sockaddr_storage *out)
{
    struct ifaddrs *list;
    int best = 0;
    if (if_nametoindex(name) == 0 || getifaddrs(&list) != 0)
        return false;
    for (const struct ifaddrs *at = list; at != NULL; at = at->ifa_next) {
        if (at->ifa_addr == NULL || strcmp(at->ifa_name, name) != 0)
            continue;
        const struct sockaddr_in6 *six = (const void *)at->ifa_addr;
        int worth = at->ifa_addr->sa_family == AF_INET       ? 3
                    : at->ifa_addr->sa_family != AF_INET6    ? 0
                    : IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr) ? 1
                                                             : 2;
        if (worth <= best)
            continue;
        best = worth;
        memset(out, 0, sizeof(*out));
        memcpy(out, at->ifa_addr,
               worth == 3 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
    }
    freeifaddrs(list);
    return best > 0;
}

static bool is_loopback(const struct addrinfo *info)
{
    const struct sockaddr_in6 *six = (const void *)info->ai_addr;
    const struct sockaddr_in *four = (const void *)info->ai_addr;
    return info->ai_family == AF_INET6 ? IN6_IS_ADDR_LOOPBACK(&six->sin6_addr)
                                       : ntohl(four->sin_addr.s_addr) >> 24 == 127;
}

/* Chooses the first address that is not of loopback, else the first one: /etc/hosts may list both
 * kinds for a host's own name. */
static enum status resolve_host(const char *name, const char *setting, struct sockaddr_storage *out)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list;
    int code = getaddrinfo(name, NULL, &hints, &list);
    if (code != 0)
        return FAIL(ST_RETRY, "%s=%s has no address: %s", setting, name, gai_strerror(code));
    const struct addrinfo *best = list;
    while (best->ai_next != NULL && is_loopback(best))
        best = best->ai_next;
    best = is_loopback(best) ? list : best;
    memset(out, 0, sizeof(*out));
    memcpy(out, best->ai_addr, best->ai_addrlen);
    freeaddrinfo(list);
    return ST_OK;
}

/* Gets the kernel's source address for packets to that address; no packet is sent. */
static enum status find_route(const char *name, const struct sockaddr_storage *to,
                              struct sockaddr_storage *out)
{
    struct sockaddr_storage target = *to;
    socklen_t bytes = sizeof(*out);
    int fd = socket(to->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return FAIL(ST_RETRY, "no socket for the route to MASTER_ADDR=%s: %s", name,
                    strerror(errno));
    set_port(&target, 9);
    memset(out, 0, sizeof(*out));
    bool is_found = connect(fd, (struct sockaddr *)&target, size_of(&target)) == 0 &&
                    getsockname(fd, (struct sockaddr *)out, &bytes) == 0;
    int error = errno;
    close(fd);
    set_port(out, 0);
    return is_found ? ST_OK
                    : FAIL(ST_RETRY, "no route to MASTER_ADDR=%s: %s", name, strerror(error));
}

enum status tcp_addr_choose(const char *data_addr, const char *master, struct sockaddr_storage *out,
                            socklen_t *bytes_out)
{
    struct sockaddr_storage to;
    if (data_addr != NULL && data_addr[0] != 0) {
        if (!find_interface(data_addr, out))
            TRY(resolve_host(data_addr, "DATA_ADDR", out));
    } else {
        TRY(resolve_host(master != NULL ? master : "127.0.0.1", "MASTER_ADDR", &to));
        if (is_any(&to))
            return FAIL(ST_BAD_SETTING,
                        "MASTER_ADDR=%s is every address of this node: name one that the other "
                        "nodes reach, or set DATA_ADDR to an interface or address for the traffic "
                        "between workers",
                        master);
        TRY(find_route(master, &to, out));
    }
    *bytes_out = size_of(out);
    return ST_OK;
}

void tcp_addr_pack(const struct sockaddr_storage *own, struct tcp_addr_packed *out)
{
    const struct sockaddr_in *four = (const void *)own;
    const struct sockaddr_in6 *six = (const void *)own;
    *out = (struct tcp_addr_packed){
        .family = own->ss_family == AF_INET6 ? 6 : 4,
        .port = ntohs(own->ss_family == AF_INET6 ? six->sin6_port : four->sin_port)};
    if (own->ss_family == AF_INET6)
        memcpy(out->ip, &six->sin6_addr, 16);
    else
        memcpy(out->ip, &four->sin_addr, 4);
}

bool tcp_addr_unpack(const struct tcp_addr_packed *packed, const struct sockaddr_storage *own,
                     struct sockaddr_storage *out, socklen_t *bytes_out)
{
    struct sockaddr_in *four = (void *)out;
    struct sockaddr_in6 *six = (void *)out;
    memset(out, 0, sizeof(*out));
    out->ss_family = packed->family == 6 ? AF_INET6 : AF_INET;
    if ((packed->family != 4 && packed->family != 6) || packed->port == 0)
        return false;
    if (packed->family == 6) {
        memcpy(&six->sin6_addr, packed->ip, 16);
        if (IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr) && own->ss_family == AF_INET6)
            six->sin6_scope_id = ((const struct sockaddr_in6 *)(const void *)own)->sin6_scope_id;
    } else {
        memcpy(&four->sin_addr, packed->ip, 4);
    }
    set_port(out, packed->port);
    *bytes_out = size_of(out);
    return true;
}

void tcp_addr_bind(int fd, const struct sockaddr_storage *own)
{
    const int on = 1;
    struct sockaddr_storage from = *own;
    set_port(&from, 0);
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
    if (bind(fd, (struct sockaddr *)&from, size_of(&from)) != 0)
        errno = 0;
}

void tcp_addr_text(const struct sockaddr_storage *at, char *out, size_t cap)
{
    char host[INET6_ADDRSTRLEN] = "?";
    const struct sockaddr_in *four = (const void *)at;
    const struct sockaddr_in6 *six = (const void *)at;
    bool is_six = at->ss_family == AF_INET6;
    inet_ntop(at->ss_family, is_six ? (const void *)&six->sin6_addr : (const void *)&four->sin_addr,
              host, sizeof(host));
    text_format(out, cap, is_six ? "[%s]:%d" : "%s:%d", host,
                ntohs(is_six ? six->sin6_port : four->sin_port));
}
