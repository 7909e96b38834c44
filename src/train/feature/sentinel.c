/* sentinel — see sentinel.h. */
#include "train/feature/sentinel.h"

#include <stdlib.h>

#include "base/memory.h"

struct sentinel_vote sentinel_vote(const uint64_t *sum, int n)
{
    struct sentinel_vote vote = {.most = -1, .odd = -1};
    int most_n = 0;
    /* If more than half have a checksum, no other one has more votes. */
    for (int i = 0; i < n && 2 * most_n <= n; i++) {
        int votes = 0, first = i;
        for (int k = n - 1; k >= 0; k--) {
            votes += sum[k] == sum[i];
            first = sum[k] == sum[i] ? k : first;
        }
        if (first < i || votes < most_n)
            continue;
        vote.is_tied = votes == most_n;
        vote.most = vote.is_tied ? vote.most : i;
        most_n = votes;
    }
    for (int i = n - 1; i >= 0; i--)
        vote.odd = sum[i] == sum[vote.most] ? vote.odd : i;
    vote.is_majority = 2 * most_n > n;
    return vote;
}

void sentinel_count(struct sentinel_ballot *ballots, int n)
{
    uint64_t *sum = memory_new((size_t)n, sizeof *sum);
    int *of = memory_new((size_t)n, sizeof *of);
    for (int i = 0; i < n; i++) {
        struct sentinel_ballot *b = &ballots[i];
        int voters = 0;
        for (int k = 0; k < n; k++)
            if (!ballots[k].is_left_out && ballots[k].kind == b->kind) {
                of[voters] = k;
                sum[voters++] = ballots[k].sum;
            }
        const struct sentinel_vote vote = sentinel_vote(sum, voters);
        b->most = voters > 0 ? of[vote.most] : -1;
        b->is_unclear = vote.is_tied;
        b->differs = voters > 0 && !vote.is_tied && b->sum != sum[vote.most];
    }
    free(of);
    free(sum);
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
