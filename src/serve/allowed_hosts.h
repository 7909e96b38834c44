/* allowed_hosts — the names by which this node may be addressed in the Host header.
 *
 * It protects against DNS rebinding: a page of another site makes its own name resolve to this node
 * to read the node's answers; but its requests carry that name. Always accepted are addresses, and
 * names without a dot (localhost, a container's, a machine's in its own network), which an attacker
 * cannot register. It must not know HTTP beyond the header Host. */
#ifndef CONVOY_SERVE_ALLOWED_HOSTS_H
#define CONVOY_SERVE_ALLOWED_HOSTS_H

#include <stdbool.h>
#include <stddef.h>

#define ALLOWED_HOSTS_NAMES_MAX 8192

struct allowed_hosts {
    bool is_any;
    /* one name per line; a name with a leading dot stands for a domain */
    char names[ALLOWED_HOSTS_NAMES_MAX];
};

/* allowed_hosts_add — adds a list separated by commas or blanks: names, *.domain, or * for any.
 * false: it does not fit. */
bool allowed_hosts_add(struct allowed_hosts *hosts, const char *list);
/* allowed_hosts_add_own — adds localhost, this machine's name, and its other names in hosts_file
 * (/etc/hosts). */
void allowed_hosts_add_own(struct allowed_hosts *hosts, const char *hosts_file);
/* allowed_hosts_has — returns true if the name is allowed. value: a Host header's, with or without
 * a port. */
bool allowed_hosts_has(const struct allowed_hosts *hosts, const char *value);

#endif
