/* check_bisect: planted bad members are found, in logarithmically many tests; where tests cannot
 * tell, no member is blamed. The tournament: every pair meets exactly once. */
#include "harness.h"

#include "base/rand.h"
#include "check/links/bisect.h"

#define MEMBERS_MAX 4096

/* What is planted: bad members, and a pair that fails only together. */
struct plant {
    bool bad[MEMBERS_MAX];
    int one, other; /* -1: no such pair */
    int group_min;
};

static uint64_t drawn;
static int draw(int n) { return (int)rand_below(7, 0, drawn++, (uint64_t)n); }

/* The answers of a round's tests; a group smaller than group_min has to have been avoided. */
static void answer(const struct plant *plant, int members, const int *of, int groups, bool *failed)
{
    static int size[MEMBERS_MAX];
    memset(size, 0, sizeof size);
    memset(failed, 0, sizeof *failed * (size_t)members);
    for (int m = 0; m < members; m++) {
        assert_true(of[m] >= -1 && of[m] < groups);
        if (of[m] < 0)
            continue;
        size[of[m]]++;
        failed[of[m]] |= plant->bad[m];
    }
    for (int g = 0; g < groups; g++)
        assert_true(size[g] >= plant->group_min || members == 1);
    if (plant->one >= 0 && of[plant->one] >= 0 && of[plant->one] == of[plant->other])
        failed[of[plant->one]] = true;
}

static void search(struct check_bisect *bisect, const struct plant *plant, int members)
{
    static int of[MEMBERS_MAX];
    static bool failed[MEMBERS_MAX];
    int groups;
    check_bisect_init(bisect, members, plant->group_min);
    while ((groups = check_bisect_round(bisect, of)) > 0) {
        assert_true(bisect->rounds <= 2 * members + 14);
        answer(plant, members, of, groups, failed);
        check_bisect_report(bisect, failed);
    }
    assert_int_equal(check_bisect_members(bisect, CHECK_MEMBER_UNKNOWN), 0);
}

static int log2_up(int n)
{
    int bits = 0;
    while (1 << bits < n)
        bits++;
    return bits;
}

static void found(int members, int bad, int group_min)
{
    struct check_bisect bisect;
    static struct plant plant;
    plant = (struct plant){.one = -1, .other = -1, .group_min = group_min};
    for (int i = 0; i < bad; i++)
        plant.bad[draw(members)] = true;
    search(&bisect, &plant, members);
    int planted = 0;
    for (int m = 0; m < members; m++) {
        planted += plant.bad[m];
        if (bisect.member[m] != (plant.bad[m] ? CHECK_MEMBER_BAD : CHECK_MEMBER_GOOD))
            fail_msg("member %d of %d is %d, planted %d (draw %lu)", m, members, bisect.member[m],
                     plant.bad[m], (unsigned long)drawn);
    }
    const int few = members < 10 ? members : 0; /* pairs of members that wait for a good one */
    assert_true(bisect.tests <= 1 + 2 * planted * log2_up(members) + few);
    assert_true(bisect.rounds <= log2_up(members) + 3 + 2 * few);
    check_bisect_free(&bisect);
}

static void planted_members_are_found(void **state)
{
    for (int group_min = 1; group_min <= 2; group_min++)
        for (int bad = 0; bad <= 3; bad++)
            for (int round = 0; round < 300; round++)
                found(bad + 2 + draw(round < 200 ? 30 : MEMBERS_MAX - bad - 1), bad, group_min);
    for (int i = 0; i < 20; i++)
        found(MEMBERS_MAX, 1 + i % 3, 1 + i % 2);
}

static void one_member(void **state)
{
    for (int group_min = 1; group_min <= 2; group_min++) {
        found(1, 0, group_min);
        found(1, 1, group_min);
    }
}

/* Two members that both may be the bad one, and none beside which they could be tested. */
static void no_member_is_blamed_without_proof(void **state)
{
    struct check_bisect bisect;
    static struct plant plant;
    for (int members = 2; members <= 5; members++) {
        plant = (struct plant){.one = -1, .other = -1, .group_min = 2};
        for (int m = 1; m < members; m++)
            plant.bad[m] = true;
        search(&bisect, &plant, members);
        assert_int_equal(check_bisect_members(&bisect, CHECK_MEMBER_UNDECIDED), members);
        check_bisect_free(&bisect);
    }
}

/* A link between two members: every half without both of them passes. */
static void only_the_combination_fails(void **state)
{
    struct check_bisect bisect;
    static struct plant plant;
    for (int i = 0; i < 300; i++) {
        const int members = 2 + draw(i < 250 ? 64 : MEMBERS_MAX - 1);
        plant = (struct plant){.one = draw(members), .group_min = 1};
        plant.other = (plant.one + 1 + draw(members - 1)) % members;
        search(&bisect, &plant, members);
        assert_int_equal(bisect.member[plant.one], CHECK_MEMBER_COMBINATION);
        assert_int_equal(bisect.member[plant.other], CHECK_MEMBER_COMBINATION);
        assert_int_equal(check_bisect_members(&bisect, CHECK_MEMBER_BAD), 0);
        check_bisect_free(&bisect);
    }
}

/* Answers without any sense end the search, too. */
static void random_answers_end(void **state)
{
    static int of[MEMBERS_MAX];
    static bool failed[MEMBERS_MAX];
    for (int i = 0; i < 500; i++) {
        struct check_bisect bisect;
        const int members = 1 + draw(100), percent = draw(101);
        int groups;
        check_bisect_init(&bisect, members, 1 + i % 2);
        while ((groups = check_bisect_round(&bisect, of)) > 0) {
            assert_true(bisect.rounds <= 3 * members + 14);
            for (int g = 0; g < groups; g++)
                failed[g] = draw(100) < percent;
            check_bisect_report(&bisect, failed);
        }
        assert_int_equal(check_bisect_members(&bisect, CHECK_MEMBER_UNKNOWN), 0);
        check_bisect_free(&bisect);
        check_bisect_free(&bisect);
    }
}

/* ---- the tournament ---- */

static void meets_all(int nodes)
{
    const int rounds = check_bisect_pair_rounds(nodes);
    assert_int_equal(rounds, nodes % 2 == 0 ? nodes - 1 : nodes);
    unsigned char *met = calloc((size_t)nodes, (size_t)nodes);
    assert_non_null(met);
    for (int r = 0; r < rounds; r++) {
        int resting = 0;
        for (int a = 0; a < nodes; a++) {
            const int b = check_bisect_pair(nodes, r, a);
            resting += b < 0;
            if (b < 0)
                continue;
            assert_true(b < nodes && b != a);
            assert_int_equal(check_bisect_pair(nodes, r, b), a);
            assert_int_equal(met[(size_t)a * (size_t)nodes + (size_t)b]++, 0);
        }
        assert_int_equal(resting, nodes % 2);
    }
    int64_t pairs = 0;
    for (size_t i = 0; i < (size_t)nodes * (size_t)nodes; i++)
        pairs += met[i];
    assert_int_equal(pairs, (int64_t)nodes * (nodes - 1));
    free(met);
}

static void every_pair_meets_once(void **state)
{
    for (int nodes = 2; nodes <= 64; nodes++)
        meets_all(nodes);
    static const int large[] = {127, 128, 129, 1000, 1023, 2047, 4095, 4096};
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++)
        meets_all(large[i]);
}

static void one_node_has_no_rounds(void **state)
{
    assert_int_equal(check_bisect_pair_rounds(0), 0);
    assert_int_equal(check_bisect_pair_rounds(1), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(planted_members_are_found),
    cmocka_unit_test(one_member),
    cmocka_unit_test(no_member_is_blamed_without_proof),
    cmocka_unit_test(only_the_combination_fails),
    cmocka_unit_test(random_answers_end),
    cmocka_unit_test(every_pair_meets_once),
    cmocka_unit_test(one_node_has_no_rounds),
};
HARNESS_MAIN(tests)
