/* check_soak_train — see check/soak_train.h. */
#include "node/check/soak_train.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "measure/measure_pattern.h"
#include "measure/measure_ranks.h"
#include "train/feature/step_shard_check.h"

#define SEED 20261123
#define LEARNING_RATE 1e-3
#define FLIP_BIT 12 /* low in the mantissa: the loss does not show the change */
#define LOGIT_TOKENS 8

/* ---- one run of the trainer ---- */

static int64_t global_samples(const struct check_soak_train_config *c)
{
    return c->batch_samples * (c->comm ? comm_place(c->comm)->ranks : 1);
}

static enum status open_feed(const struct check_soak_train_config *c, struct feed **out)
{
    const struct feed_config config = {.task = FEED_TASK_LM,
                                       .data = FEED_SYNTHETIC,
                                       .seq_tokens = c->dims.context,
                                       .global_samples = global_samples(c),
                                       .vocab = c->dims.vocab,
                                       .seed = SEED,
                                       .is_shuffled = true};
    return feed_open(&config, out);
}

enum status check_soak_train_run(const struct check_soak_train_config *c, trainer_look *look,
                                 void *arg)
{
    struct trainer_config config = {
        .step = {.dev = c->dev,
                 .comm = c->comm,
                 .store = {.shard = c->shard, .dtype = c->dtype},
                 .dims = c->dims,
                 .batch_samples = c->batch_samples,
                 .global_samples = global_samples(c),
                 .seq_tokens = c->dims.context,
                 .optim = {.kind = OPTIM_KIND_ADAMW,
                           .beta1 = 0.9,
                           .beta2 = 0.95,
                           .eps = 1e-8,
                           .grad_clip = 1},
                 .seed = SEED},
        .model_path = "",
        .steps = c->steps,
        .lr_schedule = {.kind = LR_SCHEDULE_KIND_CONSTANT, .lr = LEARNING_RATE},
        .checkpoint_dir = c->dir ? c->dir : "",
        .checkpoint_keep = 2,
        .peer_copy_fd = -1,
        .metrics_file = "",
        .settings_json = "{\"OPTIMIZER\":\"adamw\",\"moments\":2}",
        .version = "check",
        .look = look,
        .look_arg = arg,
    };
    const struct board_worker worker = {.phase = BOARD_PHASE_CHECKING};
    TRY(board_create(1, 1, &config.board));
    board_worker_publish(config.board, 0, &worker);
    log_set_quiet(true);
    enum status st = open_feed(c, &config.feed);
    if (st == ST_OK)
        st = trainer_run(&config);
    log_set_quiet(false);
    feed_close(config.feed);
    board_close(config.board);
    return st;
}

/* ---- checksums of a round ---- */

uint64_t check_soak_train_sum(const struct param_table *table, const float *values)
{
    uint64_t sum = 0;
    for (int i = 0; i < table->params_n; i++)
        sum = XXH3_64bits_withSeed(values + table->param[i].offset,
                                   (size_t)table->param[i].elems * sizeof *values, sum);
    return sum;
}

static void sum_samples(const struct batch *batch, int64_t n, int64_t tokens, uint64_t *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = XXH3_64bits(batch->host.tokens + i * tokens, (size_t)tokens * sizeof(int32_t));
}

/* add_sum — appends a checksum of some bytes. widest: the last digest that includes it. */
static void add_sum(struct check_soak_train *t, const void *bytes, size_t n,
                    enum check_soak_scope widest)
{
    const uint64_t sum = t->now[t->now_n++] = XXH3_64bits(bytes, n);
    for (int scope = 0; scope <= (int)widest; scope++)
        t->digest[scope] = XXH3_64bits_withSeed(&sum, sizeof sum, t->digest[scope]);
}

static enum status add_tensors(struct check_soak_train *t, struct step *step, struct tensor from,
                               enum check_soak_scope widest)
{
    const struct param_table *table = step_own_table(step);
    TRY(dev_copy(step_stream(step), t->host, from.data,
                 (size_t)table->total_elems * sizeof(float)));
    TRY(dev_sync(step_stream(step)));
    for (int i = 0; i < table->params_n; i++)
        add_sum(t, t->host + table->param[i].offset, (size_t)table->param[i].elems * sizeof(float),
                widest);
    return ST_OK;
}

/* describe_checksum — describes checksum number `at` of a round, such as "the gradient of
 * wte.weight in step 2". */
static void describe_checksum(const struct param_table *table, int at, char *out, size_t cap)
{
    const int tensors = table->params_n, each = 1 + 2 * tensors, step_n = (at - 1) / each + 1,
              in = (at - 1) % each;
    if (at == 0)
        text_format(out, cap, "the logits before the first step");
    else if (in == 0)
        text_format(out, cap, "the loss of step %d", step_n);
    else if (in <= tensors)
        text_format(out, cap, "the gradient of %s in step %d", table->param[in - 1].name, step_n);
    else
        text_format(out, cap, "%s after step %d", table->param[in - 1 - tensors].name, step_n);
}

/* ---- a round ---- */

static enum status begin_round(struct check_soak_train *t, struct step *step)
{
    const struct param_table *table = step_own_table(step);
    const int64_t elems = table->total_elems, vocab = t->config.dims.vocab;
    const size_t steps = (size_t)t->config.steps,
                 sums_n = 1 + steps * (1 + 2 * (size_t)table->params_n);
    int32_t tokens[LOGIT_TOKENS];
    if (t->rounds == 0) {
        t->host = malloc((size_t)(elems > vocab ? elems : vocab) * sizeof *t->host);
        if (!t->host)
            return FAIL(ST_RETRY, "out of memory: a copy of %lld weights", (long long)elems);
        t->first = memory_new(sums_n, sizeof *t->first);
        t->now = memory_new(sums_n, sizeof *t->now);
        t->sample = memory_new(steps * (size_t)t->config.batch_samples, sizeof *t->sample);
    }
    t->now_n = t->steps_done = 0;
    for (int i = 0; i < LOGIT_TOKENS; i++)
        tokens[i] = (int32_t)((i * 37 + 11) % vocab);
    TRY(step_logits(step, tokens, LOGIT_TOKENS, t->host));
    add_sum(t, t->host, (size_t)vocab * sizeof *t->host, CHECK_SOAK_ALL);
    return ST_OK;
}

static enum status add_step(struct check_soak_train *t, struct step *step, double loss)
{
    const int64_t n = t->config.batch_samples;
    struct dev_info info;
    TRY(step_drain(step));
    TRY(dev_sync(step_stream(step)));
    dev_info(t->config.dev, &info);
    const struct measure_timer timer = {.threads_n =
                                            dev_is_discrete(t->config.dev) ? 0 : info.threads_n};
    if (t->rounds > 0) /* the first round may load kernels */
        measure_time_end(&timer, t->begin, &t->step_time);
    add_sum(t, &loss, sizeof loss, CHECK_SOAK_SUMS);
    TRY(add_tensors(t, step, step_grads(step), CHECK_SOAK_SUMS));
    TRY(add_tensors(t, step, step_tensor(step, 0), CHECK_SOAK_REPLICA));
    sum_samples(step_batch(step), n, t->config.dims.context, t->sample + t->steps_done++ * n);
    return ST_OK;
}

/* end_round — compares a round with the first one. */
static void end_round(struct check_soak_train *t, const struct param_table *table)
{
    if (t->rounds++ == 0) {
        memcpy(t->first, t->now, (size_t)t->now_n * sizeof *t->now);
        t->first_digest = t->digest[CHECK_SOAK_ALL];
    }
    for (int i = 0; i < t->now_n && !t->differed[0]; i++)
        if (t->first[i] != t->now[i])
            describe_checksum(table, i, t->differed, sizeof t->differed);
}

static enum status look(void *arg, struct step *step, const struct step_result *result)
{
    struct check_soak_train *t = arg;
    struct store_flip flipped;
    TRY(result ? add_step(t, step, result->loss) : begin_round(t, step));
    const int left = t->config.steps - t->steps_done;
    if (left == 0)
        end_round(t, step_own_table(step));
    if (left == 2 && t->flip == CHECK_SOAK_FLIP_GRADIENT)
        step_shard_check_flip(step, &(struct step_shard_flip){
                                        .passes = STEP_SHARD_PASS_OWN, .unit = 1, .bit = FLIP_BIT});
    else if (left == 2 && t->flip != CHECK_SOAK_FLIP_NONE)
        TRY(step_flip(step, FLIP_BIT, &flipped));
    t->begin = measure_time_begin();
    return ST_OK;
}

enum status check_soak_train_round(struct check_soak_train *t, enum check_soak_flip flip)
{
    t->flip = flip;
    t->ranks = t->config.comm ? comm_place(t->config.comm)->ranks : 1;
    return check_soak_train_run(&t->config, look, t);
}

void check_soak_train_free(struct check_soak_train *t)
{
    free(t->first);
    free(t->now);
    free(t->sample);
    free(t->host);
    *t = (struct check_soak_train){0};
}

/* ---- the samples of each rank ---- */

int check_soak_train_lost(const uint64_t *trained, const uint64_t *wanted, int n)
{
    for (int i = 0; i < n; i++) {
        int missing = 0;
        for (int k = 0; k < n; k++)
            missing += (wanted[k] == wanted[i]) - (trained[k] == wanted[i]);
        if (missing > 0)
            return i;
    }
    return -1;
}

enum status check_soak_train_samples(const struct check_soak_train *t, int *step_out, int *lost_out)
{
    const int64_t each = t->config.batch_samples, n = each * t->ranks,
                  tokens = t->config.dims.context;
    uint64_t *trained = memory_new(2 * (size_t)n, sizeof *trained), *wanted = trained + n;
    struct feed *feed = NULL;
    struct batch batch = {0}; /* samples of all ranks */
    enum status st = open_feed(&t->config, &feed);
    if (st == ST_OK)
        st = batch_init(&batch, FEED_TASK_LM, n, tokens);
    *lost_out = -1;
    for (int i = 0; st == ST_OK && *lost_out < 0 && i < t->config.steps; i++) {
        *step_out = i;
        st = measure_ranks_gather(t->config.comm, t->sample + i * each,
                                  each * (int64_t)sizeof *trained, trained);
        if (st == ST_OK)
            st = feed_get(feed, i * n, n, &batch.host);
        if (st != ST_OK)
            break;
        sum_samples(&batch, n, tokens, wanted);
        *lost_out = check_soak_train_lost(trained, wanted, (int)n);
    }
    batch_free(&batch);
    feed_close(feed);
    free(trained);
    return st;
}

/* ---- the weights of each rank ---- */

struct exchange {
    const struct check_soak_train_config *config;
    bool is_right;
};

/* put_get — writes the values into the model of all ranks and reads them back: through rank 0, and
 * on other ranks from their own memory if each rank has the whole model. */
static enum status put_get(const struct exchange *e, struct step *step, float *values)
{
    const int64_t elems = step_whole_table(step)->total_elems;
    if (comm_place(e->config->comm)->rank == 0) {
        enum status st = state_write(step_state(step), 0, 0, elems, values);
        if (st == ST_OK)
            st = state_read(step_state(step), 0, 0, elems, values);
        return state_end(step_state(step), st);
    }
    TRY(state_serve(step_state(step)));
    if (e->config->shard != LAYOUT_SHARD_NONE)
        return ST_OK;
    TRY(dev_copy(step_stream(step), values, step_tensor(step, 0).data,
                 (size_t)elems * sizeof *values));
    return dev_sync(step_stream(step));
}

static enum status exchange(void *arg, struct step *step, const struct step_result *result)
{
    struct exchange *e = arg;
    const struct param_table *table = step_whole_table(step);
    if (result)
        return ST_OK;
    float *values = malloc((size_t)table->total_elems * sizeof *values);
    if (!values)
        return FAIL(ST_RETRY, "out of memory: %lld weights", (long long)table->total_elems);
    measure_pattern_random(values, DTYPE_F32, table->total_elems, 7);
    for (int64_t i = 0; i < table->total_elems; i++)
        values[i] /= 64; /* values with which a step can be computed */
    const uint64_t sum = check_soak_train_sum(table, values);
    const enum status st = put_get(e, step, values);
    e->is_right = check_soak_train_sum(table, values) == sum;
    free(values);
    return st;
}

enum status check_soak_train_distribution(const struct check_soak_train_config *config,
                                          bool *is_right_out)
{
    struct exchange e = {.config = config};
    struct check_soak_train_config one = *config;
    one.steps = 1;
    const enum status st = check_soak_train_run(&one, exchange, &e);
    *is_right_out = e.is_right;
    return st;
}
