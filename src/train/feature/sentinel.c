/* sentinel — see sentinel.h. */
#include "train/feature/sentinel.h"

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

int sentinel_first(const struct sentinel_entry *one, const struct sentinel_entry *other, int places,
                   int n)
{
    uint64_t least = UINT64_MAX;
    int first = -1, firsts_n = 0;
    for (int place = 0; place < places; place++, one += n, other += n) {
        int i = 0;
        while (i < n && one[i].sum == other[i].sum && one[i].order == other[i].order)
            i++;
        if (i == n)
            continue;
        const uint64_t order = one[i].order > other[i].order ? one[i].order : other[i].order;
        if (firsts_n > 0 && order > least)
            continue;
        firsts_n = firsts_n > 0 && order == least ? firsts_n + 1 : 1;
        least = order;
        first = place;
    }
    return firsts_n == 1 ? first : -1;
}
