/* check_worker — see check/worker.h. */
#include "node/check/worker.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "check/report/report.h"
#include "check/check_result.h"
#include "conf/launcher.h"
#include "measure/measure_ranks.h"
#include "node/check/facts.h"
#include "node/check/output.h"
#include "node/check/remote.h"
#include "node/check/soak.h"
#include "node/choose/device.h"
#include "plan/plan_machine.h"
#include "train/trainer/stop_request.h"

#define QUICK_MS 3000
#define STANDARD_MS 60000
#define FULL_MS 600000
#define LINE_MS 100
#define PUBLISH_EVERY_MS 200
#define WARNINGS_MAX 8
#define MACHINE_MS_MIN 2000
#define BAR_CELLS 20

struct check_worker {
    struct check_worker_config config;
    struct check_config check;
    struct check_facts facts;
    struct check_rows found; /* rows from before the ranks were connected */
    struct check_baseline baseline;
    bool has_baseline;
    char host[64];
    int64_t started, begin_ms, line_ms, published_ms;
    enum check_stage stage; /* stage of the last log line */
    bool has_stage;
    bool is_terminal, is_shown;
};

/* ---- settings ---- */

/* name_host — returns the name of this node in the scheduler. */
static enum check_scheduler name_host(char *out, size_t cap)
{
    const char *node = launcher_find(environ, "SLURMD_NODENAME"),
               *kubernetes = launcher_find(environ, "NODE_NAME");
    bool is_pod = launcher_find(environ, "KUBERNETES_SERVICE_HOST") != NULL;
    if (gethostname(out, cap) != 0)
        text_copy(out, cap, "");
    out[cap - 1] = 0;
    if (is_pod && kubernetes) {
        text_copy(out, cap, kubernetes);
        return CHECK_SCHEDULER_KUBERNETES;
    }
    if (is_pod)
        return CHECK_SCHEDULER_POD;
    if (node) {
        text_copy(out, cap, node);
        return CHECK_SCHEDULER_SLURM;
    }
    return CHECK_SCHEDULER_NONE;
}

/* count_allotted_gpus — returns the number of GPUs of this node that Slurm gave to the job; 0: none
 * by Slurm. */
static int count_allotted_gpus(const struct conf *conf)
{
    const char *text = launcher_find(environ, "SLURM_GPUS_ON_NODE");
    int64_t n;
    if (conf_i64(conf, CONF_DEVICE) == CONF_DEVICE_CPU) /* GPUs are not needed */
        return 0;
    return text && text_parse_i64(text, 0, 4096, &n) == TEXT_OK ? (int)n : 0;
}

/* ---- to the board and the console ---- */

static double seconds_since(const struct check_worker *w)
{
    return (double)(clock_ms() - w->begin_ms) / 1000;
}

static struct check_result result_now(const struct check_worker *w, const struct check_rows *rows,
                                      bool is_whole)
{
    return (struct check_result){.rows = *rows,
                                 .is_whole = is_whole,
                                 .started = w->started,
                                 .seconds = seconds_since(w),
                                 .depth = (int)w->check.depth};
}

static void publish_rows(const struct check_worker *w, const struct check_rows *rows, bool is_whole)
{
    const struct check_result result = result_now(w, rows, is_whole);
    if (w->config.worker_i == 0 && check_result_publish(w->config.board, &result) != ST_OK) {
        LOG_WARN("%s", status_message());
        status_clear();
    }
}

static void on_stage_ended(void *arg, enum check_stage stage, const struct check_rows *rows)
{
    (void)stage;
    publish_rows(arg, rows, false);
}

static void clear_line(struct check_worker *w)
{
    if (w->is_shown)
        log_console("\r%*s\r", 79, "");
    w->is_shown = false;
}

/* left_text — writes the remaining time, from the time budget and the progress. */
static const char *left_text(const struct check_worker *w, double done, char *out, size_t cap)
{
    double all_ms = (double)(w->check.budget_ms + w->check.soak_ms);
    return text_format_span(out, cap, (int64_t)(all_ms * (1 - done)));
}

static void publish_phase(struct check_worker *w)
{
    const int64_t now_ms = clock_ms();
    struct board_worker *stats = w->config.stats;
    board_heartbeat(w->config.board, w->config.worker_i);
    if (stats->phase == BOARD_PHASE_CHECKING && now_ms - w->published_ms < PUBLISH_EVERY_MS)
        return;
    stats->phase = BOARD_PHASE_CHECKING;
    board_worker_publish(w->config.board, w->config.worker_i, stats);
    w->published_ms = now_ms;
}

static enum status on_progress(void *arg, enum check_stage stage, double done)
{
    struct check_worker *w = arg;
    const enum board_request request = board_requested(w->config.board);
    publish_phase(w);
    if (w->config.place.rank == 0) {
        char left[32];
        int64_t now_ms = clock_ms();
        bool is_new = !w->has_stage || stage != w->stage;
        w->stage = stage;
        w->has_stage = true;
        if (w->is_terminal && (is_new || now_ms - w->line_ms >= LINE_MS)) {
            w->line_ms = now_ms;
            char line[96], rest[32], bar[BAR_CELLS + 1];
            int cells = (int)(done * BAR_CELLS);
            for (int i = 0; i < BAR_CELLS; i++)
                bar[i] = i < cells ? '#' : '.';
            bar[BAR_CELLS] = 0;
            text_format(line, sizeof line, "check [%s] %3d%%  %s, about %s left", bar,
                        (int)(100 * done), check_row_stage(stage),
                        left_text(w, done, rest, sizeof rest));
            log_console("\r%-79s", line);
            w->is_shown = true;
        } else if (!w->is_terminal && is_new) {
            LOG_INFO("check: %s, about %s left", check_row_stage(stage),
                     left_text(w, done, left, sizeof left));
        }
    }
    return stop_request_is_stop(request)
               ? FAIL(stop_request_status(request), "stopped by %s during the check",
                      stop_request_signal(request))
               : ST_OK;
}

/* ---- callbacks of check_run ---- */

/* flip_of — maps FAULT=flip of `check`: step 0 flips a sum (flips_sums), step 1 flips a bit in
 * training of one rank, a later step flips one in training of several ranks. */
static enum check_soak_flip flip_of(const struct check_worker *w)
{
    const struct conf *conf = w->config.conf;
    if (!w->config.is_command || conf_fault(conf) != CONF_FAULT_FLIP ||
        conf_fault_rank(conf) != w->config.place.rank || conf_fault_step(conf) == 0)
        return CHECK_SOAK_FLIP_NONE;
    return conf_fault_step(conf) == 1 ? CHECK_SOAK_FLIP_ALONE : CHECK_SOAK_FLIP_GROUP;
}

static enum status on_soak(void *arg, const struct check_config *check, int64_t ms,
                           struct check_rows *rows)
{
    const struct check_worker *w = arg;
    const struct check_soak_config config = {
        .check = check,
        .dtype = device_dtype(w->config.conf, dev_is_discrete(w->check.dev)),
        .flip = flip_of(w),
    };
    return check_soak_run(&config, ms, rows);
}

/* read_baseline — reads BASELINE on rank 0. If there is no file yet, the check writes it. */
static enum status read_baseline(struct check_worker *w)
{
    const char *path = conf_text(w->config.conf, CONF_BASELINE);
    if (w->config.place.rank > 0 || !path[0])
        return ST_OK;
    enum status st = check_baseline_read(path, &w->baseline);
    w->has_baseline = st == ST_OK;
    if (st != ST_NO_INPUT)
        return st;
    status_clear();
    return ST_OK;
}

static enum status on_compare(void *arg, struct check_rows *rows)
{
    const struct check_worker *w = arg;
    const char *path = conf_text(w->config.conf, CONF_BASELINE);
    if (!w->has_baseline)
        return ST_OK;
    const int n = check_baseline_compare(rows, &w->baseline);
    if (n == 0)
        LOG_WARN("BASELINE=%s has no row of this check: it was written on other nodes, or at "
                 "another depth",
                 path);
    else
        LOG_INFO("check: %d rows compared with BASELINE=%s", n, path);
    return ST_OK;
}

/* write_baseline — writes BASELINE if there was none and no row fails. */
static enum status write_baseline(const struct check_worker *w, const struct check_result *result)
{
    const char *path = conf_text(w->config.conf, CONF_BASELINE);
    const struct check_report_about about = check_output_about(w->config.conf, result);
    struct text out = {0};
    if (w->config.place.rank > 0 || !path[0] || w->has_baseline)
        return ST_OK;
    if (check_row_worst(&result->rows, -1) == CHECK_VERDICT_FAIL) {
        LOG_WARN("BASELINE=%s is not written, because rows fail; a baseline needs a check without "
                 "failures",
                 path);
        return ST_OK;
    }
    enum status st = check_report_json(&result->rows, &about, &out);
    if (st == ST_OK)
        st = file_replace(path, out.data, out.len);
    if (st == ST_OK)
        LOG_INFO("check: BASELINE=%s did not exist and was written", path);
    text_free(&out);
    return st;
}

/* ---- open, run, close ---- */

/* clock_offset — for tests: reads the file clock_offset_ms of CHECK_ROOT. */
static int64_t clock_offset(const struct conf *conf)
{
    char path[4200], *text = NULL;
    size_t n;
    int64_t ms = 0;
    text_format(path, sizeof path, "%s/clock_offset_ms", conf_text(conf, CONF_CHECK_ROOT));
    if (conf_text(conf, CONF_CHECK_ROOT)[0] && file_exists(path) &&
        file_read(path, 32, &text, &n) == ST_OK &&
        text_parse_i64(text, -INT64_C(86400000), INT64_C(86400000), &ms) != TEXT_OK)
        ms = 0;
    free(text);
    status_clear();
    return ms;
}

/* on_remote_progress — shows that the worker lives. Returns false if a stop was requested. */
static bool on_remote_progress(void *arg, int64_t done, int64_t total)
{
    const struct check_worker *w = arg;
    (void)done, (void)total;
    board_heartbeat(w->config.board, w->config.worker_i);
    return !stop_request_is_stop(board_requested(w->config.board));
}

enum status check_worker_open(const struct check_worker_config *config, struct check_worker **out)
{
    if (config->place.rank == 0)
        TRY(check_output_targets(config->conf));
    struct check_worker *w = memory_new(1, sizeof *w);
    w->config = *config;
    w->started = clock_wall_ms() / 1000;
    w->begin_ms = clock_ms();
    w->is_terminal = isatty(STDOUT_FILENO) && !conf_is_dumb(environ) &&
                     !strcmp(conf_text(config->conf, CONF_LOG_FORMAT), "text") &&
                     conf_i64(config->conf, CONF_JSON) == 0;
    const struct conf *conf = config->conf;
    static const int64_t budgets[] = {[CHECK_DEPTH_QUICK] = QUICK_MS,
                                      [CHECK_DEPTH_STANDARD] = STANDARD_MS,
                                      [CHECK_DEPTH_FULL] = FULL_MS};
    const int64_t gpus = conf_i64(conf, CONF_GPUS_EXPECTED), budget = conf_i64(conf, CONF_BUDGET),
                  word = conf_i64(conf, CONF_CHECK);
    /* `check` without CHECK is a standard check. */
    const enum check_depth depth = word == CONF_CHECK_QUICK  ? CHECK_DEPTH_QUICK
                                   : word == CONF_CHECK_FULL ? CHECK_DEPTH_FULL
                                                             : CHECK_DEPTH_STANDARD;
    w->check = (struct check_config){
        .place = w->config.place,
        .depth = depth,
        .budget_ms = budget > 0 ? budget : budgets[depth],
        .soak_ms = w->config.is_command ? conf_i64(conf, CONF_SOAK) : 0,
        .clock_offset_ms = clock_offset(conf),
        .root = conf_text(conf, CONF_CHECK_ROOT),
        .dir = conf_text(conf, CONF_CHECKPOINT_DIR),
        .data_addr = conf_text(conf, CONF_DATA_ADDR),
        .gpus_expected = gpus > 0 ? (int)gpus : -1,
        .gpus_allotted = count_allotted_gpus(conf),
        .is_amd = conf_i64(conf, CONF_DEVICE) == CONF_DEVICE_HIP,
        .gpus_used = w->config.has_gpus ? w->config.place.locals : 0,
        .flips_sums = conf_fault(conf) == CONF_FAULT_FLIP && conf_fault_step(conf) == 0 &&
                      conf_fault_rank(conf) == w->config.place.rank,
        .host = w->host,
        .found = &w->found,
        .compare = on_compare,
        .soak = on_soak,
        .progress = on_progress,
        .stage_ended = on_stage_ended,
        .arg = w,
    };
    w->check.scheduler = name_host(w->host, sizeof w->host);
    publish_phase(w);
    *out = w;
    TRY(read_baseline(w));
    check_static_run(&w->check, w->check.budget_ms / 20, &w->found);
    const struct check_remote_config remote = {.conf = conf,
                                               .node = config->place.node,
                                               .progress = on_remote_progress,
                                               .progress_arg = w};
    if (config->place.rank == 0) /* rank 0 keeps the checkpoints, and node 0 downloads */
        check_remote(&remote, &w->found);
    publish_rows(w, &w->found, false);
    return ST_OK;
}

void check_worker_device(struct check_worker *w, struct dev *dev)
{
    check_facts_make(w->config.conf, dev, &w->facts);
    w->check.dev = dev;
    w->check.facts = w->facts.fact;
    w->check.facts_n = w->facts.n;
}

void check_worker_close(struct check_worker *w)
{
    if (!w)
        return;
    clear_line(w);
    check_row_free(&w->found);
    check_baseline_free(&w->baseline);
    check_facts_free(&w->facts);
    free(w);
}

/* run_check — runs the check. Returns the judged rows of all ranks and publishes them on the
 * board. */
static enum status run_check(struct check_worker *w, struct comm *comm, struct check_rows *rows)
{
    w->check.comm = comm;
    enum status st = check_run(&w->check, rows);
    clear_line(w);
    if (st != ST_OK)
        return st;
    publish_rows(w, rows, true);
    const struct check_result result = result_now(w, rows, true);
    return write_baseline(w, &result);
}

/* ---- OUT: the description of this machine for plans ---- */

/* disk_rate — returns bytes per second on the slowest node that the check has measured; 0: none. */
static double disk_rate(const struct check_rows *rows)
{
    double slowest = 0;
    for (int i = 0; i < rows->n; i++) {
        const struct check_row *row = &rows->row[i];
        double rate = row->value * 1e6;
        if (strcmp(row->name, "disk write") == 0 && strcmp(row->unit, "MB/s") == 0 && rate > 0 &&
            (slowest == 0 || rate < slowest))
            slowest = rate;
    }
    return slowest;
}

static enum status write_machine(const char *path, const struct plan_cluster *cluster)
{
    struct text out = {0};
    plan_cluster_write(cluster, &out);
    enum status st = out.overflow ? FAIL(ST_RETRY, "out of memory: the contents of OUT=%s", path)
                                  : file_replace(path, out.data, out.len);
    if (st == ST_OK)
        LOG_INFO("check: OUT=%s describes the machine as it was measured: convoy plan CLUSTER=%s",
                 path, path);
    text_free(&out);
    return st;
}

/* measure_machine — measures the machine if any node has set OUT; node 0 writes its file.
 * Collective. */
static enum status measure_machine(struct check_worker *w, const struct check_rows *rows)
{
    const char *path = conf_text(w->config.conf, CONF_OUT);
    const int64_t third_ms = w->check.budget_ms / 3;
    struct plan_cluster cluster;
    double is_wanted = path[0] != 0;
    TRY(measure_ranks_max(w->check.comm, &is_wanted, 1));
    if (is_wanted == 0)
        return ST_OK;
    const struct plan_machine_config config = {
        .comm = w->check.comm,
        .dev = w->check.dev,
        .name = "this machine",
        .budget_ms = third_ms < MACHINE_MS_MIN ? MACHINE_MS_MIN : third_ms,
        .disk_bytes_per_second = disk_rate(rows),
    };
    TRY(plan_machine_measure(&config, &cluster));
    return w->config.place.rank == 0 && path[0] ? write_machine(path, &cluster) : ST_OK;
}

enum status check_worker_run(struct check_worker *w, struct comm *comm)
{
    struct check_rows rows = {0};
    enum status st = run_check(w, comm, &rows);
    if (st == ST_OK)
        st = measure_machine(w, &rows);
    check_row_free(&rows);
    return st;
}

/* ---- before a run ---- */

static enum status result_of(const struct check_worker *w, const struct check_rows *rows)
{
    const struct check_result result = result_now(w, rows, true);
    if (w->config.place.rank == 0) {
        /* In a check before a run, log the number of rows and the rows that warn. */
        char text[640];
        int n[CHECK_VERDICT_MEASURED + 1] = {0};
        for (int i = 0; i < rows->n; i++) {
            const struct check_row *row = &rows->row[i];
            if (++n[row->verdict] <= WARNINGS_MAX && row->verdict == CHECK_VERDICT_WARN)
                LOG_WARN("check: %s", check_result_sentence(row, text, sizeof text));
        }
        LOG_INFO("check: %d passed, %d warn, %d failed, %d skipped, in %.1f s",
                 n[CHECK_VERDICT_PASS], n[CHECK_VERDICT_WARN], n[CHECK_VERDICT_FAIL],
                 n[CHECK_VERDICT_SKIPPED], seconds_since(w));
        TRY(check_output_files(w->config.conf, &result));
    }
    const enum status st = check_result_status(&result, w->config.place.node, false);
    return st == ST_OK || st == ST_DISAGREE ? st : FAIL(ST_UNHEALTHY, "%s", status_message());
}

enum status check_worker_before(const struct check_worker_config *config, struct dev *dev,
                                struct comm *comm, bool *is_checked)
{
    struct check_worker *w = NULL;
    struct check_rows rows = {0};
    double is_needed = !*is_checked;
    if (conf_i64(config->conf, CONF_CHECK) == CONF_CHECK_OFF)
        return ST_OK;
    TRY(measure_ranks_max(comm, &is_needed, 1));
    if (is_needed == 0)
        return ST_OK;
    enum status st = check_worker_open(config, &w);
    if (st == ST_OK)
        check_worker_device(w, dev);
    if (st == ST_OK)
        st = run_check(w, comm, &rows);
    /* A worker that fails ends its node. Worker 0 of each node must have published the result
     * before that: the supervisor derives the exit code from it. */
    if (st == ST_OK)
        st = comm_barrier(comm);
    if (st == ST_OK)
        st = result_of(w, &rows);
    *is_checked = st == ST_OK;
    check_row_free(&rows);
    check_worker_close(w);
    return st;
}
