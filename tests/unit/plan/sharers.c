/* How many groups, or senders, use a node's link to other nodes at once: plan_ops counts them for
 * calls of each axis, worked out by hand for small meshes. */
#include "harness.h"

#include "plan/scorecard.h"

/* sharers_of — of the largest call of a kind along an axis that leaves the node; -1: none does. */
static int sharers_of(const char *settings, int stage, enum plan_call_kind kind,
                      enum mesh_axis axis)
{
    struct plan_ops ops;
    int sharers = -1;
    double bytes = 0;
    /* The calls of a stage's first rank with these settings. */
    char *copy = score_copy(settings), *words[SCORE_WORDS_MAX], *nothing[] = {NULL};
    struct trainer_config config;
    struct conf *conf;
    int n = score_words(copy, words);
    assert_int_equal(conf_open(n, words, nothing, &conf), ST_OK);
    score_config(conf, &config);
    struct memory_plan_place place = score_place(conf, stage);
    assert_int_equal(plan_ops_make(&config, &place, &ops), ST_OK);
    conf_close(conf);
    free(copy);
    for (int i = 0; i < ops.calls_n; i++) {
        const struct plan_call *call = &ops.call[i];
        if (call->kind != kind || call->axis != axis || call->ranks == call->ranks_inside)
            continue;
        if (call->bytes > bytes)
            sharers = call->sharers;
        bytes = fmax(bytes, call->bytes);
    }
    plan_ops_free(&ops);
    return sharers;
}

#define MODEL                                                                  \
    "MODEL=gpt2-nano LAYERS=8 HEADS=8 SEQ_LEN=64 BATCH_SIZE=1 PRECISION=fp32 " \
    "RECOMPUTE=none MASTER_ADDR=::1 N_GPU_EACH_NODE=8 "
#define PIPE(nodes, batch) MODEL "PP=4 TP=2 SHARD=optimizer N_NODES=" nodes " GLOBAL_BATCH=" batch

/* Stages of 4 ranks on two nodes, of 6 on three: stage 1 has 2 ranks on node 0, the others on
 * node 1. */
TEST(messages)
{
    assert_int_equal(sharers_of(PIPE("2", "8"), 1, PLAN_CALL_MESSAGE, MESH_AXIS_PIPELINE), 4);
    assert_int_equal(sharers_of(PIPE("2", "8"), 0, PLAN_CALL_MESSAGE, MESH_AXIS_PIPELINE), -1);
    assert_int_equal(sharers_of(PIPE("3", "12"), 1, PLAN_CALL_MESSAGE, MESH_AXIS_PIPELINE), 6);
    assert_int_equal(sharers_of(PIPE("3", "12"), 2, PLAN_CALL_MESSAGE, MESH_AXIS_PIPELINE), 6);
}

TEST(sums_of_stages)
{
    assert_int_equal(sharers_of(PIPE("2", "8"), 1, PLAN_CALL_REDUCE_SCATTER, MESH_AXIS_DATA), -1);
    assert_int_equal(sharers_of(PIPE("3", "12"), 0, PLAN_CALL_REDUCE_SCATTER, MESH_AXIS_DATA), -1);
    assert_int_equal(sharers_of(PIPE("3", "12"), 1, PLAN_CALL_REDUCE_SCATTER, MESH_AXIS_DATA), 2);
    assert_int_equal(sharers_of(PIPE("3", "12"), 2, PLAN_CALL_REDUCE_SCATTER, MESH_AXIS_DATA), 2);
}

#define DATA(rest) MODEL "N_NODES=2 GLOBAL_BATCH=16 " rest

/* One ring of all ranks; one for each rank of a tensor group; one for each rank of a node. */
TEST(rings)
{
    assert_int_equal(sharers_of(DATA("SHARD=full"), 0, PLAN_CALL_REDUCE_SCATTER, MESH_AXIS_DATA),
                     1);
    assert_int_equal(
        sharers_of(DATA("SHARD=full TP=8"), 0, PLAN_CALL_REDUCE_SCATTER, MESH_AXIS_DATA), 8);
    assert_int_equal(
        sharers_of(DATA("SHARD=full TP=2"), 0, PLAN_CALL_REDUCE_SCATTER, MESH_AXIS_DATA), 2);
    assert_int_equal(sharers_of(DATA("SHARD=hybrid"), 0, PLAN_CALL_ALL_REDUCE, MESH_AXIS_DATA), 8);
}

HARNESS_RUN_ALL()
