/* check_link_rows — the rows of one measured link: latency, bandwidth each way, retransmissions.
 * Must not know how links are measured or judged. */
#ifndef CONVOY_CHECK_CHECK_LINK_ROWS_H
#define CONVOY_CHECK_CHECK_LINK_ROWS_H

#include "check/check_links.h"
#include "check/check_row.h"

/* Links between nodes, or between the ranks of a node. */
struct check_link_rows_kind {
    bool is_local;
    bool is_host_memory;   /* the bytes go through it: values are shown and not judged */
    int locals;            /* ranks of each node */
    const char *transport; /* "tcp" */
    const char *device;    /* this node's main interface; "": not known */
    struct check_links_norm norm, alone;
    bool has_alone; /* some links were measured again */
};

/* A link in all that was found. flags: of the first look; tested: it was measured again. */
struct check_link_rows_link {
    struct measure_link_found found, again;
    struct check_links_end end;
    unsigned flags;
    bool is_tested;
};

enum status check_link_rows_add(const struct check_link_rows_kind *kind,
                                const struct check_link_rows_link *link, struct check_rows *rows);

#endif
