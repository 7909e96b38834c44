/* supervisor — the process that the user starts. It serves HTTP, starts the workers, connects to
 * the other nodes, restarts lost workers, and turns signals into requests on the board.
 *
 * It runs one libevent loop on one thread. Only the workers compute, and they share nothing but the
 * board with this process, so it answers HTTP even if a worker hangs or dies. This file holds
 * start, signals and end of a node; workers.c its workers; cluster_bridge.c the other nodes;
 * supervisor/recover.c the consequences of a worker's end.
 *
 *   starting → (workers: loading → joining → training …) → done | failed | recovering → joining
 *   again
 *
 * With one worker there is no cluster: this process counts the restarts itself. Must not know
 * devices, data or models. */
#include "node/supervisor/inside.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/secure.h"
#include "base/text.h"
#include "base/version.h"
#include "node/check/facts.h"
#include "node/check/output.h"
#include "node/bucket/uploader.h"
#include "node/command.h"
#include "node/choose/config_map.h"
#include "node/process/crash.h"
#include "node/choose/device.h"
#include "node/choose/memory_check.h"
#include "node/choose/sources.h"
#include "node/supervisor/linger.h"
#include "node/process/process.h"
#include "node/process/spawn.h"
#include "node/process/exit_policy.h"
#include "node/process/watchdog.h"
#include "train/trainer/stop_request.h"

#define TICK_MS 50
#define MACHINE_MS 1000    /* time between two readings of /proc */
#define REFUSED_MS 3000    /* time for other nodes to join, if node 0 cannot begin */
#define SAME_SIGNAL_MS 500 /* `timeout` and process groups deliver one signal twice */
/* after a stop signal: a scheduler that stops all nodes signals all of them within this time */
#define LEAVE_MS 2000
/* Time in which a worker that has not begun to train may stop by itself; then it is killed. */
#define LOADING_STOP_MS 3000
#define CHECK_STOP_MS 500 /* the same limit for a worker that checks */
#define SERVE_HANG_EXTRA_MS (30 * 1000)

void supervisor_set_phase(struct supervisor *s, enum board_phase phase)
{
    struct board_worker first;
    ASSERTF((unsigned)phase < BOARD_PHASE_N, "phase %d", (int)phase);
    if (phase == BOARD_PHASE_RECOVERING && s->recovering_ms == 0) {
        s->recovering_ms = clock_ms();
        if (board_worker_copy(s->board, 0, &first))
            s->recovering_generation = first.generation, s->recovering_pid = first.pid;
    }
    s->node.phase = phase;
    board_node_publish(s->board, &s->node);
}

void supervisor_set_result(struct supervisor *s, enum status st)
{
    s->result = st;
    s->node.error = (struct board_error){.code = 0};
    if (st != ST_OK) {
        s->node.error = (struct board_error){.code = status_exit_code(st), .node = s->node.node_id};
        text_copy(s->node.error.message, sizeof s->node.error.message, status_message());
    }
    supervisor_set_phase(s, st == ST_OK ? BOARD_PHASE_DONE : BOARD_PHASE_FAILED);
}

/* supervisor_end — leaves the loop. FAIL() was called before unless st is ST_OK. */
void supervisor_end(struct supervisor *s, enum status st)
{
    ASSERT(!s->is_over);
    s->is_over = true;
    supervisor_set_result(s, st);
    event_base_loopbreak(s->loop);
}

/* supervisor_leave — like supervisor_end, but informs the other nodes of the reason first. */
void supervisor_leave(struct supervisor *s, enum status st)
{
    if (s->is_leaving || s->is_over)
        return;
    workers_forbid_start(s->workers);
    if (!s->bridge) {
        supervisor_end(s, st);
        return;
    }
    s->is_leaving = true;
    cluster_bridge_leave(s->bridge, st, st == ST_OK ? "" : status_message());
}

bool supervisor_has_checkpoint_dir(const struct supervisor *s)
{
    return conf_text(s->conf, CONF_CHECKPOINT_DIR)[0] != 0;
}

static void set_stop(struct supervisor *s, enum board_request request)
{
    ASSERTF(stop_request_is_stop(request) && request > s->stop, "request %d after %d", (int)request,
            (int)s->stop);
    s->stop = request;
    s->stop_ms = clock_ms();
    s->was_preempted = s->was_preempted || request == BOARD_REQUEST_PREEMPT;
}

/* stop_unready — ends immediately: no worker runs that could carry the stop out. */
static void stop_unready(struct supervisor *s, enum board_request request)
{
    char rest[96];
    struct board_worker last;
    ASSERTF(workers_alive(s->workers) == 0, "%d workers", workers_alive(s->workers));
    bool has_published = board_worker_copy(s->board, 0, &last);
    if (s->is_check)
        FAIL(stop_request_status(request), "stopped by %s during the check",
             stop_request_signal(request));
    else
        FAIL(stop_request_status(request), "stopped by %s %s; %s", stop_request_signal(request),
             s->has_started ? "while recovering" : "before the workers started",
             exit_policy_resume_hint(supervisor_has_checkpoint_dir(s), has_published ? &last : NULL,
                                     rest, sizeof rest));
    supervisor_leave(s, stop_request_status(request));
}

/* ---- calls from the cluster ---- */

/* on_begin — records the cause of the last generation's end, which is complete by now. */
static void on_begin(void *arg)
{
    struct supervisor *s = arg;
    int rank = -1;
    ASSERT(s->bridge != NULL && !s->is_over);
    const char *cause = cluster_bridge_cause(s->bridge, &rank);
    s->node.restarts = cluster_bridge_restarts(s->bridge);
    if (cause[0])
        text_copy(s->node.last_failure, sizeof s->node.last_failure, cause);
    s->node.lost_rank = cause[0] ? rank : -1;
    board_node_publish(s->board, &s->node);
}

static void on_abort(void *arg, const char *why)
{
    struct supervisor *s = arg;
    char from[160];
    ASSERT(s->bridge != NULL && !s->is_over);
    supervisor_recover_keep_stats(s);
    workers_rearm(s->workers, clock_ms()); /* before board_abort */
    s->node.restarts = cluster_bridge_restarts(s->bridge);
    text_copy(s->node.last_failure, sizeof s->node.last_failure, why);
    if (!cluster_bridge_leads(s->bridge)) /* else the coordinator has logged it */
        LOG_WARN("%s", why);
    supervisor_recover_set_resume(s, from, sizeof from);
    if (!stop_request_is_stop(s->stop) && !s->is_check)
        LOG_INFO("resuming from %s when %s", from,
                 conf_min_nodes(s->conf) < s->node.n_nodes ? "the nodes that are left are ready"
                                                           : "all ranks are back");
    supervisor_set_phase(s, BOARD_PHASE_RECOVERING);
}

bool supervisor_leaves_alone(const struct supervisor *s)
{
    return s->bridge && !s->is_check && !cluster_bridge_leads(s->bridge) &&
           conf_min_nodes(s->conf) < s->node.n_nodes;
}

static void on_cluster_stop(void *arg, enum board_request request)
{
    struct supervisor *s = arg;
    if (s->is_over || request <= s->stop || !stop_request_is_stop(request))
        return;
    s->leave_ms = 0;
    set_stop(s, request);
    board_request(s->board, request);
    LOG_INFO("%s on another node: stopping%s", stop_request_signal(request),
             s->is_check ? "" : " after this step and a checkpoint");
    workers_forbid_start(s->workers);
    if (workers_alive(s->workers) == 0)
        stop_unready(s, request);
}

/* on_reached — publishes the address: the workers of node 0 may need it for their own. */
static void on_reached(void *arg, const char *address)
{
    struct supervisor *s = arg;
    text_copy(s->node.reached, sizeof s->node.reached, address);
    board_node_publish(s->board, &s->node);
}

static void on_cluster_end(void *arg, enum status st)
{
    struct supervisor *s = arg;
    if (!s->is_over)
        supervisor_end(s, st);
}

/* ---- time and signals ---- */

/* refuse_start — ends the job because this node cannot begin. Node 0 first waits a moment for nodes
 * that start at the same time: otherwise they would look for it until JOIN_TIMEOUT. */
static void refuse_start(struct supervisor *s, enum status st)
{
    if (s->node.n_nodes > 1 && s->node.node_id == 0 && !cluster_bridge_has_all(s->bridge)) {
        s->refused = st;
        s->refused_ms = clock_ms() + REFUSED_MS;
        status_save(&s->refused_text);
        return;
    }
    supervisor_leave(s, st);
}

/* start_workers — starts the workers once the checkpoint of a bucket is here, if there is enough
 * memory for them. */
static void start_workers(struct supervisor *s)
{
    bool is_ready;
    if (s->is_leaving || s->refused_ms != 0)
        return;
    enum status st = supervisor_upload_tick(s, &is_ready);
    if (st != ST_OK && !s->has_started) {
        refuse_start(s, st);
        return;
    }
    if (st == ST_OK && !is_ready && s->node.phase != BOARD_PHASE_LOADING)
        supervisor_set_phase(s, BOARD_PHASE_LOADING);
    if (st == ST_OK && is_ready && !s->has_started) {
        const bool is_known = !s->is_check && sources_are_here(s->conf); /* else: worker.c */
        const enum status fits = is_known ? memory_check_train(s->conf) : ST_OK;
        s->has_started = true;
        if (fits != ST_OK) {
            refuse_start(s, fits);
            return;
        }
        st = workers_start(s->workers);
    }
    if (st != ST_OK)
        supervisor_leave(s, st);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct supervisor *s = arg;
    if (s->is_over)
        return;
    start_workers(s);
    if (s->is_over)
        return;
    int64_t now_ms = clock_ms();
    if (stop_request_is_stop(s->stop) &&
        now_ms - s->stop_ms >= (s->is_check ? CHECK_STOP_MS : LOADING_STOP_MS))
        workers_kill_loading(s->workers);
    if (s->leave_ms != 0 && now_ms >= s->leave_ms) {
        /* Other nodes would have received the stop request by now, so only this node leaves. */
        s->leave_ms = 0;
        set_stop(s, s->signalled);
        FAIL(stop_request_status(s->stop), "stopped by %s; the other nodes go on (ON_LOSS=shrink)",
             stop_request_signal(s->stop));
        supervisor_leave(s, stop_request_status(s->stop));
    }
    if (s->refused_ms != 0 && (now_ms >= s->refused_ms || cluster_bridge_has_all(s->bridge))) {
        s->refused_ms = 0;
        status_restore(&s->refused_text);
        supervisor_leave(s, s->refused);
    }
    supervisor_recover_watch(s, now_ms);
    if (now_ms - s->counters.at_ms >= MACHINE_MS) {
        /* For /status and /metrics of this node, and of node 0. */
        machine_stats_read(&s->counters, "/proc", "/sys", now_ms, &s->machine);
        if (s->bridge)
            cluster_bridge_report_machine(s->bridge, &s->machine);
    }
    enum status st = workers_tick(s->workers, now_ms);
    if (workers_limit_ms(s->workers) > s->node.limit_ms) {
        s->node.limit_ms = workers_limit_ms(s->workers);
        board_node_publish(s->board, &s->node);
    }
    if (st != ST_OK)
        supervisor_leave(s, st);
    else if (s->bridge)
        cluster_bridge_tick(s->bridge, now_ms);
}

static enum board_request request_of(int signal_n)
{
    return signal_n == SIGINT ? BOARD_REQUEST_INTERRUPT
           : signal_n == SIGUSR1
               ? BOARD_REQUEST_PREEMPT
               : BOARD_REQUEST_TERMINATE; /* a terminal that hangs up also ends the run */
}

/* end_at_once — ends without waiting after the second SIGINT or SIGTERM; with several nodes it does
 * not even wait for node 0's answer. */
static void end_at_once(struct supervisor *s, enum board_request request)
{
    ASSERT(!s->is_over && s->was_asked && stop_request_is_stop(request));
    s->stop = request;
    s->ends_at_once = true;
    LOG_WARN("second signal: ending immediately");
    if (workers_alive(s->workers) > 0 && !s->bridge) {
        workers_kill(s->workers);
        return;
    }
    FAIL(stop_request_status(request),
         "ended immediately by a second signal, without another checkpoint");
    supervisor_end(s, stop_request_status(request));
}

static void on_stop(evutil_socket_t signal_n, short what, void *arg)
{
    (void)what;
    struct supervisor *s = arg;
    enum board_request request = request_of((int)signal_n), before = s->signalled;
    int64_t now_ms = clock_ms();
    char by[40] = "", name[32];
    bool is_echo = request == before && now_ms - s->signalled_ms < SAME_SIGNAL_MS;
    /* other signals are notices, which may come again; a timer repeats them */
    bool is_asked = signal_n == SIGTERM || signal_n == SIGINT || signal_n == SIGHUP,
         is_late = !is_asked && (stop_request_is_stop(s->stop) || s->leave_ms != 0);
    if (s->is_uploading) {
        if (!is_echo)
            supervisor_upload_signal(s, (int)signal_n, request);
        return;
    }
    if (s->is_over || is_late || (is_echo && (s->was_asked || !is_asked)))
        return;
    s->signalled_ms = now_ms;
    s->signalled = request;
    if (is_asked && s->was_asked) {
        end_at_once(s, request);
        return;
    }
    s->was_asked = s->was_asked || is_asked;
    /* a scheduler stops all nodes, and another node's request has arrived before this signal */
    if (request <= s->stop)
        return;
    if (supervisor_leaves_alone(s)) {
        s->leave_ms = now_ms + LEAVE_MS;
        LOG_INFO("%s: this node leaves, and the other nodes go on; a second SIGINT or SIGTERM ends "
                 "it immediately",
                 stop_request_signal(request));
        return;
    }
    set_stop(s, request);
    board_request(s->board, request);
    if (s->bridge)
        cluster_bridge_stop(s->bridge, request);
    exit_policy_signal_name(name, sizeof name, (int)signal_n);
    if (strcmp(name, stop_request_signal(request)) != 0)
        text_format(by, sizeof by, " (by %s)", name);
    if (!s->is_check && s->has_started)
        LOG_INFO("%s%s: stopping after this step and a checkpoint; a second SIGINT or SIGTERM ends "
                 "it immediately",
                 stop_request_signal(request), by);
    workers_forbid_start(s->workers);
    if (workers_alive(s->workers) == 0)
        stop_unready(s, request);
}

static void on_child(evutil_socket_t signal_n, short what, void *arg)
{
    (void)signal_n, (void)what;
    struct supervisor *s = arg;
    if (!s->is_over)
        workers_reap(s->workers);
}

/* ---- open and close ---- */

static enum status open_loop(struct supervisor *s)
{
    static const struct {
        int signal_n;
        event_callback_fn call;
    } rows[] = {{SIGTERM, on_stop},
                {SIGINT, on_stop},
                {SIGUSR1, on_stop},
                {SIGCHLD, on_child},
                {SIGHUP, on_stop}};
    const int rows_n = sizeof rows / sizeof *rows;
    _Static_assert(sizeof rows / sizeof *rows + PROCESS_STOP_SIGNALS_N == SUPERVISOR_SIGNALS_N,
                   "an event for each signal");
    static const struct timeval every = {.tv_usec = TICK_MS * 1000};
    signal(SIGPIPE, SIG_IGN);
    s->loop = event_base_new();
    if (!s->loop)
        return FAIL(ST_RETRY, "cannot open the event loop: no memory or no open files are left; "
                              "free some memory, or raise the limit (ulimit -n)");
    for (int i = 0; i < SUPERVISOR_SIGNALS_N; i++) {
        const int signal_n = i < rows_n ? rows[i].signal_n : process_stop_signals[i - rows_n];
        if ((i >= rows_n || signal_n == SIGHUP) && !process_has_default(signal_n))
            continue;
        s->signals[i] = evsignal_new(s->loop, signal_n, i < rows_n ? rows[i].call : on_stop, s);
        if (!s->signals[i] || event_add(s->signals[i], NULL))
            return FAIL(ST_RETRY,
                        "cannot watch signal %d: no memory or no open files are left; free some "
                        "memory, or raise the limit (ulimit -n)",
                        signal_n);
    }
    s->tick = event_new(s->loop, -1, EV_PERSIST, on_tick, s);
    if (!s->tick || event_add(s->tick, &every))
        return FAIL(ST_RETRY, "out of memory: the supervisor's timer");
    return ST_OK;
}

/* shard_ranks — returns the number of ranks over which state is sharded; -1: not decided yet
 * (plan_choice.h). */
static int shard_ranks(const struct conf *conf)
{
    int64_t shard = conf_i64(conf, CONF_SHARD), locals = conf_i64(conf, CONF_N_GPU_EACH_NODE);
    bool is_split = conf_i64(conf, CONF_N_NODES) > 1;
    if (shard == CONF_SHARD_AUTO)
        return device_is_gpu(conf) && conf_ranks(conf) >= 4 ? -1 : 1;
    if (shard == CONF_SHARD_HYBRID && is_split)
        return (int)locals;
    return shard != CONF_SHARD_NONE ? conf_data_ranks(conf) * (int)conf_i64(conf, CONF_CP) : 1;
}

static void first_node(struct supervisor *s)
{
    int ranks = conf_ranks(s->conf);
    s->node = (struct board_node){
        .node_id = (int32_t)conf_i64(s->conf, CONF_NODE_ID),
        .n_nodes = (int32_t)conf_i64(s->conf, CONF_N_NODES),
        .workers_n = (int32_t)conf_i64(s->conf, CONF_N_GPU_EACH_NODE),
        .is_check = s->is_check,
        .phase = BOARD_PHASE_STARTING,
        .mesh_data = conf_data_ranks(s->conf),
        .mesh_shard = shard_ranks(s->conf),
        .mesh_tensor = (int32_t)conf_i64(s->conf, CONF_TP),
        .mesh_context = (int32_t)conf_i64(s->conf, CONF_CP),
        .mesh_pipeline = (int32_t)conf_i64(s->conf, CONF_PP),
        .started_ms = clock_ms(),
        .resume_step = -1,
        .lost_rank = -1,
        .checkpoint = {.step = -1, .stall_ms = NAN, .save_ms = NAN},
        .peer_copy = {.step = -1, .ms = NAN, .bytes_per_second = NAN, .every = -1},
        .recovery_ms = -1,
        .checkpoint_every =
            supervisor_has_checkpoint_dir(s) ? conf_i64(s->conf, CONF_CHECKPOINT_EVERY) : 0,
        .upload = {.step = -1, .bytes_waiting = -1, .failures = -1, .dropped = -1},
    };
    text_copy(s->node.run, sizeof s->node.run, conf_text(s->conf, CONF_RUN_NAME));
    text_copy(s->node.version, sizeof s->node.version, version_text());
    text_copy(s->node.device, sizeof s->node.device, device_kind(s->conf));
    text_copy(s->node.backend, sizeof s->node.backend, ranks > 1 ? "" : "self");
    board_node_publish(s->board, &s->node);
    s->machine = machine_stats_unknown();
}

/* fill_view — a serve_fill: adds the values that are not on the board in the form that is shown. */
static void fill_view(void *arg, struct view *view)
{
    const struct supervisor *s = arg;
    view->machine = s->machine;
    if (s->bridge)
        cluster_bridge_fill(s->bridge, view);
    check_view_fill(s->check_view, view);
}

struct supervisor_info *supervisor_open_info(const struct conf *conf)
{
    const char *dir = conf_text(conf, CONF_CHECKPOINT_DIR);
    struct supervisor_info *info = memory_new(1, sizeof *info);
    conf_write_settings(conf, &info->settings);
    if (conf_i64(conf, CONF_NODE_ID) == 0 && dir[0]) /* dir has at most 4000 bytes */
        text_format(info->archive, sizeof info->archive, "%s/history.json", dir);
    log_tap(log_tail_add, &info->tail);
    return info;
}

void supervisor_close_info(struct supervisor_info *info)
{
    if (!info)
        return;
    log_tap(NULL, NULL);
    text_free(&info->settings);
    free(info);
}

/* open_serve — opens the HTTP server and logs the page's URL. hang_ms is longer than the
 * supervisor's own limit on silence: it matters only if the supervisor itself is in trouble. */
static enum status open_serve(struct supervisor *s)
{
    const char *addr = conf_text(s->conf, CONF_STATUS_ADDR);
    int port = (int)conf_i64(s->conf, CONF_STATUS_PORT);
    int64_t limit_ms = conf_i64(s->conf, CONF_STEP_TIMEOUT);
    if (port == 0 || (s->is_check && !conf_is_set(s->conf, CONF_STATUS_PORT)))
        return ST_OK; /* a check does not use the port of a job on the same machine */
    s->info = supervisor_open_info(s->conf);
    s->check_view = check_view_open(s->conf, s->board);
    struct serve_config config = {
        .tail = &s->info->tail,
        .settings = s->info->settings.data,
        /* a check does not change the folder of a run */
        .archive_path = s->is_check ? NULL : s->info->archive,
        .loop = s->loop,
        .board = s->board,
        .addr = addr,
        .port = port,
        .hosts = conf_text(s->conf, CONF_HOSTS),
        .own = s->node.node_id == 0 && s->node.n_nodes > 1 ? conf_text(s->conf, CONF_MASTER_ADDR)
                                                           : NULL,
        .hang_ms = (limit_ms > WATCHDOG_DISK_MS_MIN ? limit_ms : WATCHDOG_DISK_MS_MIN) +
                   SERVE_HANG_EXTRA_MS,
        .fill = fill_view,
        .fill_arg = s,
    };
    char *token = secure_alloc(CONF_TOKEN_BYTES);
    config.token = token;
    enum status st = token ? conf_token_page(s->conf, token)
                           : FAIL(ST_RETRY, "out of memory: the token of STATUS_TOKEN_FILE");
    const bool has_token = st == ST_OK && token[0] != 0;
    if (st == ST_OK)
        st = serve_open(&config, &s->serve);
    secure_free(token);
    TRY(st);
    char url[SERVE_URL_BYTES];
    log_console("page %s", serve_url(s->serve, url));
    if (!strcmp(addr, "0.0.0.0") || !strcmp(addr, "::"))
        LOG_INFO(
            "the page is on all addresses of this node (STATUS_ADDR=%s, %s): %s", addr,
            conf_source(s->conf, CONF_STATUS_ADDR),
            has_token
                ? "whoever has the token of STATUS_TOKEN_FILE can read it"
                : "whoever reaches it can read it; STATUS_TOKEN_FILE makes it require a token");
    if (s->node.node_id != 0) {
        const char *master = conf_text(s->conf, CONF_MASTER_ADDR);
        bool is_v6 = strchr(master, ':') != NULL;
        log_console("page of the whole job, on node 0: http://%s%s%s:%d/", is_v6 ? "[" : "", master,
                    is_v6 ? "]" : "", port);
    }
    return ST_OK;
}

static enum status open_workers(struct supervisor *s)
{
    struct workers_config config = {
        .board = s->board,
        .workers_n = s->node.workers_n,
        .rank_first = s->node.node_id * s->node.workers_n,
        .mesh = s->is_check ? NULL : &s->mesh,
        .args_n = s->args_n,
        .args = s->args,
        .shm_fd = s->shm_fd,
        .has_peer_copies = !s->is_check && config_map_copies_memory(s->conf),
        .limit_set_ms = conf_i64(s->conf, CONF_STEP_TIMEOUT),
        .comm_heartbeat_limit_ms = conf_i64(s->conf, CONF_PEER_TIMEOUT),
        .on_end = supervisor_recover_worker_ended,
        .arg = s,
    };
    if (!s->is_check)
        TRY(config_map_mesh(s->conf, &s->mesh));
    return workers_open(&config, &s->workers);
}

static enum status open_bridge(struct supervisor *s)
{
    struct cluster_bridge_config config = {
        .conf = s->conf,
        .board = s->board,
        .loop = s->loop,
        .workers = s->workers,
        .mesh = s->is_check ? NULL : &s->mesh,
        .max_restarts = (int)s->max_restarts,
        .agreement = s->is_check ? check_facts_joining : config_map_agreement,
        .on_begin = on_begin,
        .on_abort = on_abort,
        .on_reached = on_reached,
        .on_stop = on_cluster_stop,
        .on_end = on_cluster_end,
        .arg = s,
    };
    return conf_ranks(s->conf) > 1 ? cluster_bridge_open(&config, &s->bridge) : ST_OK;
}

static enum status open_all(struct supervisor *s)
{
    crash_install();
    conf_token_forget(environ);
    if (conf_ranks(s->conf) > 1 && spawn_raise_priority() == 0)
        LOG_DEBUG("this process may not raise its priority (CAP_SYS_NICE): on a busy machine it "
                  "may be late");
    s->budget = (struct restart_budget){
        .restarts_max = s->max_restarts, .workers_n = 1, .counts.first.step = -1};
    TRY(open_loop(s));
    TRY(board_create((int)conf_i64(s->conf, CONF_N_GPU_EACH_NODE), conf_ranks(s->conf), &s->board));
    first_node(s);
    if (s->node.run[0])
        LOG_INFO("run %s", s->node.run);
    TRY(supervisor_upload_open(s));
    TRY(spawn_shm_fd(s->node.workers_n, &s->shm_fd));
    TRY(open_workers(s));
    TRY(open_bridge(s));
    return open_serve(s);
}

static void close_all(struct supervisor *s)
{
    uploader_close(s->uploader);
    workers_close(s->workers);
    /* Let clients see how the run ended before the port closes. The workers have ended and their
     * devices are free. */
    /* Time for which HTTP is answered after the end. After a requested stop it is 0: the scheduler
     * is about to start the job again, or needs the machine. */
    bool is_asked = stop_request_is_stop(s->stop) || s->ends_at_once;
    int64_t ms = s->serve && s->is_over && !is_asked ? conf_i64(s->conf, CONF_LINGER) : 0;
    cluster_bridge_end(s->bridge);
    if (ms > 0) {
        event_del(s->tick);
        linger_run(s->loop, s->conf, s->result);
    } else if (!s->ends_at_once) {
        serve_await_poll(s->serve);
    }
    serve_close(s->serve);
    supervisor_close_info(s->info);
    check_view_close(s->check_view);
    cluster_bridge_close(s->bridge);
    for (int i = 0; i < SUPERVISOR_SIGNALS_N; i++)
        if (s->signals[i])
            event_free(s->signals[i]);
    if (s->tick)
        event_free(s->tick);
    if (s->loop)
        event_base_free(s->loop);
    board_close(s->board);
    if (s->shm_fd >= 0)
        close(s->shm_fd);
}

static enum status run_supervisor(const struct conf *conf, int argc, char **argv, bool is_check)
{
    struct supervisor own = {
        .conf = conf,
        .is_check = is_check,
        .max_restarts = is_check ? -1 : conf_i64(conf, CONF_MAX_RESTARTS),
        .args_n = argc,
        .args = argv,
        .shm_fd = -1,
        .checkpoint_step = -1,
    };
    struct supervisor *s = &own;
    enum status st = open_all(s);
    if (st == ST_OK) {
        start_workers(s);
        if (!s->is_over)
            event_base_dispatch(s->loop);
        st = s->result;
        /* A preemption that went well is no error, but main would print it as one. */
        if (st == ST_RETRY && s->stop == BOARD_REQUEST_PREEMPT) {
            LOG_INFO("%s", status_message());
            status_clear();
        }
    }
    workers_close(s->workers);
    s->workers = NULL;
    st = supervisor_upload_finish(s, st);
    st = check_output_end(s->conf, s->board, s->is_check, st);
    s->result = st;
    close_all(s);
    return st;
}

enum status supervisor_main(const struct conf *conf, int argc, char **argv)
{
    return run_supervisor(conf, argc, argv, false);
}

enum status supervisor_check_main(const struct conf *conf, int argc, char **argv)
{
    return run_supervisor(conf, argc, argv, true);
}
