/* sentinel — see sentinel.h. */
#include "train/sentinel.h"

int sentinel_vote(const uint64_t *sum, int n)
{
    /* The checksum of more than half, if there is one (Boyer and Moore 1991). */
    uint64_t most = sum[0];
    for (int i = 0, votes = 0; i < n; i++) {
        if (votes == 0)
            most = sum[i];
        votes += sum[i] == most ? 1 : -1;
    }
    int votes = 0, odd = SENTINEL_SAME;
    for (int i = n - 1; i >= 0; i--) {
        votes += sum[i] == most;
        odd = sum[i] == most ? odd : i;
    }
    return 2 * votes > n ? odd : SENTINEL_UNDECIDED;
}
