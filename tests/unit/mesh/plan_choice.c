/* plan_choice — RECOMPUTE=auto and SHARD=auto: which ways are open, and which one the ranks
 * take for the memory that each has free. */
#include "mesh/ranks.h"

#include <sys/mman.h>

#include "node/choose/config_map.h"
#include "node/choose/memory_check.h"
#include "node/choose/plan_choice.h"

#define GIB ((int64_t)1 << 30)

/* ---- the ways ---- */

#define LAYERS 3

static struct plan_ways ways(enum model_recompute recompute, enum layout_shard shard, int nodes,
                             int locals, bool is_discrete)
{
    struct step_config config = {
        .dims.layers = LAYERS, .recompute.way = recompute, .store.shard = shard};
    struct memory_plan_place place = {
        .at = {.ranks = nodes * locals, .nodes = nodes, .locals = locals},
        .is_discrete = is_discrete};
    struct plan_ways out;
    plan_choice_ways(&config, &place, &out);
    return out;
}

/* check_way — number i is this way, in its text, and this SHARD. */
static void check_way(const struct plan_ways *w, int i, const char *recompute,
                      enum layout_shard shard)
{
    char text[32];
    struct plan_way way = plan_choice_way(w, i);
    assert_string_equal(model_recompute_text(way.recompute, text, sizeof text), recompute);
    assert_int_equal(way.shard, shard);
}

TEST(test_ways)
{
    struct plan_ways w = ways(MODEL_RECOMPUTE_LIGHT, LAYOUT_SHARD_FULL, 1, 8, true);
    assert_int_equal(w.n, 1);
    check_way(&w, 0, "light", LAYOUT_SHARD_FULL);
    w = ways(MODEL_RECOMPUTE_AUTO, LAYOUT_SHARD_NONE, 1, 1, true);
    assert_int_equal(w.n, 3 * LAYERS + 1);
    check_way(&w, 0, "none", LAYOUT_SHARD_NONE);
    check_way(&w, 4, "attention:1", LAYOUT_SHARD_NONE);
    check_way(&w, 9, "block", LAYOUT_SHARD_NONE);
    w = ways(MODEL_RECOMPUTE_AUTO, LAYOUT_SHARD_NONE, 1, 1, false);
    assert_int_equal(w.n, 2 * LAYERS + 1);
    check_way(&w, 0, "light", LAYOUT_SHARD_NONE);
    check_way(&w, 1, "attention:1", LAYOUT_SHARD_NONE);
}

/* A setting with a number of layers is one way. */
TEST(test_asked_layers)
{
    const struct memory_plan_place place = {.at = {.ranks = 1, .nodes = 1, .locals = 1}};
    struct step_config config = {.dims.layers = 12, .recompute = {MODEL_RECOMPUTE_BLOCK, 5}};
    struct plan_ways w;
    plan_choice_ways(&config, &place, &w);
    assert_int_equal(w.n, 1);
    check_way(&w, 0, "block:5", LAYOUT_SHARD_NONE);
}

/* With stages each way is planned, so there are few; all whole ways are among them. */
TEST(test_stages)
{
    const struct memory_plan_place place = {.at = {.ranks = 2, .nodes = 1, .locals = 2},
                                            .is_discrete = true};
    struct step_config config = {.dims.layers = 36, .recompute.way = MODEL_RECOMPUTE_AUTO};
    struct plan_ways w;
    config.axis_ranks[MESH_AXIS_PIPELINE] = 2;
    plan_choice_ways(&config, &place, &w);
    assert_false(w.is_falling);
    assert_int_equal(w.n, 3 * 8 + 1);
    check_way(&w, 1, "light:4", LAYOUT_SHARD_NONE);
    check_way(&w, 8, "light", LAYOUT_SHARD_NONE);
    check_way(&w, 23, "block:31", LAYOUT_SHARD_NONE);
    check_way(&w, 24, "block", LAYOUT_SHARD_NONE);
}

/* check_shards — with RECOMPUTE=light, the shards that a SHARD leaves open, in this order. */
static void check_shards(enum layout_shard asked, int nodes, int locals, bool is_discrete,
                         const char *want)
{
    static const char letters[] = "nogfh";
    char got[LAYOUT_SHARD_AUTO + 1] = "";
    struct plan_ways w = ways(MODEL_RECOMPUTE_LIGHT, asked, nodes, locals, is_discrete);
    for (int i = 0; i < w.n; i++)
        got[i] = letters[plan_choice_way(&w, i).shard];
    assert_string_equal(got, want);
}

TEST(test_shards)
{
    check_shards(LAYOUT_SHARD_AUTO, 1, 8, true, "nogf");
    check_shards(LAYOUT_SHARD_AUTO, 2, 8, true, "noghf");
    check_shards(LAYOUT_SHARD_AUTO, 8, 1, true, "nogf");
    check_shards(LAYOUT_SHARD_AUTO, 1, 3, true, "n");
    check_shards(LAYOUT_SHARD_AUTO, 2, 4, false, "n");
    check_shards(LAYOUT_SHARD_HYBRID, 2, 2, false, "h");
    check_shards(LAYOUT_SHARD_HYBRID, 1, 4, true, "f");
    check_shards(LAYOUT_SHARD_HYBRID, 4, 1, true, "n");
    struct plan_ways w;
    const struct memory_plan_place place = {.at = {.ranks = 16, .nodes = 2, .locals = 8},
                                            .is_discrete = true};
    for (int axis = 0; axis < MESH_AXES; axis++) {
        struct step_config divided = {.recompute.way = MODEL_RECOMPUTE_LIGHT,
                                      .store = {.shard = LAYOUT_SHARD_AUTO}};
        divided.axis_ranks[axis] = 4;
        int with_hybrid = axis == MESH_AXIS_DATA ? 1 : 0;
        plan_choice_ways(&divided, &place, &w);
        assert_int_equal(w.n, 4 + with_hybrid);
    }
    w = ways(MODEL_RECOMPUTE_AUTO, LAYOUT_SHARD_AUTO, 2, 4, true);
    assert_int_equal(w.n, 5 * (3 * LAYERS + 1));
    check_way(&w, 0, "none", LAYOUT_SHARD_NONE);
    check_way(&w, 5, "light:1", LAYOUT_SHARD_NONE);
    check_way(&w, w.n - 1, "block", LAYOUT_SHARD_FULL);
}

/* ---- the votes ---- */

/* Ways that need less and less; the last of them is asked without a margin. */
struct needs {
    struct plan_ways ways;
    int first, asked_n; /* the first that fits; how many were asked about */
};

static enum status fits(void *arg, int way, bool *out)
{
    struct needs *n = arg;
    n->asked_n++;
    *out = way / n->ways.shards_n >= n->first;
    return ST_OK;
}

/* By halves or one after the other, the same votes; by halves few are asked about. */
TEST(test_votes)
{
    for (int first = 0; first <= 3 * LAYERS + 1; first++)
        for (int is_falling = 0; is_falling < 2; is_falling++) {
            float votes[5 * (3 * LAYERS + 1)] = {0};
            struct needs n = {.first = first,
                              .ways = ways(MODEL_RECOMPUTE_AUTO, LAYOUT_SHARD_AUTO, 2, 4, true)};
            n.ways.is_falling = is_falling;
            assert_int_equal(plan_choice_vote(&n.ways, fits, &n, votes), ST_OK);
            for (int i = 0; i < n.ways.n; i++)
                assert_true(votes[i] == (i / 5 >= first));
            assert_true(is_falling ? n.asked_n <= 5 * 4 : n.asked_n == n.ways.n);
            int got = plan_choice_first(votes, n.ways.n, 1);
            assert_int_equal(got, first <= 3 * LAYERS ? 5 * first : n.ways.n - 1);
        }
}

/* ---- the decision ---- */

/* What a rank offers and votes, and what it got. */
struct voter {
    struct plan_offer offer;
    float votes[3 + RANKS_MAX];
    struct plan_decision got;
};

/* voter — votes for the ways from `first` on. */
static struct voter voter(int64_t free_bytes, int first)
{
    struct voter v = {.offer = {.free_bytes = free_bytes}};
    for (int way = first; way < 3; way++)
        v.votes[way] = 1;
    return v;
}

TEST(test_one_rank)
{
    for (int first = 0; first <= 3; first++) {
        struct voter v = voter(first ? 9 * GIB : -1, first);
        assert_int_equal(plan_choice_decide(NULL, &v.offer, v.votes, 3, &v.got), ST_OK);
        assert_int_equal(v.got.free_bytes, v.offer.free_bytes);
        assert_int_equal(v.got.way, first < 3 ? first : 2);
    }
}

static enum status vote(struct ranks_one *one)
{
    struct voter *v = one->arg;
    return plan_choice_decide(one->comm, &v->offer, v->votes, 3, &v->got);
}

/* The rank with least memory decides for all, and is named. */
TEST(test_several_ranks)
{
    struct voter v[] = {voter(80 * GIB, 0), voter(7 * GIB, 1), voter(-1, 0), voter(40 * GIB, 0)};
    ranks_run(2, 2, vote, v, sizeof *v);
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(v[rank].got.way, 1);
        assert_int_equal(v[rank].got.rank, 1);
        assert_int_equal(v[rank].got.free_bytes, 7 * GIB);
    }
}

/* No way that fits on one rank fits on the other: the last, though each alone has a better one. */
TEST(test_no_common_way)
{
    struct voter v[] = {voter(7 * GIB, 3), voter(7 * GIB, 3)};
    v[0].votes[0] = 1;
    v[1].votes[1] = 1;
    ranks_run(1, 2, vote, v, sizeof *v);
    assert_int_equal(v[0].got.way, 2);
    assert_int_equal(v[1].got.way, 2);
}

/* ---- a rank that fails, in processes of their own ---- */

#define WORLD 4

/* make_in — rank 2 has a batch that no plan can have. Returns the exit code; the message goes to
 * `says`. Rank 2 stops itself then, as a worker that has failed and ends slowly: it is not gone, it
 * is silent. */
static int make_in(const struct conf *conf, int rank, int shm_fd, char *says, size_t cap)
{
    struct dev *dev = NULL;
    struct comm *comm = NULL;
    struct model_dims dims;
    struct trainer_config config;
    bool has_weights;
    int64_t bytes = 0;
    const struct comm_config shm = {
        .kind = COMM_KIND_HOST,
        .place = {.rank = rank, .ranks = WORLD, .nodes = 1, .local = rank, .locals = WORLD},
        .timeout_ms = harness_patience_ms(60000),
        .shm_fd = shm_fd};
    struct plan_way last = {.recompute.way = MODEL_RECOMPUTE_AUTO};
    enum status st = dev_cpu_open(1, CPU_ISA_N, &dev);
    st = st == ST_OK ? comm_begin_open(&shm, &comm, NULL, &bytes) : st;
    st = st == ST_OK ? comm_end_open(comm, 1, NULL, NULL) : st;
    st = st == ST_OK ? config_map_dims(conf, &dims, &has_weights) : st;
    st = st == ST_OK ? config_map_trainer(conf, &dims, has_weights, &config) : st;
    if (rank == 2)
        config.step.seq_tokens = 31;
    st = st == ST_OK ? plan_choice_make(conf, comm, dev, &config, &last) : st;
    text_copy(says, cap, status_message());
    if (rank == 2)
        raise(SIGSTOP);
    return (int)st;
}

/* The others do not wait for the one that failed: they end, and name it. */
TEST(test_failed_rank)
{
    char *argv[] = {(char[]){"RECOMPUTE=auto"},   (char[]){"MODEL=gpt2-nano"},
                    (char[]){"SEQ_LEN=32"},       (char[]){"BATCH_SIZE=1"},
                    (char[]){"DEVICE=cpu"},       (char[]){"TP=2"},
                    (char[]){"N_GPU_EACH_NODE=4"}},
         *none[] = {NULL};
    struct conf *conf = NULL;
    pid_t pid[WORLD];
    char(*says)[512] =
        mmap(NULL, WORLD * sizeof *says, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int shm_fd = memfd_create("share", 0), code;
    assert_int_equal(conf_open(7, argv, none, &conf), ST_OK);
    assert_true(says != MAP_FAILED && shm_fd >= 0);
    for (int rank = 0; rank < WORLD; rank++) {
        pid[rank] = fork();
        assert_true(pid[rank] >= 0);
        if (pid[rank] == 0)
            _exit(make_in(conf, rank, shm_fd, says[rank], sizeof says[rank]));
    }
    for (int rank = 0; rank < WORLD; rank++) {
        assert_int_equal(waitpid(pid[rank], &code, WUNTRACED), pid[rank]);
        assert_true(rank == 2 ? WIFSTOPPED(code) : WIFEXITED(code) && WEXITSTATUS(code) == ST_PEER);
        assert_non_null(
            strstr(says[rank], rank == 2 ? "TP=2 does not divide SEQ_LEN=31 rows"
                                         : "rank 2 failed before the ranks had chosen RECOMPUTE"));
    }
    kill(pid[2], SIGKILL);
    assert_int_equal(waitpid(pid[2], &code, 0), pid[2]);
    munmap(says, WORLD * sizeof *says);
    close(shm_fd);
    conf_close(conf);
}

/* ---- for a generation ---- */

static char lines[2048];

static void keep_line(void *arg, int64_t wall_ms, const char *line)
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
    log_tap(keep_line, NULL);
    assert_int_equal(plan_choice_make(conf, comm, dev, &config, &last), ST_OK);
    log_tap(NULL, NULL);
    log_init(&(struct log_config){.level = LOG_LEVEL_ERROR, .node_id = -1, .rank = -1});
    assert_true(config.step.recompute.way == last.recompute.way ||
                last.recompute.way == MODEL_RECOMPUTE_AUTO);
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

TEST(test_generations)
{
    struct conf *conf = conf_of((char[]){"RECOMPUTE=auto"});
    struct plan_way way = make_once(conf, (struct plan_way){.recompute.way = MODEL_RECOMPUTE_AUTO});
    assert_int_equal(way.recompute.way, MODEL_RECOMPUTE_LIGHT);
    assert_non_null(strstr(lines, "RECOMPUTE=auto uses light: needs "));
    assert_null(strstr(lines, "before this restart"));
    (void)make_once(conf, way); /* the same again: not a word */
    assert_string_equal(lines, "");
    way.recompute.way = MODEL_RECOMPUTE_BLOCK;
    way = make_once(conf, way);
    assert_int_equal(way.recompute.way, MODEL_RECOMPUTE_LIGHT);
    assert_non_null(strstr(lines, "before this restart it was RECOMPUTE=block SHARD=none"));
    assert_memory_equal(lines, "warn", 4);
    way.recompute.layers = 3; /* light:3: the same word */
    way = make_once(conf, way);
    assert_int_equal(way.recompute.layers, 0);
    assert_non_null(strstr(lines, "before this restart it was RECOMPUTE=light:3 SHARD=none"));
    assert_memory_equal(lines, "info", 4);
    conf_close(conf);
    conf = conf_of((char[]){"RECOMPUTE=attention"});
    (void)make_once(conf, (struct plan_way){.recompute.way = MODEL_RECOMPUTE_AUTO});
    assert_string_equal(lines, "");
    conf_close(conf);
}

HARNESS_RUN_ALL()
