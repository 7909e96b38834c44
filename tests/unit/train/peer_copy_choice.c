/* peer_copy_choice — who keeps whose slice, and from which copies a job goes on. */
#include "harness.h"

#include "base/rand.h"
#include "train/peer_copy/choice.h"

#define RANKS 12

static struct peer_copy_offer offers[RANKS];
static struct peer_copy_chosen chosen[RANKS];
static struct peer_copy_choice choice;
static int world = RANKS; /* the ranks whose slices hold() gives */

static struct peer_copy_world mesh_of(int nodes, int locals, int tensor, int context, int stages)
{
    struct peer_copy_world out = {.nodes = nodes, .locals = locals};
    assert_int_equal(mesh_make(nodes * locals, tensor, context, stages, &out.mesh), ST_OK);
    return out;
}

/* Ranks that all hold one shard. */
static int keeper_of(int rank, int nodes, int locals)
{
    const struct peer_copy_world of = mesh_of(nodes, locals, 1, 1, 1);
    return peer_copy_choice_keeper(&of, rank);
}

static int source_of(int rank, int nodes, int locals)
{
    const struct peer_copy_world of = mesh_of(nodes, locals, 1, 1, 1);
    return peer_copy_choice_kept_rank(&of, rank);
}

static void hold(int rank, int kind, int buffer, int slice_rank, int64_t history, int64_t step)
{
    offers[rank].slot[kind * PEER_COPY_BUFFERS + buffer] =
        (struct peer_copy_stamp){.history = history,
                                 .step = step,
                                 .rank = slice_rank,
                                 .is_complete = true,
                                 .ranks = world,
                                 .progress = {.step = step, .samples = 7 * step}};
}

/* Every rank has its own slice and its kept rank's, of one step. */
static void hold_all(int nodes, int locals, int buffer, int64_t history, int64_t step)
{
    world = nodes * locals;
    for (int rank = 0; rank < nodes * locals; rank++) {
        hold(rank, PEER_COPY_OWN, buffer, rank, history, step);
        hold(rank, PEER_COPY_KEPT, buffer, source_of(rank, nodes, locals), history, step);
    }
}

static void make(int nodes, int locals)
{
    const struct peer_copy_world of = mesh_of(nodes, locals, 1, 1, 1);
    peer_copy_choice_make(offers, &of, RANKS, chosen, &choice);
}

TEST(test_pairs)
{
    for (int nodes = 2; nodes <= 9; nodes++)
        for (int rank = 0; rank < nodes * 2; rank++) {
            const int keeper = keeper_of(rank, nodes, 2);
            assert_in_range(keeper, 0, nodes * 2 - 1);
            assert_int_not_equal(keeper / 2, rank / 2);
            assert_int_equal(keeper % 2, rank % 2);
            assert_int_equal(source_of(keeper, nodes, 2), rank);
            if (nodes % 2 == 0)
                assert_int_equal(keeper_of(keeper, nodes, 2), rank);
        }
}

TEST(test_meshes)
{
    int within_n = 0, checked_n = 0;
    for (int nodes = 2; nodes <= 9; nodes++)
        for (int locals = 1; locals <= 6; locals++)
            for (int i = 0; i < 6 * 3 * 5; i++) {
                const int tensor = 1 + i % 6, context = 1 + i / 6 % 3, stages = 1 + i / 18;
                if (nodes * locals % (tensor * context * stages) != 0)
                    continue;
                const struct peer_copy_world of = mesh_of(nodes, locals, tensor, context, stages);
                /* Of each rank of a mesh: on another node, one to one, and of the same shard if
                 * each has ranks enough. */
                const bool is_within = peer_copy_choice_is_within(&of);
                for (int rank = 0; rank < mesh_ranks(&of.mesh); rank++) {
                    const int keeper = peer_copy_choice_keeper(&of, rank);
                    assert_in_range(keeper, 0, mesh_ranks(&of.mesh) - 1);
                    assert_int_not_equal(keeper / of.locals, rank / of.locals);
                    assert_int_equal(peer_copy_choice_kept_rank(&of, keeper), rank);
                    assert_true(!is_within || peer_copy_choice_is_same_shard(&of, rank, keeper));
                }
                within_n += peer_copy_choice_is_within(&of);
                checked_n++;
            }
    assert_in_range(within_n, 100, checked_n - 100);
}

/* keeps — the keeper of rank 0 in a mesh. */
static int keeps(int nodes, int locals, int tensor, int context, int stages)
{
    const struct peer_copy_world of = mesh_of(nodes, locals, tensor, context, stages);
    return peer_copy_choice_keeper(&of, 0);
}

TEST(test_keepers_in_meshes)
{
    assert_int_equal(keeps(4, 1, 2, 1, 1), 2); /* not tensor rank 1, on node 1 */
    assert_int_equal(keeps(2, 2, 2, 1, 1), 2);
    assert_int_equal(keeps(4, 1, 1, 1, 2), 1); /* in its stage */
    assert_int_equal(keeps(2, 2, 1, 1, 2), 2); /* its stage has one node: in the other stage */
    assert_int_equal(keeps(2, 1, 2, 1, 1), 1); /* the other tensor rank: there is none of its own */
    assert_int_equal(keeps(2, 2, 1, 2, 1), 2); /* context ranks hold the same shard */
    assert_int_equal(keeps(5, 2, 1, 1, 2), 2); /* of 5 ranks on 3 nodes: 2, 2 and 1 */
}

/* Any one node is lost: the newest step is found, with keepers that are there. */
TEST(test_one_node_lost)
{
    for (int nodes = 2; nodes <= 6; nodes++)
        for (int lost = 0; lost < nodes; lost++) {
            memset(offers, 0, sizeof offers);
            hold_all(nodes, 2, 0, 1, 40);
            hold_all(nodes, 2, 1, 1, 41);
            memset(&offers[lost * 2], 0, 2 * sizeof *offers);
            make(nodes, 2);
            assert_true(choice.is_found);
            assert_int_equal(choice.step, 41);
            assert_int_equal(choice.progress.samples, 7 * 41);
            for (int rank = 0; rank < nodes * 2; rank++)
                assert_int_equal(chosen[rank].rank,
                                 rank / 2 == lost ? keeper_of(rank, nodes, 2) : rank);
        }
}

/* One rank has not finished step 41, and its keeper has not either: all go on from 40. */
TEST(test_step_before)
{
    memset(offers, 0, sizeof offers);
    hold_all(4, 1, 0, 1, 40);
    hold_all(4, 1, 1, 1, 41);
    offers[2].slot[PEER_COPY_OWN * PEER_COPY_BUFFERS + 1].is_complete = false;
    make(4, 1);
    assert_int_equal(choice.step, 41);
    assert_int_equal(chosen[2].rank, 3);
    offers[3].slot[PEER_COPY_KEPT * PEER_COPY_BUFFERS + 1].is_complete = false;
    make(4, 1);
    assert_true(choice.is_found);
    assert_int_equal(choice.step, 40);
    for (int rank = 0; rank < 4; rank++)
        assert_int_equal(chosen[rank].rank, rank);
}

/* A rank and its keeper are lost: nothing is whole, and it is said what is missing. */
TEST(test_pair_lost)
{
    memset(offers, 0, sizeof offers);
    make(4, 1);
    assert_false(choice.is_found || choice.is_any);
    hold_all(4, 1, 0, 1, 40);
    hold_all(4, 1, 1, 1, 41);
    memset(&offers[2], 0, 2 * sizeof *offers);
    make(4, 1);
    assert_false(choice.is_found);
    assert_true(choice.is_any);
    assert_int_equal(choice.step, 41);
    assert_int_equal(choice.missing, 2);
    assert_int_equal(choice.missing_n, 2);
}

/* Two nodes of different pairs may go. */
TEST(test_two_pairs)
{
    memset(offers, 0, sizeof offers);
    hold_all(4, 1, 0, 1, 41);
    memset(&offers[1], 0, sizeof *offers);
    memset(&offers[2], 0, sizeof *offers);
    make(4, 1);
    assert_true(choice.is_found);
    assert_int_equal(chosen[1].rank, 0);
    assert_int_equal(chosen[2].rank, 3);
}

/* Slices of two generations never mix, and the later generation goes before a higher step. */
TEST(test_histories)
{
    memset(offers, 0, sizeof offers);
    hold_all(2, 1, 0, 1, 41);
    hold(0, PEER_COPY_OWN, 1, 0, 2, 41);
    make(2, 1);
    assert_true(choice.is_found);
    assert_int_equal(choice.history, 1);
    hold_all(2, 1, 1, 2, 39);
    make(2, 1);
    assert_int_equal(choice.history, 2);
    assert_int_equal(choice.step, 39);
    memset(offers, 0, sizeof offers);
    hold(0, PEER_COPY_OWN, 0, 0, 1, 41);
    hold(1, PEER_COPY_OWN, 0, 1, 2, 41);
    make(2, 1);
    assert_false(choice.is_found);
}

/* The ranks of another world go on: each slice is found where it lies now, or it is missing. */
TEST(test_other_world)
{
    memset(offers, 0, sizeof offers);
    hold_all(4, 1, 0, 1, 40);
    hold_all(4, 1, 1, 1, 41);
    memset(&offers[1], 0, sizeof *offers); /* node 1 is lost; nodes 2 and 3 are ranks 1 and 2 now */
    memmove(&offers[1], &offers[2], 2 * sizeof *offers);
    memset(&offers[3], 0, sizeof *offers);
    make(3, 1);
    assert_true(choice.is_found && choice.ranks == 4 && choice.step == 41);
    assert_true(chosen[0].rank == 0 && chosen[1].rank == 0 && chosen[2].rank == 1 &&
                chosen[3].rank == 2);
    /* a new node is rank 3: as many ranks as before, but not the same */
    make(4, 1);
    assert_true(choice.is_found && chosen[2].rank == 1 && chosen[3].rank == 2);
    /* they have gone on by themselves: their later history counts, not the higher step */
    hold_all(3, 1, 0, 2, 30);
    make(4, 1);
    assert_true(choice.is_found && choice.ranks == 3 && choice.step == 30);
    memset(&offers[0], 0, sizeof *offers);
    memset(&offers[1], 0, sizeof *offers);
    make(2, 1);
    assert_false(choice.is_found);
    /* more ranks than there can be are none */
    world = RANKS + 1;
    hold(0, PEER_COPY_OWN, 0, 0, 9, 50);
    make(2, 1);
    assert_int_not_equal(choice.history, 9);
}

static void suspect(int rank, int64_t history, int64_t step)
{
    offers[rank].suspect_history = history;
    offers[rank].suspect_step = step;
}

/* One rank's mark rules out a step, and later ones of the same history, for all ranks, although
 * they are complete. The rank whose memory changed may be gone. */
TEST(test_suspect)
{
    for (int marked = 0; marked < 4; marked++)
        for (int lost = -1; lost < 4; lost++) {
            memset(offers, 0, sizeof offers);
            hold_all(4, 1, 0, 1, 40);
            hold_all(4, 1, 1, 1, 41);
            suspect(marked, 1, 41);
            if (lost >= 0 && lost != marked)
                memset(&offers[lost], 0, sizeof *offers);
            make(4, 1);
            assert_true(choice.is_found && choice.step == 40);
            for (int rank = 0; rank < 4; rank++)
                assert_int_equal(chosen[rank].slot % PEER_COPY_BUFFERS, 0);
        }
    suspect(2, 1, 42); /* of a later step: the newest copies are right */
    memset(&offers[0], 0, sizeof *offers);
    hold_all(4, 1, 0, 1, 40);
    hold_all(4, 1, 1, 1, 41);
    for (int rank = 0; rank < 4; rank++)
        suspect(rank, rank == 2, 42);
    make(4, 1);
    assert_true(choice.is_found && choice.step == 41);
    suspect(3, 1, 40); /* the lowest mark counts, and then nothing is left */
    make(4, 1);
    assert_false(choice.is_found || choice.is_any);
    hold_all(4, 1, 0, 2, 41); /* the generation that went on does the step again */
    make(4, 1);
    assert_true(choice.is_found && choice.history == 2 && choice.step == 41);
}

/* Offers with any numbers: a choice that is found has a complete copy of each slice. */
TEST(test_any_offers)
{
    int found = 0;
    for (uint64_t trial = 0; trial < 20000; trial++) {
        const int nodes = 2 + (int)(trial % 3), locals = 1 + (int)(trial % 2);
        for (int i = 0; i < nodes * locals * PEER_COPY_SLOTS; i++) {
            struct peer_copy_stamp *at = &offers[i / PEER_COPY_SLOTS].slot[i % PEER_COPY_SLOTS];
            const uint64_t draw = rand_u64(trial, RAND_STREAM(TEST, 0), (uint64_t)i);
            *at = (struct peer_copy_stamp){
                .history = (int64_t)(draw % 2),
                .step = (int64_t)(draw >> 8) % 2 - (draw % 97 == 0),
                .rank = (int32_t)((draw >> 16) % 8 ? (uint64_t)i / PEER_COPY_SLOTS : draw >> 24),
                .ranks = nodes * locals - (draw % 89 == 0),
                .is_complete = (draw >> 32) % 8 != 0};
        }
        make(nodes, locals);
        found += choice.is_found;
        for (int rank = 0; choice.is_found && rank < choice.ranks; rank++) {
            const struct peer_copy_stamp *at = &offers[chosen[rank].rank].slot[chosen[rank].slot];
            assert_true(at->is_complete && at->rank == rank && at->step == choice.step &&
                        at->history == choice.history && at->ranks == choice.ranks);
        }
    }
    assert_in_range(found, 100, 19900);
}

HARNESS_RUN_ALL()
