/* supervisor — what the user started: serves HTTP, starts the workers, meets the other nodes,
 * restarts who is lost, passes signals on.
 *
 * One libevent loop in one thread. Workers compute; they and this process share the board and
 * nothing else, so whatever happens to one, this process still answers. Here is the life of a node
 * and what it makes of signals; its workers are crew.c's, the other nodes rally.c's.
 *
 *   starting → (workers: loading → joining → training …) → done | failed | recovering → joining
 *   again
 *
 * One worker alone has nobody to meet: then this process itself counts restarts and starts it
 * again. Must not know devices, data or models. */
#include "node/command.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/board.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "base/version.h"
#include "node/crash.h"
#include "node/crew.h"
#include "node/device.h"
#include "node/fit.h"
#include "node/linger.h"
#include "node/process.h"
#include "node/rally.h"
#include "node/shown.h"
#include "node/spawn.h"
#include "node/verdict.h"
#include "node/watch.h"
#include "serve/serve.h"
#include "train/guard.h"

#define TICK_MS 50
#define SAME_SIGNAL_MS 500 /* `timeout` and process groups deliver one signal twice */
/* a worker that has not begun to train obeys a stop by itself so long, then it is ended */
#define LOADING_STOP_MS 3000
#define SERVE_HANG_EXTRA_MS (30 * 1000)
#define SIGNALS_N 5

struct supervisor {
    const struct conf *conf;
    int words_n;
    char **words;
    struct event_base *loop;
    struct event *signals[SIGNALS_N], *tick;
    struct board *board;
    int share_fd; /* -1: none */
    struct crew *crew;
    struct rally *rally; /* NULL: one worker alone */
    struct serve *serve; /* NULL: STATUS_PORT=0 */
    struct board_node node;
    struct shown *shown; /* what HTTP answers beside the board */
    /* one worker alone: of the job; else of this node's, for the delay */
    struct verdict_budget budget;
    enum board_request stop;      /* asked so far, here or on another node */
    int64_t stop_ms;              /* when */
    enum board_request signalled; /* by a signal to this process */
    bool was_preempted;           /* SIGUSR1 came first */
    bool is_cut;                  /* a second signal said so */
    /* a worker has told of a step: it knew then whether there is a checkpoint */
    bool has_trained;
    int64_t signalled_ms;
    bool is_leaving; /* the other nodes are told; the end follows */
    bool is_over;
    enum status result; /* with its sentence in status_message */
};

static void set_phase(struct supervisor *s, enum board_phase phase)
{
    s->node.phase = phase;
    board_node_post(s->board, &s->node);
}

/* end — the loop is left; FAIL() has been called when st is not ST_OK. */
static void end(struct supervisor *s, enum status st)
{
    s->is_over = true;
    s->result = st;
    if (st != ST_OK) {
        s->node.error = (struct board_error){.code = status_exit(st), .node = s->node.node_id};
        text_copy(s->node.error.message, sizeof s->node.error.message, status_message());
    }
    set_phase(s, st == ST_OK ? BOARD_PHASE_DONE : BOARD_PHASE_FAILED);
    event_base_loopbreak(s->loop);
}

/* leave — as end, but the other nodes hear of it first, and why. */
static void leave(struct supervisor *s, enum status st)
{
    if (s->is_leaving || s->is_over)
        return;
    crew_stay_away(s->crew);
    if (!s->rally) {
        end(s, st);
        return;
    }
    s->is_leaving = true;
    rally_leave(s->rally, st, st == ST_OK ? "" : status_message());
}

/* ---- a worker's end ---- */

/* is_clean_stop — it ended as it was asked to. SIGTERM may come while it still carries out
 * SIGUSR1. */
static bool is_clean_stop(const struct supervisor *s, const struct crew_end *worker)
{
    enum status st = worker->verdict.st;
    return worker->is_exit && guard_is_stop(s->stop) &&
           (st == guard_status(s->stop) || (s->was_preempted && st == ST_RETRY));
}

/* note_checkpoint — what rank 0 has told of its checkpoints, before its end or the next one's
 * beginning wipes it out. */
static void note_checkpoint(struct supervisor *s, const struct board_worker *first)
{
    if (s->node.node_id == 0 && first->rank == 0 && first->checkpoint.step >= 0)
        s->node.checkpoint = first->checkpoint;
    s->has_trained = s->has_trained || first->step >= 0;
}

/* note_life — as note_checkpoint, of the worker that lives. */
static void note_life(struct supervisor *s)
{
    struct board_worker first;
    if (board_worker_copy(s->board, 0, &first))
        note_checkpoint(s, &first);
}

static bool has_dir(const struct supervisor *s)
{
    return conf_text(s->conf, CONF_CHECKPOINT_DIR)[0] != 0;
}

/* end_stopped — a stop was asked for, but a worker did not live to carry it out. */
static void end_stopped(struct supervisor *s, const struct crew_end *worker)
{
    enum status st = guard_status(s->stop);
    char rest[96];
    verdict_kept(has_dir(s), worker->last, rest, sizeof rest);
    if (worker->is_cut && !s->is_cut)
        FAIL(st, "stopped by %s while loading, before the first step; %s", guard_signal(s->stop),
             rest);
    else if (s->is_cut)
        FAIL(st, "ended at once by a second signal, without another checkpoint; %s", rest);
    else
        FAIL(st, "asked to stop by %s, but %s; %s", guard_signal(s->stop), worker->verdict.text,
             rest);
    leave(s, st);
}

/* end_clean_stop — the trainer's own words, after its checkpoint: those of the lowest rank, which
 * wrote it. */
static void end_clean_stop(struct supervisor *s, const struct crew_end *worker)
{
    enum status st = guard_status(s->stop);
    struct board_worker first;
    if (crew_alive(s->crew) > 0)
        return; /* the others are about to */
    if (!board_worker_copy(s->board, 0, &first))
        first = *worker->last;
    FAIL(st, "%s", first.error.message[0] ? first.error.message : status_text(st));
    leave(s, st);
}

/* set_resume — from where the job goes on, as far as this node knows; words for people. Only rank 0
 * reads and writes checkpoints, so other nodes hear of it when it has begun. */
static const char *set_resume(struct supervisor *s, char *out, size_t cap)
{
    long long step = s->node.checkpoint.step;
    s->node.resume_step = -1;
    if (s->node.node_id != 0) {
        text_copy(out, cap, "where node 0 has its last checkpoint, or from the beginning");
    } else if (!has_dir(s)) {
        s->node.resume_step = 0;
        text_copy(out, cap, "the beginning (CHECKPOINT_DIR is not set)");
    } else if (step >= 0) {
        s->node.resume_step = step;
        text_format(out, cap, "the checkpoint of step %lld", step);
    } else if (s->has_trained) {
        s->node.resume_step = 0;
        text_copy(out, cap, "the beginning (there is no checkpoint yet)");
    } else {
        text_copy(out, cap, "the last checkpoint, or from the beginning when there is none");
    }
    return out;
}

/* recover_alone — start again, or say why not. */
static void recover_alone(struct supervisor *s, const struct crew_end *worker)
{
    char rest[96], from[96];
    const struct verdict *verdict = &worker->verdict;
    const struct board_worker *last = worker->last;
    switch (verdict_next(&s->budget, last->step)) {
    case VERDICT_NEXT_RESTART:
        LOG_WARN("%s; restart %lld of %lld from %s", verdict->text, (long long)s->budget.restarts,
                 (long long)s->budget.restarts_max, set_resume(s, from, sizeof from));
        s->node.restarts = s->budget.restarts;
        text_copy(s->node.setback, sizeof s->node.setback, verdict->text);
        set_phase(s, BOARD_PHASE_RECOVERING);
        crew_start_later(s->crew, worker->worker_i, verdict_delay_ms(&s->budget));
        return;
    case VERDICT_NEXT_BARREN:
        FAIL(verdict->st, "%s; %d recoveries in a row made no new step, so more would not help; %s",
             verdict->text, VERDICT_BARREN_MAX, verdict_kept(has_dir(s), last, rest, sizeof rest));
        break;
    case VERDICT_NEXT_NO_BUDGET:
        FAIL(verdict->st, "%s; no restart left (MAX_RESTARTS=%lld); %s", verdict->text,
             (long long)s->budget.restarts_max, verdict_kept(has_dir(s), last, rest, sizeof rest));
        break;
    }
    end(s, verdict->st);
}

/* recover — the worker is started again; whether the job goes on is decided where all nodes are
 * known, and said through on_abort or on_end. A worker that gets no further waits longer each
 * time. */
static void recover(struct supervisor *s, const struct crew_end *worker)
{
    bool is_news = worker->last->step > s->budget.step_best;
    s->budget.step_best = is_news ? worker->last->step : s->budget.step_best;
    s->budget.restarts = is_news ? 1 : s->budget.restarts + 1;
    if (!rally_is_running(s->rally)) /* else the meeting tells it, to everybody */
        LOG_WARN("%s", worker->verdict.text);
    set_phase(s, BOARD_PHASE_RECOVERING);
    /* first: the board still has its last words */
    rally_lost(s->rally, worker->verdict.st, worker->verdict.text);
    crew_start_later(s->crew, worker->worker_i, verdict_delay_ms(&s->budget));
}

static void on_worker_end(void *arg, const struct crew_end *worker)
{
    struct supervisor *s = arg;
    if (s->is_over || s->is_leaving)
        return;
    note_checkpoint(s, worker->last);
    if (worker->verdict.st == ST_OK) {
        if (crew_alive(s->crew) == 0)
            leave(s, ST_OK);
    } else if (is_clean_stop(s, worker)) {
        end_clean_stop(s, worker);
    } else if (worker->is_exit && !worker->verdict.may_restart) {
        FAIL(worker->verdict.st, "%s", worker->verdict.text);
        leave(s, worker->verdict.st);
    } else if (guard_is_stop(s->stop)) {
        end_stopped(s, worker);
    } else if (s->rally) {
        recover(s, worker);
    } else {
        recover_alone(s, worker);
    }
}

static void set_stop(struct supervisor *s, enum board_request request)
{
    s->stop = request;
    s->stop_ms = clock_ms();
    s->was_preempted = s->was_preempted || request == BOARD_REQUEST_PREEMPT;
}

/* stop_unready — nobody is there to carry the stop out. */
static void stop_unready(struct supervisor *s, enum board_request request)
{
    char rest[96];
    struct board_worker last;
    bool has_spoken = board_worker_copy(s->board, 0, &last);
    FAIL(guard_status(request), "stopped by %s while recovering; %s", guard_signal(request),
         verdict_kept(has_dir(s), has_spoken ? &last : NULL, rest, sizeof rest));
    leave(s, guard_status(request));
}

/* ---- what the other nodes say ---- */

static void on_abort(void *arg, const char *why)
{
    struct supervisor *s = arg;
    char from[96];
    note_life(s);
    crew_anew(s->crew, clock_ms()); /* before the workers hear of it */
    s->node.restarts = rally_restarts(s->rally);
    text_copy(s->node.setback, sizeof s->node.setback, why);
    if (s->node.node_id != 0) /* on node 0 the meeting has said so */
        LOG_WARN("%s", why);
    set_resume(s, from, sizeof from);
    if (!guard_is_stop(s->stop))
        LOG_INFO("going on from %s when all are back", from);
    set_phase(s, BOARD_PHASE_RECOVERING);
}

static void on_rally_stop(void *arg, enum board_request request)
{
    struct supervisor *s = arg;
    if (s->is_over || request <= s->stop)
        return;
    set_stop(s, request);
    board_request(s->board, request);
    LOG_INFO("%s on another node: stopping after this step and a checkpoint",
             guard_signal(request));
    crew_stay_away(s->crew);
    if (crew_alive(s->crew) == 0)
        stop_unready(s, request);
}

static void on_rally_end(void *arg, enum status st)
{
    struct supervisor *s = arg;
    if (!s->is_over)
        end(s, st);
}

/* ---- time and signals ---- */

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct supervisor *s = arg;
    if (s->is_over)
        return;
    int64_t now_ms = clock_ms();
    if (guard_is_stop(s->stop) && now_ms - s->stop_ms >= LOADING_STOP_MS)
        crew_cut_loading(s->crew);
    enum status st = crew_tick(s->crew, now_ms);
    if (crew_limit_ms(s->crew) > s->node.limit_ms) {
        s->node.limit_ms = crew_limit_ms(s->crew);
        board_node_post(s->board, &s->node);
    }
    if (st != ST_OK)
        leave(s, st);
    else if (s->rally)
        rally_tick(s->rally, now_ms);
}

static enum board_request request_of(int signal_n)
{
    return signal_n == SIGINT ? BOARD_REQUEST_INTERRUPT
           : signal_n == SIGUSR1
               ? BOARD_REQUEST_PREEMPT
               : BOARD_REQUEST_TERMINATE; /* a terminal that hangs up ends the run, too */
}

/* cut — the second SIGINT or SIGTERM: somebody cannot wait. With other nodes not even for their
 * answer. */
static void cut(struct supervisor *s, enum board_request request)
{
    s->stop = request;
    s->is_cut = true;
    LOG_WARN("second signal: ending at once");
    if (crew_alive(s->crew) > 0 && !s->rally) {
        crew_cut(s->crew);
        return;
    }
    FAIL(guard_status(request), "ended at once by a second signal, without another checkpoint");
    end(s, guard_status(request));
}

static void on_stop(evutil_socket_t signal_n, short what, void *arg)
{
    (void)what;
    struct supervisor *s = arg;
    enum board_request request = request_of((int)signal_n), before = s->signalled;
    int64_t now_ms = clock_ms();
    bool is_echo = request == before && now_ms - s->signalled_ms < SAME_SIGNAL_MS;
    /* says nothing new */
    bool is_late = request == BOARD_REQUEST_PREEMPT && guard_is_stop(s->stop);
    if (s->is_over || is_echo || is_late)
        return;
    s->signalled_ms = now_ms;
    s->signalled = request;
    if (before == BOARD_REQUEST_TERMINATE || before == BOARD_REQUEST_INTERRUPT) {
        cut(s, request);
        return;
    }
    /* a scheduler stops all nodes: another one's signal has come here first, over the wire */
    if (request <= s->stop)
        return;
    set_stop(s, request);
    board_request(s->board, request);
    if (s->rally)
        rally_stop(s->rally, request);
    LOG_INFO(
        "%s%s: stopping after this step and a checkpoint; a second SIGINT or SIGTERM ends at once",
        guard_signal(request), signal_n == SIGHUP ? " (by SIGHUP)" : "");
    crew_stay_away(s->crew);
    if (crew_alive(s->crew) == 0)
        stop_unready(s, request);
}

static void on_child(evutil_socket_t signal_n, short what, void *arg)
{
    (void)signal_n, (void)what;
    struct supervisor *s = arg;
    if (!s->is_over)
        crew_reap(s->crew);
}

/* ---- life ---- */

static enum status open_loop(struct supervisor *s)
{
    static const struct {
        int signal_n;
        event_callback_fn call;
    } rows[SIGNALS_N] = {{SIGTERM, on_stop},
                         {SIGINT, on_stop},
                         {SIGUSR1, on_stop},
                         {SIGCHLD, on_child},
                         {SIGHUP, on_stop}};
    static const struct timeval every = {.tv_usec = TICK_MS * 1000};
    signal(SIGPIPE, SIG_IGN);
    s->loop = event_base_new();
    if (!s->loop)
        return FAIL(ST_RETRY, "cannot open the event loop: no memory or no open files are left; "
                              "free some memory, or raise the limit (ulimit -n)");
    for (int i = 0; i < SIGNALS_N; i++) {
        if (process_ignores(rows[i].signal_n) && rows[i].signal_n == SIGHUP)
            continue;
        s->signals[i] = evsignal_new(s->loop, rows[i].signal_n, rows[i].call, s);
        if (!s->signals[i] || event_add(s->signals[i], NULL))
            return FAIL(ST_RETRY,
                        "cannot watch signal %d: no memory or no open files are left; free some "
                        "memory, or raise the limit (ulimit -n)",
                        rows[i].signal_n);
    }
    s->tick = event_new(s->loop, -1, EV_PERSIST, on_tick, s);
    if (!s->tick || event_add(s->tick, &every))
        return FAIL(ST_RETRY, "out of memory: the supervisor's timer");
    return ST_OK;
}

static void first_node(struct supervisor *s)
{
    int ranks = conf_ranks(s->conf);
    s->node = (struct board_node){
        .node_id = (int32_t)conf_i64(s->conf, CONF_NODE_ID),
        .n_nodes = (int32_t)conf_i64(s->conf, CONF_N_NODES),
        .workers_n = (int32_t)conf_i64(s->conf, CONF_N_GPU_EACH_NODE),
        .phase = BOARD_PHASE_STARTING,
        .mesh_data = ranks,
        .mesh_shard = conf_i64(s->conf, CONF_SHARD) ? ranks : 1,
        .mesh_tensor = 1,
        .mesh_pipeline = 1,
        .started_ms = clock_ms(),
        .resume_step = -1,
        .checkpoint = {.step = -1, .stall_ms = NAN, .save_ms = NAN},
    };
    text_copy(s->node.run, sizeof s->node.run, conf_text(s->conf, CONF_RUN_NAME));
    text_copy(s->node.version, sizeof s->node.version, version_text());
    text_copy(s->node.device, sizeof s->node.device, device_kind(s->conf));
    text_copy(s->node.backend, sizeof s->node.backend, ranks > 1 ? "ucx" : "self");
    board_node_post(s->board, &s->node);
}

/* open_serve — and say where to look: a wildcard address is no address to type. The supervisor's
 * own limit on silence comes first; the one given here only matters when the supervisor itself is
 * in trouble. */
static enum status open_serve(struct supervisor *s)
{
    const char *addr = conf_text(s->conf, CONF_STATUS_ADDR);
    int port = (int)conf_i64(s->conf, CONF_STATUS_PORT);
    int64_t limit_ms = conf_i64(s->conf, CONF_STEP_TIMEOUT);
    if (port == 0)
        return ST_OK;
    TRY(shown_open(s->conf, &s->shown));
    struct serve_config config = {
        .tail = &s->shown->tail,
        .settings = s->shown->settings.data,
        .archive_path = s->shown->archive,
        .loop = s->loop,
        .board = s->board,
        .addr = addr,
        .port = port,
        .hosts = conf_text(s->conf, CONF_HOSTS),
        .own = s->node.node_id == 0 && s->node.n_nodes > 1 ? conf_text(s->conf, CONF_MASTER_ADDR)
                                                           : NULL,
        .hang_ms =
            (limit_ms > WATCH_DISK_MS_MIN ? limit_ms : WATCH_DISK_MS_MIN) + SERVE_HANG_EXTRA_MS,
        .fill = s->rally ? rally_fill : NULL,
        .fill_arg = s->rally,
    };
    TRY(serve_open(&config, &s->serve));
    bool is_any = !strcmp(addr, "0.0.0.0") || !strcmp(addr, "::");
    const char *host = is_any ? "127.0.0.1" : addr;
    bool is_v6 = strchr(host, ':') != NULL;
    log_console("page http://%s%s%s:%d/", is_v6 ? "[" : "", host, is_v6 ? "]" : "",
                serve_port(s->serve));
    return ST_OK;
}

static enum status open_crew(struct supervisor *s)
{
    struct crew_config config = {
        .board = s->board,
        .workers_n = s->node.workers_n,
        .rank_first = s->node.node_id * s->node.workers_n,
        .words_n = s->words_n,
        .words = s->words,
        .share_fd = s->share_fd,
        .limit_set_ms = conf_i64(s->conf, CONF_STEP_TIMEOUT),
        .pulse_limit_ms = conf_i64(s->conf, CONF_PEER_TIMEOUT),
        .on_end = on_worker_end,
        .arg = s,
    };
    return crew_open(&config, &s->crew);
}

static enum status open_rally(struct supervisor *s)
{
    struct rally_config config = {
        .conf = s->conf,
        .board = s->board,
        .loop = s->loop,
        .crew = s->crew,
        .on_abort = on_abort,
        .on_stop = on_rally_stop,
        .on_end = on_rally_end,
        .arg = s,
    };
    return conf_ranks(s->conf) > 1 ? rally_open(&config, &s->rally) : ST_OK;
}

static enum status open_all(struct supervisor *s)
{
    crash_install();
    conf_token_forget(environ);
    if (conf_ranks(s->conf) > 1 && spawn_lift() == 0)
        LOG_DEBUG("this process may not go before others (CAP_SYS_NICE): on a busy machine it may "
                  "be late");
    TRY(open_loop(s));
    TRY(board_create((int)conf_i64(s->conf, CONF_N_GPU_EACH_NODE), conf_ranks(s->conf), &s->board));
    first_node(s);
    if (s->node.run[0])
        LOG_INFO("run %s", s->node.run);
    TRY(spawn_share(s->node.workers_n, &s->share_fd));
    TRY(open_crew(s));
    TRY(open_rally(s));
    return open_serve(s);
}

/* linger_ms — how long to go on answering. Where the end was asked for, what asked is about to
 * start the job anew, or wants the machine. */
static int64_t linger_ms(const struct supervisor *s)
{
    bool is_asked = guard_is_stop(s->stop) || s->is_cut;
    return s->serve && s->is_over && !is_asked ? conf_i64(s->conf, CONF_LINGER) : 0;
}

/* show_end — what asks this node hears how it ended, before its voice is gone. The workers and
 * their devices are free. */
static void show_end(struct supervisor *s)
{
    int64_t ms = linger_ms(s);
    rally_end(s->rally);
    if (ms > 0) {
        event_del(s->tick);
        linger_run(s->loop, s->conf, s->result);
    } else if (!s->is_cut) {
        serve_farewell(s->serve);
    }
}

static void close_all(struct supervisor *s)
{
    crew_close(s->crew);
    show_end(s);
    serve_close(s->serve);
    shown_close(s->shown);
    rally_close(s->rally);
    for (int i = 0; i < SIGNALS_N; i++)
        if (s->signals[i])
            event_free(s->signals[i]);
    if (s->tick)
        event_free(s->tick);
    if (s->loop)
        event_base_free(s->loop);
    board_close(s->board);
    if (s->share_fd >= 0)
        close(s->share_fd);
}

/* quiet — a preemption that went well is no error; main would print it as one. */
static void quiet(const struct supervisor *s)
{
    if (s->result != ST_RETRY || s->stop != BOARD_REQUEST_PREEMPT)
        return;
    LOG_INFO("%s", status_message());
    status_clear();
}

/* begin — the workers, once it is known that there is memory for them. */
static enum status begin(struct supervisor *s)
{
    enum status st = fit_train(s->conf);
    if (st == ST_OK)
        return crew_start(s->crew);
    leave(s, st);
    return ST_OK;
}

enum status supervisor_main(const struct conf *conf, int argc, char **argv)
{
    struct supervisor s = {
        .conf = conf,
        .words_n = argc,
        .words = argv,
        .share_fd = -1,
        .budget = {.restarts_max = conf_i64(conf, CONF_MAX_RESTARTS), .step_best = -1},
    };
    enum status st = open_all(&s);
    if (st == ST_OK)
        st = begin(&s);
    if (st == ST_OK) {
        if (!s.is_over)
            event_base_dispatch(s.loop);
        st = s.result;
        quiet(&s);
    }
    close_all(&s);
    return st;
}
