/* check_quota — is this node held back by a CPU quota of a control group (cpu.max, docker's --cpus,
 * limits.cpu of Kubernetes)? Such a node is slow although each of its cores is fast. Must not know
 * what computes. */
#ifndef CONVOY_CHECK_CHECK_QUOTA_H
#define CONVOY_CHECK_CHECK_QUOTA_H

#include "check/check.h"

struct check_quota {
    double cpus;        /* 0: no quota */
    int64_t stopped_us; /* so far; -1: the kernel does not count it */
    int64_t at_ns;
};

/* check_quota_begin — reads the quota of this process's groups. root: as in check_config. */
void check_quota_begin(const char *root, struct check_quota *out);
/* check_quota_end — reads it again and adds the row "cpu quota" for this node. threads: those of
 * all workers of the node that compute at once. FAIL and WARN, with the shares of check_judge: for
 * so much of the time the quota stopped the node, or will stop it because it gives the threads less
 * than a core each. */
enum status check_quota_end(const struct check_config *config, const struct check_quota *begin,
                            int threads, struct check_rows *rows);

#endif
