/* allowed_hosts — under which names is this node asked for? A page of another site can make its own
 * name lead here (DNS rebinding) and would then read what this node serves; its requests carry that
 * name. Addresses are no names, and a name without a dot (localhost, a container's, a machine's in
 * its own network) is not an attacker's to give: both may ask. Must not know HTTP beyond the header
 * Host. */
#ifndef CONVOY_SERVE_ALLOWED_HOSTS_H
#define CONVOY_SERVE_ALLOWED_HOSTS_H

#include <stdbool.h>
#include <stddef.h>

#define ALLOWED_HOSTS_NAMES_MAX 8192

struct allowed_hosts {
    bool is_any;
    /* each ended by a line's end; those of a domain begin with a dot */
    char names[ALLOWED_HOSTS_NAMES_MAX];
};

/* allowed_hosts_add — a list with commas or blanks between: names, *.domain, or * for any. false:
 * no room. */
bool allowed_hosts_add(struct allowed_hosts *hosts, const char *list);
/* allowed_hosts_add_own — localhost, this machine's name, and what its file of hosts (/etc/hosts)
 * calls it. */
void allowed_hosts_add_own(struct allowed_hosts *hosts, const char *hosts_file);
/* allowed_hosts_has — value: of a header Host, with or without a port. */
bool allowed_hosts_has(const struct allowed_hosts *hosts, const char *value);

#endif
