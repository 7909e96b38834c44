/* supervisor — what the user started: serves HTTP, starts the worker, watches it, restarts it, passes signals on.
 *
 * One libevent loop in one thread. The worker computes; the two share the board and nothing else, so whatever
 * happens to it, this process still answers. What an end means is decided in verdict.c, what silence means in
 * watch.c; here is what touches the world.
 *
 *   starting → (worker: loading → training …) → reap → done | failed | recovering → starting again
 *
 * Must not know devices, data or models. */
#include "node/command.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/board.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "base/version.h"
#include "node/crash.h"
#include "node/spawn.h"
#include "node/verdict.h"
#include "node/watch.h"
#include "serve/serve.h"
#include "train/guard.h"

#define WORKER_I 0 /* one worker a node so far */
#define TICK_MS 50
#define SAME_SIGNAL_MS 500 /* `timeout` and process groups deliver one signal twice */
#define SERVE_HANG_EXTRA_MS (30 * 1000)
#define SIGNALS_N 4

struct supervisor {
    const struct conf *conf;
    int words_n;
    char **words;
    struct event_base *loop;
    struct event *signals[SIGNALS_N], *tick;
    struct board *board;
    struct serve *serve; /* NULL: STATUS_PORT=0 */
    struct board_node node;
    struct watch watch;
    struct verdict_budget budget;
    pid_t pid;        /* of the worker; 0: none */
    int64_t start_ms; /* when to start the next one; -1: not waiting */
    bool is_hung;     /* we killed it for its silence */
    bool is_cut;      /* we killed it because a second signal said so */
    int64_t silent_ms;
    char state;              /* of the hung process */
    enum board_request stop; /* asked so far */
    bool was_preempted;      /* SIGUSR1 came first */
    int64_t stop_ms;
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

/* ---- the worker's beginning ---- */

static void start(struct supervisor *s)
{
    s->start_ms = -1;
    s->is_hung = s->is_cut = false;
    board_worker_clear(s->board, WORKER_I);
    watch_start(&s->watch, clock_ms());
    enum status st = spawn_worker(&(struct spawn_config){s->words_n, s->words, WORKER_I, board_fd(s->board), -1}, &s->pid);
    if (st != ST_OK) {
        s->pid = 0;
        end(s, st);
        return;
    }
    LOG_DEBUG("worker pid %ld started", (long)s->pid);
}

/* ---- the worker's end ---- */

/* last_words — what the worker posted; step -1 when it never spoke. */
static void last_words(const struct supervisor *s, struct board_worker *out)
{
    if (board_worker_copy(s->board, WORKER_I, out))
        return;
    memset(out, 0, sizeof *out);
    out->step = -1;
}

/* is_clean_stop — it ended as it was asked to. SIGTERM may come while it still carries out SIGUSR1. */
static bool is_clean_stop(const struct supervisor *s, enum status st)
{
    return guard_is_stop(s->stop) && (st == guard_status(s->stop) || (s->was_preempted && st == ST_RETRY));
}

/* kept — what a person may count on after an end that was not clean. */
static const char *kept(const struct supervisor *s, const struct board_worker *last, char *out, size_t cap)
{
    if (!conf_text(s->conf, CONF_CHECKPOINT_DIR)[0])
        text_copy(out, cap, "nothing is kept, for CHECKPOINT_DIR is not set");
    else if (last->checkpoint.path[0] && last->checkpoint.step >= 0)
        text_format(out, cap, "the same command goes on from the checkpoint of step %lld",
                    (long long)last->checkpoint.step);
    else
        text_copy(out, cap, "an earlier checkpoint, if there is one, is intact");
    return out;
}

/* end_stopped — a stop was asked for, but the worker did not live to carry it out. */
static void end_stopped(struct supervisor *s, const struct verdict *verdict, const struct board_worker *last)
{
    enum status st = guard_status(s->stop);
    char rest[96];
    kept(s, last, rest, sizeof rest);
    if (s->is_cut)
        FAIL(st, "ended at once by a second signal, without another checkpoint; %s", rest);
    else
        FAIL(st, "asked to stop by %s, but %s; %s", guard_signal(s->stop), verdict->text, rest);
    end(s, st);
}

/* end_clean_stop — the trainer's own words, after its checkpoint. */
static void end_clean_stop(struct supervisor *s, const struct board_worker *last)
{
    enum status st = guard_status(s->stop);
    FAIL(st, "%s", last->error.message[0] ? last->error.message : status_text(st));
    end(s, st);
}

/* recover — start again, or say why not. */
static void recover(struct supervisor *s, const struct verdict *verdict, const struct board_worker *last)
{
    char rest[96];
    bool has_dir = conf_text(s->conf, CONF_CHECKPOINT_DIR)[0] != 0;
    switch (verdict_next(&s->budget, last->step)) {
    case VERDICT_NEXT_RESTART:
        LOG_WARN("%s; restart %lld of %lld from the %s", verdict->text, (long long)s->budget.restarts,
                 (long long)s->budget.restarts_max,
                 !has_dir                   ? "beginning (CHECKPOINT_DIR is not set)"
                 : last->checkpoint.path[0] ? "last checkpoint"
                                            : "last checkpoint, or from the beginning when there is none");
        s->node.restarts = s->budget.restarts;
        s->start_ms = clock_ms() + verdict_delay_ms(&s->budget);
        set_phase(s, BOARD_PHASE_RECOVERING);
        board_worker_clear(s->board, WORKER_I);
        return;
    case VERDICT_NEXT_BARREN:
        FAIL(verdict->st, "%s; %d recoveries in a row made no new step, so more would not help; %s",
             verdict->text, VERDICT_BARREN_MAX, kept(s, last, rest, sizeof rest));
        break;
    case VERDICT_NEXT_NO_BUDGET:
        FAIL(verdict->st, "%s; no restart left (MAX_RESTARTS=%lld); %s", verdict->text,
             (long long)s->budget.restarts_max, kept(s, last, rest, sizeof rest));
        break;
    }
    end(s, verdict->st);
}

static void worker_ended(struct supervisor *s, int wait_status)
{
    struct board_worker last;
    struct verdict verdict;
    last_words(s, &last);
    verdict_of(&(struct verdict_facts){.wait_status = wait_status,
                                       .was_hung = s->is_hung,
                                       .silent_ms = s->silent_ms,
                                       .process_state = s->state,
                                       .pid = (int32_t)s->pid,
                                       .rank = last.rank,
                                       .phase = last.phase,
                                       .step = last.step,
                                       .message = last.error.message},
               &verdict);
    s->pid = 0;
    bool is_exit = WIFEXITED(wait_status) && !s->is_hung;
    if (verdict.st == ST_OK)
        end(s, ST_OK);
    else if (is_exit && is_clean_stop(s, verdict.st))
        end_clean_stop(s, &last);
    else if (is_exit && !verdict.may_restart) {
        FAIL(verdict.st, "%s", verdict.text);
        end(s, verdict.st);
    } else if (guard_is_stop(s->stop))
        end_stopped(s, &verdict, &last);
    else
        recover(s, &verdict, &last);
}

static void reap(struct supervisor *s)
{
    pid_t pid;
    int wait_status;
    while (spawn_reap(&pid, &wait_status)) {
        if (s->pid && pid == s->pid)
            worker_ended(s, wait_status);
    }
}

/* ---- watching ---- */

static void look(struct supervisor *s, int64_t now_ms)
{
    struct board_worker worker;
    last_words(s, &worker);
    watch_steps(&s->watch, &worker);
    enum board_phase phase = worker.step < 0 && worker.pid == 0 ? BOARD_PHASE_STARTING : worker.phase;
    if (s->is_hung || s->is_cut ||
        !watch_look(&s->watch, now_ms, board_beat_ms(s->board, WORKER_I), phase, &s->silent_ms))
        return;
    s->is_hung = true;
    s->state = spawn_state(s->pid);
    kill(s->pid, SIGKILL); /* SIGCHLD brings the rest */
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct supervisor *s = arg;
    int64_t now_ms = clock_ms();
    if (s->pid)
        look(s, now_ms);
    else if (s->start_ms >= 0 && now_ms >= s->start_ms)
        start(s);
}

/* ---- signals ---- */

static enum board_request request_of(int signal_n)
{
    return signal_n == SIGINT    ? BOARD_REQUEST_INTERRUPT
           : signal_n == SIGTERM ? BOARD_REQUEST_TERMINATE
                                 : BOARD_REQUEST_PREEMPT;
}

/* cut — the second SIGINT or SIGTERM: somebody cannot wait. */
static void cut(struct supervisor *s, enum board_request request)
{
    s->stop = request;
    s->is_cut = true;
    LOG_WARN("second signal: ending at once");
    if (s->pid)
        kill(s->pid, SIGKILL);
}

static void on_stop(evutil_socket_t signal_n, short what, void *arg)
{
    (void)what;
    struct supervisor *s = arg;
    enum board_request request = request_of((int)signal_n), before = s->stop;
    int64_t now_ms = clock_ms();
    bool is_echo = request == before && now_ms - s->stop_ms < SAME_SIGNAL_MS;
    bool is_late = request == BOARD_REQUEST_PREEMPT && guard_is_stop(before); /* says nothing new */
    if (s->is_over || is_echo || is_late)
        return;
    s->stop_ms = now_ms;
    if (before == BOARD_REQUEST_TERMINATE || before == BOARD_REQUEST_INTERRUPT) {
        cut(s, request);
        return;
    }
    s->stop = request;
    s->was_preempted = s->was_preempted || request == BOARD_REQUEST_PREEMPT;
    board_request(s->board, request);
    LOG_INFO("%s: stopping after this step and a checkpoint; a second SIGINT or SIGTERM ends at once",
             guard_signal(request));
    if (!s->pid) {
        FAIL(guard_status(request), "stopped by %s while recovering; the last checkpoint is intact",
             guard_signal(request));
        end(s, guard_status(request));
    }
}

static void on_child(evutil_socket_t signal_n, short what, void *arg)
{
    (void)signal_n, (void)what;
    reap(arg);
}

/* ---- life ---- */

static enum status open_loop(struct supervisor *s)
{
    static const struct {
        int signal_n;
        event_callback_fn call;
    } rows[SIGNALS_N] = {{SIGTERM, on_stop}, {SIGINT, on_stop}, {SIGUSR1, on_stop}, {SIGCHLD, on_child}};
    static const struct timeval every = {.tv_usec = TICK_MS * 1000};
    signal(SIGPIPE, SIG_IGN);
    s->loop = event_base_new();
    if (!s->loop)
        return FAIL(ST_RETRY, "cannot open the event loop; raise the limit of open files (ulimit -n)");
    for (int i = 0; i < SIGNALS_N; i++) {
        s->signals[i] = evsignal_new(s->loop, rows[i].signal_n, rows[i].call, s);
        if (!s->signals[i] || event_add(s->signals[i], NULL))
            return FAIL(ST_RETRY, "cannot watch signal %d; raise the limit of open files (ulimit -n)",
                        rows[i].signal_n);
    }
    s->tick = event_new(s->loop, -1, EV_PERSIST, on_tick, s);
    if (!s->tick || event_add(s->tick, &every))
        return FAIL(ST_RETRY, "out of memory: the supervisor's timer");
    return ST_OK;
}

static void first_node(struct supervisor *s)
{
    s->node = (struct board_node){
        .node_id = (int32_t)conf_i64(s->conf, CONF_NODE_ID),
        .n_nodes = (int32_t)conf_i64(s->conf, CONF_N_NODES),
        .workers_n = 1,
        .phase = BOARD_PHASE_STARTING,
        .backend = "self",
        .device = "cpu",
        .mesh_data = 1,
        .mesh_shard = 1,
        .mesh_tensor = 1,
        .mesh_pipeline = 1,
        .started_ms = clock_ms(),
    };
    text_copy(s->node.version, sizeof s->node.version, version_text());
    board_node_post(s->board, &s->node);
}

/* open_serve — and say where to look: a wildcard address is no address to type. The supervisor's own limit on
 * silence comes first; the one given here only matters when the supervisor itself is in trouble. */
static enum status open_serve(struct supervisor *s)
{
    const char *addr = conf_text(s->conf, CONF_STATUS_ADDR);
    int port = (int)conf_i64(s->conf, CONF_STATUS_PORT);
    int64_t hang_ms = s->watch.limit_set_ms > WATCH_DISK_MS_MIN ? s->watch.limit_set_ms : WATCH_DISK_MS_MIN;
    if (port == 0)
        return ST_OK;
    struct serve_config config = {
        .loop = s->loop,
        .board = s->board,
        .addr = addr,
        .port = port,
        .hang_ms = hang_ms + SERVE_HANG_EXTRA_MS,
    };
    TRY(serve_open(&config, &s->serve));
    bool is_any = !strcmp(addr, "0.0.0.0") || !strcmp(addr, "::");
    const char *host = is_any ? "127.0.0.1" : addr;
    bool is_v6 = strchr(host, ':') != NULL;
    log_console("status http://%s%s%s:%d/status", is_v6 ? "[" : "", host, is_v6 ? "]" : "",
                serve_port(s->serve));
    return ST_OK;
}

static enum status open_all(struct supervisor *s)
{
    crash_install();
    TRY(open_loop(s));
    TRY(board_create(1, 1, &s->board));
    first_node(s);
    return open_serve(s);
}

static void close_all(struct supervisor *s)
{
    serve_close(s->serve);
    for (int i = 0; i < SIGNALS_N; i++)
        if (s->signals[i])
            event_free(s->signals[i]);
    if (s->tick)
        event_free(s->tick);
    if (s->loop)
        event_base_free(s->loop);
    board_close(s->board);
}

/* quiet — a preemption that went well is no error; main would print it as one. */
static void quiet(const struct supervisor *s)
{
    if (s->result != ST_RETRY || s->stop != BOARD_REQUEST_PREEMPT)
        return;
    LOG_INFO("%s", status_message());
    status_clear();
}

enum status supervisor_main(const struct conf *conf, int argc, char **argv)
{
    struct supervisor s = {
        .conf = conf,
        .words_n = argc,
        .words = argv,
        .start_ms = -1,
        .watch.limit_set_ms = conf_i64(conf, CONF_STEP_TIMEOUT),
        .budget = {.restarts_max = conf_i64(conf, CONF_MAX_RESTARTS), .step_best = -1},
    };
    enum status st = open_all(&s);
    if (st == ST_OK) {
        start(&s);
        if (!s.is_over)
            event_base_dispatch(s.loop);
        st = s.result;
        quiet(&s);
    }
    close_all(&s);
    return st;
}
