/* link — a member's line to node 0: keeps one beat open, tells news beside it, fetches worlds,
 * tries again with back-off. Must not decide anything: that is member.c's. */
#ifndef CONVOY_MEET_LINK_H
#define CONVOY_MEET_LINK_H

#include "meet/member.h"
#include "meet/secret.h"

struct event_base;
struct link;
struct link_config {
    struct event_base *loop;
    struct member *member;
    const char *host;
    int port, ranks_n; /* of the whole job */
    const struct secret *secret;
    /* what the driver adds to a message */
    void (*fill)(void *arg, bool is_with_addresses, struct wire_says *says,
                 struct wire_hello *hello);
    void (*act)(void *arg, const struct member_actions *actions);
    void (*on_world)(void *arg, const struct meet_world *world);
    void *arg;
};

enum status link_open(const struct link_config *config, struct link **out);
void link_close(struct link *link);
void link_news(struct link *link); /* something to tell, soon */
/* link_pump — send what is due; several times a second, and soon after link_news. */
void link_pump(struct link *link);
void link_fetch(struct link *link, int64_t generation);

#endif
