/* check_soak_restart — checks that a run is restored from a checkpoint after the process that wrote
 * the next checkpoint was killed; see check/soak.h. Must not know other stages. */
#include "node/check/soak.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limited.h"
#include "base/log.h"
#include "base/text.h"
#include "check/node/disk.h"
#include "check/node/scratch.h"
#include "check/report/text.h"
#include "kernels/cpu.h"
#include "node/check/soak_train.h"
#include "node/process/process.h"
#include "train/trainer/stop_request.h"

#define STEPS 3         /* the last step is in no complete checkpoint */
#define LIMIT_MS 180000 /* a busy machine may stop a process for a long time */

struct restart {
    char dir[FILE_PATH_MAX];
    struct model_dims dims;
    bool dies; /* this process is killed */
    /* checksums of the states of the present training: before its first step and after each step */
    uint64_t state[STEPS + 1];
    int states;
};

static void die(int signal_n)
{
    (void)signal_n;
    stop_request_kill();
}

/* die_in_save — makes the kernel end this process as soon as a file has half of the model. */
static void die_in_save(const struct step *step)
{
    struct rlimit limit;
    sigset_t own;
    sigemptyset(&own);
    sigaddset(&own, SIGXFSZ);
    pthread_sigmask(SIG_UNBLOCK, &own, NULL); /* threads of this program block signals */
    signal(SIGXFSZ, die);
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = (rlim_t)step_whole_table(step)->total_elems * sizeof(float) / 2;
    setrlimit(RLIMIT_FSIZE, &limit);
}

static enum status look(void *arg, struct step *step, const struct step_result *result)
{
    struct restart *r = arg;
    TRY(step_drain(step));
    uint64_t *sum = &r->state[r->states++];
    *sum = 0;
    for (int array = 0; array < step_arrays(step); array++)
        *sum = *sum * 31 + check_soak_train_sum(step_own_table(step), step_array(step, array));
    if (r->dies && result)
        die_in_save(step);
    return ST_OK;
}

/* train_to_step — trains up to a step, from the newest checkpoint of dir if there is one. dir NULL:
 * saves none. */
static enum status train_to_step(struct restart *r, const char *dir, int steps)
{
    struct check_soak_train_config config = {
        .dims = r->dims, .batch_samples = 1, .steps = steps, .dir = dir};
    r->states = 0;
    TRY(dev_cpu_open(1, CPU_ISA_N, &config.dev));
    const enum status st = check_soak_train_run(&config, look, r);
    dev_close(config.dev);
    return st;
}

/* kill_a_writer — resumes in a child process, which is killed while it saves. */
static enum status kill_a_writer(struct restart *r)
{
    int wait_status = 0;
    const pid_t parent = getpid(), pid = fork();
    if (pid < 0)
        return FAIL(ST_RETRY, "cannot start a process: %s; raise ulimit -u", strerror(errno));
    if (pid == 0) {
        process_bind_to(parent);
        r->dies = true;
        if (train_to_step(r, r->dir, STEPS) != ST_OK)
            LOG_ERROR("%s", status_message());
        _exit(1);
    }
    while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR)
        ;
    if (!WIFSIGNALED(wait_status) || WTERMSIG(wait_status) != SIGKILL)
        return FAIL(ST_STORE, "the process that writes a checkpoint ended before it was killed");
    return ST_OK;
}

/* restart — checks that the restored state equals the saved one, and that training goes on as
 * without an interruption. */
static enum status restart(void *arg)
{
    struct restart *r = arg;
    TRY(train_to_step(r, NULL, STEPS));
    const uint64_t saved = r->state[STEPS - 1], last = r->state[STEPS];
    TRY(train_to_step(r, r->dir, STEPS - 1));
    TRY(kill_a_writer(r));
    TRY(train_to_step(r, r->dir, STEPS));
    if (r->states != 2)
        return FAIL(ST_BAD_DATA, "found a checkpoint of step %d, expected step %d",
                    STEPS + 1 - r->states, STEPS - 1);
    if (r->state[0] != saved)
        return FAIL(ST_BAD_DATA, "the restored state of step %d differs from the saved state",
                    STEPS - 1);
    if (r->state[1] != last)
        return FAIL(ST_FAULT, "after the restart, step %d had other weights than without a restart",
                    STEPS);
    return ST_OK;
}

static enum status try_restart(const struct check_config *check, const struct model_dims *dims)
{
    char base[FILE_PATH_MAX];
    struct check_scratch scratch;
    struct restart r = {.dims = *dims};
    struct status_saved saved;
    bool is_late;
    check_disk_folder(check->dir, base, sizeof base);
    TRY(check_scratch_open(base, &scratch));
    (void)text_format(r.dir, sizeof r.dir, "%s" CHECK_SCRATCH_DATA, scratch.path);
    const enum status st =
        limited_run(restart, &r, sizeof r, LIMIT_MS, "writes and restores a checkpoint", &is_late);
    status_save(&saved);
    enum status removed = ST_OK;
    if (is_late)
        check_scratch_leave(&scratch);
    else
        removed = check_scratch_close(&scratch);
    status_restore(&saved);
    return st != ST_OK ? st : removed;
}

enum status check_soak_restart(const struct check_config *check, const struct model_dims *dims,
                               struct check_rows *rows)
{
    const bool has_dir = check->dir && check->dir[0],
               is_skipped = !has_dir || check_disk_is_bad(check);
    enum check_verdict verdict = CHECK_VERDICT_SKIPPED;
    char why[sizeof rows->row->why] = "no folder for checkpoints is set", dir[CHECK_TEXT_WORD];
    if (has_dir)
        text_copy(why, sizeof why, CHECK_DISK_BAD);
    if (!is_skipped) {
        verdict = try_restart(check, dims) == ST_OK ? CHECK_VERDICT_PASS : CHECK_VERDICT_FAIL;
        text_format(why, sizeof why,
                    "a process was killed while it saved; step %d was restored bit for bit, and "
                    "training continued",
                    STEPS - 1);
        if (verdict == CHECK_VERDICT_FAIL)
            text_copy(why, sizeof why, status_message());
        status_clear();
    }
    struct check_row row =
        check_row_found(CHECK_STAGE_SOAK, CHECK_POINT_CHECKPOINT, check->place.node,
                        "checkpoint and restart", verdict, "%s", why);
    row.rank = check->place.rank;
    if (!is_skipped)
        text_copy(row.subject, sizeof row.subject, check->dir);
    if (verdict == CHECK_VERDICT_FAIL)
        text_format(row.remedy, sizeof row.remedy,
                    "df -h %s; dmesg | grep -i error # or set CHECKPOINT_DIR to another disk",
                    check_text_folder(dir, sizeof dir, check->dir));
    check_row_add(rows, &row);
    return ST_OK;
}
