/* trial — a small model that some ranks train for some steps, and its losses, norms and state. */
#ifndef CONVOY_TESTS_TRIAL_H
#define CONVOY_TESTS_TRIAL_H

#include "mesh/ranks.h"

#include "base/rand.h"
#include "train/step/step.h"
#include "train/step/memory.h"
#include "train/feature/step_balance.h"
#include "train/step/lr_schedule.h"

#define TRIAL_STEPS_MAX 512
#define TRIAL_ARRAYS 3

struct trial {
    struct step_config config; /* dev and comm are the rank's */
    int first_step, steps;
    double lr;
    float *load[TRIAL_ARRAYS]; /* rank 0: the state to start from; NULL: initial values */
    bool reads_state;          /* rank 0 reads the state at the end */
    bool learnable;            /* the next token follows from this one */
    bool first_only; /* only sample 0 has targets: gradients are those of one rank to the bit */
    int nan_step, nan_rank;     /* -1: never */
    int leave_step, leave_rank; /* a rank that ends before this step; -1: never */
    int flip_step, flip_rank;   /* a rank that flips a bit before this step; -1: never */
    /* called after each step on each rank; NULL: not called */
    void (*stepped)(const struct ranks_one *one, int step);
    /* called on each rank after the last step, also if it failed; NULL: not called */
    void (*ended)(const struct ranks_one *one);
    /* outcome */
    double loss[TRIAL_STEPS_MAX], norm[TRIAL_STEPS_MAX], eval;
    float *state[TRIAL_ARRAYS]; /* elems each: all parameters, one behind the other */
    int64_t elems;
    /* called after each step, for config.balances: milliseconds of a unit on this rank; NULL: as
     * measured */
    double (*compute_ms)(const struct ranks_one *one, int step);
    int deal[RANKS_MAX]; /* units of each data rank at the end */
    struct step_memory memory;
    struct step_result last;
    struct store_flip flipped;
    enum status step_st;
    int done;
};

static inline struct trial trial_of(enum model_task task, int64_t global_samples, int64_t t)
{
    return (struct trial){.lr = 1e-2,
                          .nan_step = -1,
                          .leave_step = -1,
                          .flip_step = -1,
                          .reads_state = true,
                          .config = {.batch_samples = 1,
                                     .global_samples = global_samples,
                                     .seq_tokens = t,
                                     .seed = 3,
                                     .store.bucket_elems_min = 1,
                                     .dims = {.name = "tiny",
                                              .task = task,
                                              .layers = 3,
                                              .heads = 2,
                                              .embed = 24,
                                              .context = t + 3,
                                              .vocab = 211},
                                     .optim = {.kind = OPTIM_KIND_ADAMW,
                                               .beta1 = 0.9,
                                               .beta2 = 0.95,
                                               .eps = 1e-8,
                                               .weight_decay = 0.1,
                                               .grad_clip = 1}}};
}

/* trial_tiny — as trial_of, of a language model so small that the emulation runs it in seconds. */
static inline struct trial trial_tiny(int64_t samples, int64_t t)
{
    struct trial like = trial_of(MODEL_TASK_LM, samples, t);
    like.config.dropout = 0.1f;
    like.config.dims.layers = 2;
    like.config.dims.heads = 1;
    like.config.dims.embed = 8;
    like.config.dims.vocab = 11;
    return like;
}

/* Writes a sample of a step to row `row` of the batch; a function of these numbers. */
static inline void trial_sample(const struct trial *t, int step, int64_t sample, int64_t row,
                                struct batch *b)
{
    int64_t seq = t->config.seq_tokens;
    uint64_t vocab = (uint64_t)t->config.dims.vocab,
             at = (uint64_t)((step * t->config.global_samples + sample) * seq);
    for (int64_t i = 0; i < seq; i++) {
        int32_t *token = &b->host.tokens[row * seq + i];
        *token = (int32_t)rand_below(5, RAND_STREAM(TEST, 0), at + (uint64_t)i, vocab);
        if (b->host.targets)
            b->host.targets[row * seq + i] =
                t->learnable ? (int32_t)((uint64_t)(*token * 31 + 7) % vocab)
                : rand_below(5, RAND_STREAM(TEST, 1), at + (uint64_t)i, 5)
                    ? (int32_t)rand_below(5, RAND_STREAM(TEST, 2), at + (uint64_t)i, vocab)
                    : -1;
        if (b->host.targets && t->first_only && sample > 0)
            b->host.targets[row * seq + i] = -1;
        if (b->host.first_key)
            b->host.first_key[row * seq + i] =
                i == 0 || rand_below(5, RAND_STREAM(TEST, 6), at + (uint64_t)i, 5) == 0
                    ? (int32_t)i
                    : b->host.first_key[row * seq + i - 1];
        if (b->host.mask)
            b->host.mask[row * seq + i] =
                rand_below(5, RAND_STREAM(TEST, 3), at + (uint64_t)i, 3) != 0;
    }
    for (int i = 0; i < 2 && b->host.starts; i++)
        (i ? b->host.ends : b->host.starts)[row] =
            (int32_t)rand_below(5, RAND_STREAM(TEST, 4 + i), at, (uint64_t)seq + 1);
}

/* A parameter's state, in ranges that fit no bucket. at: in the arrays of the test. */
static inline enum status trial_param(struct trial *t, struct step *step, int array,
                                      const struct param *param, int64_t at, bool is_put)
{
    enum status st = ST_OK;
    for (int64_t first = 0; st == ST_OK && first < param->elems; first += 1000) {
        int64_t n = param->elems - first < 1000 ? param->elems - first : 1000;
        if (is_put && t->load[array])
            st = state_write(step_state(step), array, param->offset + first, n,
                             t->load[array] + at + first);
        else if (!is_put)
            st = state_read(step_state(step), array, param->offset + first, n,
                            t->state[array] + at + first);
    }
    return st;
}

static inline enum status trial_state(struct trial *t, struct step *step, bool is_put)
{
    enum status st = ST_OK;
    const struct param_table *table = step_whole_table(step);
    int64_t at = 0;
    for (int i = 0; st == ST_OK && i < table->params_n; at += table->param[i++].elems)
        for (int array = 0; st == ST_OK && array < step_arrays(step); array++)
            st = trial_param(t, step, array, &table->param[i], at, is_put);
    return state_end(step_state(step), st) != ST_OK && st == ST_OK ? ST_PEER : st;
}

static inline enum status trial_load(struct ranks_one *one, struct trial *t, struct step *step)
{
    if (!t->load[0])
        return ST_OK;
    return one->rank == 0 ? trial_state(t, step, true) : state_serve(step_state(step));
}

/* trial_load_frozen — writes the frozen weights of an adapter's model: drawn ones, the same on
 * every mesh. */
static inline enum status trial_load_frozen(const struct ranks_one *one, struct step *step)
{
    const struct param_table *table = step_frozen_table(step);
    const struct state *state = step_frozen_state(step);
    enum status st = ST_OK;
    if (table->params_n == 0)
        return ST_OK;
    if (one->rank != 0)
        return state_serve(state);
    for (int i = 0; st == ST_OK && i < table->params_n; i++) {
        const struct param *p = &table->param[i];
        float *values = malloc((size_t)p->elems * sizeof *values);
        param_fill(table, i, 9, 0, p->elems, values);
        st = state_write(state, 0, p->offset, p->elems, values);
        free(values);
    }
    return state_end(state, st);
}

static inline enum status trial_read(struct ranks_one *one, struct trial *t, struct step *step)
{
    if (!t->reads_state)
        return ST_OK;
    if (one->rank != 0)
        return state_serve(step_state(step));
    for (int array = 0; array < step_arrays(step); array++)
        t->state[array] = calloc((size_t)t->elems, sizeof(float));
    return trial_state(t, step, false);
}

/* trial_samples — of a step of `all` samples, on each rank along the data axis; *first_out: this
 * rank's first. */
static inline int64_t trial_samples(const struct trial *t, const struct ranks_one *one, int64_t all,
                                    int64_t *first_out)
{
    struct mesh mesh;
    if (step_mesh(&t->config, one->ranks, &mesh) != ST_OK)
        return 0;
    int64_t n;
    int data = mesh_coord_of(&mesh, one->rank).at[MESH_AXIS_DATA];
    struct step_config config = t->config;
    if (config.shards == 0)
        config.global_samples = all;
    step_shards_share(&config, mesh.size[MESH_AXIS_DATA], data, first_out, &n);
    return n;
}

/* The next step's samples: *first and b->samples. */
static inline enum status trial_balance(const struct ranks_one *one, struct trial *t,
                                        struct step *step, int i, struct batch *b, int64_t *first)
{
    if (!t->config.balances)
        return ST_OK;
    struct mesh mesh;
    TRY(step_mesh(&t->config, one->ranks, &mesh));
    const int own = mesh_coord_of(&mesh, one->rank).at[MESH_AXIS_DATA];
    const struct step_core *core = step_core(step);
    const int64_t all = step_samples_at(&t->config, t->first_step + i + 1);
    if (t->compute_ms)
        step_balance_measured(step, t->compute_ms(one, i) * t->deal[own]);
    for (int rank = 0; rank < mesh.size[MESH_AXIS_DATA]; rank++)
        t->deal[rank] = step_balance_deal(step, rank);
    *first = step_mesh_sample_first(core, all);
    b->samples = step_mesh_samples(core, own, all);
    return ST_OK;
}

/* trial_open — opens a step with one->arg, its config, and closes it: for configs that are
 * refused. */
static inline enum status trial_open(struct ranks_one *one)
{
    struct step_config config = *(const struct step_config *)one->arg;
    struct step *step = NULL;
    config.dev = one->dev;
    config.comm = one->comm;
    enum status st = step_open(&config, &step);
    step_close(step);
    return st;
}

static inline enum status trial_steps(struct ranks_one *one, struct trial *t, struct step *step,
                                      struct batch *b)
{
    int64_t first = 0;
    for (int i = 0; i < t->steps; i++) {
        int s = t->first_step + i;
        if (i == 0 || !t->config.balances)
            b->samples = trial_samples(t, one, step_samples_at(&t->config, s), &first);
        if (t->leave_step == s && t->leave_rank == one->rank)
            return ST_RETRY;
        if (t->flip_step == s && t->flip_rank == one->rank)
            TRY(step_flip(step, 29, &t->flipped));
        for (int64_t row = 0; row < b->samples; row++)
            trial_sample(t, s, first + row, row, b);
        bool inject_nan = t->nan_step == s && t->nan_rank == one->rank;
        enum status st =
            step_run_batch(step, b, s, s * t->config.global_samples, t->lr, inject_nan, &t->last);
        t->step_st = st;
        if (st != ST_OK && st != ST_NOT_FINITE)
            return st;
        TRY(trial_balance(one, t, step, i, b, &first));
        t->loss[i] = st == ST_OK ? t->last.loss : NAN;
        t->norm[i] = st == ST_OK ? t->last.grad_norm : NAN;
        if (t->stepped)
            t->stepped(one, i);
        t->done++;
    }
    return ST_OK;
}

static inline enum status trial_rank(struct ranks_one *one)
{
    struct trial *t = one->arg;
    struct step *step = NULL;
    struct batch batch = {0};
    enum feed_task task = t->config.dims.task == MODEL_TASK_LM ? FEED_TASK_LM : FEED_TASK_QA;
    int64_t first, samples = trial_samples(t, one, t->config.global_samples, &first);
    struct status_saved why;
    enum status st;
    t->config.dev = one->dev;
    t->config.comm = one->comm;
    TRY_OR(step_open(&t->config, &step), out_close);
    t->elems = step_whole_table(step)->parameters;
    t->memory = step_memory(step);
    if (t->config.balances)
        samples = t->config.global_samples;
    TRY_OR(batch_init(&batch, task, samples, t->config.seq_tokens), out_close);
    if (t->config.masks_documents)
        TRY_OR(batch_add_documents(&batch), out_close);
    TRY_OR(trial_load_frozen(one, step), out_close);
    TRY_OR(trial_load(one, t, step), out_close);
    st = trial_steps(one, t, step, &batch);
    if (t->ended)
        t->ended(one);
    TRY_OR(st, out_close);
    TRY_OR(trial_read(one, t, step), out_close);
out_close:
    status_save(&why);
    step_close(step); /* calls that still run may fail */
    status_restore(&why);
    batch_free(&batch);
    return st;
}

/* trial_run — runs `like` on every rank. Returns rank 0's outcome; losses and norms of the others
 * must be the same bits. */
static inline struct trial trial_run(const struct trial *like, int nodes, int locals)
{
    static struct trial all[RANKS_MAX];
    int ranks = nodes * locals;
    for (int rank = 0; rank < ranks; rank++)
        all[rank] = *like;
    ranks_run(nodes, locals, trial_rank, all, sizeof *all);
    for (int rank = 1; rank < ranks; rank++) {
        assert_memory_equal(all[rank].loss, all[0].loss, sizeof all[0].loss);
        assert_memory_equal(all[rank].norm, all[0].norm, sizeof all[0].norm);
    }
    return all[0];
}

static inline void trial_free(struct trial *t)
{
    for (int array = 0; array < TRIAL_ARRAYS; array++) {
        free(t->state[array]);
        t->state[array] = NULL;
    }
}

static inline void trial_same_state(const struct trial *a, const struct trial *b, const char *what)
{
    for (int array = 0; array < TRIAL_ARRAYS && a->state[array] && b->state[array]; array++)
        if (memcmp(a->state[array], b->state[array], (size_t)a->elems * sizeof(float)))
            fail_msg("%s: array %d differs", what, array);
}

static inline void trial_same(const struct trial *a, const struct trial *b, const char *what)
{
    for (int i = 0; i < a->steps; i++)
        if (memcmp(&a->loss[i], &b->loss[i], sizeof a->loss[i]) ||
            memcmp(&a->norm[i], &b->norm[i], sizeof a->norm[i]))
            fail_msg("%s: step %d: loss %.17g, norm %.17g, want %.17g, %.17g", what, i, a->loss[i],
                     a->norm[i], b->loss[i], b->norm[i]);
    trial_same_state(a, b, what);
}

/* trial_load_of — starts `next` from the state at the end of another trial. */
static inline void trial_load_of(struct trial *next, const struct trial *first)
{
    memcpy(next->load, first->state, sizeof next->load);
}

/* trial_resume — trains 6 steps on one mesh, and three steps whose state is loaded into another
 * mesh for three more: the losses are the same within 2e-6. is_exact: and the same bits, as is the
 * state at the end. Only axis_ranks and SHARD of the meshes differ. */
static inline void trial_resume(struct trial from, int from_ranks, struct trial to, int to_ranks,
                                bool is_exact)
{
    from.steps = 6;
    struct trial whole = trial_run(&from, 1, from_ranks);
    from.steps = to.steps = to.first_step = 3;
    struct trial first = trial_run(&from, 1, from_ranks);
    to.config.is_loaded = true;
    trial_load_of(&to, &first);
    struct trial second = trial_run(&to, 1, to_ranks);
    for (int i = 0; i < 3; i++) {
        double apart = fabs(second.loss[i] / whole.loss[3 + i] - 1);
        if (!(apart < 2e-6) || (is_exact && second.loss[i] != whole.loss[3 + i]))
            fail_msg("%d ranks, shard %d to %d ranks, shard %d: step %d: %.17g, want %.17g",
                     from_ranks, (int)from.config.store.shard, to_ranks, (int)to.config.store.shard,
                     3 + i, second.loss[i], whole.loss[3 + i]);
    }
    if (is_exact)
        trial_same_state(&second, &whole, "resumed");
    trial_free(&whole);
    trial_free(&first);
    trial_free(&second);
}

/* The greatest relative difference of losses. */
static inline double trial_apart(const struct trial *a, const struct trial *b)
{
    double worst = 0;
    for (int i = 0; i < a->steps; i++) {
        double apart = fabs(a->loss[i] / b->loss[i] - 1);
        worst = apart > worst || isnan(apart) ? apart : worst;
    }
    return worst;
}

#endif
