/* check_suspects — which links a second look measures again: those that look bad, and a few that
 * look normal, to compare with. Pure: all ranks choose the same from the same numbers. Must not
 * know how a link is measured. */
#ifndef CONVOY_CHECK_CHECK_SUSPECTS_H
#define CONVOY_CHECK_CHECK_SUSPECTS_H

#include "check/check_link_rows.h"

#define CHECK_SUSPECTS_MAX 64
#define CHECK_SUSPECTS_NORMAL 3 /* links that look normal */
#define CHECK_SUSPECTS_TIMES 3  /* a link that is bad was bad so often */

/* Suspects, the worst first, then links that look normal. */
struct check_suspects {
    int link[CHECK_SUSPECTS_MAX + CHECK_SUSPECTS_NORMAL];
    int n, suspects;
    unsigned open[CHECK_SUSPECTS_MAX]; /* what is still wrong with a suspect */
    /* each measuring of a link that looks normal */
    struct measure_link_found normal[CHECK_SUSPECTS_NORMAL * CHECK_SUSPECTS_TIMES];
    int normal_n;
};

/* check_suspects_list — of the n links of a kind, with the flags of the first look, at most `max`
 * suspects. Sets the flags of links that are only slower than the others, and clears those of
 * suspects that are taken for normal, where too few look so. */
void check_suspects_list(struct check_link_rows_link *links, int n,
                         const struct check_link_rows_kind *kind, int max,
                         struct check_suspects *out);

#endif
