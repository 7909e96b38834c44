/* check_soak_restart — a checkpoint is written, the process that writes the next one is killed, and
 * the run is restored; see check/soak.h. Must not know other stages. */
#include "node/check/soak.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "check/node/disk.h"
#include "check/node/scratch.h"
#include "check/report/text.h"
#include "kernels/cpu.h"
#include "node/process/process.h"
#include "train/checkpoint/checkpoint.h"
#include "train/trainer/stop_request.h"

#define SEED 4
#define STEPS 3        /* the last one is in no checkpoint that is whole */
#define CHILD_MS 90000 /* a busy machine may stop a process for long */

/* What the writing process sends through the pipe. */
struct said {
    int step; /* updates done; -1: it failed, and why */
    uint64_t sum;
    char why[200];
};

struct restart {
    const struct check_config *check;
    const struct model_dims *dims;
    struct check_scratch scratch;
    struct dev *dev;
    struct step *step;
    struct feed *feed;
    struct checkpoint *checkpoint;
    struct said said[STEPS + 2]; /* each step, why it failed, and room to read the end */
    int said_n;
    bool is_stuck; /* the writer does not even end when it is killed: its disk does not answer */
};

/* ---- a run of a few steps ---- */

static enum status run_open(struct restart *r, bool is_loaded)
{
    const struct step_config step = {.dims = *r->dims,
                                     .batch_samples = 1,
                                     .global_samples = 1,
                                     .seq_tokens = r->dims->context,
                                     .optim = {.kind = OPTIM_KIND_ADAMW,
                                               .beta1 = 0.9,
                                               .beta2 = 0.95,
                                               .eps = 1e-8,
                                               .grad_clip = 1},
                                     .seed = SEED,
                                     .is_loaded = is_loaded};
    const struct feed_config feed = {.task = FEED_TASK_LM,
                                     .data = FEED_SYNTHETIC,
                                     .seq_tokens = r->dims->context,
                                     .global_samples = 1,
                                     .vocab = r->dims->vocab,
                                     .seed = SEED};
    struct checkpoint_config config = {.dims = r->dims,
                                       .dir = r->scratch.path,
                                       .keep = 2,
                                       .settings_json = "{\"OPTIMIZER\":\"adamw\",\"moments\":2}",
                                       .version = "check",
                                       .seed = SEED};
    TRY(dev_cpu_open(1, CPU_ISA_N, &r->dev));
    struct step_config on = step;
    on.dev = r->dev;
    TRY(step_open(&on, &r->step));
    TRY(feed_open(&feed, &r->feed));
    config.data_fingerprint = feed_fingerprint(r->feed);
    return checkpoint_open(&config, &r->checkpoint);
}

static enum status run_step(struct restart *r, int64_t step_i)
{
    struct step_result result;
    TRY(step_run(r->step, r->feed, step_i, step_i, 1e-3, false, &result));
    return step_drain(r->step);
}

/* Of weights and moments. */
static uint64_t run_sum(struct restart *r)
{
    const size_t bytes = (size_t)step_own_table(r->step)->total_elems * sizeof(float);
    uint64_t sum = 0;
    for (int part = 0; part < step_parts(r->step); part++)
        sum = XXH3_64bits_withSeed(step_part(r->step, part), bytes, sum);
    return sum;
}

/* ---- the process that is killed ---- */

static void die(void *arg, int64_t bytes)
{
    (void)arg, (void)bytes;
    stop_request_kill();
}

static void say(int fd, const struct said *said)
{
    if (write(fd, said, sizeof *said) != (ssize_t)sizeof *said)
        _exit(1);
}

static enum status write_and_die(struct restart *r, int fd)
{
    struct checkpoint_progress progress = {0};
    char path[FILE_PATH_MAX];
    bool is_found;
    TRY(run_open(r, false));
    TRY(checkpoint_find(r->checkpoint, &progress, &is_found, path, sizeof path));
    TRY(checkpoint_attach(r->checkpoint, r->step, &progress, path, sizeof path));
    for (int i = 0; i < STEPS; i++) {
        TRY(run_step(r, i));
        struct said said = {.step = i + 1, .sum = run_sum(r)};
        say(fd, &said);
        progress.step = progress.samples = i + 1;
        if (i == STEPS - 2)
            TRY(checkpoint_save(r->checkpoint, &progress, NULL, NULL, path, sizeof path));
    }
    const struct heartbeat killer = {die, NULL};
    TRY(checkpoint_save(r->checkpoint, &progress, NULL, &killer, path, sizeof path));
    stop_request_kill();
}

/* ---- the process that restores ---- */

/* listen_to — what the child writes, until it has ended. false: it hangs. */
static bool listen_to(struct restart *r, int fd)
{
    const int64_t end_ms = clock_ms() + CHILD_MS;
    while (clock_ms() < end_ms && r->said_n < STEPS + 2) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, 1000) <= 0)
            continue;
        ssize_t n = read(fd, &r->said[r->said_n], sizeof *r->said);
        if (n == 0)
            return true;
        r->said_n += n == (ssize_t)sizeof *r->said;
    }
    return false;
}

static enum status kill_a_writer(struct restart *r)
{
    int fd[2], wait_status = 0;
    if (pipe(fd) != 0)
        return FAIL(ST_RETRY, "cannot open a pipe: %s; raise ulimit -n", strerror(errno));
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        struct said said = {.step = -1};
        close(fd[0]);
        process_bind_to(parent);
        log_init(&(struct log_config){.level = LOG_LEVEL_ERROR, .node_id = -1, .rank = -1});
        (void)write_and_die(r, fd[1]); /* it returns only if something failed */
        text_copy(said.why, sizeof said.why, status_message());
        say(fd[1], &said);
        _exit(1);
    }
    close(fd[1]);
    bool is_gone = pid > 0 && listen_to(r, fd[0]);
    close(fd[0]);
    if (pid < 0)
        return FAIL(ST_RETRY, "cannot start a process: %s; raise ulimit -u", strerror(errno));
    if (!is_gone)
        kill(pid, SIGKILL);
    /* A process that waits for a disk ends when that answers: it is left behind. */
    const int64_t end_ms = clock_ms() + CHILD_MS;
    while (waitpid(pid, &wait_status, WNOHANG) == 0 && !r->is_stuck) {
        r->is_stuck = clock_ms() >= end_ms;
        clock_sleep_ms(2);
    }
    if (!is_gone || r->is_stuck)
        return FAIL(ST_STORE, "the process that writes a checkpoint to %s hangs", r->scratch.path);
    if (r->said_n > 0 && r->said[r->said_n - 1].step < 0)
        return FAIL(ST_STORE, "%s", r->said[r->said_n - 1].why);
    if (!WIFSIGNALED(wait_status) || WTERMSIG(wait_status) != SIGKILL || r->said_n != STEPS)
        return FAIL(ST_STORE,
                    "the process that writes a checkpoint ended by itself, after %d steps",
                    r->said_n);
    return ST_OK;
}

/* restored — the state is what the other process had at this step, and goes on as that did. */
static enum status restore(struct restart *r, int64_t *step_out)
{
    struct checkpoint_progress progress = {0};
    char path[FILE_PATH_MAX];
    bool is_found = false;
    TRY(run_open(r, true));
    TRY(checkpoint_find(r->checkpoint, &progress, &is_found, path, sizeof path));
    if (!is_found)
        return FAIL(ST_BAD_DATA, "the checkpoint of step %d is gone", STEPS - 1);
    TRY(checkpoint_attach(r->checkpoint, r->step, &progress, path, sizeof path));
    *step_out = progress.step;
    if (progress.step < STEPS - 1 || progress.step > STEPS)
        return FAIL(ST_BAD_DATA, "a checkpoint of step %lld was found, not of %d",
                    (long long)progress.step, STEPS - 1);
    if (run_sum(r) != r->said[progress.step - 1].sum)
        return FAIL(ST_BAD_DATA,
                    "the restored state of step %lld has other bits than the saved one",
                    (long long)progress.step);
    for (int64_t i = progress.step; i < STEPS; i++)
        TRY(run_step(r, i));
    if (run_sum(r) != r->said[STEPS - 1].sum)
        return FAIL(ST_FAULT, "step %d after the restart gave other weights than before it", STEPS);
    return ST_OK;
}

/* ---- the row ---- */

static struct check_row row_of(const struct restart *r, enum status st, int64_t step)
{
    const int node = r->check->place.node;
    char dir[CHECK_TEXT_WORD];
    struct check_row row = check_row_found(
        CHECK_STAGE_SOAK, CHECK_POINT_CHECKPOINT, node, "checkpoint and restart",
        CHECK_VERDICT_PASS,
        "a process was killed while it saved; step %lld was restored bit for bit and went on",
        (long long)step);
    if (st != ST_OK) {
        row = check_row_found(CHECK_STAGE_SOAK, CHECK_POINT_CHECKPOINT, node,
                              "checkpoint and restart", CHECK_VERDICT_FAIL, "%s", status_message());
        text_format(row.remedy, sizeof row.remedy,
                    "df -h %s; dmesg | grep -i error # or set CHECKPOINT_DIR to another disk",
                    check_text_folder(dir, sizeof dir, r->check->dir));
        status_clear();
    }
    row.rank = r->check->place.rank;
    text_copy(row.subject, sizeof row.subject, r->check->dir);
    return row;
}

static enum status try_restart(struct restart *r, int64_t *step_out)
{
    char base[FILE_PATH_MAX];
    check_disk_folder(r->check->dir, base, sizeof base);
    TRY(check_scratch_open(base, &r->scratch));
    enum status st = kill_a_writer(r);
    if (st == ST_OK)
        st = restore(r, step_out);
    struct status_saved saved;
    status_save(&saved);
    checkpoint_close(r->checkpoint);
    step_close(r->step);
    feed_close(r->feed);
    dev_close(r->dev);
    enum status removed = ST_OK;
    if (r->is_stuck)
        check_scratch_leave(&r->scratch);
    else
        removed = check_scratch_close(&r->scratch);
    status_restore(&saved);
    return st != ST_OK ? st : removed;
}

enum status check_soak_restart(const struct check_config *check, const struct model_dims *dims,
                               struct check_rows *rows)
{
    int64_t step = 0;
    struct restart *r = memory_new(1, sizeof *r);
    r->check = check;
    r->dims = dims;
    struct check_row row;
    const bool has_dir = check->dir && check->dir[0];
    if (!has_dir || check_disk_is_bad(check)) {
        row = check_row_found(CHECK_STAGE_SOAK, CHECK_POINT_CHECKPOINT, check->place.node,
                              "checkpoint and restart", CHECK_VERDICT_SKIPPED, "%s",
                              has_dir ? CHECK_DISK_BAD : "no folder for checkpoints is set");
        row.rank = check->place.rank;
    } else {
        const enum status st = try_restart(r, &step);
        row = row_of(r, st, step);
    }
    free(r);
    check_row_add(rows, &row);
    return ST_OK;
}
