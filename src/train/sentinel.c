/* sentinel — see sentinel.h. */
#include "train/sentinel.h"

/* candidate — the checksum of more than half, if there is one (Boyer and Moore 1991). */
static uint64_t candidate(const uint64_t *sum, int n)
{
    uint64_t at = sum[0];
    for (int i = 0, votes = 0; i < n; i++) {
        if (votes == 0)
            at = sum[i];
        votes += sum[i] == at ? 1 : -1;
    }
    return at;
}

int sentinel_vote(const uint64_t *sum, int n)
{
    const uint64_t most = candidate(sum, n);
    int votes = 0, odd = SENTINEL_SAME;
    for (int i = n - 1; i >= 0; i--) {
        votes += sum[i] == most;
        odd = sum[i] == most ? odd : i;
    }
    return 2 * votes > n ? odd : SENTINEL_UNDECIDED;
}
