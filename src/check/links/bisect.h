/* check_bisect — finds the bad members of a group by tests of parts of it: a set that fails is
 * halved until single members are left. All tests of one round are disjoint, so they run at the
 * same time. Pure: the caller runs the tests, and all ranks that report the same failures get the
 * same rounds.
 *
 * A test of one member may prove nothing (a collective of one rank moves no byte). With group_min 2
 * a single member is tested beside one that is known to be good.
 *
 *   check_bisect_init(&b, n, 2);
 *   while ((groups = check_bisect_round(&b, of)) > 0) {
 *       for each group g: test the members m with of[m] == g together; failed[g] = …
 *       check_bisect_report(&b, failed);
 *   }
 *
 * Bad members k of n: about 2 k log2(n) tests in about log2(n) + 2 rounds. */
#ifndef CONVOY_CHECK_CHECK_BISECT_H
#define CONVOY_CHECK_CHECK_BISECT_H

#include <stdbool.h>

#include "base/status.h"

enum check_member {
    CHECK_MEMBER_UNKNOWN, /* not yet found; after the last round, none */
    CHECK_MEMBER_GOOD,
    CHECK_MEMBER_BAD,
    /* of a set that fails while each of its halves passes: only the combination fails, such as a
     * link between the halves, or a fault that comes and goes */
    CHECK_MEMBER_COMBINATION,
    /* in a test that failed, and no member is known to be good that it could be tested beside */
    CHECK_MEMBER_UNDECIDED
};

struct check_bisect_set; /* members that are tested together, as a range of `order` */
struct check_bisect {
    int members, group_min;
    enum check_member *member; /* [members] what is known of each */
    int tests, rounds;         /* so far */
    struct check_bisect_set *set;
    int sets;
    int *group_of; /* [members] of the round under way */
    int groups;
    int pairing; /* rounds of pairs of undecided members so far */
};

/* check_bisect_init — members >= 1, group_min 1 or 2. */
void check_bisect_init(struct check_bisect *bisect, int members, int group_min);
/* check_bisect_round — the groups to test now: group_of[m] is the group of member m, or -1. Returns
 * their number, at most members; 0: all is found. The first round is all members in one group. */
int check_bisect_round(struct check_bisect *bisect, int *group_of);
/* check_bisect_report — failed[g] of each group g of the last round. */
void check_bisect_report(struct check_bisect *bisect, const bool *failed);
/* check_bisect_members — for tests: how many members are known to be of this kind. */
int check_bisect_members(const struct check_bisect *bisect, enum check_member kind);
void check_bisect_free(struct check_bisect *bisect);

/* A round-robin tournament by the circle method: in each round every member is in one pair at most,
 * so all pairs of a round measure at the same time. Over all rounds every pair meets exactly once.
 */

/* Returns the number of rounds: members - 1; with an odd number of members, members, because one
 * rests in each round; 0 for fewer than two. */
int check_bisect_pair_rounds(int members);
/* Returns the other member of `member` in this round; -1: it rests. */
int check_bisect_pair(int members, int round, int member);

#endif
