/* allowed_hosts — see allowed_hosts.h. */
#include "serve/allowed_hosts.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/text.h"

#define BETWEEN ", \t\r\n"

static bool add_name(struct allowed_hosts *hosts, const char *name, size_t n)
{
    size_t held = strlen(hosts->names);
    if (n > 1 && name[0] == '*' && name[1] == '.')
        name++, n--;
    if (n > 1 && name[n - 1] == '.')
        n--;
    if (n == 1 && name[0] == '*') {
        hosts->is_any = true;
        return true;
    }
    if (held + n + 2 > sizeof(hosts->names))
        return false;
    for (size_t i = 0; i < n; i++)
        hosts->names[held + i] = (char)tolower((unsigned char)name[i]);
    hosts->names[held + n] = '\n';
    hosts->names[held + n + 1] = 0;
    return true;
}

bool allowed_hosts_add(struct allowed_hosts *hosts, const char *list)
{
    bool is_whole = true;
    for (list += strspn(list, BETWEEN); *list != 0; list += strspn(list, BETWEEN)) {
        size_t n = strcspn(list, BETWEEN);
        is_whole = add_name(hosts, list, n) && is_whole;
        list += n;
    }
    return is_whole;
}

/* Returns true if a line of the hosts file (an address, then names) holds this name. */
static bool names_it(const char *line, const char *name)
{
    size_t n = strlen(name);
    for (line += strcspn(line, BETWEEN); *line != 0; line += strcspn(line, BETWEEN)) {
        line += strspn(line, BETWEEN);
        if (strncasecmp(line, name, n) == 0 && (line[n] == 0 || strchr(BETWEEN, line[n]) != NULL))
            return true;
    }
    return false;
}

void allowed_hosts_add_own(struct allowed_hosts *hosts, const char *hosts_file)
{
    char name[256] = "", line[1024];
    (void)allowed_hosts_add(hosts, "localhost");
    if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == 0)
        return;
    (void)allowed_hosts_add(hosts, name);
    FILE *file = fopen(hosts_file, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "#\n")] = 0;
        if (names_it(line, name))
            (void)allowed_hosts_add(hosts, line + strcspn(line, BETWEEN));
    }
    if (file != NULL)
        fclose(file);
}

/* Copies the value without port and brackets, in lower case. false: it is not a host. */
static bool parse_host(const char *value, char *out, size_t cap)
{
    const char *end = value[0] == '[' ? strchr(value, ']') : value + strcspn(value, ":");
    if (end == NULL || end == value || (size_t)(end - value) >= cap)
        return false;
    const char *port = *end == ']' ? end + 1 : end;
    if (*port != 0 &&
        (*port != ':' || strspn(port + 1, "0123456789") != strlen(port + 1) || strlen(port) > 6))
        return false;
    size_t n = (size_t)(end - value), skip = *end == ']';
    for (size_t i = skip; i < n; i++)
        out[i - skip] = (char)tolower((unsigned char)value[i]);
    out[n - skip] = 0;
    if (n > 1 && out[n - 1] == '.')
        out[n - 1] = 0;
    return out[0] != 0;
}

static bool is_address(const char *name)
{
    unsigned char bytes[16];
    return inet_pton(AF_INET, name, bytes) == 1 || inet_pton(AF_INET6, name, bytes) == 1;
}

bool allowed_hosts_has(const struct allowed_hosts *hosts, const char *value)
{
    char name[512];
    if (!parse_host(value, name, sizeof(name)))
        return false;
    if (hosts->is_any || is_address(name) ||
        (strpbrk(name, ".:") == NULL &&
         (name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_")] == 0)))
        return true;
    size_t name_n = strlen(name);
    for (const char *at = hosts->names; *at != 0; at += strcspn(at, "\n") + 1) {
        size_t n = strcspn(at, "\n");
        bool is_it = n == name_n && strncmp(at, name, n) == 0;
        bool is_below = at[0] == '.' && name_n > n && strncmp(name + name_n - n, at, n) == 0;
        if (is_it || is_below)
            return true;
    }
    return false;
}
