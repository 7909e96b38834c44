/* test_plan_choice — RECOMPUTE=auto and SHARD=auto: which ways are open, and which one the ranks
 * take for the memory that each has free. */
#include "mesh/ranks.h"

#include "base/log.h"
#include "node/config_map.h"
#include "node/memory_check.h"
#include "node/plan_choice.h"

#define GIB ((int64_t)1 << 30)

/* ---- the ways ---- */

static int ways(enum model_recompute recompute, enum layout_shard shard, int nodes, int locals,
                bool is_discrete, struct plan_way *out)
{
    struct step_config config = {.recompute = recompute, .store.shard = shard};
    struct memory_plan_place place = {
        .at = {.ranks = nodes * locals, .nodes = nodes, .locals = locals},
        .is_discrete = is_discrete};
    return plan_choice_ways(&config, &place, out);
}

static void test_ways(void **state)
{
    (void)state;
    struct plan_way w[PLAN_WAYS_MAX];
    assert_int_equal(ways(MODEL_RECOMPUTE_LIGHT, LAYOUT_SHARD_FULL, 1, 8, true, w), 1);
    assert_true(w[0].recompute == MODEL_RECOMPUTE_LIGHT && w[0].shard == LAYOUT_SHARD_FULL);
    assert_int_equal(ways(MODEL_RECOMPUTE_AUTO, LAYOUT_SHARD_NONE, 1, 1, true, w), 4);
    assert_int_equal(w[0].recompute, MODEL_RECOMPUTE_NONE);
    assert_int_equal(w[3].recompute, MODEL_RECOMPUTE_BLOCK);
    assert_int_equal(ways(MODEL_RECOMPUTE_AUTO, LAYOUT_SHARD_NONE, 1, 1, false, w), 3);
    assert_int_equal(w[0].recompute, MODEL_RECOMPUTE_LIGHT);
}

/* check_shards — with RECOMPUTE=light, the shards that a SHARD leaves open, in this order. */
static void check_shards(enum layout_shard asked, int nodes, int locals, bool is_discrete,
                         const char *want)
{
    static const char letters[] = "nogfh";
    struct plan_way w[PLAN_WAYS_MAX];
    char got[PLAN_WAYS_MAX + 1] = "";
    int n = ways(MODEL_RECOMPUTE_LIGHT, asked, nodes, locals, is_discrete, w);
    for (int i = 0; i < n; i++)
        got[i] = letters[w[i].shard];
    assert_string_equal(got, want);
}

static void test_shards(void **state)
{
    (void)state;
    check_shards(LAYOUT_SHARD_AUTO, 1, 8, true, "nogf");
    check_shards(LAYOUT_SHARD_AUTO, 2, 8, true, "noghf");
    check_shards(LAYOUT_SHARD_AUTO, 8, 1, true, "nogf");
    check_shards(LAYOUT_SHARD_AUTO, 1, 3, true, "n");
    check_shards(LAYOUT_SHARD_AUTO, 2, 4, false, "n");
    check_shards(LAYOUT_SHARD_HYBRID, 2, 2, false, "h");
    check_shards(LAYOUT_SHARD_HYBRID, 1, 4, true, "f");
    check_shards(LAYOUT_SHARD_HYBRID, 4, 1, true, "n");
    struct plan_way w[PLAN_WAYS_MAX];
    const struct memory_plan_place place = {.at = {.ranks = 16, .nodes = 2, .locals = 8},
                                            .is_discrete = true};
    struct step_config rows = {
        .recompute = MODEL_RECOMPUTE_LIGHT,
        .store = {.shard = LAYOUT_SHARD_AUTO, .embed_rows = SPARSE_EMBED_CHOICE_ON}};
    assert_int_equal(plan_choice_ways(&rows, &place, w), 4); /* hybrid exchanges no rows */
    assert_int_equal(w[3].shard, LAYOUT_SHARD_FULL);
    for (int axis = 0; axis < MESH_AXES; axis++) {
        struct step_config divided = {.recompute = MODEL_RECOMPUTE_LIGHT,
                                      .store = {.shard = LAYOUT_SHARD_AUTO}};
        divided.axis_ranks[axis] = 4;
        int with_hybrid = axis == MESH_AXIS_TENSOR || axis == MESH_AXIS_PIPELINE ? 0 : 1;
        assert_int_equal(plan_choice_ways(&divided, &place, w), 4 + with_hybrid);
    }
    assert_int_equal(ways(MODEL_RECOMPUTE_AUTO, LAYOUT_SHARD_AUTO, 2, 4, true, w), 20);
    assert_true(w[0].recompute == MODEL_RECOMPUTE_NONE && w[0].shard == LAYOUT_SHARD_NONE);
    assert_true(w[19].recompute == MODEL_RECOMPUTE_BLOCK && w[19].shard == LAYOUT_SHARD_FULL);
}

/* ---- the decision ---- */

/* What a rank offers, and what it got. */
struct voter {
    struct plan_offer offer;
    struct plan_decision got;
};
static const int64_t needs[] = {8 * GIB, 6 * GIB, 4 * GIB};

static struct voter voter(int64_t free_bytes)
{
    struct voter v = {.offer = {.free_bytes = free_bytes, .margin_bytes = GIB}};
    memcpy(v.offer.need_bytes, needs, sizeof needs);
    return v;
}

static int alone(int64_t free_bytes)
{
    struct voter v = voter(free_bytes);
    assert_int_equal(plan_choice_decide(NULL, &v.offer, 3, &v.got), ST_OK);
    assert_int_equal(v.got.free_bytes, free_bytes);
    return v.got.way;
}

static void test_one_rank(void **state)
{
    (void)state;
    assert_int_equal(alone(9 * GIB), 0);
    assert_int_equal(alone(9 * GIB - (1 << 20)), 1); /* the margin */
    assert_int_equal(alone(7 * GIB), 1);
    assert_int_equal(alone(5 * GIB), 2);
    assert_int_equal(alone(4 * GIB), 2); /* nothing is smaller: no margin */
    assert_int_equal(alone(GIB), 2);
    assert_int_equal(alone(-1), 0);
}

static enum status vote(struct ranks_one *one)
{
    struct voter *v = one->arg;
    return plan_choice_decide(one->comm, &v->offer, 3, &v->got);
}

/* The rank with least memory decides for all, and is named. */
static void test_several_ranks(void **state)
{
    (void)state;
    struct voter v[] = {voter(80 * GIB), voter(7 * GIB), voter(-1), voter(40 * GIB)};
    ranks_run(2, 2, vote, v, sizeof *v);
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(v[rank].got.way, 1);
        assert_int_equal(v[rank].got.rank, 1);
        assert_int_equal(v[rank].got.free_bytes, 7 * GIB);
    }
}

/* No way that fits on one rank fits on the other: the last, though each alone has a better one. */
static void test_no_common_way(void **state)
{
    (void)state;
    struct voter v[] = {voter(7 * GIB), voter(7 * GIB)};
    v[0].offer.need_bytes[1] = 9 * GIB;
    v[1].offer.need_bytes[0] = 5 * GIB;
    ranks_run(1, 2, vote, v, sizeof *v);
    assert_int_equal(v[0].got.way, 2);
    assert_int_equal(v[1].got.way, 2);
}

/* ---- for a generation ---- */

static char lines[2048];

static void take_line(void *arg, int64_t wall_ms, const char *line)
{
    (void)arg, (void)wall_ms;
    size_t n = strlen(lines);
    snprintf(lines + n, sizeof lines - n, "%s\n", line);
}

/* make_once — on a CPU, with this machine's memory. */
static struct plan_way make_once(const struct conf *conf, struct plan_way last)
{
    struct dev *dev = NULL;
    struct comm *comm = NULL;
    struct model_dims dims;
    struct trainer_config config;
    bool has_weights;
    char address[COMM_ADDRESS_MAX];
    int64_t bytes = 0;
    const struct comm_config self = {.kind = COMM_KIND_SELF,
                                     .place = {.ranks = 1, .nodes = 1, .locals = 1},
                                     .timeout_ms = 1000,
                                     .shm_fd = -1};
    assert_int_equal(dev_cpu_open(1, CPU_ISA_N, &dev), ST_OK);
    assert_int_equal(comm_begin_open(&self, &comm, address, &bytes), ST_OK);
    assert_int_equal(comm_end_open(comm, 1, address, &bytes), ST_OK);
    assert_int_equal(config_map_dims(conf, &dims, &has_weights), ST_OK);
    assert_int_equal(config_map_trainer(conf, &dims, has_weights, &config), ST_OK);
    lines[0] = 0;
    log_init(&(struct log_config){.level = LOG_LEVEL_INFO, .node_id = -1, .rank = -1});
    log_tap(take_line, NULL);
    assert_int_equal(plan_choice_make(conf, comm, dev, &config, &last), ST_OK);
    log_tap(NULL, NULL);
    log_init(&(struct log_config){.level = LOG_LEVEL_ERROR, .node_id = -1, .rank = -1});
    assert_true(config.step.recompute == last.recompute || last.recompute == MODEL_RECOMPUTE_AUTO);
    comm_close(comm);
    dev_close(dev);
    return last;
}

static struct conf *conf_of(char *recompute)
{
    char *argv[] = {recompute, (char[]){"MODEL=gpt2-nano"}, (char[]){"SEQ_LEN=32"},
                    (char[]){"BATCH_SIZE=1"}, (char[]){"DEVICE=cpu"}},
         *none[] = {NULL};
    struct conf *conf = NULL;
    assert_int_equal(conf_open(5, argv, none, &conf), ST_OK);
    return conf;
}

static void test_generations(void **state)
{
    (void)state;
    struct conf *conf = conf_of((char[]){"RECOMPUTE=auto"});
    struct plan_way way = make_once(conf, (struct plan_way){.recompute = MODEL_RECOMPUTE_AUTO});
    assert_int_equal(way.recompute, MODEL_RECOMPUTE_LIGHT);
    assert_non_null(strstr(lines, "RECOMPUTE=auto takes light: needs "));
    assert_null(strstr(lines, "before this restart"));
    (void)make_once(conf, way); /* the same again: not a word */
    assert_string_equal(lines, "");
    way.recompute = MODEL_RECOMPUTE_BLOCK;
    way = make_once(conf, way);
    assert_int_equal(way.recompute, MODEL_RECOMPUTE_LIGHT);
    assert_non_null(strstr(lines, "before this restart it was RECOMPUTE=block SHARD=none"));
    conf_close(conf);
    conf = conf_of((char[]){"RECOMPUTE=attention"});
    (void)make_once(conf, (struct plan_way){.recompute = MODEL_RECOMPUTE_AUTO});
    assert_string_equal(lines, "");
    conf_close(conf);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_shards),        cmocka_unit_test(test_ways),
    cmocka_unit_test(test_one_rank),      cmocka_unit_test(test_several_ranks),
    cmocka_unit_test(test_no_common_way), cmocka_unit_test(test_generations),
};
HARNESS_MAIN(tests)
