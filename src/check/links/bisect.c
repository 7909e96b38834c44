/* check_bisect — see links/bisect.h.
 *
 * The sets form a tree of halves; each set is a range of members. A set that passes is good. A set
 * that fails is halved, or is bad if it has only one member. If both halves of a failing set pass,
 * only the combination fails. A single member that cannot be tested by itself waits for a good
 * member. If no good member is known, the waiting members are tested in pairs, in the rounds of a
 * tournament, until one pair passes. */
#include "check/links/bisect.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"

/* The circle method: with an odd number m of slots, i and j meet in round (i + j) mod m. The node
 * that would meet itself rests, or meets the node outside the circle. */
static int count_slots(int nodes) { return nodes % 2 == 0 ? nodes - 1 : nodes; }

int check_bisect_pair_rounds(int nodes) { return nodes < 2 ? 0 : count_slots(nodes); }

int check_bisect_pair(int nodes, int round, int node)
{
    const int m = count_slots(nodes);
    ASSERTF(round >= 0 && round < m && node >= 0 && node < nodes, "round %d, node %d of %d", round,
            node, nodes);
    if (node == m) /* the node outside the circle meets node i with 2 i = round (mod m) */
        return (int)((int64_t)round * ((m + 1) / 2) % m);
    const int peer = (round - node + m) % m;
    if (peer != node)
        return peer;
    return nodes % 2 == 0 ? m : -1;
}

/* ---- the search ---- */

enum set_state { SET_WAITS, SET_TESTED, SET_PASSED, SET_FAILED };

struct check_bisect_set {
    int first, n; /* members first … first + n - 1 */
    int parent;   /* index of the parent set; -1: this is the set of all members */
    int group;    /* group in the present round; -1: none */
    enum set_state state;
};

static int add_set(struct check_bisect *bisect, int first, int n, int parent)
{
    bisect->set[bisect->sets] = (struct check_bisect_set){
        .first = first, .n = n, .parent = parent, .group = -1, .state = SET_WAITS};
    return bisect->sets++;
}

void check_bisect_init(struct check_bisect *bisect, int members, int group_min)
{
    ASSERTF(members >= 1 && group_min >= 1 && group_min <= 2, "members %d, group_min %d", members,
            group_min);
    *bisect = (struct check_bisect){.members = members, .group_min = group_min};
    const size_t n = (size_t)members;
    bisect->member = memory_new(n, sizeof *bisect->member);
    bisect->set = memory_new(2 * n, sizeof *bisect->set); /* a binary tree with n leaves */
    bisect->group_of = memory_new(n, sizeof *bisect->group_of);
    add_set(bisect, 0, members, -1);
}

void check_bisect_free(struct check_bisect *bisect)
{
    free(bisect->member);
    free(bisect->set);
    free(bisect->group_of);
    *bisect = (struct check_bisect){0};
}

/* free_good — returns a good member that is in no group of this round; -1: none. Prefers a member
 * from outside the set's other half, because a fault of the link between the halves would be
 * attributed to the member. */
static int free_good(const struct check_bisect *bisect, const struct check_bisect_set *set)
{
    const struct check_bisect_set *parent = set->parent < 0 ? set : &bisect->set[set->parent];
    int inside = -1;
    for (int m = 0; m < bisect->members; m++) {
        if (bisect->member[m] != CHECK_MEMBER_GOOD || bisect->group_of[m] >= 0)
            continue;
        if (!(m >= parent->first && m < parent->first + parent->n))
            return m;
        inside = m;
    }
    return inside;
}

static void assign_group(struct check_bisect *bisect, struct check_bisect_set *set)
{
    for (int m = set->first; m < set->first + set->n; m++)
        bisect->group_of[m] = bisect->groups;
    set->group = bisect->groups++;
    set->state = SET_TESTED;
}

/* make_pairs — makes pairs of the single members that wait, because no member is known to be good.
 * All of them have failed so far, so the list of waiting members is the same in each round of the
 * tournament. */
static void make_pairs(struct check_bisect *bisect)
{
    int waiting = 0;
    for (int i = 0; i < bisect->sets; i++)
        if (bisect->set[i].state == SET_WAITS)
            bisect->group_of[waiting++] = i; /* used for a moment as the list of waiting sets */
    int *list = bisect->group_of;
    const int round = bisect->pairing++;
    if (round >= check_bisect_pair_rounds(waiting)) {
        memset(list, -1, sizeof *list * (size_t)bisect->members);
        return;
    }
    for (int a = 0; a < waiting; a++) {
        const int b = check_bisect_pair(waiting, round, a);
        if (b > a)
            bisect->set[list[a]].group = bisect->set[list[b]].group = bisect->groups++;
    }
    memset(list, -1, sizeof *list * (size_t)bisect->members);
    for (int i = 0; i < bisect->sets; i++)
        if (bisect->set[i].state == SET_WAITS && bisect->set[i].group >= 0)
            bisect->group_of[bisect->set[i].first] = bisect->set[i].group;
}

static void mark_members(struct check_bisect *bisect, const struct check_bisect_set *set,
                         enum check_member kind)
{
    for (int m = set->first; m < set->first + set->n; m++)
        bisect->member[m] = kind;
}

int check_bisect_round(struct check_bisect *bisect, int *group_of)
{
    const size_t bytes = sizeof *group_of * (size_t)bisect->members;
    bisect->groups = 0;
    memset(bisect->group_of, -1, bytes);
    /* Large sets, and single members that may be tested by themselves or together with a good
     * member. */
    for (int i = 0; i < bisect->sets; i++) {
        struct check_bisect_set *set = &bisect->set[i];
        if (set->state != SET_WAITS)
            continue;
        if (set->n >= bisect->group_min || bisect->members == 1) {
            assign_group(bisect, set);
            continue;
        }
        const int good = free_good(bisect, set);
        if (good >= 0) {
            bisect->group_of[good] = bisect->groups;
            assign_group(bisect, set);
        }
    }
    if (bisect->groups == 0)
        make_pairs(bisect);
    if (bisect->groups == 0) {
        for (int i = 0; i < bisect->sets; i++)
            if (bisect->set[i].state == SET_WAITS)
                mark_members(bisect, &bisect->set[i], CHECK_MEMBER_UNDECIDED);
    }
    memcpy(group_of, bisect->group_of, bytes);
    bisect->tests += bisect->groups;
    bisect->rounds += bisect->groups > 0;
    return bisect->groups;
}

static void record_pass(struct check_bisect *bisect, int index)
{
    struct check_bisect_set *set = &bisect->set[index];
    set->state = SET_PASSED;
    mark_members(bisect, set, CHECK_MEMBER_GOOD);
    if (set->parent < 0)
        return;
    /* both halves of a set are added together */
    const int sibling = index % 2 == 1 ? index + 1 : index - 1;
    if (bisect->set[sibling].state == SET_PASSED)
        mark_members(bisect, &bisect->set[set->parent], CHECK_MEMBER_COMBINATION);
}

static void record_failure(struct check_bisect *bisect, int index)
{
    struct check_bisect_set *set = &bisect->set[index];
    set->state = SET_FAILED;
    if (set->n == 1) {
        bisect->member[set->first] = CHECK_MEMBER_BAD;
        return;
    }
    const int first = set->first, half = set->n / 2, rest = set->n - half;
    add_set(bisect, first, half, index);
    add_set(bisect, first + half, rest, index);
}

void check_bisect_report(struct check_bisect *bisect, const bool *failed)
{
    const int sets = bisect->sets; /* without the halves that are added here */
    for (int i = 0; i < sets; i++) {
        struct check_bisect_set *set = &bisect->set[i];
        const int group = set->group;
        if (group < 0)
            continue;
        set->group = -1;
        ASSERTF(group < bisect->groups, "group %d of %d", group, bisect->groups);
        if (!failed[group])
            record_pass(bisect, i);
        else if (set->state == SET_TESTED) /* a failed pair does not show which member is bad */
            record_failure(bisect, i);
    }
}

int check_bisect_members(const struct check_bisect *bisect, enum check_member kind)
{
    int n = 0;
    for (int m = 0; m < bisect->members; m++)
        n += bisect->member[m] == kind;
    return n;
}
