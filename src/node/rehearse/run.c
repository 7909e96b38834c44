/* rehearse_run — see rehearse/run.h.
 *
 * One fault at a time:
 *
 *   made → (a node's board: the generation is over) → detected → (a stopped node goes on) → (a new
 *     generation, its first step) → recovered
 *
 * The next fault waits until the job has passed its furthest step: a worker that is lost at the
 * same step again and again ends the job (cluster/restart_budget.h). It also waits until all nodes
 * train: with ON_LOSS=shrink the loss of a node that is still outside ends no generation. */
#include "node/rehearse/run.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "node/rehearse/net.h"

#define TICK_MS 10
#define STOP_MS 60000 /* limit for a job to end after SIGTERM, with a checkpoint */
#define SLOW_MS 5000
#define LAST_STEPS 3    /* steps at the end of a job with STEPS in which no fault is made */
#define SLOW_SPAN_MS 50 /* a slow node alternates between stopping and running for this time */

struct run {
    const struct rehearse_run_config *config;
    struct rehearse_result *result;
    struct rehearse_nodes *nodes;
    int64_t step, best; /* last finished step of node 0; furthest step of any node */
    int64_t end_step;   /* the run is over when this step is finished; 0: not decided */
    int64_t stop_ms;    /* time at which the end was requested; 0: not yet */
    int64_t generation; /* generation of node 0, or its last one */
    int64_t restarts;   /* restarts counted by node 0 */
    int64_t ended[REHEARSE_NODES_MAX]; /* last finished generation on the board of each node */
    bool is_ending;                    /* a node has ended successfully */
    bool is_lost;                      /* the generation is over, and there is no new one yet */
    bool is_renewed; /* a new generation has begun, and no step of it is finished */
    /* The fault that has not healed yet; kind REHEARSE_KINDS_N: none. */
    struct rehearse_outcome fault;
    int64_t made_ms;
    int64_t made_best; /* furthest step when the fault was made */
    int64_t saves,
        /* checkpoints when the fault was made: step of the last one, number of failures */
        failures;
    /* workers when the fault was made; 0: none */
    int32_t pids[REHEARSE_NODES_MAX][BOARD_WORKERS_MAX];
    bool is_still;                  /* the fault's node is stopped */
    bool is_full;                   /* files cannot grow */
    bool is_cut;                    /* the cable of the fault's node is pulled */
    int flipped_rank, flipped_node; /* rank and node of the last flip; node -1: replaced since */
    /* a flip that a worker makes in its GPU's memory: its number in the fault's node, the order;
     * choice 0: none is awaited */
    bool is_on_device; /* flips are made in memory of GPUs */
    int ordered_worker;
    uint64_t ordered_choice;
};

static void read_boards(struct run *r);

static bool has_fault(const struct run *r) { return r->fault.kind != REHEARSE_KINDS_N; }

static void set_problem(struct run *r, const char *what)
{
    if (r->result->problem[0] == 0)
        text_copy(r->result->problem, sizeof r->result->problem, what);
}

/* ---- faults ---- */

static void set_still(struct run *r, bool is_still)
{
    if (r->is_still != is_still)
        rehearse_nodes_signal(r->nodes, r->fault.node, is_still ? SIGSTOP : SIGCONT);
    r->is_still = is_still;
}

static void set_full(struct run *r, bool is_full)
{
    if (r->is_full != is_full && !rehearse_nodes_limit_files(r->nodes, is_full))
        set_problem(
            r, "the system refuses to limit the files of a node (RLIMIT_FSIZE): leave disk out of "
               "FAULT_MIX");
    r->is_full = is_full;
}

static void set_cut(struct run *r, bool is_cut)
{
    if (r->is_cut != is_cut && rehearse_net_cut(r->fault.node, is_cut) != ST_OK)
        set_problem(r, status_message());
    r->is_cut = is_cut;
}

/* end_effects — ends the temporary effects of a fault. */
static void end_effects(struct run *r)
{
    set_still(r, false);
    set_full(r, false);
    set_cut(r, false);
}

static void signal_all(struct run *r, int signal_n)
{
    for (int node = 0; node < r->config->nodes.nodes_n; node++)
        rehearse_nodes_signal(r->nodes, node, signal_n);
}

/* is_between_saves — returns true if a flipped bit cannot reach a checkpoint. A bit that changes in
 * rank 0 after the comparison before a checkpoint, and before the copy that is written, would be
 * stored in it (decision 061). */
static bool is_between_saves(const struct run *r)
{
    int64_t every = r->config->checkpoint_every, at = r->step % every;
    return every < 3 || (at >= 1 && at <= every - 2);
}

/* copy_worker — copies the values that worker i of a node has published. Returns false if it has
 * published none. */
static bool copy_worker(struct run *r, int node, int i, struct board_worker *out)
{
    struct board *board = rehearse_nodes_board(r->nodes, node);
    struct board_node about;
    if (board == NULL)
        return false;
    board_node_copy(board, &about);
    return i < about.workers_n && board_worker_copy(board, i, out);
}

static struct rehearse_replica replica_of(const struct board_worker *w)
{
    return (struct rehearse_replica){w->rank, w->pid, w->replica_elems, w->replica_address,
                                     w->replica_is_on_device};
}

/* order_flip — orders a worker of the node to invert a bit in its GPU's memory. The fault is made
 * when the worker reports it. */
static bool order_flip(struct run *r, const struct rehearse_fault *fault)
{
    struct board_worker worker;
    struct board *board = rehearse_nodes_board(r->nodes, fault->node);
    struct board_node about;
    if (board == NULL)
        return false;
    board_node_copy(board, &about);
    const int i = (int)(fault->choice % (uint64_t)(about.workers_n > 0 ? about.workers_n : 1));
    if (!copy_worker(r, fault->node, i, &worker) || worker.generation != r->generation ||
        worker.replica_elems == 0)
        return false;
    r->flipped_rank = worker.rank, r->flipped_node = fault->node;
    r->ordered_worker = i, r->ordered_choice = fault->choice | 1;
    board_flip_order(board, i, r->ordered_choice);
    return true;
}

/* read_flip — reads whether the worker has made the flip that is awaited. If its process has ended,
 * the flip is made later. */
static void read_flip(struct run *r)
{
    char what[160];
    struct board_flip done;
    if (r->ordered_choice == 0)
        return;
    struct board *board = rehearse_nodes_board(r->nodes, r->fault.node);
    if (board != NULL && board_flip_ordered(board, r->ordered_worker) != 0)
        return;
    const bool is_done = board != NULL && board_flip_copy(board, r->ordered_worker, &done) &&
                         done.choice == r->ordered_choice && done.flip.elem >= 0;
    r->ordered_choice = 0;
    if (!is_done) {
        r->fault.kind = REHEARSE_KINDS_N;
        return;
    }
    r->made_ms = done.at_ms;
    r->made_best = r->best = done.step > r->best ? done.step : r->best;
    rehearse_flip_text(r->flipped_rank, &done.flip, what, sizeof what);
    LOG_INFO("after step %lld %s", (long long)done.step, what);
}

/* break_collectives — makes the collectives of a worker of the node fail. */
static bool break_collectives(struct run *r, const struct rehearse_fault *fault)
{
    struct board_worker worker;
    struct board_node about;
    struct board *board = rehearse_nodes_board(r->nodes, fault->node);
    if (board == NULL)
        return false;
    board_node_copy(board, &about);
    const int i = (int)(fault->choice % (uint64_t)(about.workers_n > 0 ? about.workers_n : 1));
    if (!copy_worker(r, fault->node, i, &worker) || worker.generation != r->generation)
        return false;
    board_break(board, i, r->generation);
    return true;
}

/* flip_bit — inverts a bit in host memory. All nodes are stopped meanwhile, so the last step that
 * was read is the last finished one. */
static bool flip_bit(struct run *r, const struct rehearse_fault *fault)
{
    char what[160];
    struct board_worker worker;
    struct rehearse_replica replicas[BOARD_WORKERS_MAX];
    int n = 0;
    r->flipped_rank = -1;
    if (!is_between_saves(r))
        return false; /* checked first, so that nodes are not stopped at each tick */
    signal_all(r, SIGSTOP);
    read_boards(r);
    for (int i = 0; i < BOARD_WORKERS_MAX && copy_worker(r, fault->node, i, &worker); i++)
        if (worker.replica_elems > 0 && worker.generation == r->generation)
            replicas[n++] = replica_of(&worker);
    if (!r->is_lost && is_between_saves(r))
        r->flipped_rank = rehearse_flip(replicas, n, fault->choice, what, sizeof what);
    r->made_best = r->best;
    signal_all(r, SIGCONT);
    r->flipped_node = r->flipped_rank >= 0 ? fault->node : -1;
    if (r->flipped_rank >= 0)
        LOG_INFO("after step %lld %s", (long long)r->step, what);
    return r->flipped_rank >= 0;
}

/* make_one — makes a fault. *is_made_out false: it cannot be made now, and is tried again at the
 * next tick. */
static enum status make_one(struct run *r, const struct rehearse_fault *fault, bool *is_made_out)
{
    const int64_t last = r->config->last_step;
    *is_made_out = true;
    switch (fault->kind) {
    case REHEARSE_KIND_KILL:
        *is_made_out = rehearse_nodes_kill_worker(r->nodes, fault->node, fault->choice);
        return ST_OK;
    case REHEARSE_KIND_NODE:
        r->ended[fault->node] = 0;
        rehearse_nodes_kill(r->nodes, fault->node);
        return rehearse_nodes_start(r->nodes, fault->node);
    case REHEARSE_KIND_FLIP:
        *is_made_out = r->is_on_device ? order_flip(r, fault) : flip_bit(r, fault);
        return ST_OK;
    case REHEARSE_KIND_COMM:
        *is_made_out = break_collectives(r, fault);
        return ST_OK;
    case REHEARSE_KIND_DISK:
        /* Not shortly before the job's end: the job would fail without its last checkpoint. */
        *is_made_out = last <= 0 || r->best + 2 * r->config->checkpoint_every < last;
        if (*is_made_out)
            set_full(r, true);
        return ST_OK;
    case REHEARSE_KIND_CUT:
        set_cut(r, true);
        return ST_OK;
    default:
        set_still(r, true);
        return ST_OK;
    }
}

/* is_kept — returns true if only the workers that the fault ends have another process than before
 * the fault. */
static bool is_kept(struct run *r)
{
    struct board_worker worker;
    int replaced = 0,
        hit = r->fault.kind == REHEARSE_KIND_KILL || r->fault.kind == REHEARSE_KIND_FLIP;
    for (int node = 0; node < r->config->nodes.nodes_n; node++)
        for (int i = 0; i < BOARD_WORKERS_MAX && r->pids[node][i] != 0; i++) {
            replaced += !copy_worker(r, node, i, &worker) || worker.pid != r->pids[node][i];
            hit += r->fault.kind == REHEARSE_KIND_NODE && node == r->fault.node;
        }
    return replaced <= hit;
}

static enum status make_fault(struct run *r, const struct rehearse_fault *fault)
{
    bool is_made;
    struct board_worker worker;
    r->fault = (struct rehearse_outcome){
        .kind = fault->kind, .node = fault->node, .measure = {-1, -1, -1, -1}};
    memset(r->pids, 0, sizeof r->pids);
    for (int node = 0; node < r->config->nodes.nodes_n; node++)
        for (int i = 0; i < BOARD_WORKERS_MAX && copy_worker(r, node, i, &worker); i++)
            r->pids[node][i] = worker.pid;
    if (copy_worker(r, 0, 0, &worker))
        r->saves = worker.checkpoint.step, r->failures = worker.checkpoint.failures;
    r->made_ms = clock_ms();
    r->made_best = r->best;
    TRY(make_one(r, fault, &is_made));
    if (!is_made)
        r->fault.kind = REHEARSE_KINDS_N;
    return ST_OK;
}

static void finish_fault(struct run *r, bool is_healed)
{
    end_effects(r);
    r->fault.is_healed = is_healed;
    r->fault.is_kept = is_healed && is_kept(r);
    r->result->outcome[r->result->outcomes_n++] = r->fault;
    /* Log the result of the fault in one line. */
    const struct rehearse_outcome *f = &r->fault;
    char detect[32], recover[32];
    LOG_INFO("fault %d: %s of node %d: detected after %s, recovered after %s",
             r->result->outcomes_n, rehearse_plan_word(f->kind), f->node,
             text_format_ms(
                 detect, sizeof detect,
                 f->measure[REHEARSE_DETECT_MS] < 0 ? NAN : (double)f->measure[REHEARSE_DETECT_MS]),
             text_format_ms(recover, sizeof recover,
                            f->measure[REHEARSE_RECOVER_MS] < 0
                                ? NAN
                                : (double)f->measure[REHEARSE_RECOVER_MS]));
    r->fault.kind = REHEARSE_KINDS_N;
}

/* patience_ms — returns how long the fault may last. The next checkpoint or comparison may be many
 * steps away. */
static int64_t patience_ms(const struct run *r)
{
    const struct rehearse_result *result = r->result;
    int64_t steps = result->steps - result->first_step;
    int64_t step_ms = steps > 0 ? (result->last_ms - result->first_ms) / steps : 0;
    bool waits = r->fault.kind == REHEARSE_KIND_DISK || r->fault.kind == REHEARSE_KIND_FLIP;
    return r->config->heal_ms + (waits ? 3 * r->config->checkpoint_every * step_ms : 0);
}

static void drive_fault(struct run *r, int64_t now_ms)
{
    char text[160];
    int64_t age_ms = now_ms - r->made_ms;
    if (r->fault.kind == REHEARSE_KIND_SLOW) {
        /* The node is stopped half of the time. The fault is over after SLOW_MS if no generation
         * has ended by then. */
        set_still(r, age_ms < SLOW_MS && age_ms / SLOW_SPAN_MS % 2 == 0);
        if (age_ms >= SLOW_MS && r->fault.measure[REHEARSE_DETECT_MS] < 0)
            finish_fault(r, true);
    } else if (r->fault.measure[REHEARSE_DETECT_MS] >= 0)
        end_effects(r);
    if (!has_fault(r) || age_ms < patience_ms(r))
        return;
    text_format(text, sizeof text, "fault %d, %s of node %d, has not healed in %lld s",
                r->result->outcomes_n + 1, rehearse_plan_word(r->fault.kind), r->fault.node,
                (long long)(age_ms / 1000));
    set_problem(r, text);
}

/* ---- boards ---- */

/* is_own — returns true if the fault stops this node or cuts it off. Such a node cannot detect the
 * fault. */
static bool is_own(const struct run *r, int node)
{
    enum rehearse_kind kind = r->fault.kind;
    return r->fault.node == node && (kind == REHEARSE_KIND_NODE || kind == REHEARSE_KIND_HANG ||
                                     kind == REHEARSE_KIND_SLOW || kind == REHEARSE_KIND_CUT);
}

/* ends_generation — returns true if there is a fault that ends the generation, or may end it. */
static bool ends_generation(const struct run *r)
{
    return has_fault(r) && r->fault.kind != REHEARSE_KIND_DISK && r->ordered_choice == 0;
}

static void note_detected(struct run *r, int64_t now_ms)
{
    if (r->fault.measure[REHEARSE_DETECT_MS] >= 0)
        return;
    r->fault.measure[REHEARSE_DETECT_MS] = now_ms - r->made_ms;
    r->fault.measure[REHEARSE_DETECT_STEPS] = r->best - r->made_best;
}

/* note_generation — records that a generation has begun on node 0. */
static void note_generation(struct run *r, const struct board_worker *first, int64_t now_ms)
{
    struct board_node zero;
    board_node_copy(rehearse_nodes_board(r->nodes, 0), &zero);
    const int64_t redone = r->best > first->begun_step ? r->best - first->begun_step : 0;
    r->result->redone += redone;
    if (ends_generation(r)) {
        note_detected(r, now_ms);
        r->fault.measure[REHEARSE_STEPS_REDONE] = redone;
        /* If node 0 itself was stopped or cut off, the other nodes are lost from its own view. */
        const bool is_judged = r->fault.kind == REHEARSE_KIND_NODE || !is_own(r, 0),
                   is_right = r->fault.kind == REHEARSE_KIND_FLIP
                                  ? zero.lost_rank == r->flipped_rank
                                  : zero.lost_rank / zero.workers_n == r->fault.node;
        if (zero.lost_rank >= 0 && is_judged && r->fault.named == REHEARSE_NAMED_NONE)
            r->fault.named = is_right ? REHEARSE_NAMED_RIGHT : REHEARSE_NAMED_WRONG;
    } else if (zero.restarts > r->restarts)
        r->result->unexpected++;
    r->restarts = zero.restarts;
    r->is_renewed = r->generation > 0;
    r->generation = first->generation;
    r->is_lost = false;
}

static void note_step(struct run *r, const struct board_worker *first, int64_t now_ms)
{
    struct rehearse_result *result = r->result;
    if (result->first_ms == 0) {
        const struct rehearse_replica replica = replica_of(first);
        result->first_ms = now_ms, result->first_step = first->step;
        r->is_on_device = replica.is_on_device;
        text_copy(result->device, sizeof result->device, first->device);
        text_copy(result->backend, sizeof result->backend, first->backend);
        rehearse_flip_refused(&replica, result->no_flip, sizeof result->no_flip);
        if (r->config->wants_flip && result->no_flip[0] != 0) {
            char text[300];
            text_format(text, sizeof text, "FAULT_MIX has flip: %s; or leave it out",
                        result->no_flip);
            result->job = ST_BAD_SETTING;
            set_problem(r, text);
        }
    }
    r->step = first->step;
    if (r->step > result->steps)
        result->steps = r->step, result->last_ms = now_ms;
    if (r->is_renewed && ends_generation(r)) {
        r->fault.measure[REHEARSE_RECOVER_MS] = now_ms - r->made_ms;
        finish_fault(r, true);
    }
    r->is_renewed = false;
}

/* note_checkpoint — records that a checkpoint has failed since the disk is full, and later that one
 * was written. */
static void note_checkpoint(struct run *r, const struct board_checkpoint *last, int64_t now_ms)
{
    if (r->fault.kind != REHEARSE_KIND_DISK)
        return;
    if (last->failures > r->failures) {
        note_detected(r, now_ms);
        r->failures = last->failures, r->saves = last->step;
    } else if (r->fault.measure[REHEARSE_DETECT_MS] >= 0 && last->step > r->saves) {
        r->fault.measure[REHEARSE_RECOVER_MS] = now_ms - r->made_ms;
        finish_fault(r, true);
    }
}

/* read_boards — reads the boards of all nodes. */
static void read_boards(struct run *r)
{
    struct board_worker first;
    const int64_t now_ms = clock_ms();
    read_flip(r);
    for (int node = 0; node < r->config->nodes.nodes_n; node++) {
        struct board *board = rehearse_nodes_board(r->nodes, node);
        /* Steps of a new generation that is not recorded yet do not count. */
        if (copy_worker(r, node, 0, &first) && first.generation == r->generation)
            r->best = first.step > r->best ? first.step : r->best;
        if (board == NULL || board_aborted(board) <= r->ended[node])
            continue;
        r->ended[node] = board_aborted(board);
        if (r->stop_ms > 0 || r->ended[node] < r->generation || is_own(r, node))
            continue; /* the previous generation */
        r->is_lost = true;
        if (ends_generation(r))
            note_detected(r, now_ms);
    }
    if (r->stop_ms > 0 || !copy_worker(r, 0, 0, &first) || first.begun_step < 0)
        return;
    if (first.generation > r->generation)
        note_generation(r, &first, now_ms);
    if (board_worker_has_stepped(&first))
        note_step(r, &first, now_ms);
    note_checkpoint(r, &first.checkpoint, now_ms);
}

/* is_replaced — ON_LOSS=shrink: returns true if the node whose results were wrong has left. Another
 * node is started in its place, as a scheduler would do. */
static bool is_replaced(struct run *r, int node, int code)
{
    if (r->stop_ms > 0 || node != r->flipped_node || code != status_exit_code(ST_FAULT))
        return false;
    r->flipped_node = -1;
    r->ended[node] = 0;
    r->fault.named = has_fault(r) ? REHEARSE_NAMED_RIGHT : r->fault.named;
    if (rehearse_nodes_start(r->nodes, node) != ST_OK)
        set_problem(r, status_message());
    return true;
}

static void on_end(void *arg, int node, int code)
{
    char text[1100];
    struct board_node last = {.node_id = node};
    struct run *r = arg;
    if (is_replaced(r, node, code))
        return;
    r->is_ending = r->is_ending || (code == 0 && r->stop_ms == 0);
    if (r->is_ending && r->stop_ms == 0)
        r->stop_ms = clock_ms(); /* the other nodes also end */
    if (r->stop_ms > 0)
        return;
    r->result->job = status_from_exit(code);
    if (rehearse_nodes_board(r->nodes, node) != NULL)
        board_node_copy(rehearse_nodes_board(r->nodes, node), &last);
    text_format(text, sizeof text, "node %d ended with %d%s%s", node, code,
                last.error.message[0] ? ": " : "", last.error.message);
    set_problem(r, text);
}

/* ---- the run ---- */

/* is_over — returns true if the time is over and the next checkpoint is made, or if no further
 * checkpoint can be compared. */
static bool is_over(struct run *r, int64_t now_ms)
{
    const struct rehearse_run_config *c = r->config;
    bool is_late = now_ms - r->result->first_ms >= c->duration_ms;
    if (is_late && r->end_step == 0)
        r->end_step = (r->best / c->checkpoint_every + 1) * c->checkpoint_every;
    if (c->goal > 0 && (r->end_step == 0 || r->end_step > c->goal))
        return r->step > c->goal;
    return r->end_step > 0 && r->step > r->end_step;
}

/* is_near_end — returns true if the job may end before it notices a fault: its nodes leave one
 * after the other then, and a worker that is killed meanwhile has no generation to return to. */
static bool is_near_end(const struct run *r)
{
    const int64_t last = r->config->last_step;
    return last > 0 && r->best + LAST_STEPS >= last;
}

/* all_train — returns true if the generation has finished a step, and all nodes are in it. */
static bool all_train(struct run *r)
{
    struct board_worker first;
    bool is_all = !r->is_lost && !r->is_renewed;
    for (int node = 0; node < r->config->nodes.nodes_n && is_all; node++)
        is_all = copy_worker(r, node, 0, &first) && first.generation == r->generation;
    return is_all;
}

static enum status advance_run(struct run *r)
{
    int64_t now_ms = clock_ms();
    if (r->stop_ms > 0) {
        if (now_ms - r->stop_ms > STOP_MS)
            set_problem(r, "the job does not end after SIGTERM");
        return ST_OK;
    }
    if (r->result->first_ms == 0)
        return ST_OK;
    if (has_fault(r)) {
        drive_fault(r, now_ms);
        return ST_OK;
    }
    if (!is_over(r, now_ms)) {
        /* Make the next fault when it is due. */
        const struct rehearse_run_config *c = r->config;
        int i = r->result->outcomes_n;
        if (c->mix.total == 0 || i == REHEARSE_FAULTS_MAX || r->best <= r->made_best ||
            is_near_end(r) || !all_train(r))
            return ST_OK;
        struct rehearse_fault next =
            rehearse_plan_fault(c->seed, &c->mix, c->nodes.nodes_n, c->every_ms, i);
        int64_t age_ms = now_ms - r->result->first_ms;
        return age_ms >= next.at_ms && age_ms < c->duration_ms ? make_fault(r, &next) : ST_OK;
    }
    r->stop_ms = now_ms;
    /* With ON_LOSS=shrink any node may lead the job, and the others would leave it alone. */
    for (int node = 0; node < r->config->nodes.nodes_n; node++)
        rehearse_nodes_signal_first(r->nodes, node, SIGTERM);
    return ST_OK;
}

static enum status run_job(struct run *r)
{
    for (int i = 0; i < r->config->nodes.nodes_n; i++)
        TRY(rehearse_nodes_start(r->nodes, i));
    while (rehearse_nodes_running(r->nodes) > 0 && r->result->problem[0] == 0) {
        if (*r->config->signalled != 0) {
            int signal_n = *r->config->signalled;
            enum status st = signal_n == SIGINT ? ST_INTERRUPTED : ST_TERMINATED;
            return FAIL(
                st,
                "stopped by %s; all processes of the rehearsal have ended, and its folder is "
                "removed",
                signal_n == SIGINT    ? "SIGINT"
                : signal_n == SIGTERM ? "SIGTERM"
                                      : "SIGHUP");
        }
        rehearse_nodes_poll(r->nodes, TICK_MS);
        read_boards(r);
        TRY(advance_run(r));
    }
    return ST_OK;
}

enum status rehearse_run(const struct rehearse_run_config *config, struct rehearse_result *result)
{
    struct run r = {
        .config = config, .result = result, .fault.kind = REHEARSE_KINDS_N, .flipped_node = -1};
    struct rehearse_nodes_config nodes = config->nodes;
    nodes.on_end = on_end, nodes.arg = &r;
    r.nodes = rehearse_nodes_open(&nodes);
    enum status st = run_job(&r);
    read_flip(&r);
    if (has_fault(&r) && r.ordered_choice == 0) /* else a flip that was ordered, but not made */
        finish_fault(&r, false);
    result->is_complete = r.is_ending && result->problem[0] == 0;
    rehearse_nodes_close(r.nodes);
    return st;
}
