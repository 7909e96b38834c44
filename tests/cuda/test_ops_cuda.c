/* The operations of a planned step on a GPU are those of a real one (tests/unit/plan/ops has CPUs
 * and several ranks): 16-bit compute copies, and the end of a step on the device. And a GPU is
 * measured for plans. It is emulated (guarded.h). */
#include "kernel_test.h"
#include "tests/cuda/guarded.h"
#include "tests/cuda/steps.h"

#include "architectures.h"
#include "plan/plan_machine.h"
#include "plan/plan_ops.h"

#define T 16

struct counted {
    int64_t n, flops, bytes;
};
static struct counted counted[OP_KIND_N];
static const struct op_table *real_ops;

static void count(enum op_kind op, const void *args)
{
    struct op_cost cost;
    kt_ok(op_cost(op, args, &cost) ? ST_OK : ST_BUG);
    counted[op].n++;
    counted[op].flops += cost.flops;
    counted[op].bytes += cost.bytes_read + cost.bytes_written;
}

#define COUNTED_ENTRY(name)                                                   \
    static enum status counted_##name(struct stream *s, const struct name *a) \
    {                                                                         \
        count(OP_KIND_##name, a);                                             \
        return real_ops->name(s, a);                                          \
    }
OP_LIST(COUNTED_ENTRY)
#undef COUNTED_ENTRY

static struct dev *open_counting(void)
{
#define COUNTED_ROW(name) .name = counted_##name,
    static const struct op_table table = {OP_LIST(COUNTED_ROW)};
#undef COUNTED_ROW
    struct dev *dev = open_device_as(false);
    struct dev_head *head = (struct dev_head *)(void *)dev;
    real_ops = head->op;
    head->op = &table;
    return dev;
}

/* run_step — the third of three, between two drains. */
static void run_step(const struct step_config *config)
{
    struct step *step;
    struct batch batch = {0};
    struct step_result result;
    kt_ok(step_open(config, &step));
    kt_ok(batch_init(&batch, FEED_TASK_LM, config->global_samples, T));
    for (int64_t i = 0; i < config->global_samples * T; i++)
        batch.host.tokens[i] = batch.host.targets[i] = (int32_t)(i % config->dims.vocab);
    for (int i = 0; i < 3; i++) {
        kt_ok(step_drain(step));
        memset(counted, 0, sizeof counted);
        kt_ok(step_run_batch(step, &batch, i, i * config->global_samples, 1e-3, false, &result));
    }
    kt_ok(step_drain(step));
    batch_free(&batch);
    step_close(step);
}

static void compare(const struct step_config *config, const char *name)
{
    const struct trainer_config trainer = {.step = *config};
    const struct memory_plan_place place = {.at = {.ranks = 1, .nodes = 1, .locals = 1},
                                            .is_discrete = true};
    struct counted planned[OP_KIND_N] = {{0}};
    struct plan_ops plan;
    kt_ok(plan_ops_make(&trainer, &place, &plan));
    for (int i = 0; i < plan.ops_n; i++) {
        const struct plan_op *row = &plan.op[i];
        int64_t n = llround(row->per_pass * (double)plan.passes + row->per_step);
        planned[row->op].n += n;
        planned[row->op].flops += n * row->cost.flops;
        planned[row->op].bytes += n * (row->cost.bytes_read + row->cost.bytes_written);
    }
    plan_ops_free(&plan);
    for (int op = 0; op < OP_KIND_N; op++)
        if (memcmp(&planned[op], &counted[op], sizeof counted[op]) != 0)
            fail_msg("%s: %s: planned %lld times, %lld bytes; done %lld, %lld", name,
                     op_cost_name((enum op_kind)op), (long long)planned[op].n,
                     (long long)planned[op].bytes, (long long)counted[op].n,
                     (long long)counted[op].bytes);
}

static void check(const struct model_dims *dims, enum dtype dtype, int micros, bool is_sgd)
{
    struct dev *dev = open_counting();
    struct step_config config = {.dev = dev,
                                 .batch_samples = 1,
                                 .global_samples = micros,
                                 .seq_tokens = T,
                                 .store.dtype = dtype,
                                 .dims = *dims,
                                 .optim = {.kind = is_sgd ? OPTIM_KIND_SGD : OPTIM_KIND_ADAMW,
                                           .beta1 = 0.9,
                                           .beta2 = 0.95,
                                           .eps = 1e-8,
                                           .momentum = 0.9,
                                           .grad_clip = 1}};
    char name[96];
    config.dims.context = T;
    snprintf(name, sizeof name, "%s, dtype %d, %d micro-batches%s", dims->name, (int)dtype, micros,
             is_sgd ? ", sgd" : "");
    run_step(&config);
    compare(&config, name);
    dev_close(dev);
}

TEST(test_planned)
{
    static const struct model_dims gpt2 = {
        .name = "gpt2", .layers = 2, .heads = 2, .embed = 32, .vocab = 64};
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (int i = 0; i < 3; i++)
        for (int is_sgd = 0; is_sgd < 2; is_sgd++)
            check(&gpt2, dtypes[i], is_sgd ? 1 : 3, is_sgd > 0);
}

/* test_measured — a GPU as a machine: products of both types have rates. */
TEST(test_measured)
{
    struct dev *dev = open_device_as(false);
    const struct plan_machine_config config = {.dev = dev, .name = "gpu", .budget_ms = 10};
    struct plan_cluster c;
    kt_ok(plan_machine_measure(&config, &c));
    assert_true(c.is_gpu && c.locals == 1 && c.memory_bytes > 0);
    assert_true(c.peak[PLAN_PRECISION_F32] > 0 && c.peak[PLAN_PRECISION_BF16] > 0);
    assert_true(c.product[PLAN_PRECISION_F32].n > 0 && c.product[PLAN_PRECISION_BF16].n > 0);
    assert_true(c.attention.n > 0 && c.memory_bytes_per_second > 0 && c.operation_us > 0);
    dev_close(dev);
}

HARNESS_RUN_ALL()
