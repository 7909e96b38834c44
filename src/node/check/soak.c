/* check_soak — see check/soak.h. */
#include "node/check/soak.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "dev/nvidia/nvml.h"
#include "measure/measure_ranks.h"
#include "node/check/soak_train.h"

#define STEPS 3
#define HEAT_MS 60000 /* a soak of a GPU that is longer trains a model that heats it */
#define HEAT_BYTES ((int64_t)8 << 30)
#define DRIFT_SHARE 0.05

struct soak {
    const struct check_soak_config *config;
    const struct check_config *check;
    struct check_rows *rows;
    struct check_soak_train_config train;
    struct dev_info info;
    uint64_t kind;    /* of this rank's device: equal kinds compute equal bits */
    char device[48];  /* "GPU 3", "the CPU" */
    bool is_wrong;    /* this rank was named already */
    bool is_unclear;  /* replicas of its node differ, and no majority told which is wrong */
    bool is_named;    /* training with all ranks told which one is */
    struct nvml *gpu; /* NULL: no GPU, or no NVML */
    struct nvml_reading first, last;
    double hottest;
    int readings;
};

/* ---- rows ---- */

static enum status add(struct soak *s, struct check_row row)
{
    row.rank = s->check->place.rank;
    check_row_add(s->rows, &row);
    return ST_OK;
}

static enum status add_pass(struct soak *s, enum check_point point, const char *name,
                            const char *why)
{
    return add(s, check_row_found(CHECK_STAGE_SOAK, point, s->check->place.node, name,
                                  CHECK_VERDICT_PASS, "%s", why));
}

static enum status add_skipped(struct soak *s, enum check_point point, const char *name,
                               const char *why)
{
    if (s->check->place.rank != 0)
        return ST_OK;
    return add(s, check_row_found(CHECK_STAGE_SOAK, point, s->check->place.node, name,
                                  CHECK_VERDICT_SKIPPED, "%s", why));
}

static const char see_corruption[] = "a rank computes wrong numbers: see silent corruption";

static enum status add_wrong(struct soak *s, enum check_point point, const char *why)
{
    struct check_row row = check_row_found(CHECK_STAGE_SOAK, point, s->check->place.node,
                                           "silent corruption", CHECK_VERDICT_FAIL,
                                           "rank %d, %s: %s", s->check->place.rank, s->device, why);
    text_copy(row.subject, sizeof row.subject, s->device);
    if (s->info.bus[0])
        text_format(row.remedy, sizeof row.remedy,
                    "nvidia-smi -i %s -q -d ECC,ROW_REMAPPER; dcgmi diag -r 3 # take the node out",
                    s->info.bus);
    else
        text_format(row.remedy, sizeof row.remedy,
                    "grep . /sys/devices/system/edac/mc/mc*/*e_count; memtester 1G 3 # take the "
                    "node out");
    s->is_wrong = true;
    return add(s, row);
}

/* ---- the state of the GPU ---- */

static enum status add_gpu_rows(struct soak *s)
{
    if (!s->gpu || s->readings == 0)
        return ST_OK;
    struct check_row row =
        check_row_measured(CHECK_STAGE_SOAK, CHECK_POINT_ONE_DEVICE, s->check->place.node,
                           "gpu temperature", "°C", s->hottest, CHECK_BETTER_LOWER, 10);
    text_copy(row.subject, sizeof row.subject, s->device);
    text_format(row.remedy, sizeof row.remedy, "nvidia-smi -i %s -q -d TEMPERATURE,POWER,CLOCK",
                s->info.bus);
    if (!isnan(s->hottest))
        TRY(add(s, row));
    /* The clock falls when a GPU gets too hot or too little power. */
    double drift = 1 - s->last.clock / s->first.clock;
    if (s->readings < 3 || isnan(drift))
        return ST_OK;
    row = check_row_found(
        CHECK_STAGE_SOAK, CHECK_POINT_ONE_DEVICE, s->check->place.node, "gpu clock drift",
        drift > DRIFT_SHARE ? CHECK_VERDICT_WARN : CHECK_VERDICT_PASS,
        "the clock went from %.0f to %.0f MHz, power from %.0f to %.0f W, temperature from %.0f to "
        "%.0f °C",
        s->first.clock * 1e-6, s->last.clock * 1e-6, s->first.power, s->last.power,
        s->first.temperature, s->last.temperature);
    row.value = 100 * drift;
    text_copy(row.unit, sizeof row.unit, "%");
    text_copy(row.subject, sizeof row.subject, s->device);
    if (drift > DRIFT_SHARE)
        text_format(row.remedy, sizeof row.remedy,
                    "nvidia-smi -i %s -q -d PERFORMANCE,POWER,TEMPERATURE # check fans and cables",
                    s->info.bus);
    return add(s, row);
}

/* ---- which ranks differ ---- */

/* What a comparison of the ranks of a group found. */
struct found {
    int differ, unclear; /* ranks */
    bool again;          /* some rank computed other bits in another round */
    bool self_differs, self_unclear;
    int others, model; /* of this rank's kind; one that is right */
    bool drifts;       /* nothing is wrong, but other kinds of devices get other weights */
};

/* What a rank sends to the others. */
struct told {
    uint64_t kind, digest[CHECK_SOAK_RECORD_PARTS];
    int64_t differs; /* between rounds: the first place; -1 */
};

/* Lets the ranks vote, with the same result on all of them, and adds it to f. What depends on the
 * device is compared among ranks of one kind. */
static void count_votes(const struct told *all, int n, int rank, enum check_soak_record_part part,
                        struct found *f)
{
    struct check_soak_vote *votes = memory_new((size_t)n, sizeof *votes);
    for (int i = 0; i < n; i++)
        votes[i] = (struct check_soak_vote){.digest = all[i].digest[part],
                                            .kind = part == CHECK_SOAK_RECORD_ALL ? all[i].kind : 0,
                                            .is_left_out = all[i].differs >= 0};
    check_soak_record_vote(votes, n);
    for (int i = 0; i < n; i++) {
        f->differ += votes[i].differs && !votes[i].is_left_out;
        f->unclear += votes[i].is_unclear;
        f->again = f->again || all[i].differs >= 0;
        f->others += i != rank && votes[i].kind == votes[rank].kind;
    }
    f->self_differs = f->self_differs || votes[rank].differs;
    f->self_unclear = f->self_unclear || votes[rank].is_unclear;
    f->model = votes[rank].model;
    free(votes);
}

/* Compares the bits of the ranks of a group after the same training; comm NULL: this rank by
 * itself. kind: of this rank's device; what depends on the device is compared among ranks of one
 * kind. is_alone: every rank trained by itself, on the same samples: a round that differs is this
 * device's fault. Else all ranks of the group took part, and a wrong weight anywhere changes the
 * gradients of all: only the replicas' own sums show which rank it was. Collective. */
static enum status compare(struct comm *comm, const struct check_soak_train *t, uint64_t kind,
                           bool is_alone, struct found *out)
{
    const int n = comm ? comm_place(comm)->ranks : 1, rank = comm ? comm_place(comm)->rank : 0;
    struct told *all = memory_new((size_t)n, sizeof *all);
    struct told own = {.kind = kind, .differs = is_alone ? t->differs : -1};
    memcpy(own.digest, t->digest, sizeof own.digest);
    if (is_alone) /* the first round: ranks have made different numbers of them */
        own.digest[0] = check_soak_record_digest(&t->first, CHECK_SOAK_RECORD_ALL);
    *out = (struct found){0};
    enum status st = measure_ranks_gather(comm, &own, sizeof own, all);
    if (st == ST_OK)
        count_votes(all, n, rank, CHECK_SOAK_RECORD_ALL, out);
    if (st == ST_OK && !is_alone) {
        struct found kinds = {0};
        count_votes(all, n, rank, CHECK_SOAK_RECORD_SUMS, out);
        count_votes(all, n, rank, CHECK_SOAK_RECORD_REPLICA, &kinds);
        out->drifts = out->differ + out->unclear == 0 && kinds.differ + kinds.unclear > 0;
    }
    free(all);
    return st;
}

/* ---- training ---- */

static enum status report(const struct soak *s, double done)
{
    return s->check->progress ? s->check->progress(s->check->arg, CHECK_STAGE_SOAK, done) : ST_OK;
}

static int flip_of(const struct soak *s, bool is_alone, int round)
{
    const enum check_soak_flip flip = s->config->flip;
    bool flips =
        is_alone ? (flip == CHECK_SOAK_FLIP_ALWAYS || (flip == CHECK_SOAK_FLIP_ALONE && round == 1))
                 : flip == CHECK_SOAK_FLIP_GROUP && round == 0;
    return flips ? STEPS - 2 : -1;
}

/* train — rounds until the time is over, at least two. */
static enum status train(struct soak *s, struct check_soak_train *t, int64_t ms, double from,
                         double to)
{
    const int64_t begin_ms = clock_ms();
    struct comm *comm = t->config.comm;
    for (double is_over = 0; t->rounds < 2 || is_over == 0;) {
        TRY(check_soak_train_round(t, flip_of(s, !comm, t->rounds)));
        if (s->gpu) {
            nvml_read(s->gpu, &s->last);
            if (s->readings++ == 0)
                s->first = s->last;
            if (!(s->hottest >= s->last.temperature))
                s->hottest = s->last.temperature;
        }
        /* The clock of the group's rank 0 decides for all of its ranks. */
        is_over = clock_ms() >= begin_ms + ms;
        if (comm)
            TRY(comm_broadcast(comm, (struct tensor){&is_over, DTYPE_F64}, 1, 0));
        double done = ms > 0 ? (double)(clock_ms() - begin_ms) / (double)ms : 1;
        TRY(report(s, from + (to - from) * fmin(1, done)));
    }
    return ST_OK;
}

/* A quick check's model is so small that a step takes no time worth a comparison. */
static enum status add_rate(struct soak *s, const struct check_soak_train *t)
{
    if (s->check->depth == CHECK_DEPTH_QUICK || t->step_time.seconds <= 0)
        return ST_OK;
    double value = (double)(t->config.batch_samples * t->config.seq_tokens) / t->step_time.seconds;
    struct check_row row = check_row_measured(
        CHECK_STAGE_SOAK, CHECK_POINT_ONE_DEVICE, s->check->place.node, "training rate", "tokens/s",
        value, CHECK_BETTER_HIGHER, measure_time_slack(&t->step_time, value, 0.1));
    text_copy(row.subject, sizeof row.subject, s->device);
    text_format(row.why, sizeof row.why, "the fastest of %d steps", t->step_time.slices);
    return add(s, row);
}

static enum status add_alone(struct soak *s, const struct check_soak_train *t,
                             const struct found *f)
{
    char what[128], why[224];
    if (t->differs >= 0) {
        check_soak_record_about(&t->now, step_own_table(t->step), t->differs, what, sizeof what);
        text_format(why, sizeof why, "%s differed when the same steps were repeated", what);
        return add_wrong(s, CHECK_POINT_ONE_DEVICE, why);
    }
    if (f->self_differs || f->self_unclear) {
        text_format(why, sizeof why,
                    f->self_differs
                        ? "the same steps give other numbers than on most of %d devices "
                          "of its kind, such as rank %d's"
                        : "the same steps give other numbers on devices of its kind, of "
                          "which there are %d more; rank %d has what as many others have",
                    f->others, f->model);
        return add_wrong(s, CHECK_POINT_ONE_DEVICE, why);
    }
    if (f->again || f->differ || f->unclear)
        return add_skipped(s, CHECK_POINT_ONE_DEVICE, "training alone", see_corruption);
    if (s->check->place.rank != 0)
        return ST_OK;
    text_format(why, sizeof why,
                "%d rounds of %d steps gave the same logits, losses, gradients and weights",
                t->rounds, STEPS);
    return add_pass(s, CHECK_POINT_ONE_DEVICE, "training alone", why);
}

static enum status train_alone(struct soak *s, int64_t ms)
{
    struct check_soak_train t;
    struct found found;
    enum status st = check_soak_train_open(&s->train, &t);
    if (st == ST_OK)
        st = train(s, &t, ms, 0, 0.5);
    if (st == ST_OK)
        st = compare(s->check->comm, &t, s->kind, true, &found);
    if (st == ST_OK)
        st = add_alone(s, &t, &found);
    if (st == ST_OK)
        st = add_rate(s, &t);
    check_soak_train_close(&t);
    return st;
}

/* ---- several ranks ---- */

/* Processors without multiply-add, or a CPU beside a GPU, round an update differently. */
static enum status add_drifting(struct soak *s, enum check_point point, const char *name)
{
    struct check_row row = check_row_found(
        CHECK_STAGE_SOAK, point, s->check->place.node, name, CHECK_VERDICT_WARN,
        "ranks have devices of several kinds, which round updates differently: with SHARD=none "
        "the replicas' weights drift apart");
    text_copy(row.remedy, sizeof row.remedy,
              "SHARD=optimizer # each weight is updated on one rank; or equal devices");
    return add(s, row);
}

static const char no_majority[] = "replicas differ, and no majority tells which one is wrong";

/* add_again — all replicas have the same wrong bits in a round: nothing tells which rank's gradient
 * was wrong. The row is about the node whose workers trained; of several nodes, about none. */
static enum status add_again(struct soak *s, const struct check_soak_train *t,
                             enum check_point point)
{
    const bool is_one_node = point == CHECK_POINT_ONE_NODE;
    char what[128];
    check_soak_record_about(&t->now, step_own_table(t->step), t->differs, what, sizeof what);
    struct check_row row = check_row_found(
        CHECK_STAGE_SOAK, point, is_one_node ? s->check->place.node : -1, "silent corruption",
        CHECK_VERDICT_FAIL,
        "all %d replicas agree, but %s differed when the same steps were repeated: a sum or some "
        "rank's gradient was wrong",
        t->ranks, what);
    row.rank = -1;
    if (!is_one_node)
        text_copy(row.remedy, sizeof row.remedy,
                  "convoy check SOAK=10m # on half of the nodes, then on the other half: halve the "
                  "nodes that fail until one is left, and take it out");
    check_row_add(s->rows, &row);
    return ST_OK;
}

static enum status add_group(struct soak *s, const struct check_soak_train *t,
                             const struct found *f, enum check_point point, const char *name)
{
    char why[224];
    if (f->self_differs && !s->is_wrong)
        return add_wrong(s, point,
                         "its weights or gradients are not those of most replicas of the model");
    s->is_named = f->differ > 0;
    if (f->self_unclear && !s->is_wrong &&
        (point == CHECK_POINT_ONE_NODE && s->check->place.nodes > 1))
        s->is_unclear = true;
    else if (f->self_unclear && !s->is_wrong)
        return add_wrong(s, point, no_majority);
    if (f->differ || f->unclear)
        return add_skipped(s, point, name, see_corruption);
    if (t->rank != 0)
        return ST_OK;
    if (t->differs >= 0)
        return add_again(s, t, point);
    if (f->drifts)
        return s->check->place.rank == 0 ? add_drifting(s, point, name) : ST_OK;
    text_format(why, sizeof why,
                "%d ranks trained %d rounds of %d steps: replicas and rounds have the same bits",
                t->ranks, t->rounds, STEPS);
    return s->check->place.rank == 0 ? add_pass(s, point, name, why) : ST_OK;
}

static enum status check_partition(struct soak *s, const struct check_soak_train *t)
{
    int lost, step_i;
    TRY(check_soak_train_samples(t, &step_i, &lost));
    if (s->check->place.rank != 0)
        return ST_OK;
    if (lost < 0)
        return add(s, check_row_found(CHECK_STAGE_SOAK, CHECK_POINT_PARTITIONING,
                                      s->check->place.node, "data partitioning", CHECK_VERDICT_PASS,
                                      "each of the %lld samples of a step was trained on by one "
                                      "rank, once; order differs from step to step",
                                      (long long)(t->config.batch_samples * t->ranks)));
    struct check_row row =
        check_row_found(CHECK_STAGE_SOAK, CHECK_POINT_PARTITIONING, s->check->place.node,
                        "data partitioning", CHECK_VERDICT_FAIL,
                        "sample %d of step %d was not trained on once; rank %lld should have it",
                        lost, step_i + 1, (long long)(lost / s->train.batch_samples));
    text_copy(row.remedy, sizeof row.remedy, "convoy version # on all nodes; then report a bug");
    return add(s, row);
}

static enum status check_distribution(struct soak *s)
{
    struct comm *comm = s->check->comm;
    bool is_whole, is_sharded;
    struct check_soak_train_config config = s->train;
    config.comm = comm;
    TRY(check_soak_train_distribution(&config, &is_whole));
    config.shard = LAYOUT_SHARD_FULL;
    TRY(check_soak_train_distribution(&config, &is_sharded));
    double wrong[2] = {!is_whole, !is_sharded};
    TRY(comm_all_reduce(comm, (struct tensor){wrong, DTYPE_F64}, (struct tensor){wrong, DTYPE_F64},
                        2));
    if (!is_whole || !is_sharded)
        return add_wrong(s, CHECK_POINT_DISTRIBUTION,
                         is_whole ? "weights read back from all shards are not those that were sent"
                                  : "it did not get the weights that rank 0 sent");
    if (wrong[0] + wrong[1] > 0 || s->check->place.rank != 0)
        return ST_OK;
    return add_pass(s, CHECK_POINT_DISTRIBUTION, "model distribution",
                    "rank 0's weights reached all ranks bit for bit, whole and in shards");
}

static enum status train_group(struct soak *s, struct comm *comm, int64_t ms, double from,
                               enum check_point point, const char *name, bool is_all)
{
    struct check_soak_train_config config = s->train;
    struct check_soak_train t;
    struct found found;
    config.comm = comm;
    config.takes_first = s->config->flip == CHECK_SOAK_FLIP_SAMPLES;
    enum status st = check_soak_train_open(&config, &t);
    if (st == ST_OK)
        st = train(s, &t, ms, from, from + 0.2);
    if (st == ST_OK)
        st = compare(comm, &t, s->kind, false, &found);
    if (st == ST_OK)
        st = add_group(s, &t, &found, point, name);
    if (st == ST_OK && is_all)
        st = check_partition(s, &t);
    check_soak_train_close(&t);
    return st;
}

static enum status train_node(struct soak *s, int64_t ms)
{
    const struct comm_place *place = &s->check->place;
    struct comm *node = NULL;
    int ranks[COMM_RANKS_MAX];
    if (place->locals == 1)
        return add_skipped(s, CHECK_POINT_ONE_NODE, "training in a node",
                           "each node has one worker");
    if (place->nodes == 1)
        return train_group(s, s->check->comm, ms, 0.5, CHECK_POINT_ONE_NODE, "training in a node",
                           true);
    for (int i = 0; i < place->locals; i++)
        ranks[i] = place->node * place->locals + i;
    TRY(comm_split(s->check->comm, ranks, place->locals, &node));
    enum status st =
        train_group(s, node, ms, 0.5, CHECK_POINT_ONE_NODE, "training in a node", false);
    comm_close(node);
    return st;
}

static enum status train_nodes(struct soak *s, int64_t ms)
{
    if (s->check->place.nodes == 1)
        return add_skipped(s, CHECK_POINT_MANY_NODES, "training over nodes", "there is one node");
    TRY(train_group(s, s->check->comm, ms, 0.7, CHECK_POINT_MANY_NODES, "training over nodes",
                    true));
    if (s->is_unclear && !s->is_named && !s->is_wrong)
        return add_wrong(s, CHECK_POINT_ONE_NODE, no_majority);
    return ST_OK;
}

static enum status train_together(struct soak *s, int64_t ms)
{
    const struct comm_place *place = &s->check->place;
    if (place->ranks > 1) {
        TRY(train_node(s, place->nodes > 1 ? ms / 2 : ms));
        TRY(train_nodes(s, place->locals > 1 ? ms / 2 : ms));
        return check_distribution(s);
    }
    TRY(add_skipped(s, CHECK_POINT_ONE_NODE, "training in a node", "there is one rank"));
    TRY(add_skipped(s, CHECK_POINT_MANY_NODES, "training over nodes", "there is one rank"));
    TRY(add_skipped(s, CHECK_POINT_PARTITIONING, "data partitioning", "there is one rank"));
    return add_skipped(s, CHECK_POINT_DISTRIBUTION, "model distribution", "there is one rank");
}

/* ---- the stage ---- */

/* Two sizes of a GPT-2 of which weights and gradients are soon compared; on a GPU that is soaked
 * for long, GPT-2 itself. */
static void choose_model(struct soak *s, int64_t ms)
{
    const bool is_quick = s->check->depth == CHECK_DEPTH_QUICK;
    const struct model_dims small = {
        .name = "soak", .layers = 2, .heads = 2, .embed = 32, .context = 32, .vocab = 128};
    const struct model_dims medium = {
        .name = "soak", .layers = 4, .heads = 4, .embed = 128, .context = 128, .vocab = 2048};
    s->train = (struct check_soak_train_config){.dev = s->check->dev,
                                                .dims = is_quick && ms == 0 ? small : medium,
                                                .dtype = s->config->dtype,
                                                .shard = LAYOUT_SHARD_NONE,
                                                .batch_samples = 1,
                                                .steps = STEPS};
    if (s->info.kind == DEV_KIND_CUDA && ms >= HEAT_MS && s->info.free_bytes >= HEAT_BYTES &&
        model_preset("gpt2", &s->train.dims)) {
        s->train.dims.context = 512;
        s->train.batch_samples = 4;
    }
    s->train.seq_tokens = s->train.dims.context;
}

/* "cpu 2 threads avx512", "cuda 0 NVIDIA A10 …": numbers do not change what a device computes. */
static void describe(struct soak *s)
{
    dev_info(s->check->dev, &s->info);
    const bool is_gpu = s->info.kind == DEV_KIND_CUDA;
    const char *kind = s->info.name;
    for (int words = is_gpu ? 2 : 3; words > 0 && strchr(kind, ' '); words--)
        kind = strchr(kind, ' ') + 1;
    s->kind = XXH3_64bits(kind, strlen(kind));
    /* Another cuBLASLt or driver may add in another order: GPUs with those are of another kind. */
    const struct check_fact *fact = s->check->facts;
    for (int i = 0; i < s->check->facts_n && s->info.kind == DEV_KIND_CUDA; i++, fact++)
        if (strcmp(fact->group, "libraries") == 0)
            s->kind = XXH3_64bits_withSeed(fact->value, strlen(fact->value), s->kind);
    if (is_gpu)
        text_format(s->device, sizeof s->device, "GPU %d", s->check->place.local);
    else
        text_format(s->device, sizeof s->device, "the CPU");
    s->hottest = NAN;
    if (s->info.bus[0] && nvml_open(s->info.bus, &s->gpu) != ST_OK)
        status_clear();
}

enum status check_soak_run(const struct check_soak_config *config, int64_t ms,
                           struct check_rows *rows)
{
    struct soak s = {.config = config, .check = config->check, .rows = rows};
    TRY(dev_make_current(s.check->dev));
    describe(&s);
    choose_model(&s, ms);
    enum status st = train_alone(&s, s.check->place.ranks == 1 ? ms : ms / 2);
    if (st == ST_OK)
        st = train_together(&s, ms / 2);
    if (st == ST_OK && s.check->place.rank == 0)
        st = check_soak_restart(s.check, &s.train.dims, rows);
    if (st == ST_OK)
        st = add_gpu_rows(&s);
    if (st == ST_OK)
        st = report(&s, 1);
    nvml_close(s.gpu);
    return st;
}
