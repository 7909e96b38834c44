/* check_bisect — finds the bad members of a group by testing subsets of it: a set that fails is
 * halved until single members are left. All tests of one round are disjoint, so they run at the
 * same time. Pure: the caller runs the tests, and all ranks that report the same failures get the
 * same rounds.
 *
 * A test of one member may prove nothing (a collective of one rank sends no byte). With group_min 2
 * a single member is tested together with a good member.
 *
 *   check_bisect_init(&b, n, 2);
 *   while ((groups = check_bisect_round(&b, of)) > 0) {
 *       for each group g: test the members m with of[m] == g together; failed[g] = …
 *       check_bisect_report(&b, failed);
 *   }
 *
 * To find k bad members of n, about 2 k log2(n) tests in about log2(n) + 2 rounds are needed. */
#ifndef CONVOY_CHECK_CHECK_BISECT_H
#define CONVOY_CHECK_CHECK_BISECT_H

#include <stdbool.h>

#include "base/status.h"

enum check_member {
    CHECK_MEMBER_UNKNOWN, /* not found yet; after the last round, no member has this state */
    CHECK_MEMBER_GOOD,
    CHECK_MEMBER_BAD,
    /* member of a set that fails although each of its halves passes: only the combination fails,
     * because of a link between the halves, for example, or of an intermittent fault */
    CHECK_MEMBER_COMBINATION,
    /* member of a test that failed, without a good member for a further test */
    CHECK_MEMBER_UNDECIDED
};

struct check_bisect_set; /* members that are tested together, as a range */
struct check_bisect {
    int members, group_min;
    enum check_member *member; /* [members] present knowledge about each member */
    int tests, rounds;         /* numbers of tests and rounds so far */
    struct check_bisect_set *set;
    int sets;
    int *group_of; /* [members] groups of the present round */
    int groups;
    int pairing; /* rounds of pairs of undecided members so far */
};

/* check_bisect_init — begins a search. members >= 1, group_min 1 or 2. */
void check_bisect_init(struct check_bisect *bisect, int members, int group_min);
/* check_bisect_round — returns the number of groups to test now, at most the number of members; 0:
 * the search is complete. group_of[m] is the group of member m, or -1. In the first round all
 * members are in one group. */
int check_bisect_round(struct check_bisect *bisect, int *group_of);
/* check_bisect_report — reports the results of the last round: failed[g] for each group g. */
void check_bisect_report(struct check_bisect *bisect, const bool *failed);
/* check_bisect_members — returns the number of members of this kind; for tests. */
int check_bisect_members(const struct check_bisect *bisect, enum check_member kind);
/* check_bisect_free — frees the arrays and zeroes the struct. Accepts a zeroed struct. */
void check_bisect_free(struct check_bisect *bisect);

/* A round-robin tournament by the circle method: in each round every member is in at most one pair,
 * so all pairs of a round measure at the same time. Over all rounds every pair meets exactly
 * once. */

/* check_bisect_pair_rounds — returns the number of rounds. It is members - 1, or members if that is
 * odd, because one member rests in each round; 0 for fewer than two members. */
int check_bisect_pair_rounds(int members);
/* check_bisect_pair — returns the partner of `member` in this round; -1: it rests. */
int check_bisect_pair(int members, int round, int member);

#endif
