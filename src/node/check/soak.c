/* check_soak — see check/soak.h. */
#include "node/check/soak.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "dev/cuda/cuda.h"
#include "dev/gpu_sensors.h"
#include "measure/measure_ranks.h"
#include "node/check/soak_train.h"
#include "train/feature/sentinel.h"

#define STEPS 3 /* steps of a round */
/* Milliseconds. In a soak of this time or longer each round has more steps, and a GPU gets a model
 * that heats it. */
#define LONG_MS 60000
#define LONG_STEPS 10
#define HEAT_BYTES ((int64_t)8 << 30)
#define DRIFT_SHARE 0.05

struct soak {
    const struct check_soak_config *config;
    const struct check_config *check;
    struct check_rows *rows;
    struct check_soak_train_config train;
    struct dev_info info;
    uint64_t kind;   /* kind of this rank's device: devices of one kind compute equal bits */
    char device[48]; /* "GPU 3", "the CPU" */
    bool is_wrong;   /* this rank was reported already */
    bool is_unclear; /* replicas of its node differ, and no majority shows which one is wrong */
    bool is_named;   /* training with all ranks showed which one is wrong */
    bool is_amd;
    bool has_sensors; /* the GPU's sensors can be read */
    struct gpu_sensors gpu;
    struct gpu_reading first, last;
    double hottest;
    int readings;
};

/* ---- rows ---- */

/* found_row — returns a row of this rank's node. */
#define found_row(s, point, verdict, name, ...) \
    check_row_found(CHECK_STAGE_SOAK, point, (s)->check->place.node, name, verdict, __VA_ARGS__)

/* add_row — adds a row of this rank; subject and remedy may be "". */
static void add_row(struct soak *s, struct check_row row, const char *subject, const char *remedy)
{
    row.rank = s->check->place.rank;
    text_copy(row.subject, sizeof row.subject, subject);
    text_copy(row.remedy, sizeof row.remedy, remedy);
    check_row_add(s->rows, &row);
}

/* add_once — adds a row for all ranks. */
static void add_once(struct soak *s, enum check_point point, enum check_verdict verdict,
                     const char *name, const char *why)
{
    if (s->check->place.rank == 0)
        add_row(s, found_row(s, point, verdict, name, "%s", why), "", "");
}

static const char see_corruption[] = "a rank computes wrong numbers: see silent corruption";

static void add_wrong(struct soak *s, enum check_point point, const char *why)
{
    char remedy[192] = "grep . /sys/devices/system/edac/mc/mc*/*e_count; memtester 1G 3 # take the "
                       "node out";
    if (s->info.bus[0])
        text_format(remedy, sizeof remedy,
                    s->is_amd ? "amd-smi metric -g %s --ecc # drain the node"
                              : "nvidia-smi -i %s -q -d ECC,ROW_REMAPPER; dcgmi diag -r 3 # take "
                                "the node out",
                    s->info.bus);
    s->is_wrong = true;
    add_row(s,
            found_row(s, point, CHECK_VERDICT_FAIL, "silent corruption", "rank %d, %s: %s",
                      s->check->place.rank, s->device, why),
            s->device, remedy);
}

/* ---- the state of the GPU ---- */

static void add_gpu_rows(struct soak *s)
{
    char remedy[192];
    if (!isnan(s->hottest)) {
        text_format(remedy, sizeof remedy,
                    s->is_amd ? "amd-smi metric -g %s --temperature --power --clock"
                              : "nvidia-smi -i %s -q -d TEMPERATURE,POWER,CLOCK",
                    s->info.bus);
        add_row(s,
                check_row_measured(CHECK_STAGE_SOAK, CHECK_POINT_ONE_DEVICE, s->check->place.node,
                                   "gpu temperature", "°C", s->hottest, CHECK_BETTER_LOWER, 10),
                s->device, remedy);
    }
    /* The clock falls when a GPU gets too hot or receives too little power. */
    const double drift = s->readings < 3 ? NAN : 1 - s->last.clock / s->first.clock;
    if (isnan(drift))
        return;
    struct check_row row = found_row(
        s, CHECK_POINT_ONE_DEVICE, drift > DRIFT_SHARE ? CHECK_VERDICT_WARN : CHECK_VERDICT_PASS,
        "gpu clock drift",
        "the clock went from %.0f to %.0f MHz, power from %.0f to %.0f W, temperature from %.0f to "
        "%.0f °C",
        s->first.clock * 1e-6, s->last.clock * 1e-6, s->first.power, s->last.power,
        s->first.temperature, s->last.temperature);
    row.value = 100 * drift;
    text_copy(row.unit, sizeof row.unit, "%");
    text_format(remedy, sizeof remedy,
                s->is_amd
                    ? "amd-smi metric -g %s --temperature --power --clock # check fans and cables"
                    : "nvidia-smi -i %s -q -d PERFORMANCE,POWER,TEMPERATURE # check fans and "
                      "cables",
                s->info.bus);
    add_row(s, row, s->device, drift > DRIFT_SHARE ? remedy : "");
}

/* ---- which ranks differ ---- */

/* Results of a comparison of the ranks of a group. */
struct found {
    int differ, unclear; /* numbers of ranks */
    bool again;          /* a rank computed other bits in another round */
    bool self_differs, self_unclear;
    /* number of other ranks with this rank's kind of device; a rank that is right */
    int others, model;
    bool drifts; /* no rank is wrong, but other kinds of devices get other weights */
};

/* Data that a rank sends to the others. */
struct told {
    uint64_t kind, digest[CHECK_SOAK_SCOPES];
    int64_t is_other; /* this rank differed in another round */
};

/* count_votes — lets the ranks vote, with the same result on all of them, and adds it to f. Values
 * that depend on the device are compared among ranks with one kind of device. */
static void count_votes(const struct told *all, int n, int rank, enum check_soak_scope scope,
                        struct found *f)
{
    struct sentinel_ballot *ballots = memory_new((size_t)n, sizeof *ballots);
    for (int i = 0; i < n; i++)
        ballots[i] = (struct sentinel_ballot){.sum = all[i].digest[scope],
                                              .kind = scope == CHECK_SOAK_ALL ? all[i].kind : 0,
                                              .is_left_out = all[i].is_other};
    sentinel_count(ballots, n);
    const struct sentinel_ballot *own = &ballots[rank];
    for (int i = 0; i < n; i++) {
        f->differ += ballots[i].differs && !ballots[i].is_left_out;
        f->unclear += ballots[i].is_unclear;
        f->again = f->again || all[i].is_other;
        f->others += i != rank && ballots[i].kind == own->kind;
    }
    f->self_differs = f->self_differs || own->differs;
    f->self_unclear = f->self_unclear || own->is_unclear;
    f->model = own->most;
    free(ballots);
}

/* compare_digests — compares the bits of the ranks of a group after the same training. If every
 * rank trained by itself on the same samples, its device is at fault for a round that differs.
 * Otherwise all ranks of the group trained together, and a wrong weight anywhere changes the
 * gradients of all ranks: only the replicas' own sums show which rank it was. Collective over the
 * ranks of comm; NULL: only this rank. */
static enum status compare_digests(struct comm *comm, const struct check_soak_train *t,
                                   uint64_t kind, struct found *out)
{
    const bool is_alone = !t->config.comm;
    const int n = comm ? comm_place(comm)->ranks : 1, rank = comm ? comm_place(comm)->rank : 0;
    struct told *all = memory_new((size_t)n, sizeof *all);
    struct told own = {.kind = kind, .is_other = is_alone && t->differed[0]};
    memcpy(own.digest, t->digest, sizeof own.digest);
    if (is_alone) /* ranks have made different numbers of rounds */
        own.digest[CHECK_SOAK_ALL] = t->first_digest;
    *out = (struct found){0};
    enum status st = measure_ranks_gather(comm, &own, sizeof own, all);
    if (st == ST_OK)
        count_votes(all, n, rank, CHECK_SOAK_ALL, out);
    if (st == ST_OK && !is_alone) {
        struct found kinds = {0};
        count_votes(all, n, rank, CHECK_SOAK_SUMS, out);
        count_votes(all, n, rank, CHECK_SOAK_REPLICA, &kinds);
        out->drifts = out->differ + out->unclear == 0 && kinds.differ + kinds.unclear > 0;
    }
    free(all);
    return st;
}

/* ---- training ---- */

static enum status report_progress(const struct soak *s, double done)
{
    return s->check->progress ? s->check->progress(s->check->arg, CHECK_STAGE_SOAK, done) : ST_OK;
}

/* flip_of — returns the flip in a round; rounds are counted from 0. */
static enum check_soak_flip flip_of(const struct soak *s, bool is_alone, int round)
{
    const enum check_soak_flip flip = s->config->flip;
    const bool is_wanted =
        is_alone
            ? flip == CHECK_SOAK_FLIP_ALWAYS || (flip == CHECK_SOAK_FLIP_ALONE && round == 1)
            : (flip == CHECK_SOAK_FLIP_GROUP || flip == CHECK_SOAK_FLIP_GRADIENT) && round == 0;
    return is_wanted ? flip : CHECK_SOAK_FLIP_NONE;
}

static void read_gpu(struct soak *s)
{
    if (!s->has_sensors)
        return;
    gpu_sensors_read(&s->gpu, &s->last);
    if (s->readings++ == 0)
        s->first = s->last;
    if (!(s->hottest >= s->last.temperature))
        s->hottest = s->last.temperature;
}

/* train_rounds — trains rounds with the ranks of comm (NULL: only this one) until the time is over,
 * but at least two rounds. from, share: begin and length within the progress of the stage. */
static enum status train_rounds(struct soak *s, struct comm *comm, int64_t ms, double from,
                                double share, struct check_soak_train *t)
{
    const int64_t begin_ms = clock_ms();
    *t = (struct check_soak_train){.config = s->train};
    t->config.comm = comm;
    for (double is_over = 0; t->rounds < 2 || is_over == 0;) {
        TRY(check_soak_train_round(t, flip_of(s, !comm, t->rounds)));
        read_gpu(s);
        /* The clock of the group's rank 0 decides for all its ranks. */
        is_over = clock_ms() >= begin_ms + ms;
        if (comm)
            TRY(comm_broadcast(comm, (struct tensor){&is_over, DTYPE_F64}, 1, 0));
        const double done = ms > 0 ? (double)(clock_ms() - begin_ms) / (double)ms : 1;
        TRY(report_progress(s, from + share * fmin(1, done)));
    }
    return ST_OK;
}

/* ---- one rank ---- */

static const char row_of_one_rank[] = "training alone";

static void add_alone(struct soak *s, const struct check_soak_train *t, const struct found *f)
{
    char why[224];
    if (t->differed[0]) {
        text_format(why, sizeof why, "%s differed when the same steps were repeated", t->differed);
        add_wrong(s, CHECK_POINT_ONE_DEVICE, why);
    } else if (f->self_differs || f->self_unclear) {
        text_format(why, sizeof why,
                    f->self_differs
                        ? "the same steps have other results than on most of %d devices of its "
                          "kind, such as rank %d's"
                        : "results of the same steps differ between this and %d other devices of "
                          "its kind, such as rank %d's, and no majority shows which one is wrong",
                    f->others, f->model);
        add_wrong(s, CHECK_POINT_ONE_DEVICE, why);
    } else if (f->again || f->differ || f->unclear) {
        add_once(s, CHECK_POINT_ONE_DEVICE, CHECK_VERDICT_SKIPPED, row_of_one_rank, see_corruption);
    } else {
        text_format(why, sizeof why,
                    "%d rounds of %d steps gave the same logits, losses, gradients and weights",
                    t->rounds, t->config.steps);
        add_once(s, CHECK_POINT_ONE_DEVICE, CHECK_VERDICT_PASS, row_of_one_rank, why);
    }
}

/* add_rate — adds the training rate. Not in a quick check: its model is so small that the times of
 * its steps cannot be compared. */
static void add_rate(struct soak *s, const struct check_soak_train *t)
{
    if (s->check->depth == CHECK_DEPTH_QUICK || t->step_time.seconds <= 0)
        return;
    const double value =
        (double)(t->config.batch_samples * t->config.dims.context) / t->step_time.seconds;
    struct check_row row = check_row_measured(
        CHECK_STAGE_SOAK, CHECK_POINT_ONE_DEVICE, s->check->place.node, "training rate", "tokens/s",
        value, CHECK_BETTER_HIGHER, measure_time_slack(&t->step_time, value, 0.1));
    text_format(row.why, sizeof row.why, "the fastest of %d steps", t->step_time.slices);
    add_row(s, row, s->device, "");
}

static enum status train_alone(struct soak *s, int64_t ms)
{
    struct check_soak_train t;
    struct found found;
    enum status st = train_rounds(s, NULL, ms, 0, 0.5, &t);
    if (st == ST_OK)
        st = compare_digests(s->check->comm, &t, s->kind, &found);
    if (st == ST_OK) {
        add_alone(s, &t, &found);
        add_rate(s, &t);
    }
    check_soak_train_free(&t);
    return st;
}

/* ---- several ranks ---- */

static const char no_majority[] = "replicas differ, and no majority shows which one is wrong";

/* add_again — adds the row for a round in which all replicas have the same wrong bits: the rank
 * whose gradient was wrong is unknown. The row is about the node whose workers trained, or about no
 * node if several nodes trained. */
static void add_again(struct soak *s, const struct check_soak_train *t, enum check_point point)
{
    struct check_row row = found_row(
        s, point, CHECK_VERDICT_FAIL, "silent corruption",
        "all %d replicas agree, but %s differed when the same steps were repeated: a sum or some "
        "rank's gradient was wrong",
        t->ranks, t->differed);
    if (point != CHECK_POINT_ONE_NODE) {
        row.node = -1;
        text_copy(row.remedy, sizeof row.remedy,
                  "convoy check SOAK=10m # on half of the nodes, then on the other half: halve the "
                  "nodes that fail until one is left, and take it out");
    }
    check_row_add(s->rows, &row);
}

static void add_group(struct soak *s, const struct check_soak_train *t, const struct found *f,
                      enum check_point point, const char *name)
{
    const bool is_subset = point == CHECK_POINT_ONE_NODE && s->check->place.nodes > 1;
    char why[224];
    if (f->self_differs && !s->is_wrong) {
        add_wrong(s, point, "most replicas of the model have other weights or gradients");
        return;
    }
    s->is_named = f->differ > 0;
    if (f->self_unclear && !s->is_wrong && !is_subset) {
        add_wrong(s, point, no_majority);
        return;
    }
    s->is_unclear = s->is_unclear || (f->self_unclear && !s->is_wrong);
    text_format(why, sizeof why,
                "%d ranks trained %d rounds of %d steps: replicas and rounds have the same bits",
                t->ranks, t->rounds, t->config.steps);
    if (f->differ || f->unclear)
        add_once(s, point, CHECK_VERDICT_SKIPPED, name, see_corruption);
    else if (t->differed[0] && comm_place(t->config.comm)->rank == 0)
        add_again(s, t, point);
    else if (f->drifts && s->check->place.rank == 0)
        /* Processors without multiply-add, or a CPU among GPUs, round an update differently. */
        add_row(
            s,
            found_row(s, point, CHECK_VERDICT_WARN, name,
                      "ranks have devices of several kinds, which round updates differently: with "
                      "SHARD=none the replicas' weights drift apart"),
            "", "SHARD=optimizer # each weight is updated on one rank; or equal devices");
    else if (!t->differed[0] && !f->drifts)
        add_once(s, point, CHECK_VERDICT_PASS, name, why);
}

static enum status check_partition(struct soak *s, const struct check_soak_train *t)
{
    static const char name[] = "data partitioning";
    int lost, step_i;
    char why[160];
    TRY(check_soak_train_samples(t, &step_i, &lost));
    text_format(why, sizeof why,
                "each of the %lld samples of a step was used once, on one rank; the order differs "
                "from step to step",
                (long long)(t->config.batch_samples * t->ranks));
    if (lost < 0)
        add_once(s, CHECK_POINT_PARTITIONING, CHECK_VERDICT_PASS, name, why);
    else if (s->check->place.rank == 0)
        add_row(s,
                found_row(s, CHECK_POINT_PARTITIONING, CHECK_VERDICT_FAIL, name,
                          "sample %d of step %d was not used exactly once; it belongs to rank %lld",
                          lost, step_i + 1, (long long)(lost / s->train.batch_samples)),
                "", "convoy version # on all nodes; then report a bug");
    return ST_OK;
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
    double is_wrong = !is_whole || !is_sharded;
    if (is_wrong > 0)
        add_wrong(
            s, CHECK_POINT_DISTRIBUTION,
            is_whole
                ? "the weights read back from all shards differ from the weights that were sent"
                : "it did not get the weights that rank 0 sent");
    TRY(measure_ranks_max(comm, &is_wrong, 1));
    if (is_wrong == 0)
        add_once(s, CHECK_POINT_DISTRIBUTION, CHECK_VERDICT_PASS, "model distribution",
                 "rank 0's weights reached all ranks bit for bit, whole and in shards");
    return ST_OK;
}

static enum status train_group(struct soak *s, struct comm *comm, int64_t ms, double from,
                               enum check_point point, const char *name)
{
    struct check_soak_train t;
    struct found found;
    enum status st = train_rounds(s, comm, ms, from, 0.2, &t);
    if (st == ST_OK)
        st = compare_digests(comm, &t, s->kind, &found);
    if (st == ST_OK)
        add_group(s, &t, &found, point, name);
    if (st == ST_OK && comm == s->check->comm)
        st = check_partition(s, &t);
    check_soak_train_free(&t);
    return st;
}

static enum status train_node(struct soak *s, int64_t ms, const char *name)
{
    const struct comm_place *place = &s->check->place;
    struct comm *node = NULL;
    int ranks[COMM_RANKS_MAX];
    if (place->nodes == 1)
        return train_group(s, s->check->comm, ms, 0.5, CHECK_POINT_ONE_NODE, name);
    for (int i = 0; i < place->locals; i++)
        ranks[i] = place->node * place->locals + i;
    TRY(comm_split(s->check->comm, ranks, place->locals, &node));
    enum status st = train_group(s, node, ms, 0.5, CHECK_POINT_ONE_NODE, name);
    comm_close(node);
    return st;
}

static enum status train_together(struct soak *s, int64_t ms)
{
    static const char in_node[] = "training in a node", over_nodes[] = "training over nodes",
                      one_rank[] = "there is one rank";
    const struct comm_place *place = &s->check->place;
    if (place->locals > 1)
        TRY(train_node(s, place->nodes > 1 ? ms / 2 : ms, in_node));
    else
        add_once(s, CHECK_POINT_ONE_NODE, CHECK_VERDICT_SKIPPED, in_node,
                 place->nodes > 1 ? "each node has one worker" : one_rank);
    if (place->nodes > 1)
        TRY(train_group(s, s->check->comm, place->locals > 1 ? ms / 2 : ms, 0.7,
                        CHECK_POINT_MANY_NODES, over_nodes));
    else
        add_once(s, CHECK_POINT_MANY_NODES, CHECK_VERDICT_SKIPPED, over_nodes,
                 place->locals > 1 ? "there is one node" : one_rank);
    if (s->is_unclear && !s->is_named && !s->is_wrong)
        add_wrong(s, CHECK_POINT_ONE_NODE, no_majority);
    if (place->ranks > 1)
        return check_distribution(s);
    add_once(s, CHECK_POINT_PARTITIONING, CHECK_VERDICT_SKIPPED, "data partitioning", one_rank);
    add_once(s, CHECK_POINT_DISTRIBUTION, CHECK_VERDICT_SKIPPED, "model distribution", one_rank);
    return ST_OK;
}

/* ---- the stage ---- */

/* choose_model — chooses one of two sizes of GPT-2 whose weights and gradients are compared
 * quickly; on a GPU in a long soak, GPT-2 itself. */
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
                                                .steps = ms < LONG_MS ? STEPS : LONG_STEPS};
    if (s->info.kind == DEV_KIND_GPU && ms >= LONG_MS && s->info.free_bytes >= HEAT_BYTES &&
        model_preset("gpt2", &s->train.dims)) {
        s->train.dims.context = 512;
        s->train.batch_samples = 4;
    }
}

/* describe_device — sets the kind and name of the device: "cpu 2 threads avx512", "cuda 0 NVIDIA
 * A10 …". Numbers do not change the results of a device. */
static void describe_device(struct soak *s)
{
    dev_info(s->check->dev, &s->info);
    const bool is_gpu = s->info.kind == DEV_KIND_GPU;
    const char *kind = s->info.name;
    for (int words = is_gpu ? 2 : 3; words > 0 && strchr(kind, ' '); words--)
        kind = strchr(kind, ' ') + 1;
    s->kind = XXH3_64bits(kind, strlen(kind));
    /* Another cuBLASLt or driver may add in another order, so such GPUs are of another kind. */
    const struct check_fact *fact = s->check->facts;
    for (int i = 0; i < s->check->facts_n && s->info.kind == DEV_KIND_GPU; i++, fact++)
        if (strcmp(fact->group, "libraries") == 0)
            s->kind = XXH3_64bits_withSeed(fact->value, strlen(fact->value), s->kind);
    text_format(s->device, sizeof s->device, is_gpu ? "GPU %d" : "the CPU", s->check->place.local);
    s->hottest = NAN;
    s->is_amd = dev_cuda_chosen() == DEV_GPU_HIP;
    s->has_sensors =
        s->info.bus[0] &&
        gpu_sensors_open(s->info.bus, s->is_amd ? s->check->root : NULL, &s->gpu) == ST_OK;
    status_clear();
}

enum status check_soak_run(const struct check_soak_config *config, int64_t ms,
                           struct check_rows *rows)
{
    struct soak s = {.config = config, .check = config->check, .rows = rows};
    TRY(dev_make_current(s.check->dev));
    describe_device(&s);
    choose_model(&s, ms);
    enum status st = train_alone(&s, s.check->place.ranks == 1 ? ms : ms / 2);
    if (st == ST_OK)
        st = train_together(&s, ms / 2);
    if (st == ST_OK && s.check->place.rank == 0)
        st = check_soak_restart(s.check, &s.train.dims, rows);
    add_gpu_rows(&s);
    if (st == ST_OK)
        st = report_progress(&s, 1);
    gpu_sensors_close(&s.gpu);
    return st;
}
