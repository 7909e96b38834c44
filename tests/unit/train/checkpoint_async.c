/* checkpoint_async — what is written in the background is the state at the moment of the save;
 * failures are counted and leave the older checkpoint; there is never more than one write; without
 * memory training waits. */
#include "harness.h"

#include "kernels/cpu.h"
#include "train/checkpoint/async.h"

struct rig {
    struct dev *dev;
    struct step *step;
    struct checkpoint *checkpoint;
    struct checkpoint_async *checkpoint_async;
    struct checkpoint_async_last last;
    struct checkpoint_async_config config;
    struct model_dims dims;
    char dir[600];
    int beats;
};

static void heartbeat(void *arg) { ((struct rig *)arg)->beats++; }

/* rig — vocab sets the size of the state: 12 · 16 · vocab bytes and some. */
static void rig_open(struct rig *r, const char *name, int64_t vocab)
{
    memset(r, 0, sizeof *r);
    r->dims = (struct model_dims){
        .name = "tiny", .layers = 1, .heads = 2, .embed = 16, .context = 8, .vocab = vocab};
    assert_int_equal(dev_cpu_open(2, CPU_ISA_N, &r->dev), ST_OK);
    struct step_config step = {
        .dev = r->dev,
        .dims = r->dims,
        .batch_samples = 1,
        .global_samples = 1,
        .seq_tokens = 8,
        .seed = 3,
        .optim = {.kind = OPTIM_KIND_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8}};
    assert_int_equal(step_open(&step, &r->step), ST_OK);
    text_format(r->dir, sizeof r->dir, "%s/%s", harness_tmpdir(), name);
    struct checkpoint_config checkpoint = {.dims = &r->dims,
                                           .dir = r->dir,
                                           .keep = 10,
                                           .settings_json = "{}",
                                           .version = "test",
                                           .seed = 3};
    assert_int_equal(checkpoint_open(&checkpoint, &r->checkpoint), ST_OK);
    assert_int_equal(checkpoint_attach(r->checkpoint, r->step, NULL, NULL, 0), ST_OK);
    r->last = (struct checkpoint_async_last){.step = -1, .stall_ms = NAN, .save_ms = NAN};
    r->config = (struct checkpoint_async_config){.checkpoint = r->checkpoint,
                                                 .step = r->step,
                                                 .dev = r->dev,
                                                 .mode = CHECKPOINT_ASYNC_MODE_ON,
                                                 .is_periodic = true,
                                                 .memory_bytes = -1,
                                                 .last = &r->last,
                                                 .heartbeat = heartbeat,
                                                 .heartbeat_arg = r};
}

static void rig_close(struct rig *r)
{
    checkpoint_async_close(r->checkpoint_async);
    checkpoint_close(r->checkpoint);
    step_close(r->step);
    dev_close(r->dev);
}

static struct checkpoint_progress at(int64_t step)
{
    return (struct checkpoint_progress){.step = step, .samples = step * 4, .tokens = step * 32};
}

/* train — stands for an update: every value of every array becomes `value`. */
static void train(struct rig *r, float value)
{
    for (int array = 0; array < step_arrays(r->step); array++)
        for (int64_t i = 0; i < step_own_table(r->step)->total_elems; i++)
            step_array(r->step, array)[i] = value;
}

/* holds — the newest checkpoint is of this step, and its values are `value`. */
static void holds(const struct rig *r, int64_t step, float value)
{
    static const char *const arrays[] = {"model", "optim_m", "optim_v"};
    struct ckpt *ckpt = NULL;
    assert_int_equal(ckpt_open_newest(r->dir, NULL, &ckpt), ST_OK);
    assert_non_null(ckpt);
    assert_int_equal(ckpt_meta(ckpt)->step, step);
    assert_int_equal(ckpt_meta(ckpt)->samples, step * 4);
    const struct param_table *table = step_own_table(r->step);
    for (int array = 0; array < 3; array++)
        for (int i = 0; i < table->params_n; i++) {
            float ends[2];
            assert_int_equal(ckpt_range(ckpt, arrays[array], table->param[i].name, 0, 1, ends),
                             ST_OK);
            assert_int_equal(ckpt_range(ckpt, arrays[array], table->param[i].name,
                                        table->param[i].elems - 1, 1, ends + 1),
                             ST_OK);
            assert_true(ends[0] == value && ends[1] == value);
        }
    ckpt_close(ckpt);
}

TEST(test_the_moment_of_the_save)
{
    struct rig r;
    rig_open(&r, "moment", 100000); /* 19 MB: the writer is at work while the values change */
    assert_int_equal(checkpoint_async_open(&r.config, &r.checkpoint_async), ST_OK);
    for (int64_t step = 1; step <= 3; step++) {
        struct checkpoint_progress progress = at(step);
        train(&r, (float)step);
        /* is_asked: waits for the one before */
        assert_true(checkpoint_async_save(r.checkpoint_async, &progress, true));
        train(&r, -1);
        assert_true(r.last.stall_ms > 0);
    }
    assert_int_equal(r.last.step, 2);
    assert_true(r.last.save_ms >= 0);
    while (checkpoint_async_is_writing(r.checkpoint_async))
        checkpoint_async_poll(r.checkpoint_async);
    assert_int_equal(r.last.step, 3);
    assert_non_null(strstr(r.last.path, "step-00000003"));
    assert_int_equal(r.last.failures + r.last.skipped, 0);
    holds(&r, 3, 3);
    struct checkpoint_progress progress = at(3);
    assert_false(checkpoint_async_save(r.checkpoint_async, &progress, false)); /* there already */
    assert_int_equal(checkpoint_async_finish(r.checkpoint_async, &progress), ST_OK);
    holds(&r, 3, 3);
    rig_close(&r);
}

/* The end of a run waits for the write under way, and saves what came after it. */
TEST(test_finish_and_close)
{
    struct rig r;
    struct checkpoint_progress one = at(1), two = at(2), three = at(3);
    rig_open(&r, "finish", 100000);
    assert_int_equal(checkpoint_async_open(&r.config, &r.checkpoint_async), ST_OK);
    train(&r, 1);
    assert_true(checkpoint_async_save(r.checkpoint_async, &one, false));
    assert_int_equal(checkpoint_async_finish(r.checkpoint_async, &one), ST_OK);
    assert_true(r.beats > 0); /* while waiting */
    holds(&r, 1, 1);
    assert_true(checkpoint_async_save(r.checkpoint_async, &two, false));
    train(&r, 3);
    assert_int_equal(checkpoint_async_finish(r.checkpoint_async, &three), ST_OK);
    assert_int_equal(r.last.step, 3);
    holds(&r, 3, 3);
    three.step = 4;
    three.samples = 16;
    assert_true(checkpoint_async_save(r.checkpoint_async, &three, false));
    rig_close(&r); /* committed before it returns */
    struct ckpt *ckpt = NULL;
    assert_int_equal(ckpt_open_newest(r.dir, NULL, &ckpt), ST_OK);
    assert_int_equal(ckpt_meta(ckpt)->step, 4);
    ckpt_close(ckpt);
}

/* A second save at once, while the first is still under way: at least one of several tries must
 * meet it. */
TEST(test_skip)
{
    struct rig r;
    rig_open(&r, "skip", 100000);
    assert_int_equal(checkpoint_async_open(&r.config, &r.checkpoint_async), ST_OK);
    for (int64_t step = 1; step < 40 && r.last.skipped == 0; step += 2) {
        struct checkpoint_progress progress = at(step), next = at(step + 1);
        assert_true(checkpoint_async_save(r.checkpoint_async, &progress, true));
        bool has_saved = checkpoint_async_save(r.checkpoint_async, &next, false);
        assert_int_equal(has_saved, r.last.skipped == 0);
    }
    assert_int_equal(r.last.skipped, 1);
    rig_close(&r);
}

TEST(test_failures)
{
    static const enum checkpoint_async_mode modes[] = {CHECKPOINT_ASYNC_MODE_ON,
                                                       CHECKPOINT_ASYNC_MODE_OFF};
    for (int i = 0; i < 2; i++) {
        struct rig r;
        struct checkpoint_progress progress = at(1);
        char in_the_way[700];
        rig_open(&r, i == 0 ? "fails" : "fails_waiting", 40);
        r.config.mode = modes[i];
        assert_int_equal(checkpoint_async_open(&r.config, &r.checkpoint_async), ST_OK);
        train(&r, 1);
        assert_true(checkpoint_async_save(r.checkpoint_async, &progress, true));
        text_format(in_the_way, sizeof in_the_way, "%s/step-00000002", r.dir);
        assert_int_equal(file_replace(in_the_way, "x", 1), ST_OK);
        progress = at(2);
        train(&r, 2);
        assert_true(checkpoint_async_save(r.checkpoint_async, &progress, true));
        /* tried once more, in vain */
        assert_int_equal(checkpoint_async_finish(r.checkpoint_async, &progress), ST_STORE);
        assert_non_null(strstr(status_message(), "in the way"));
        assert_int_equal(r.last.failures, 2);
        assert_int_equal(r.last.step, 1);
        assert_non_null(strstr(r.last.error, "in the way"));
        holds(&r, 1, 1);
        assert_int_equal(remove(in_the_way), 0);
        assert_int_equal(checkpoint_async_finish(r.checkpoint_async, &progress), ST_OK);
        assert_string_equal(r.last.error, "");
        holds(&r, 2, 2);
        rig_close(&r);
    }
}

TEST(test_memory)
{
    struct rig r;
    struct checkpoint_progress progress = at(1);
    rig_open(&r, "memory", 300000); /* 58 MB */
    r.config.memory_bytes = (int64_t)256 << 20;
    assert_int_equal(checkpoint_async_open(&r.config, &r.checkpoint_async), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "CHECKPOINT_ASYNC=on: a copy of the state needs 55"));
    r.config.mode = CHECKPOINT_ASYNC_MODE_AUTO;
    assert_int_equal(checkpoint_async_open(&r.config, &r.checkpoint_async), ST_OK);
    train(&r, 1);
    assert_true(checkpoint_async_save(r.checkpoint_async, &progress, false));
    assert_false(checkpoint_async_is_writing(r.checkpoint_async)); /* training has waited for it */
    assert_int_equal(r.last.step, 1);
    holds(&r, 1, 1);
    checkpoint_async_close(r.checkpoint_async);
    r.config.memory_bytes = (int64_t)1 << 40;
    assert_int_equal(checkpoint_async_open(&r.config, &r.checkpoint_async), ST_OK);
    progress = at(2);
    assert_true(checkpoint_async_save(r.checkpoint_async, &progress, false));
    assert_int_equal(r.last.step, 1); /* not yet: it is being written, or was not polled */
    rig_close(&r);
}

/* A small state, or no periodic saves: no copy. */
TEST(test_no_copy)
{
    struct rig r;
    rig_open(&r, "none", 40);
    for (int i = 0; i < 3; i++) {
        struct checkpoint_progress progress = at(i + 1);
        r.config.mode = i == 0   ? CHECKPOINT_ASYNC_MODE_AUTO
                        : i == 1 ? CHECKPOINT_ASYNC_MODE_OFF
                                 : CHECKPOINT_ASYNC_MODE_ON;
        r.config.is_periodic = i < 2;
        assert_int_equal(checkpoint_async_open(&r.config, &r.checkpoint_async), ST_OK);
        assert_true(checkpoint_async_save(r.checkpoint_async, &progress, false));
        assert_int_equal(r.last.step, i + 1);
        checkpoint_async_close(r.checkpoint_async);
        r.checkpoint_async = NULL;
    }
    rig_close(&r);
}

HARNESS_RUN_ALL()
