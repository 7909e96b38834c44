/* worker — the process that trains: opens device, data and model once, and hands them to the
 * trainer in each of its lives (lives.h).
 *
 * Started by the supervisor only, with the board on BOARD_FD and, when it has others beside it, the
 * memory that they share on BOARD_SHARE_FD. SIGINT, SIGTERM and SIGUSR1 are ignored here (the
 * supervisor sets that before exec): a signal to the whole process group reaches the supervisor,
 * which speaks through the board. Must not know HTTP. */
#include "node/command.h"

#include <math.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/board.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/must.h"
#include "base/text.h"
#include "dev/dev.h"
#include "node/crash.h"
#include "node/device.h"
#include "node/ferry.h"
#include "node/fit.h"
#include "node/gauge.h"
#include "node/lives.h"
#include "node/mapping.h"
#include "node/verdict.h"
#include "node/watch.h"
#include "train/guard.h"
#include "train/trainer.h"

#define POST_EVERY_MS 200
#define CALL_EXTRA_MS (60 * 1000)
#define GAUGE_EVERY_MS 1000

struct worker {
    const struct conf *conf;
    int worker_i; /* of this node */
    struct board *board;
    struct board_node node;
    struct board_worker post, last;
    int64_t posted_ms;
    struct dev *dev;
    struct gauge *gauge; /* NULL: nothing is told of the device */
    struct feed *feed, *val_feed;
    struct text settings;
    struct trainer_config config;
};

static void post_phase(struct worker *w, enum board_phase phase)
{
    w->post.phase = phase;
    board_worker_post(w->board, w->worker_i, &w->post);
    board_beat(w->board, w->worker_i);
    w->posted_ms = clock_ms();
}

static void post_loading(struct worker *w)
{
    post_phase(w, w->node.restarts > 0 ? BOARD_PHASE_RECOVERING : BOARD_PHASE_LOADING);
}

/* progress — of tokenising; a request to stop ends it. */
static bool progress(void *arg, int64_t bytes_done, int64_t bytes_total)
{
    struct worker *w = arg;
    board_beat(w->board, w->worker_i);
    w->post.loading_done = bytes_done;
    w->post.loading_total = bytes_total;
    if (clock_ms() - w->posted_ms >= POST_EVERY_MS)
        post_loading(w);
    return !guard_is_stop(board_requested(w->board));
}

/* stopped — between two pieces of loading: has a stop been asked for? */
static enum status stopped(const struct worker *w)
{
    enum board_request request = board_requested(w->board);
    if (!guard_is_stop(request))
        return ST_OK;
    return FAIL(guard_status(request),
                "stopped by %s while loading, before the first step; there was nothing to save",
                guard_signal(request));
}

/* speaks — what is the same for all workers of a node, one of them says. */
static bool speaks(const struct worker *w) { return w->worker_i == 0; }

/* is_giver — the one whose data nodes without their own get. */
static bool is_giver(const struct worker *w)
{
    return w->node.n_nodes > 1 && w->node.node_id == 0 && w->worker_i == 0;
}

/* take_feed — from this node's data, or, where it has none, from node 0's. */
static enum status take_feed(struct worker *w, bool is_validation, struct feed_config *config,
                             struct feed **out)
{
    const struct ferry_config ferry = {.conf = w->conf,
                                       .board = w->board,
                                       .is_validation = is_validation,
                                       .progress = progress,
                                       .progress_arg = w};
    struct text data = {0};
    enum status st = w->node.n_nodes > 1 && w->node.node_id > 0 ? ferry_take(&ferry, &data) : ST_OK;
    if (st == ST_OK && data.len > 0)
        config->data = data.data;
    if (st == ST_OK)
        must_note("opening %s", is_validation ? "VAL_DATA" : "DATA");
    if (st == ST_OK)
        st = feed_open(config, out);
    text_free(&data);
    return st;
}

static enum status open_feed(struct worker *w, bool is_validation, struct feed **out)
{
    struct feed_config config;
    mapping_feed(w->conf, &w->config, is_validation, &config);
    config.progress = progress;
    config.progress_arg = w;
    enum status st = take_feed(w, is_validation, &config, out);
    if (st != ST_OK)
        TRY(stopped(w)); /* a stop looks like ST_RETRY from inside; it has its own code */
    TRY(mapping_blame(st, is_validation));
    if (speaks(w))
        LOG_INFO("%s %s: %lld samples of %lld tokens", is_validation ? "held-out data" : "data",
                 feed_name(*out), (long long)feed_samples(*out), (long long)config.seq_tokens);
    return stopped(w);
}

static enum status open_device(struct worker *w)
{
    struct dev_info info;
    must_note("opening the device");
    TRY(device_open(w->conf, w->worker_i, device_threads(w->conf), &w->dev));
    w->config.dtype = device_dtype(w->conf, dev_is_apart(w->dev));
    mapping_settings(w->conf, &w->config, &w->settings);
    w->config.settings_json = w->settings.data;
    dev_info(w->dev, &info);
    text_copy(w->post.device, sizeof w->post.device, info.name);
    if (speaks(w))
        LOG_INFO("device %s%s", info.name,
                 conf_i64(w->conf, CONF_N_GPU_EACH_NODE) > 1 ? ", of each worker" : "");
    post_loading(w);
    TRY(fit_device(w->conf, &w->config, w->dev));
    if (info.bus[0])
        TRY(gauge_open(w->board, w->worker_i, info.bus, speaks(w), GAUGE_EVERY_MS, &w->gauge));
    return stopped(w);
}

static enum status open_model(struct worker *w)
{
    struct model_dims dims;
    bool has_weights;
    TRY(mapping_dims(w->conf, &dims, &has_weights));
    TRY(mapping_trainer(w->conf, &dims, has_weights, &w->config));
    mapping_board_model(&dims, &w->post.model);
    post_loading(w);
    return ST_OK;
}

/* set_life — a FAULT happens in the job's first life only, else no restart could ever heal it, and
 * on one rank. */
static void set_life(struct worker *w, bool is_first)
{
    static const enum trainer_fault faults[CONF_FAULT_N] = {
        [CONF_FAULT_NONE] = TRAINER_FAULT_NONE,    [CONF_FAULT_KILL] = TRAINER_FAULT_KILL,
        [CONF_FAULT_STALL] = TRAINER_FAULT_STALL,  [CONF_FAULT_NAN] = TRAINER_FAULT_NAN,
        [CONF_FAULT_SLOW] = TRAINER_FAULT_SLOW,    [CONF_FAULT_FLIP] = TRAINER_FAULT_FLIP,
        [CONF_FAULT_ENOSPC] = TRAINER_FAULT_ENOSPC};
    w->config.fault = TRAINER_FAULT_NONE;
    if (is_first && conf_fault_rank(w->conf) == w->post.rank) {
        w->config.fault = faults[conf_fault(w->conf)];
        w->config.fault_step = conf_fault_step(w->conf);
    }
    if (!is_first)
        w->config.resume =
            TRAINER_RESUME_AUTO; /* from what this very run has saved, whatever RESUME said about
                                                   older ones */
}

/* backend_why — where the transport itself does not say why it was taken. */
static const char *backend_why(const struct comm *comm)
{
    const struct comm_place *place = comm_place(comm);
    if (comm_why(comm)[0])
        return comm_why(comm);
    if (place->ranks == 1)
        return "one worker has no other to exchange numbers with";
    if (text_starts(comm_name(comm), "nccl"))
        return "each worker has a GPU";
    if (place->nodes == 1)
        return "the workers of one node exchange numbers in memory that they share";
    return place->locals == 1 ? "each node has one worker, and all go over the network"
                              : "the workers of a node share memory, and those of others are "
                                "reached over the network";
}

/* met — the ranks of a life have met: what carries numbers between them goes to the board, and once
 * to the log. */
static void met(void *arg, const struct comm *comm)
{
    struct worker *w = arg;
    if (comm_place(comm)->rank == 0 && !w->post.backend[0])
        LOG_INFO("BACKEND=%s takes %s: %s", conf_text(w->conf, CONF_BACKEND), comm_name(comm),
                 backend_why(comm));
    size_t n = strcspn(comm_name(comm), " "); /* "nccl 2.28.9", "ucx (tcp)": the first word */
    text_format(w->post.backend, sizeof w->post.backend, "%.*s", (int)n, comm_name(comm));
}

static enum status live(void *arg, struct comm *comm, int64_t generation)
{
    struct worker *w = arg;
    board_node_copy(w->board, &w->node);
    set_life(w, w->node.restarts == 0 && generation == 1);
    w->config.comm = comm;
    post_loading(w);
    return trainer_run(&w->config);
}

/* wait_for_world — others are still loading, starting, or lost; what was posted of training stays
 * on the board. */
static void wait_for_world(void *arg, bool is_first)
{
    struct worker *w = arg;
    board_beat(w->board, w->worker_i);
    enum board_phase phase = is_first ? BOARD_PHASE_JOINING : BOARD_PHASE_RECOVERING;
    if (w->post.phase == phase && clock_ms() - w->posted_ms < POST_EVERY_MS)
        return;
    if (!board_worker_copy(w->board, w->worker_i, &w->last))
        w->last = w->post;
    w->last.phase = w->post.phase = phase;
    board_worker_post(w->board, w->worker_i, &w->last);
    w->posted_ms = clock_ms();
}

static enum status stopped_waiting(void *arg)
{
    const struct worker *w = arg;
    enum board_request request = board_requested(w->board);
    if (!guard_is_stop(request))
        return ST_OK;
    struct board_worker last;
    struct board_node node;
    char rest[96];
    bool has_spoken = board_worker_copy(w->board, w->worker_i, &last);
    verdict_kept(conf_text(w->conf, CONF_CHECKPOINT_DIR)[0] != 0, has_spoken ? &last : NULL, rest,
                 sizeof rest);
    board_node_copy(w->board, &node);
    if (!has_spoken || last.step < 0 || !node.setback[0])
        return FAIL(guard_status(request), "stopped by %s while waiting for other workers; %s",
                    guard_signal(request), rest);
    return FAIL(guard_status(request),
                "stopped by %s after step %lld without another checkpoint: %s; %s",
                guard_signal(request), (long long)last.step, node.setback, rest);
}

/* call_limit_ms — each node judges its own workers; this limit is for what no node could judge, so
 * it comes last. */
static int64_t call_limit_ms(const struct worker *w)
{
    int64_t limit_ms = conf_i64(w->conf, CONF_STEP_TIMEOUT);
    struct dev_info info;
    dev_info(w->dev, &info);
    int ranks = conf_ranks(w->conf);
    double peak = (w->config.dtype == DTYPE_F32 ? info.peak_flops : info.peak_flops_16) * ranks;
    if (limit_ms == 0)
        limit_ms = watch_plan_ms(trainer_planned_ms(&w->config, peak, ranks));
    return (limit_ms > WATCH_DISK_MS_MIN ? limit_ms : WATCH_DISK_MS_MIN) + CALL_EXTRA_MS;
}

static enum status run_lives(struct worker *w)
{
    int nodes = (int)conf_i64(w->conf, CONF_N_NODES), node = (int)conf_i64(w->conf, CONF_NODE_ID);
    int locals = (int)conf_i64(w->conf, CONF_N_GPU_EACH_NODE);
    struct lives_config config = {
        .board = w->board,
        .worker_i = w->worker_i,
        .place = {.rank = w->post.rank,
                  .ranks = nodes * locals,
                  .node = node,
                  .nodes = nodes,
                  .local = w->worker_i,
                  .locals = locals},
        .kind = device_comm(w->conf, w->dev, conf_ranks(w->conf)),
        .net = device_net(w->conf),
        .data_addr = conf_text(w->conf, CONF_DATA_ADDR),
        .master = conf_text(w->conf, CONF_MASTER_ADDR),
        .dev = w->dev,
        .share_fd = locals > 1 ? BOARD_SHARE_FD : -1,
        .timeout_ms = call_limit_ms(w),
        .extra_ms = CALL_EXTRA_MS,
        .data = feed_fingerprint(w->feed),
        .val_data = w->val_feed ? feed_fingerprint(w->val_feed) : 0,
        .run = live,
        .met = met,
        .wait = wait_for_world,
        .stopped = stopped_waiting,
        .arg = w,
    };
    return lives_run(&config);
}

static enum status train(struct worker *w)
{
    TRY(stopped(w));
    TRY(open_model(w));
    TRY(open_device(w));
    TRY(open_feed(w, false, &w->feed));
    if (is_giver(w))
        ferry_write(w->board, false, w->feed);
    if (conf_text(w->conf, CONF_VAL_DATA)[0])
        TRY(open_feed(w, true, &w->val_feed));
    if (is_giver(w))
        ferry_write(w->board, true, w->val_feed);
    w->config.dev = w->dev;
    w->config.board = w->board;
    w->config.worker_i = w->worker_i;
    w->config.feed = w->feed;
    w->config.val_feed = w->val_feed;
    w->config.version = w->node.version;
    w->config.is_terminal = isatty(STDOUT_FILENO) && !conf_is_dumb(environ) &&
                            !strcmp(conf_text(w->conf, CONF_LOG_FORMAT), "text");
    w->post.loading_done = w->post.loading_total = -1;
    post_loading(w);
    return run_lives(w);
}

static void on_line(void *tail, int64_t wall_ms, const char *line)
{
    tail_add(tail, wall_ms, line);
}

static void post_first(struct worker *w)
{
    w->post = (struct board_worker){
        .pid = getpid(),
        .rank = (int32_t)conf_i64(w->conf, CONF_NODE_ID) *
                    (int32_t)conf_i64(w->conf, CONF_N_GPU_EACH_NODE) +
                w->worker_i,
        .model.parameters = -1,
        .checkpoint = {.step = -1, .stall_ms = NAN, .save_ms = NAN},
        .step = -1,
        .steps = -1,
        .begun_step = -1,
        .epoch = -1,
        .tokens = -1,
        .loss = NAN,
        .val_loss = NAN,
        .lr = NAN,
        .grad_norm = NAN,
        .tokens_per_second = NAN,
        .mfu = NAN,
        .eta_seconds = NAN,
        .compute_ms = NAN,
        .comm_ms = NAN,
        .wait_ms = NAN,
        .memory_bytes = -1,
        .loading_done = -1,
        .loading_total = -1,
    };
    post_loading(w);
}

/* tell_peak — beside what was planned (node/fit.h). */
static void tell_peak(void)
{
    struct rusage used;
    if (getrusage(RUSAGE_SELF, &used) == 0)
        LOG_DEBUG("memory: %lld KiB at the most", (long long)used.ru_maxrss);
}

/* post_end — the trainer's last numbers stay; what ended this worker joins them. */
static void post_end(struct worker *w, enum status st, const char *sentence)
{
    struct board_worker last;
    if (!board_worker_copy(w->board, w->worker_i, &last))
        last = w->post;
    last.error.code = status_exit(st);
    last.error.node = w->node.node_id;
    text_copy(last.error.message, sizeof last.error.message, sentence);
    board_worker_post(w->board, w->worker_i, &last);
}

/* end_of_file — in a signal handler: the supervisor says it, as every end. */
static void end_of_file(void *arg, enum status st, const char *sentence)
{
    post_end(arg, st, sentence);
}

static void post_error(struct worker *w, enum status st)
{
    post_end(w, st, status_message());
    LOG_DEBUG("worker ends with %s at %s", status_name(st), status_places());
    status_clear(); /* the supervisor says it, once */
}

enum status worker_main(const struct conf *conf, int worker_i)
{
    struct worker w = {.conf = conf, .worker_i = worker_i};
    TRY(board_attach(BOARD_FD, &w.board));
    prctl(PR_SET_NAME, "convoy-worker");
    crash_on_file(end_of_file, &w);
    log_tap(on_line, board_tail(w.board, worker_i));
    crash_install();
    board_node_copy(w.board, &w.node);
    post_first(&w);
    enum status st = train(&w);
    tell_peak();
    if (st != ST_OK)
        post_error(&w, st);
    feed_close(w.feed);
    feed_close(w.val_feed);
    gauge_close(w.gauge);
    dev_close(w.dev);
    text_free(&w.settings);
    crash_on_file(NULL, NULL);
    log_tap(NULL, NULL);
    board_close(w.board);
    return st;
}
