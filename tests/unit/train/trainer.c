/* trainer — the loop without processes: published numbers, requests, resume, and failures that
 * the board must show. checkpoint.c is tested here too, because only a trainer gives it a state to
 * save. */
#include "rig.h"

#include <dirent.h>

#include "kernels/cpu.h"
#include "tfevents_read.h"

static void open_rig(struct rig *r, const char *name, int64_t steps)
{
    struct dev *dev;
    assert_int_equal(dev_cpu_open(1, CPU_ISA_N, &dev), ST_OK);
    rig_open(r, dev, name, steps);
}

static bool has(const struct rig *r, const char *name)
{
    char path[800];
    text_format(path, sizeof path, "%s/%s", r->dir, name);
    return file_is_dir(path);
}

TEST(test_posts)
{
    struct rig r;
    open_rig(&r, NULL, 6);
    assert_int_equal(trainer_run(&r.config), ST_OK);
    struct board_worker post = rig_last(&r);
    assert_int_equal(post.pid, 1); /* who it is stays */
    assert_int_equal(post.phase, BOARD_PHASE_DONE);
    assert_int_equal(post.step, 6);
    assert_int_equal(post.steps, 6);
    assert_int_equal(post.epoch, 5);
    assert_int_equal(post.tokens, 6 * 4 * 8);
    assert_int_equal(post.step_ms_n, 6);
    assert_true(post.loss > 0 && post.loss < 4 && post.lr == 1e-2 && post.grad_norm > 0);
    assert_true(post.tokens_per_second > 0 && post.eta_seconds == 0 && post.memory_bytes > 0);
    assert_int_equal(post.checkpoint.step, -1);
    assert_true(post.planned_ms >= 1);
    assert_int_equal(post.model.parameters, 40 * 16 + 8 * 16 + 12 * 16 * 16 + 13 * 16 + 2 * 16);
    assert_true(board_heartbeat_ms(r.board, 0) > 0);
    assert_int_equal(post.trained_tokens, 0); /* as the board was before */
    rig_close(&r);
}

/* With conversations, the tokens that count in the loss are counted across restarts. */
TEST(test_trained_tokens)
{
    struct rig r;
    for (int64_t steps = 3; steps <= 5; steps += 2) {
        open_rig(&r, "trained", steps);
        r.config.chat = (const struct chat *)&r; /* not read without SAMPLE_EVERY */
        assert_int_equal(trainer_run(&r.config), ST_OK);
        assert_int_equal(rig_last(&r).trained_tokens, steps * 4 * 8); /* synthetic: all count */
        assert_true(rig_last(&r).trained_share == 1);
        char path[700];
        struct ledger_audit a;
        text_format(path, sizeof path, "%s/" LEDGER_NAME, r.dir);
        assert_int_equal(ledger_audit(path, &a), ST_OK);
        assert_int_equal(a.trained[LEDGER_OUTCOME_APPLIED], steps * 4 * 8);
        ledger_audit_free(&a);
        rig_close(&r);
    }
}

/* On each rank, Muon's update takes at most the time of so many tokens. */
TEST(test_planned_ms)
{
    struct rig r;
    open_rig(&r, NULL, 1);
    struct trainer_config *c = &r.config;
    double tokens = (double)(c->step.global_samples * c->step.seq_tokens),
           update = 5 * (double)c->step.dims.embed * 3;
    c->step.optim.kind = OPTIM_KIND_ADAMW;
    double adamw = (double)trainer_planned_ms(c, 1e6, 3);
    c->step.optim.kind = OPTIM_KIND_MUON;
    double muon = (double)trainer_planned_ms(c, 1e6, 3);
    assert_true(adamw > 100);
    assert_true(fabs(muon / adamw / (1 + update / tokens) - 1) < 0.02);
    rig_close(&r);
}

TEST(test_resume_is_bit_identical)
{
    struct rig r;
    open_rig(&r, NULL, 7);
    assert_int_equal(trainer_run(&r.config), ST_OK);
    double whole = rig_last(&r).loss, norm = rig_last(&r).grad_norm;
    rig_close(&r);
    for (int64_t steps = 3; steps <= 7; steps += 4) {
        open_rig(&r, "resume", steps);
        assert_int_equal(trainer_run(&r.config), ST_OK);
        assert_int_equal(rig_last(&r).checkpoint.step, steps);
        if (steps == 7) {
            assert_int_equal(rig_last(&r).step_ms_n, 4);
            assert_true(rig_last(&r).loss == whole && rig_last(&r).grad_norm == norm);
        }
        rig_close(&r);
    }
    open_rig(&r, "resume", 7);
    assert_int_equal(trainer_run(&r.config), ST_OK); /* nothing to do */
    assert_int_equal(rig_last(&r).step_ms_n, 0);
    rig_close(&r);
}

TEST(test_save_request)
{
    struct rig r;
    open_rig(&r, "save", 5);
    board_request(r.board, BOARD_REQUEST_SAVE);
    assert_int_equal(trainer_run(&r.config), ST_OK);
    assert_int_equal(board_requested(r.board), BOARD_REQUEST_NONE);
    assert_true(has(&r, "step-00000001"));
    assert_false(has(&r, "step-00000002"));
    assert_true(has(&r, "step-00000005"));
    rig_close(&r);
}

TEST(test_stop_before_the_first_step)
{
    static const enum board_request requests[] = {BOARD_REQUEST_PREEMPT, BOARD_REQUEST_TERMINATE,
                                                  BOARD_REQUEST_INTERRUPT};
    static const enum status want[] = {ST_RETRY, ST_TERMINATED, ST_INTERRUPTED};
    for (int i = 0; i < 3; i++) {
        struct rig r;
        open_rig(&r, "stop", 5);
        board_request(r.board, requests[i]);
        assert_int_equal(trainer_run(&r.config), want[i]);
        assert_non_null(strstr(status_message(), "before the first step"));
        assert_false(has(&r, "step-00000000"));
        rig_close(&r);
    }
}

TEST(test_not_finite)
{
    struct rig r;
    open_rig(&r, "nan", 9);
    r.config.checkpoint_every = 2;
    r.config.fault = TRAINER_FAULT_NAN;
    r.config.fault_step = 6;
    assert_int_equal(trainer_run(&r.config), ST_NOT_FINITE);
    assert_int_equal(rig_last(&r).step, 5);
    assert_int_equal(rig_last(&r).checkpoint.step, 4);
    assert_false(has(&r, "step-00000006"));
    rig_close(&r);
}

static void open_spike_rig(struct rig *r, const char *name, int64_t steps, enum spike_mode mode)
{
    open_rig(r, name, steps);
    r->config.step.spike = (struct spike_config){mode, 6};
    r->config.fault = TRAINER_FAULT_SPIKE;
    r->config.fault_step = 72;
}

/* A batch that repeats, at a constant rate: 80 steps of which one is skipped are 79 steps, bit for
 * bit, also where the run was interrupted before or after the spike. */
TEST(test_spike_skip)
{
    struct rig r;
    open_rig(&r, NULL, 79);
    assert_int_equal(trainer_run(&r.config), ST_OK);
    double loss = rig_last(&r).loss, norm = rig_last(&r).grad_norm;
    rig_close(&r);
    for (int64_t first = 65; first <= 80; first += 9) { /* 65, 74 */
        char name[16];
        text_format(name, sizeof name, "spike%d", (int)first);
        for (int64_t steps = first; steps <= 80; steps += 80 - first) {
            open_spike_rig(&r, name, steps, SPIKE_MODE_SKIP);
            assert_int_equal(trainer_run(&r.config), ST_OK);
            assert_int_equal(rig_last(&r).step, steps);
            if (steps == 80)
                assert_true(rig_last(&r).loss == loss && rig_last(&r).grad_norm == norm);
            rig_close(&r);
        }
    }
}

/* Nothing is undone where SPIKE=stop ends a run: the checkpoints before it are intact. */
TEST(test_spike_stop)
{
    struct rig r;
    open_spike_rig(&r, "stopped", 80, SPIKE_MODE_STOP);
    r.config.checkpoint_every = 4;
    assert_int_equal(trainer_run(&r.config), ST_SPIKE);
    assert_int_equal(status_exit_code(ST_SPIKE), 79);
    assert_non_null(strstr(status_message(), "step 72: gradient norm 1e+06 is "));
    assert_non_null(strstr(status_message(), "samples 284 to 287"));
    assert_int_equal(rig_last(&r).step, 71);
    assert_int_equal(rig_last(&r).checkpoint.step, 68);
    r.config.fault = TRAINER_FAULT_NONE;
    assert_int_equal(trainer_run(&r.config), ST_OK);
    assert_int_equal(rig_last(&r).step, 80);
    rig_close(&r);
}

/* A resumed run knows what the steps before had: without them nothing is a spike. */
TEST(test_spike_history_is_kept)
{
    struct rig r;
    open_spike_rig(&r, "known", 71, SPIKE_MODE_STOP);
    assert_int_equal(trainer_run(&r.config), ST_OK);
    r.config.steps = 80;
    assert_int_equal(trainer_run(&r.config), ST_SPIKE);
    r.config.step.spike.mode = SPIKE_MODE_OFF;
    assert_int_equal(trainer_run(&r.config), ST_OK);
    rig_close(&r);
}

/* With SPIKE=skip a step that is not finite is skipped too; off, it ends the run. */
TEST(test_spike_not_finite)
{
    struct rig r;
    for (int mode = SPIKE_MODE_OFF; mode <= SPIKE_MODE_SKIP; mode++) {
        open_spike_rig(&r, NULL, 80, (enum spike_mode)mode);
        r.config.fault = TRAINER_FAULT_NAN;
        enum status want = mode == SPIKE_MODE_SKIP ? ST_OK : ST_NOT_FINITE;
        assert_int_equal(trainer_run(&r.config), want);
        assert_int_equal(rig_last(&r).step, want == ST_OK ? 80 : 71);
        rig_close(&r);
    }
}

TEST(test_plan)
{
    struct rig r;
    open_rig(&r, NULL, 0);
    r.config.epochs = 3; /* synthetic: an epoch is a step */
    assert_int_equal(trainer_run(&r.config), ST_OK);
    assert_int_equal(rig_last(&r).step, 3);
    r.config.epochs = INT64_MAX;
    assert_int_equal(trainer_run(&r.config), ST_BAD_SETTING);
    r.config.epochs = 1;
    r.config.step.global_samples = 8; /* more than the feed's four */
    assert_int_equal(trainer_run(&r.config), ST_BAD_DATA);
    assert_non_null(strstr(status_message(), "GLOBAL_BATCH=8"));
    rig_close(&r);
}

/* open_epochs — 16 epochs of 4 samples, 64 in all, and a rate that falls on a line. */
static void open_epochs(struct rig *r, const char *name, int64_t batch, int64_t stop_after)
{
    static char settings[128];
    open_rig(r, name, 0);
    text_format(settings, sizeof settings,
                "{\"OPTIMIZER\":\"adamw\",\"moments\":2,\"GLOBAL_BATCH\":%d}", (int)batch);
    r->config.epochs = 16;
    r->config.stop_after = stop_after;
    r->config.step.batch_samples = 1;
    r->config.step.global_samples = batch;
    r->config.settings_json = settings;
    r->config.lr_schedule =
        (struct lr_schedule_config){LR_SCHEDULE_KIND_LINEAR, 1e-2, 1e-3, .warmup_steps = 2};
}

/* run_epochs — returns the last numbers. */
static struct board_worker run_epochs(const char *name, int64_t batch, int64_t stop_after)
{
    struct rig r;
    open_epochs(&r, name, batch, stop_after);
    assert_int_equal(trainer_run(&r.config), ST_OK);
    const struct board_worker last = rig_last(&r);
    rig_close(&r);
    return last;
}

/* After a change of GLOBAL_BATCH the samples that are left are trained, no more and no fewer, at
 * the rate that belongs to the sample; an incomplete last step is left out. */
TEST(test_another_batch)
{
    static const struct {
        const char *name;
        int64_t batch, stop, then, steps, samples;
    } row[] = {
        {"half", 2, 16, 4, 24, 64}, {"double", 8, 4, 2, 20, 64}, {"odd", 2, 16, 5, 22, 62},
        {"warm", 2, 1, 7, 9, 58},   {"last", 5, 11, 9, 12, 64},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct board_worker last = run_epochs(row[i].name, row[i].batch, row[i].stop);
        assert_int_equal(last.step, row[i].stop);
        assert_int_equal(last.steps, 64 / row[i].batch);
        last = run_epochs(row[i].name, row[i].then, 0);
        assert_int_equal(last.step, row[i].steps);
        assert_int_equal(last.steps, row[i].steps);
        assert_int_equal(last.tokens, row[i].samples * 8);
        assert_int_equal(last.step_ms_n, row[i].steps - row[i].stop);
        assert_true(last.eta_seconds == 0);
        const double done = (double)(row[i].samples - row[i].then) / (double)row[i].batch;
        const double fraction = (done - 2) / (double)(64 / row[i].batch - 2);
        assert_true(fabs(last.lr - (1e-2 - 9e-3 * fraction)) < 1e-12);
        last = run_epochs(row[i].name, row[i].then, 0); /* nothing to do */
        assert_int_equal(last.step_ms_n, 0);
        assert_int_equal(last.step, row[i].steps);
    }
    assert_int_equal(run_epochs("most", 2, 16).tokens, 32 * 8);
    assert_int_equal(run_epochs("most", 40, 0).step_ms_n, 0); /* 32 are left, fewer than a step */
    assert_int_equal(run_epochs("most", 32, 0).step, 17);
}

/* The steps after a change are the same bits, whether they were interrupted or not. */
TEST(test_another_batch_resumes)
{
    run_epochs("direct", 2, 16);
    run_epochs("parts", 2, 16);
    struct board_worker direct = run_epochs("direct", 4, 0);
    run_epochs("parts", 4, 18);
    run_epochs("parts", 4, 21);
    struct board_worker resumed = run_epochs("parts", 4, 0);
    assert_true(direct.loss == resumed.loss && direct.grad_norm == resumed.grad_norm &&
                direct.lr == resumed.lr && direct.step == 24 && resumed.step == 24);
}

/* STEPS counts steps, also those of the learning rate. */
TEST(test_another_batch_of_steps)
{
    struct rig r;
    for (int64_t batch = 2; batch <= 4; batch += 2) {
        open_epochs(&r, "steps", batch, batch == 2 ? 16 : 0);
        r.config.steps = 30;
        assert_int_equal(trainer_run(&r.config), ST_OK);
        rig_close(&r);
    }
    open_epochs(&r, "steps", 4, 0);
    r.config.steps = 32;
    assert_int_equal(trainer_run(&r.config), ST_OK);
    assert_int_equal(rig_last(&r).step, 32);
    assert_true(fabs(rig_last(&r).lr - (1e-2 - 9e-3 * 29 / 30)) < 1e-12);
    rig_close(&r);
}

/* damage — one byte of the weights of a checkpoint. */
static void damage(const char *run, const char *step)
{
    char path[900];
    text_format(path, sizeof path, "%s/%s/%s/model.safetensors", harness_tmpdir(), run, step);
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    const int byte = fgetc(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    assert_int_equal(fputc(byte ^ 1, f), byte ^ 1);
    assert_int_equal(fclose(f), 0);
}

/* The steps follow the checkpoint that is read: of a damaged one, from the one before. */
TEST(test_another_batch_of_an_older_checkpoint)
{
    run_epochs("older", 2, 16);
    run_epochs("older", 4, 20);
    damage("older", "step-00000020");
    struct board_worker last = run_epochs("older", 8, 0); /* 4 steps from 32, not 2 from 48 */
    assert_int_equal(last.step, 20);
    assert_int_equal(last.tokens, 64 * 8);
    damage("older", "step-00000020");
    last = run_epochs("older", 8, 0); /* found though nothing is left to do */
    assert_int_equal(last.step_ms_n, 4);
    assert_int_equal(last.tokens, 64 * 8);
}

TEST(test_resume_settings)
{
    struct rig r;
    open_rig(&r, "required", 2);
    r.config.resume = TRAINER_RESUME_REQUIRED;
    assert_int_equal(trainer_run(&r.config), ST_BAD_DATA);
    r.config.resume = TRAINER_RESUME_AUTO;
    assert_int_equal(trainer_run(&r.config), ST_OK);
    r.config.resume = TRAINER_RESUME_REQUIRED;
    r.config.steps = 4;
    r.config.step.dims.embed = 32;
    assert_int_equal(trainer_run(&r.config), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "embed was 16, is 32"));
    r.config.step.dims.embed = 16;
    r.config.settings_json = "{\"OPTIMIZER\":\"sgd\",\"moments\":0,\"SEED\":3}";
    assert_int_equal(trainer_run(&r.config), ST_BAD_SETTING);
    /* told, not refused */
    r.config.settings_json = "{\"OPTIMIZER\":\"adamw\",\"moments\":2,\"SEED\":4}";
    assert_int_equal(trainer_run(&r.config), ST_OK);
    assert_int_equal(rig_last(&r).step, 4);
    r.config.resume = TRAINER_RESUME_NEVER;
    r.config.steps = 1;
    assert_int_equal(trainer_run(&r.config), ST_OK);
    assert_true(has(&r, "step-00000001"));
    assert_false(has(&r, "step-00000004")); /* set aside */
    r.config.settings_json = "{\"OPTIMIZER\":\"normuon\",\"moments\":2,\"SEED\":4}";
    assert_int_equal(trainer_run(&r.config), ST_OK);
    r.config.settings_json = "{\"OPTIMIZER\":\"muon\",\"moments\":2,\"SEED\":4}";
    r.config.resume = TRAINER_RESUME_AUTO;
    r.config.steps = 2;
    assert_int_equal(trainer_run(&r.config), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "holds the state of OPTIMIZER=normuon, which was "
                                             "removed; train its weights on with OPTIMIZER=muon"));
    rig_close(&r);
}

/* A checkpoint of an older version with VIRTUAL_TP=2 has the bits of TP=2. One of this version with
 * another TP is no reason to refuse: the log names the difference. */
TEST(test_resume_older_virtual_tp)
{
#define LAYOUT "{\"OPTIMIZER\":\"adamw\",\"moments\":2,\"EXACT\":\"layout\",\"VIRTUAL_SHARDS\":4"
    static const struct {
        const char *settings;
        bool is_refused; /* after VIRTUAL_TP=2 */
    } rows[] = {{LAYOUT "}", true},
                {LAYOUT ",\"TP\":4}", true},
                {LAYOUT ",\"TP\":2}", false},
                {"{\"OPTIMIZER\":\"adamw\",\"moments\":2,\"TP\":4}", false}};
    struct rig r;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        open_rig(&r, "older-virtual-tp", 2);
        r.config.resume = TRAINER_RESUME_NEVER;
        r.config.settings_json = LAYOUT ",\"VIRTUAL_TP\":2}";
        assert_int_equal(trainer_run(&r.config), ST_OK);
        r.config.resume = TRAINER_RESUME_REQUIRED;
        r.config.steps = 3;
        r.config.settings_json = rows[i].settings;
        assert_int_equal(trainer_run(&r.config), rows[i].is_refused ? ST_BAD_SETTING : ST_OK);
        if (rows[i].is_refused)
            assert_non_null(strstr(status_message(), "set TP=2, or EXACT=off"));
        rig_close(&r);
    }
    open_rig(&r, "older-virtual-tp", 4);
    r.config.settings_json = LAYOUT ",\"TP\":2}";
    assert_int_equal(trainer_run(&r.config), ST_OK);
    r.config.steps = 5;
    r.config.settings_json = LAYOUT ",\"TP\":4}";
    assert_int_equal(trainer_run(&r.config), ST_OK);
    assert_int_equal(rig_last(&r).step, 5);
    rig_close(&r);
#undef LAYOUT
}

TEST(test_without_a_first_post)
{
    struct rig r;
    open_rig(&r, NULL, 1);
    board_worker_clear(r.board, 0);
    assert_int_equal(trainer_run(&r.config), ST_BUG);
    rig_close(&r);
}

/* Samples of text between the steps change no bit of the training. */
TEST(test_samples_change_nothing)
{
    struct rig r;
    double loss[2], norm[2];
    for (int is_on = 0; is_on < 2; is_on++) {
        open_rig(&r, NULL, 7);
        r.config.step.dropout = 0.3f;
        r.config.sample_every = is_on ? 2 : 0;
        r.config.sample_prompt = "!";
        r.config.sampling_params = (struct sampling_params){1, 0, 0.9};
        assert_int_equal(trainer_run(&r.config), ST_OK);
        loss[is_on] = rig_last(&r).loss;
        norm[is_on] = rig_last(&r).grad_norm;
        rig_close(&r);
    }
    assert_true(loss[0] == loss[1] && norm[0] == norm[1]);
    open_rig(&r, NULL, 7);
    r.config.sample_every = 2;
    r.config.sample_prompt = "";
    /* the vocabulary of 40 has no <|endoftext|> */
    assert_int_equal(trainer_run(&r.config), ST_BAD_SETTING);
    rig_close(&r);
}

/* The event files of a run and of its continuation, in the order of their names. */
static void event_files(const char *dir, char path[2][FILE_PATH_MAX])
{
    int n = 0;
    struct dirent **entries;
    int found = scandir(dir, &entries, NULL, alphasort);
    for (int i = 0; i < found; i++) {
        if (entries[i]->d_name[0] != '.' && n < 2)
            text_format(path[n++], FILE_PATH_MAX, "%s/%s", dir, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    assert_int_equal(n, 2);
}

TEST(test_tensorboard)
{
    static const char *const tags[] = {"loss",    "lr", "grad_norm", "tokens_per_second",
                                       "step_ms", "mfu"};
    char dir[700], path[2][FILE_PATH_MAX];
    text_format(dir, sizeof dir, "%s/events", harness_tmpdir());
    struct rig r;
    for (int64_t steps = 3; steps <= 7; steps += 4) {
        open_rig(&r, "watched", steps);
        r.config.tensorboard_dir = dir;
        assert_int_equal(trainer_run(&r.config), ST_OK);
        rig_close(&r);
    }
    event_files(dir, path);
    for (int life = 0; life < 2; life++) {
        struct file_map map = {0};
        struct tfevents_seen seen;
        assert_int_equal(file_map_open(path[life], &map), ST_OK);
        struct tfevents_cursor c = {map.data, map.data + map.bytes};
        assert_true(tfevents_read_next(&c, &seen));
        assert_true(tfevents_read_next(&c, &seen));
        assert_int_equal(seen.status, 1); /* a session starts … */
        assert_int_equal(seen.step, life == 0 ? 1 : 4);
        for (int64_t step = life == 0 ? 1 : 4; step <= (life == 0 ? 3 : 7); step++) {
            assert_true(tfevents_read_next(&c, &seen));
            assert_int_equal(seen.step, step);
            for (int i = 0; i < seen.scalars_n; i++)
                assert_string_equal(seen.tag[i], tags[i]);
            assert_true(seen.scalars_n >= 5 && seen.value[0] > 0 && seen.value[1] == 1e-2f);
        }
        assert_false(tfevents_read_next(&c, &seen));
        file_map_close(&map);
    }
}

HARNESS_RUN_ALL()
