/* rig — a tiny model on synthetic data for a trainer without processes, on a device of the
 * test's. */
#ifndef CONVOY_TESTS_RIG_H
#define CONVOY_TESTS_RIG_H

#include "harness.h"

#include "base/text.h"
#include "train/trainer/trainer.h"

struct rig {
    struct dev *dev;
    struct board *board;
    struct feed *feed, *val_feed; /* val_feed: NULL, or the test's, which rig_close closes, too */
    struct trainer_config config;
    char dir[600];
};

static inline void rig_feed(struct feed **out)
{
    struct feed_config feed = {.task = FEED_TASK_LM,
                               .data = FEED_SYNTHETIC,
                               .seq_tokens = 8,
                               .global_samples = 4,
                               .vocab = 40,
                               .seed = 3};
    assert_int_equal(feed_open(&feed, out), ST_OK);
}

/* rig_open — takes the device; name: the checkpoint folder, NULL none. */
static inline void rig_open(struct rig *r, struct dev *dev, const char *name, int64_t steps)
{
    memset(r, 0, sizeof *r);
    r->dev = dev;
    assert_int_equal(board_create(1, 1, &r->board), ST_OK);
    rig_feed(&r->feed);
    board_worker_publish(
        r->board, 0,
        &(struct board_worker){
            .pid = 1, .phase = BOARD_PHASE_LOADING, .loss = NAN, .checkpoint.step = -1});
    if (name)
        text_format(r->dir, sizeof r->dir, "%s/%s", harness_tmpdir(), name);
    r->config = (struct trainer_config){
        .step.dev = r->dev,
        .board = r->board,
        .step.dims =
            {.name = "tiny", .layers = 1, .heads = 2, .embed = 16, .context = 8, .vocab = 40},
        .model_path = "",
        .feed = r->feed,
        .step.batch_samples = 2,
        .step.global_samples = 4,
        .step.seq_tokens = 8,
        .epochs = 1,
        .steps = steps,
        .step.optim =
            {.kind = OPTIM_KIND_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .grad_clip = 1},
        .lr_schedule = {.kind = LR_SCHEDULE_KIND_CONSTANT, .lr = 1e-2},
        .step.seed = 3,
        .checkpoint_dir = r->dir,
        .checkpoint_keep = 10,
        .metrics_file = "",
        .settings_json = "{\"OPTIMIZER\":\"adamw\",\"moments\":2,\"SEED\":3}",
        .version = "test",
    };
}

static inline void rig_close(struct rig *r)
{
    feed_close(r->feed);
    feed_close(r->val_feed);
    board_close(r->board);
    dev_close(r->dev);
}

static inline struct board_worker rig_last(const struct rig *r)
{
    struct board_worker post;
    assert_true(board_worker_copy(r->board, 0, &post));
    return post;
}

#endif
