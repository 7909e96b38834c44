/* straggler: the rank that the others wait for is named, whichever it is. */
#include "harness.h"

#include "cluster/straggler.h"

static struct cluster_rank ranks[4];
static struct cluster_node nodes[2];

static void set(int i, const char *call, int64_t sequence, int64_t age_ms)
{
    ranks[i].rank = i;
    snprintf(ranks[i].call, sizeof(ranks[i].call), "%s", call);
    ranks[i].call_sequence = sequence;
    ranks[i].call_age_ms = age_ms;
    for (int k = 0; k < 2; k++)
        nodes[k] = (struct cluster_node){.node_id = k, .ranks_n = 2, .ranks = &ranks[2 * k]};
}

static void all_at(const char *call, int64_t sequence, int64_t age_ms)
{
    for (int i = 0; i < 4; i++)
        set(i, call, sequence, age_ms);
}

TEST(the_one_behind_is_named)
{
    char text[256], want[256];
    for (int culprit = 0; culprit < 4; culprit++) {
        all_at("all_reduce", 812, 4100);
        set(culprit, "", 811, 0); /* still computes */
        snprintf(want, sizeof(want), "node %d rank %d has not entered all_reduce 812 for 4.1 s",
                 culprit / 2, culprit);
        assert_true(straggler_find(nodes, 2, 3000, NULL, text, sizeof(text)));
        assert_string_equal(text, want);
        set(culprit, "broadcast", 790, 9000); /* in an older call, alone */
        assert_true(straggler_find(nodes, 2, 3000, NULL, text, sizeof(text)));
        assert_string_equal(text, want);
    }
}

TEST(no_rank_is_named_without_reason)
{
    char text[256];
    all_at("", 812, 0);
    assert_false(straggler_find(nodes, 2, 3000, NULL, text, sizeof(text)));
    assert_false(straggler_find(nodes, 0, 3000, NULL, text, sizeof(text)));
    all_at("all_reduce", 812, 2900);
    set(1, "", 811, 0);
    assert_false(straggler_find(nodes, 2, 3000, NULL, text, sizeof(text)));
    nodes[0].heartbeat_age_seconds = 0.2; /* reported 0.2 s ago */
    assert_true(straggler_find(nodes, 2, 3000, NULL, text, sizeof(text)));
    assert_string_equal(text, "node 0 rank 1 has not entered all_reduce 812 for 3.1 s");
}

TEST(all_inside_or_several_behind)
{
    char text[256];
    all_at("barrier", 5, 7000);
    set(3, "", 5, 0); /* has returned already */
    assert_false(straggler_find(nodes, 2, 3000, NULL, text, sizeof(text))); /* all are slow */
    assert_string_equal(text, "");
    all_at("barrier", 5, 20100); /* a firewall drops the workers' messages */
    set(3, "", 5, 0);
    assert_true(straggler_find(nodes, 2, 3000, NULL, text, sizeof(text)));
    assert_non_null(
        strstr(text, "all ranks are in barrier 5 for 20.1 s: their messages do not arrive"));
    assert_non_null(strstr(text, "firewall"));
    nodes[0].ranks_n = 4;
    assert_true(straggler_find(nodes, 1, 3000, NULL, text, sizeof(text)));
    /* on one node there is none */
    assert_string_equal(text, "all ranks are in barrier 5 for 20.1 s");
    all_at("barrier", 5, 7000);
    set(2, "", 4, 0);
    set(3, "", 3, 0);
    assert_true(straggler_find(nodes, 2, 3000, NULL, text, sizeof(text)));
    assert_string_equal(text, "node 1 rank 3 and 1 more have not entered barrier 5 for 7.0 s");
}

static void describe(const void *arg, int rank, int count, char *out, size_t cap)
{
    assert_int_equal(count, 1);
    snprintf(out, cap, "%s %d", (const char *)arg, rank / 2);
}

/* Stages of a pipeline: numbers of calls say nothing, and a rank that is in none is late. */
TEST(stages_make_other_calls)
{
    char text[256];
    struct cluster_places places = {describe, "stage", true};
    for (int culprit = 0; culprit < 4; culprit++) {
        all_at("recv", 40, 3500);
        set((culprit + 1) % 4, "all_reduce", 90, 4100);
        set(culprit, "", 41 + culprit, 0);
        char want[256];
        snprintf(want, sizeof(want),
                 "node %d rank %d (stage %d) is in no call, while rank %d (stage %d) waits in "
                 "all_reduce 90 for 4.1 s",
                 culprit / 2, culprit, culprit / 2, (culprit + 1) % 4, (culprit + 1) % 4 / 2);
        assert_true(straggler_find(nodes, 2, 3000, &places, text, sizeof(text)));
        assert_string_equal(text, want);
    }
    set(1, "", 90, 0);
    assert_true(straggler_find(nodes, 2, 3000, &places, text, sizeof(text)));
    assert_non_null(
        strstr(text, "node 0 rank 1 (stage 0) and 1 more are in no call, while rank 0"));
    all_at("recv", 40, 3500);
    assert_false(straggler_find(nodes, 2, 3000, &places, text, sizeof(text)));
    set(2, "send", 39, 20500);
    assert_true(straggler_find(nodes, 2, 3000, &places, text, sizeof(text)));
    assert_non_null(
        strstr(text, "all ranks are in calls, rank 2 (stage 1) in send 39 for 20.5 s: "));
    places.calls_differ = false;
    all_at("all_reduce", 812, 4100);
    set(3, "", 811, 0);
    assert_true(straggler_find(nodes, 2, 3000, &places, text, sizeof(text)));
    assert_string_equal(text, "node 1 rank 3 (stage 1) has not entered all_reduce 812 for 4.1 s");
}

static bool is_still(char *text, size_t cap)
{
    return straggler_is_stalled(nodes, 2, 3000, text, cap);
}

TEST(stalled_is_all_waiting_or_silent)
{
    char text[256];
    all_at("all_reduce", 7, 3000);
    /* Messages were lost in one direction: not all ranks are in the same call. */
    set(3, "all_reduce", 6, 3100);
    assert_true(is_still(text, sizeof(text)));
    assert_string_equal(
        text, "all ranks wait in calls that get no answer: rank 2 in all_reduce 7 for 3.0 s");
    set(1, "all_reduce", 8, 2900); /* something has arrived */
    assert_false(is_still(text, sizeof(text)));
    assert_string_equal(text, "");
    set(1, "", 8, 0); /* it computes, or writes a checkpoint */
    assert_false(is_still(text, sizeof(text)));
    set(1, "all_reduce", 8, 3000);
    nodes[1].heartbeat_age_seconds = 2.9; /* not known: it may have moved on since */
    set(2, "", 8, 0);
    nodes[1].heartbeat_age_seconds = 2.9;
    assert_false(is_still(text, sizeof(text)));
    nodes[1].heartbeat_age_seconds = 3.2;
    assert_true(is_still(text, sizeof(text)));
    assert_string_equal(text, "node 1 has been silent for 3.2 s");
    all_at("", 8, 0);
    nodes[1].heartbeat_age_seconds = 3.2; /* the others still work */
    assert_false(is_still(text, sizeof(text)));
    nodes[0].ranks_n = 0; /* has not reported yet */
    nodes[0].heartbeat_age_seconds = NAN;
    assert_false(is_still(text, sizeof(text)));
    assert_false(straggler_is_stalled(nodes, 0, 3000, text, sizeof(text)));
}

TEST(pace_is_the_longest_call_that_returned)
{
    struct straggler_pace pace = {0};
    static const struct {
        const char *call;
        int64_t sequence, age_ms, longest_ms;
    } rows[] = {{"all_reduce", 1, 4000, 0},
                {"all_reduce", 1, 4250, 0},
                {"", 2, 0, 4250},
                {"all_reduce", 3, 900, 4250},
                {"barrier", 9, 60000, 4250},
                {"", 9, 0, 4250}, /* it failed: no later call follows */
                {"broadcast", 1, 100, 4250},
                {"", 1, 0, 4250},
                {"broadcast", 2, 5000, 4250},
                {"broadcast", 3, 1, 5000}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        set(0, rows[i].call, rows[i].sequence, rows[i].age_ms);
        straggler_pace_add(&pace, &ranks[0]);
        assert_int_equal(pace.longest_ms, rows[i].longest_ms);
    }
}

HARNESS_RUN_ALL()
