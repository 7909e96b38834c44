/* rehearse_run — see rehearse/run.h.
 *
 * One fault at a time:
 *
 *   made → (a node's line says that the generation is over) → detected → (a node that stands still
 *   goes on) → (a new generation, its first step) → recovered
 *
 * The next one waits until the job is further than it ever was: three recoveries without a new step
 * end a job, and a machine that fails that often needs no rehearsal. */
#include "node/rehearse/run.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "node/supervisor/recovery_line.h"
#include "node/rehearse/flip.h"
#include "node/rehearse/net.h"
#include "train/checkpoint/async.h"
#include "train/feature/sentinel_line.h"

#define TICK_MS 10
#define STOP_MS 60000 /* for a job to end after SIGTERM, with a checkpoint */
#define SLOW_MS 5000
#define SLOW_PART_MS 50 /* a slow node stands still for so long, then runs for so long */
#define DRAIN_POLLS 8   /* after that many, lines of nodes that stand still are read */

struct run {
    const struct rehearse_run_config *config;
    struct rehearse_result *result;
    struct rehearse_nodes *nodes;
    int64_t step, best;  /* of the last line; the furthest one */
    int64_t end_step;    /* the run is over when this step is done; 0: not decided */
    int64_t stop_ms;     /* when it was asked to end; 0: not yet */
    bool is_ending;      /* a node has ended well */
    bool is_lost;        /* the generation is over; no new one yet */
    bool is_renewed;     /* a new one has begun, and no step is done in it */
    bool is_unexplained; /* it was over without a fault; lines of nodes come in any order */
    bool is_return;      /* a node has returned since the one before */
    /* The fault that has not healed yet; kind REHEARSE_KINDS_N: none. */
    struct rehearse_outcome fault;
    int64_t made_ms;
    int64_t made_best;              /* the furthest step at that time */
    bool is_still;                  /* its node is stopped */
    bool is_full;                   /* files cannot grow */
    bool is_cut;                    /* its node's cable is pulled */
    int flipped_rank, flipped_node; /* of the last flip; node -1: it was replaced since */
    struct rehearse_flips flips;
    char renewed[32]; /* the time in the line of the last generation */
    char error[512];  /* the last line of level error */
};

static bool has_fault(const struct run *r) { return r->fault.kind != REHEARSE_KINDS_N; }

static void fail(struct run *r, const char *what)
{
    if (r->result->problem[0] == 0)
        text_copy(r->result->problem, sizeof r->result->problem, what);
}

/* ---- faults ---- */

static void hold(struct run *r, bool is_still)
{
    if (r->is_still != is_still)
        rehearse_nodes_signal(r->nodes, r->fault.node, is_still ? SIGSTOP : SIGCONT);
    r->is_still = is_still;
}

static void set_full(struct run *r, bool is_full)
{
    if (r->is_full != is_full && !rehearse_nodes_limit_files(r->nodes, is_full))
        fail(r, "the system refuses to limit the files of a node (RLIMIT_FSIZE): leave disk out of "
                "FAULT_MIX");
    r->is_full = is_full;
}

static void set_cut(struct run *r, bool is_cut)
{
    if (r->is_cut != is_cut && rehearse_net_cut(r->fault.node, is_cut) != ST_OK)
        fail(r, status_message());
    r->is_cut = is_cut;
}

/* release — what a fault does for a while is over. */
static void release(struct run *r)
{
    hold(r, false);
    set_full(r, false);
    set_cut(r, false);
}

static void signal_all(struct run *r, int signal_n)
{
    for (int node = 0; node < r->config->nodes.nodes_n; node++)
        rehearse_nodes_signal(r->nodes, node, signal_n);
}

/* is_between_saves — a bit that changes in rank 0 after the comparison before a checkpoint, and
 * before the copy that is written, would be kept in it (decision 061). */
static bool is_between_saves(const struct run *r)
{
    int64_t every = r->config->checkpoint_every, at = r->step % every;
    return every < 3 || (at >= 1 && at <= every - 2);
}

/* flip — all nodes stand still meanwhile, so the last step that was read is the last one done. */
static bool flip(struct run *r, const struct rehearse_fault *fault)
{
    char what[160];
    r->flipped_rank = -1;
    if (!is_between_saves(r))
        return false; /* without stopping nodes at each tick */
    signal_all(r, SIGSTOP);
    for (int i = 0; i < DRAIN_POLLS; i++)
        rehearse_nodes_poll(r->nodes, 0);
    if (!r->is_lost && is_between_saves(r))
        r->flipped_rank = rehearse_flip(&r->flips, fault->node, fault->choice, what, sizeof what);
    signal_all(r, SIGCONT);
    r->flipped_node = r->flipped_rank >= 0 ? fault->node : -1;
    if (r->flipped_rank >= 0)
        LOG_INFO("after step %lld %s", (long long)r->step, what);
    return r->flipped_rank >= 0;
}

/* make_one — *is_made_out false: not now; it is tried again at the next tick. */
static enum status make_one(struct run *r, const struct rehearse_fault *fault, bool *is_made_out)
{
    const int64_t last = r->config->last_step;
    *is_made_out = true;
    switch (fault->kind) {
    case REHEARSE_KIND_KILL:
        *is_made_out = rehearse_nodes_kill_worker(r->nodes, fault->node, fault->choice);
        return ST_OK;
    case REHEARSE_KIND_NODE:
        rehearse_flip_forget(&r->flips, fault->node);
        rehearse_nodes_kill(r->nodes, fault->node);
        return rehearse_nodes_start(r->nodes, fault->node);
    case REHEARSE_KIND_FLIP:
        *is_made_out = flip(r, fault);
        return ST_OK;
    case REHEARSE_KIND_DISK:
        /* Not shortly before the job's end: it would fail without its last checkpoint. */
        *is_made_out = last <= 0 || r->best + 2 * r->config->checkpoint_every < last;
        if (*is_made_out)
            set_full(r, true);
        return ST_OK;
    case REHEARSE_KIND_CUT:
        set_cut(r, true);
        return ST_OK;
    default:
        hold(r, true);
        return ST_OK;
    }
}

static enum status make(struct run *r, const struct rehearse_fault *fault)
{
    bool is_made;
    r->fault =
        (struct rehearse_outcome){fault->kind, fault->node, -1, -1, false, REHEARSE_NAMED_NONE};
    r->made_ms = clock_ms();
    r->made_best = r->best;
    TRY(make_one(r, fault, &is_made));
    if (!is_made)
        r->fault.kind = REHEARSE_KINDS_N;
    return ST_OK;
}

static void finish(struct run *r, bool is_healed)
{
    release(r);
    r->fault.is_healed = is_healed;
    r->result->outcome[r->result->outcomes_n++] = r->fault;
    /* What became of it, as one line. */
    const struct rehearse_outcome *f = &r->fault;
    char detect[32], recover[32];
    LOG_INFO(
        "fault %d: %s of node %d: detected after %s, recovered after %s", r->result->outcomes_n,
        rehearse_plan_word(f->kind), f->node,
        text_format_ms(detect, sizeof detect, f->detect_ms < 0 ? NAN : (double)f->detect_ms),
        text_format_ms(recover, sizeof recover, f->recover_ms < 0 ? NAN : (double)f->recover_ms));
    r->fault.kind = REHEARSE_KINDS_N;
}

/* patience_ms — a checkpoint or a comparison comes only after so many steps. */
static int64_t patience_ms(const struct run *r)
{
    const struct rehearse_result *result = r->result;
    int64_t steps = result->steps - result->first_step;
    int64_t step_ms = steps > 0 ? (result->last_ms - result->first_ms) / steps : 0;
    bool waits = r->fault.kind == REHEARSE_KIND_DISK || r->fault.kind == REHEARSE_KIND_FLIP;
    return r->config->heal_ms + (waits ? 3 * r->config->checkpoint_every * step_ms : 0);
}

static void drive(struct run *r, int64_t now_ms)
{
    char text[160];
    int64_t age_ms = now_ms - r->made_ms;
    if (r->fault.kind == REHEARSE_KIND_SLOW) {
        /* Half of the time, and over after SLOW_MS if no generation has ended by it. */
        hold(r, age_ms < SLOW_MS && age_ms / SLOW_PART_MS % 2 == 0);
        if (age_ms >= SLOW_MS && r->fault.detect_ms < 0)
            finish(r, true);
    } else if (r->fault.detect_ms >= 0)
        release(r);
    if (!has_fault(r) || age_ms < patience_ms(r))
        return;
    text_format(text, sizeof text, "fault %d, %s of node %d, has not healed in %lld s",
                r->result->outcomes_n + 1, rehearse_plan_word(r->fault.kind), r->fault.node,
                (long long)(age_ms / 1000));
    fail(r, text);
}

/* ---- lines ---- */

/* is_own — a node that stands still, or is cut off, is not the one that detects it. */
static bool is_own(const struct run *r, int node)
{
    enum rehearse_kind kind = r->fault.kind;
    return r->fault.node == node && (kind == REHEARSE_KIND_NODE || kind == REHEARSE_KIND_HANG ||
                                     kind == REHEARSE_KIND_SLOW || kind == REHEARSE_KIND_CUT);
}

/* ends_generation — the fault there is does, or may. */
static bool ends_generation(const struct run *r)
{
    return has_fault(r) && r->fault.kind != REHEARSE_KIND_DISK;
}

/* on_lost — a node's generation is over. Lines of different nodes are read in any order, so one
 * that is older than the generation is about the one before. */
static void on_lost(struct run *r, int node, const char *time, int64_t now_ms)
{
    bool is_first = !r->is_lost;
    rehearse_flip_forget(&r->flips, node);
    if (r->stop_ms > 0 || strcmp(time, r->renewed) <= 0 || is_own(r, node))
        return;
    r->is_lost = true;
    if (ends_generation(r) && r->fault.detect_ms < 0)
        r->fault.detect_ms = now_ms - r->made_ms;
    else if (!ends_generation(r) && is_first)
        r->is_unexplained = true;
}

static void on_step(struct run *r, int64_t step, int64_t now_ms)
{
    struct rehearse_result *result = r->result;
    if (result->first_ms == 0) {
        /* All workers have logged where their parameters lie. */
        result->first_ms = now_ms, result->first_step = step;
        rehearse_flip_refused(&r->flips, result->no_flip, sizeof result->no_flip);
        if (r->config->wants_flip && result->no_flip[0] != 0) {
            char text[300];
            text_format(text, sizeof text, "FAULT_MIX has flip: %s; or leave it out",
                        result->no_flip);
            result->job = ST_BAD_SETTING;
            fail(r, text);
        }
    }
    if (step <= r->best)
        result->redone++;
    r->step = step;
    r->best = step > r->best ? step : r->best;
    result->steps = r->best;
    result->last_ms = now_ms;
    if (r->is_renewed && ends_generation(r) && r->fault.detect_ms >= 0) {
        r->fault.recover_ms = now_ms - r->made_ms;
        finish(r, true);
    }
    r->is_renewed = false;
}

/* on_checkpoint — one has failed, or is written. */
static void on_checkpoint(struct run *r, const char *message, int64_t now_ms)
{
    if (r->fault.kind != REHEARSE_KIND_DISK)
        return;
    if (text_starts(message, CHECKPOINT_LINE_FAILED) && r->fault.detect_ms < 0)
        r->fault.detect_ms = now_ms - r->made_ms;
    if (strstr(message, CHECKPOINT_LINE_WRITTEN) == NULL || r->fault.detect_ms < 0)
        return;
    r->fault.recover_ms = now_ms - r->made_ms;
    finish(r, true);
}

/* on_named — a supervisor has named the rank that differs from the others. */
static void on_named(struct run *r, const char *message)
{
    int rank = rehearse_flip_named(message);
    if (r->fault.kind != REHEARSE_KIND_FLIP || rank < 0 || r->fault.named != REHEARSE_NAMED_NONE)
        return;
    r->fault.named = rank == r->flipped_rank ? REHEARSE_NAMED_RIGHT : REHEARSE_NAMED_WRONG;
}

static bool is_from(const cJSON *line, const char *module, const char *begin)
{
    return strcmp(json_text(line, "module"), module) == 0 &&
           text_starts(json_text(line, "message"), begin);
}

static void on_line(void *arg, int node, const char *bytes, size_t n)
{
    struct run *r = arg;
    cJSON *line = NULL;
    int64_t now_ms = clock_ms();
    if (json_parse(bytes, n, "a line of the log", &line) != ST_OK) {
        status_clear(); /* not ours: a library's */
        return;
    }
    double step = json_number(line, "step");
    if (isfinite(step) && node == 0) /* other nodes print some of the same steps */
        on_step(r, (int64_t)step, now_ms);
    else if (!isfinite(step)) {
        /* A line that is not a step's. */
        const char *message = json_text(line, "message"), *time = json_text(line, "time");
        double rank = json_number(line, "rank");
        LOG_DEBUG("node %d: %s", node, message);
        r->is_return = r->is_return || strstr(message, RECOVERY_LINE_RETURN) != NULL;
        if (is_from(line, RECOVERY_LINE_GENERATION_MODULE, RECOVERY_LINE_GENERATION)) {
            text_copy(r->renewed, sizeof r->renewed, time);
            if (ends_generation(r) && r->fault.detect_ms < 0)
                r->fault.detect_ms = now_ms - r->made_ms;
            r->result->unexpected += r->is_unexplained && !r->is_return;
            r->is_unexplained = r->is_return = false;
            r->is_renewed = r->step > 0;
            r->is_lost = false;
        } else if (is_from(line, RECOVERY_LINE_LOST_MODULE, RECOVERY_LINE_LOST))
            on_lost(r, node, time, now_ms);
        else if (is_from(line, SENTINEL_LINE_MODULE, SENTINEL_LINE_OTHERS) && isfinite(rank))
            rehearse_flip_note(&r->flips, node, (int)rank, message);
        else if (is_from(line, CHECKPOINT_LINE_MODULE, ""))
            on_checkpoint(r, message, now_ms);
        else
            on_named(r, message);
        if (strcmp(json_text(line, "level"), "error") == 0)
            text_copy(r->error, sizeof r->error, message);
    }
    cJSON_Delete(line);
}

/* is_replaced — ON_LOSS=shrink: the node whose results were wrong has left; another one takes its
 * place, as a scheduler would start it. */
static bool is_replaced(struct run *r, int node, int code)
{
    if (r->stop_ms > 0 || node != r->flipped_node || code != status_exit_code(ST_FAULT))
        return false;
    r->flipped_node = -1;
    rehearse_flip_forget(&r->flips, node);
    if (rehearse_nodes_start(r->nodes, node) != ST_OK)
        fail(r, status_message());
    return true;
}

static void on_end(void *arg, int node, int code)
{
    char text[640];
    struct run *r = arg;
    if (is_replaced(r, node, code))
        return;
    r->is_ending = r->is_ending || (code == 0 && r->stop_ms == 0);
    if (r->is_ending && r->stop_ms == 0)
        r->stop_ms = clock_ms(); /* the others end, too */
    if (r->stop_ms > 0)
        return;
    r->result->job = status_from_exit(code);
    text_format(text, sizeof text, "node %d ended with %d%s%s", node, code, r->error[0] ? ": " : "",
                r->error);
    fail(r, text);
}

/* ---- the run ---- */

/* is_over — time is up, and the next checkpoint after it is made; or nothing is left to compare. */
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

static enum status tick(struct run *r)
{
    int64_t now_ms = clock_ms();
    if (r->stop_ms > 0) {
        if (now_ms - r->stop_ms > STOP_MS)
            fail(r, "the job does not end after SIGTERM");
        return ST_OK;
    }
    if (r->result->first_ms == 0)
        return ST_OK;
    if (has_fault(r)) {
        drive(r, now_ms);
        return ST_OK;
    }
    if (!is_over(r, now_ms)) {
        /* Makes the next one when it is due. */
        const struct rehearse_run_config *c = r->config;
        int i = r->result->outcomes_n;
        if (c->mix.total == 0 || i == REHEARSE_FAULTS_MAX || r->is_lost || r->best <= r->made_best)
            return ST_OK;
        struct rehearse_fault next =
            rehearse_plan_fault(c->seed, &c->mix, c->nodes.nodes_n, c->every_ms, i);
        int64_t age_ms = now_ms - r->result->first_ms;
        return age_ms >= next.at_ms && age_ms < c->duration_ms ? make(r, &next) : ST_OK;
    }
    r->stop_ms = now_ms;
    rehearse_nodes_signal_first(r->nodes, 0, SIGTERM);
    return ST_OK;
}

static enum status follow(struct run *r)
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
        TRY(tick(r));
    }
    return ST_OK;
}

enum status rehearse_run(const struct rehearse_run_config *config, struct rehearse_result *result)
{
    struct run r = {
        .config = config, .result = result, .fault.kind = REHEARSE_KINDS_N, .flipped_node = -1};
    struct rehearse_nodes_config nodes = config->nodes;
    nodes.on_line = on_line, nodes.on_end = on_end, nodes.arg = &r;
    r.nodes = rehearse_nodes_open(&nodes);
    enum status st = follow(&r);
    if (has_fault(&r))
        finish(&r, false);
    result->is_complete = r.is_ending && result->problem[0] == 0;
    rehearse_nodes_close(r.nodes);
    return st;
}
