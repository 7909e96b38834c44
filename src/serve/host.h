/* host — under which names is this node asked for? A page of another site can make its own name
 * lead here (DNS rebinding) and would then read what this node serves; its requests carry that
 * name. Addresses are no names, and a name without a dot (localhost, a container's, a machine's in
 * its own network) is not an attacker's to give: both may ask. Must not know HTTP beyond the header
 * Host. */
#ifndef CONVOY_SERVE_HOST_H
#define CONVOY_SERVE_HOST_H

#include <stdbool.h>
#include <stddef.h>

#define HOST_NAMES_MAX 8192

struct host {
    bool is_any;
    char names[HOST_NAMES_MAX]; /* each ended by a line's end; those of a domain begin with a dot */
};

/* host_add — a list with commas or blanks between: names, *.domain, or * for any. false: no
 * room. */
bool host_add(struct host *host, const char *list);
/* host_add_own — localhost, this machine's name, and what its file of hosts (/etc/hosts) calls
 * it. */
void host_add_own(struct host *host, const char *hosts_file);
/* host_has — value: of a header Host, with or without a port. */
bool host_has(const struct host *host, const char *value);

#endif
