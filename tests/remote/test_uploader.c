/* test_uploader — node/bucket/uploader.h with the fake S3 server: its phases, a store that hangs,
 * refuses or sends nonsense, and checkpoints that are damaged on this machine. */
#define HARNESS_LOUD /* warnings are counted */
#include "remote/s3_rig.h"

#include "ckpt_sample.h"
#include "node/bucket/uploader.h"

enum { PATIENCE_MS = 20000 };

/* One run that uploads: s3://bucket/NAME and its local folder. */
struct run {
    char name[64], local[FILE_PATH_MAX];
    struct ckpt_lock *lock;
    struct uploader *uploader;
    struct uploader_stats stats;
};

static _Atomic int damaged_n, kept_n; /* lines about damaged and about kept checkpoints */
static char kept_line[1400];          /* the last line about kept ones */

static void count_lines(void *arg, int64_t wall_ms, const char *line)
{
    (void)arg, (void)wall_ms;
    damaged_n += strstr(line, "a damaged checkpoint is not uploaded") != NULL;
    if (strstr(line, "CHECKPOINT_KEEP") == NULL)
        return;
    text_copy(kept_line, sizeof kept_line, line);
    kept_n++;
}

static int begin_test(void **state)
{
    (void)state;
    log_tap(count_lines, NULL);
    damaged_n = kept_n = 0;
    return 0;
}
#define UPLOADER_TEST(name) TEST_WITH(name, begin_test, end_test)

/* Prepares the local folder of bucket/NAME; the caller may save checkpoints in it first. */
static void make_run(struct run *run, const char *name)
{
    *run = (struct run){.lock = NULL};
    text_format(run->name, sizeof run->name, "s3://%s", name);
    name_path(run->local, name);
    assert_int_equal(ckpt_lock(run->local, &run->lock), ST_OK);
}

/* Starts the uploader, while no run holds the folder. */
static void open_run(struct run *run, int keep, bool is_new_run)
{
    const struct uploader_config config = {.name = run->name,
                                           .dir = run->local,
                                           .keep = keep,
                                           .allows_local = true,
                                           .is_new_run = is_new_run};
    ckpt_lock_release(run->lock);
    run->lock = NULL;
    assert_int_equal(uploader_open(&config, &run->uploader), ST_OK);
}

static void close_run(struct run *run)
{
    uploader_close(run->uploader);
    ckpt_lock_release(run->lock);
}

static bool is_phase(const struct run *run, int64_t phase) { return run->stats.phase == phase; }
static bool has_step(const struct run *run, int64_t step) { return run->stats.step == step; }
static bool has_error(const struct run *run, int64_t is) { return !!run->stats.error[0] == is; }
static bool has_failed(const struct run *run, int64_t n) { return run->stats.failures >= n; }

static bool has_kept(const struct run *run, int64_t n) { return kept_n == n; }
static bool has_damaged(const struct run *run, int64_t n) { return damaged_n == n; }

static bool has_object(const char *path)
{
    char name[200];
    text_format(name, sizeof name, "object %s ", path);
    return strstr(control("GET", "/_state", "", 0), name) != NULL;
}

/* The last object of a checkpoint is removed: optim_v.safetensors. */
static bool has_removed(const struct run *run, int64_t step)
{
    char path[200];
    text_format(path, sizeof path, "%s/step-%08lld/optim_v.safetensors", run->name + 5,
                (long long)step);
    return !has_object(path);
}

/* Waits until the numbers of the run are as `is` wants them. */
static void await(struct run *run, bool (*is)(const struct run *run, int64_t value), int64_t value)
{
    const int64_t end_ms = clock_ms() + harness_patience_ms(PATIENCE_MS);
    for (;;) {
        uploader_read(run->uploader, &run->stats);
        if (is(run, value))
            return;
        if (clock_ms() > end_ms)
            fail_msg("waited in vain for %lld: phase %d, step %lld, %lld failures, error \"%s\"",
                     (long long)value, (int)run->stats.phase, (long long)run->stats.step,
                     (long long)run->stats.failures, run->stats.error);
        clock_sleep_ms(10);
    }
}

/* Waits until the workers would start, and holds the folder as they do. */
static void await_start(struct run *run)
{
    await(run, is_phase, UPLOADER_PHASE_UPLOAD);
    assert_int_equal(ckpt_lock(run->local, &run->lock), ST_OK);
}

/* Saves a checkpoint, and announces it. */
static void save(struct run *run, int64_t step)
{
    char path[FILE_PATH_MAX];
    assert_int_equal(sample_save(run->lock, step, 100, path), ST_OK);
    if (run->uploader != NULL)
        uploader_notice(run->uploader, step);
}

/* Cuts a file of a local checkpoint. */
static void damage(const struct run *run, int64_t step)
{
    char path[FILE_PATH_MAX];
    text_format(path, sizeof path, "%s/step-%08lld/model.safetensors", run->local, (long long)step);
    assert_int_equal(truncate(path, 10), 0);
}

/* Changes a byte of a local checkpoint. */
static void flip(const struct run *run, int64_t step)
{
    char path[FILE_PATH_MAX];
    text_format(path, sizeof path, "%s/step-%08lld/model.safetensors", run->local, (long long)step);
    const int fd = open(path, O_RDWR);
    unsigned char byte = 0;
    assert_true(fd >= 0 && pread(fd, &byte, 1, file_bytes(path) - 1) == 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, file_bytes(path) - 1), 1);
    close(fd);
}

/* The phase FAILED, with this status and these words. */
static void assert_failed(struct run *run, enum status st, const char *words)
{
    await(run, is_phase, UPLOADER_PHASE_FAILED);
    (void)FAIL(run->stats.st, "%s", run->stats.error);
    assert_failure(run->stats.st, st, words);
}

/* ---- the start ---- */

UPLOADER_TEST(store_that_hangs_at_the_start)
{
    struct run run;
    make_run(&run, "bucket/hangs");
    kill(server, SIGSTOP);
    int64_t begin_ms = clock_ms();
    open_run(&run, 3, false);
    clock_sleep_ms(300);
    uploader_read(run.uploader, &run.stats);
    const bool waits = is_phase(&run, UPLOADER_PHASE_DOWNLOAD);
    uploader_close(run.uploader);
    const int64_t ms = clock_ms() - begin_ms;
    kill(server, SIGCONT);
    assert_true(waits);
    assert_true(ms < harness_patience_ms(4000));
}

UPLOADER_TEST(start_that_is_refused)
{
    struct run run;
    make_run(&run, "readonly/run");
    open_run(&run, 3, false);
    assert_failed(&run, ST_BAD_SETTING, "PutObject");
    close_run(&run);

    make_run(&run, "bucket/in-use");
    struct ckpt_lock *other = run.lock;
    run.lock = NULL;
    open_run(&run, 3, false);
    assert_failed(&run, ST_BAD_SETTING, "is in use by process");
    close_run(&run);
    ckpt_lock_release(other);

    make_run(&run, "bucket/full");
    save(&run, 10);
    open_run(&run, 3, false);
    await_start(&run);
    await(&run, has_step, 10);
    close_run(&run);
    make_run(&run, "bucket/full");
    open_run(&run, 3, true);
    assert_failed(&run, ST_BAD_SETTING, "RESUME=never");
    close_run(&run);
}

UPLOADER_TEST(newer_checkpoint_is_downloaded_first)
{
    struct run run;
    char path[FILE_PATH_MAX], elsewhere[FILE_PATH_MAX];
    make_run(&run, "bucket/moves");
    save(&run, 10);
    open_run(&run, 3, false);
    await_start(&run);
    await(&run, has_step, 10);
    close_run(&run);
    name_path(elsewhere, "elsewhere");
    assert_int_equal(rename(run.local, elsewhere), 0);
    make_run(&run, "bucket/moves");
    set_fault("kind=500&method=GET&key=moves/step-&n=1000000");
    open_run(&run, 3, false);
    await(&run, has_error, true);
    assert_true(is_phase(&run, UPLOADER_PHASE_DOWNLOAD));
    control("DELETE", "/_fault", "", 0);
    await_start(&run);
    assert_true(has_error(&run, false));
    text_format(path, sizeof path, "%s/step-00000010/manifest.json", run.local);
    assert_true(file_exists(path));
    close_run(&run);
}

/* RESUME=never: the run moves older checkpoints aside after the uploads may begin. */
UPLOADER_TEST(new_run_uploads_no_older_checkpoint)
{
    struct run run;
    char from[FILE_PATH_MAX], to[FILE_PATH_MAX];
    int64_t step, bytes;
    make_run(&run, "bucket/never");
    save(&run, 60);
    open_run(&run, 3, true);
    await_start(&run);
    uploader_missing(run.uploader, &step, &bytes);
    assert_int_equal(step, -1);
    uploader_finish(run.uploader);
    await(&run, is_phase, UPLOADER_PHASE_DONE);
    assert_int_equal(run.stats.step, -1);
    close_run(&run);

    make_run(&run, "bucket/never"); /* the process died before the run moved anything */
    open_run(&run, 3, true);
    await_start(&run);
    text_format(from, sizeof from, "%s/step-00000060", run.local);
    text_format(to, sizeof to, "%s/before-1", run.local);
    assert_int_equal(rename(from, to), 0);
    save(&run, 10);
    await(&run, has_step, 10);
    save(&run, 20);
    await(&run, has_step, 20);
    assert_false(has_object("bucket/never/step-00000060/manifest.json"));
    close_run(&run);
}

/* ---- a store in trouble ---- */

UPLOADER_TEST(first_failed_try_is_shown)
{
    struct run run;
    make_run(&run, "bucket/storm");
    open_run(&run, 3, false);
    await_start(&run);
    set_fault("kind=503&method=PUT&key=storm/step-&n=1000000");
    save(&run, 10);
    await(&run, has_error, true);
    assert_non_null(strstr(run.stats.error, "503"));
    assert_int_equal(run.stats.failures, 0); /* the attempt goes on */
    assert_int_equal(run.stats.waiting_step, 10);
    control("DELETE", "/_fault", "", 0);
    await(&run, has_step, 10);
    await(&run, has_error, false);
    close_run(&run);
}

UPLOADER_TEST(nothing_may_be_removed)
{
    struct run run;
    make_run(&run, "bucket/kept");
    open_run(&run, 1, false);
    await_start(&run);
    save(&run, 10);
    await(&run, has_step, 10);
    set_fault("kind=403&method=DELETE&key=kept/step-&n=1000000");
    for (int64_t step = 20; step <= 40; step += 10) {
        save(&run, step);
        await(&run, has_step, step);
    }
    await(&run, has_kept, 1); /* once for the incident: two more removals have failed */
    await(&run, has_error, false);
    assert_int_equal(run.stats.failures, 0);
    assert_int_equal(kept_n, 1);
    assert_true(has_object("bucket/kept/step-00000010/manifest.json"));
    control("DELETE", "/_fault", "", 0);
    save(&run, 50);
    await(&run, has_step, 50);
    await(&run, has_removed, 10);
    await(&run, has_removed, 40);
    set_fault("kind=403&method=DELETE&key=kept/step-&n=1000000");
    save(&run, 60);
    await(&run, has_step, 60);
    await(&run, has_kept, 2); /* another incident */
    close_run(&run);
}

UPLOADER_TEST(slow_removal_delays_no_upload)
{
    struct run run;
    make_run(&run, "bucket/slow");
    open_run(&run, 1, false);
    await_start(&run);
    save(&run, 10);
    await(&run, has_step, 10);
    set_fault("kind=503&method=DELETE&key=slow/step-&n=1000000");
    save(&run, 20);
    await(&run, has_step, 20);
    save(&run, 30);
    await(&run, has_step, 30);
    uploader_finish(run.uploader);
    await(&run, is_phase, UPLOADER_PHASE_DONE);
    assert_int_equal(run.stats.failures, 0);
    assert_int_equal(kept_n, 1);
    assert_non_null(strstr(kept_line, "HTTP 503"));
    close_run(&run);
}

UPLOADER_TEST(malformed_response_is_not_the_checkpoints_fault)
{
    struct run run;
    make_run(&run, "bucket/odd");
    open_run(&run, 3, false);
    await_start(&run);
    set_fault("kind=page&method=GET&key=bucket&n=1");
    save(&run, 10);
    await(&run, has_failed, 1);
    await(&run, has_step, 10);
    assert_int_equal(run.stats.failures, 1);
    assert_int_equal(damaged_n, 0);
    uploader_finish(run.uploader);
    await(&run, is_phase, UPLOADER_PHASE_DONE);
    close_run(&run);
}

/* ---- damaged checkpoints ---- */

UPLOADER_TEST(damaged_checkpoints_are_named_once)
{
    struct run run;
    make_run(&run, "bucket/damaged");
    for (int64_t step = 10; step <= 40; step += 10)
        save(&run, step);
    for (int64_t step = 20; step <= 40; step += 10)
        damage(&run, step);
    open_run(&run, 3, false);
    await(&run, has_step, 10);
    harness_wait_ms(2500); /* more looks at the folder */
    assert_int_equal(damaged_n, 3);
    uploader_finish(run.uploader);
    assert_failed(&run, ST_STORE, "of step 40, is damaged on this machine");
    close_run(&run);
}

/* The run replaces a damaged checkpoint when it comes to that step again. */
UPLOADER_TEST(damaged_checkpoint_that_is_replaced)
{
    struct run run;
    make_run(&run, "bucket/replaced");
    for (int64_t step = 10; step <= 30; step += 10)
        save(&run, step);
    flip(&run, 20);
    damage(&run, 30);
    open_run(&run, 3, false);
    await_start(&run);
    await(&run, has_step, 10);
    assert_int_equal(damaged_n, 2);
    assert_false(has_object("bucket/replaced/step-00000020/model.safetensors"));
    save(&run, 20);
    await(&run, has_step, 20);
    save(&run, 30);
    await(&run, has_step, 30);
    assert_int_equal(damaged_n, 2);
    uploader_finish(run.uploader);
    await(&run, is_phase, UPLOADER_PHASE_DONE);
    close_run(&run);
}

UPLOADER_TEST(file_that_changes_during_its_upload)
{
    struct run run;
    int64_t step, bytes;
    make_run(&run, "bucket/changes");
    open_run(&run, 3, false);
    await_start(&run);
    save(&run, 10);
    await(&run, has_step, 10);
    set_fault("kind=503&method=PUT&key=changes/step-&n=1000000");
    save(&run, 20);
    await(&run, has_error, true);
    uploader_missing(run.uploader, &step, &bytes);
    assert_int_equal(step, 20);
    damage(&run, 20);
    control("DELETE", "/_fault", "", 0);
    await(&run, has_damaged, 1);
    await(&run, has_error, false);
    assert_int_equal(run.stats.waiting_step, -1);
    assert_int_equal(run.stats.failures, 0);
    assert_false(has_object("bucket/changes/step-00000020/manifest.json"));
    save(&run, 30);
    await(&run, has_step, 30);
    uploader_finish(run.uploader);
    await(&run, is_phase, UPLOADER_PHASE_DONE);
    close_run(&run);
}

HARNESS_RUN_ALL_WITH(set_up, tear_down)
