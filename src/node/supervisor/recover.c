/* supervisor_recover — decides the consequences of a worker's end for the node: the run is
 * finished, was stopped or cannot go on, or the worker starts again. See supervisor/inside.h. */
#include "node/supervisor/inside.h"

#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "node/bucket/uploader.h"
#include "node/process/exit_policy.h"
#include "train/trainer/stop_request.h"

/* is_clean_stop — returns true if the worker ended as the stop request demanded. SIGTERM may come
 * while the worker still carries out SIGUSR1. */
static bool is_clean_stop(const struct supervisor *s, const struct workers_end *worker)
{
    enum status st = worker->decision.st;
    return worker->is_exit && stop_request_is_stop(s->stop) &&
           (st == stop_request_status(s->stop) || (s->was_preempted && st == ST_RETRY));
}

/* keep_checkpoint — copies the values that rank 0 published about its checkpoints: the board clears
 * them when the next worker starts. */
static void keep_checkpoint(struct supervisor *s, const struct board_worker *first)
{
    if (first->rank == 0 && first->checkpoint.step >= 0)
        s->node.checkpoint = first->checkpoint;
    s->has_trained = s->has_trained || first->step >= 0;
    if (first->peer_copy.step >= 0)
        s->node.peer_copy = first->peer_copy;
}

void supervisor_recover_keep_stats(struct supervisor *s)
{
    struct board_worker first;
    if (board_worker_copy(s->board, 0, &first))
        keep_checkpoint(s, &first);
}

/* end_stopped — ends the run if a stop was requested, but the worker ended before it could carry it
 * out. */
static void end_stopped(struct supervisor *s, const struct workers_end *worker)
{
    enum status st = stop_request_status(s->stop);
    char rest[96];
    ASSERT(stop_request_is_stop(s->stop));
    if (s->is_check) {
        FAIL(st, "stopped by %s during the check", stop_request_signal(s->stop));
        supervisor_leave(s, st);
        return;
    }
    exit_policy_resume_hint(supervisor_has_checkpoint_dir(s), worker->last, rest, sizeof rest);
    if (worker->is_killed && !s->ends_at_once)
        FAIL(st, "stopped by %s while loading, before the first step; %s",
             stop_request_signal(s->stop), rest);
    else if (s->ends_at_once)
        FAIL(st, "ended immediately by a second signal, without another checkpoint; %s", rest);
    else
        FAIL(st, "asked to stop by %s, but %s; %s", stop_request_signal(s->stop),
             worker->decision.text, rest);
    supervisor_leave(s, st);
}

/* end_clean_stop — ends the run after all workers stopped after a checkpoint. The message comes
 * from the trainer on this node's lowest rank. */
static void end_clean_stop(struct supervisor *s, const struct workers_end *worker)
{
    enum status st = stop_request_status(s->stop);
    struct board_worker first;
    ASSERT(stop_request_is_stop(s->stop));
    if (workers_alive(s->workers) > 0)
        return; /* the others are about to end */
    if (!board_worker_copy(s->board, 0, &first))
        first = *worker->last;
    FAIL(st, "%s", first.error.message[0] ? first.error.message : status_text(st));
    supervisor_leave(s, st);
}

/* set_resume_of_checkpoint — sets the step of the checkpoint from which the run resumes. Only rank
 * 0 reads and writes checkpoints, so other nodes learn the step when rank 0 has resumed. */
static void set_resume_of_checkpoint(struct supervisor *s, char *out, size_t cap)
{
    long long step = s->node.checkpoint.step;
    s->node.resume_step = -1;
    if (s->node.node_id != 0) {
        text_copy(out, cap,
                  conf_min_nodes(s->conf) < s->node.n_nodes
                      ? "the last checkpoint of the first node that is left, or from the beginning"
                      : "node 0's last checkpoint, or from the beginning");
    } else if (!supervisor_has_checkpoint_dir(s)) {
        s->node.resume_step = 0;
        text_copy(out, cap, "the beginning (CHECKPOINT_DIR is not set)");
    } else if (step >= 0) {
        s->node.resume_step = step;
        text_format(out, cap, "the checkpoint of step %lld", step);
    } else if (s->has_trained) {
        s->node.resume_step = 0;
        text_copy(out, cap, "the beginning (there is no checkpoint yet)");
    } else {
        text_copy(out, cap, "the last checkpoint, or from the beginning if there is none");
    }
}

/* The step of the copies in memory is known only after all ranks have compared their copies. */
const char *supervisor_recover_set_resume(struct supervisor *s, char *out, size_t cap)
{
    char checkpoint[96];
    set_resume_of_checkpoint(s, checkpoint, sizeof checkpoint);
    if (s->node.peer_copy.step < 0) {
        text_copy(out, cap, checkpoint);
        return out;
    }
    s->node.resume_step = -1;
    text_format(out, cap, "copies in memory, else from %s", checkpoint);
    return out;
}

void supervisor_recover_watch(struct supervisor *s, int64_t now_ms)
{
    struct board_worker first;
    if (!board_worker_copy(s->board, 0, &first))
        return;
    if (s->recovering_ms > 0 && board_worker_has_stepped(&first) &&
        (s->bridge ? first.generation > s->recovering_generation
                   : first.pid != s->recovering_pid)) {
        s->node.recovery_ms = now_ms - s->recovering_ms;
        s->recovering_ms = 0;
        board_node_publish(s->board, &s->node);
    }
    if (first.rank != 0)
        return;
    if (first.checkpoint.step >= 0 && first.checkpoint.step != s->checkpoint_step) {
        s->checkpoint_step = first.checkpoint.step;
        s->checkpoints++;
        if (s->uploader)
            uploader_notice(s->uploader, first.checkpoint.step);
        if (s->bridge)
            cluster_bridge_checkpoints(s->bridge, s->checkpoints);
    }
    if (s->bridge)
        return; /* the coordinator refills the budget */
    if (board_worker_has_stepped(&first))
        restart_budget_stepped(&s->budget, s->checkpoints, now_ms);
    if (restart_budget_refill(&s->budget, s->checkpoints, now_ms))
        LOG_INFO("no loss for an hour or %d checkpoints: one more restart is allowed; %lld of %lld "
                 "restarts are used",
                 RESTART_BUDGET_REFILL_CHECKPOINTS, (long long)restart_budget_used(&s->budget),
                 (long long)s->max_restarts);
}

/* recover_alone — handles the end of the only worker of a job: starts it again, or ends with the
 * reason. */
static void recover_alone(struct supervisor *s, const struct workers_end *worker)
{
    char hint[96], from[160], why[1280];
    const struct exit_policy_decision *decision = &worker->decision;
    const struct restart_loss loss = {decision->st, 0, worker->last->step, 0};
    ASSERTF(!s->bridge && s->node.workers_n == 1, "%d workers", s->node.workers_n);
    if (board_worker_has_stepped(worker->last)) {
        restart_budget_stepped(&s->budget, s->checkpoints, clock_ms());
        restart_budget_passed(&s->budget, worker->last->step);
    }
    if (!restart_budget_spend(&s->budget, &loss, decision->text, why, sizeof why)) {
        exit_policy_resume_hint(supervisor_has_checkpoint_dir(s), worker->last, hint, sizeof hint);
        FAIL(decision->st, s->is_check ? "%s" : "%s; %s", why, hint);
        supervisor_end(s, decision->st);
        return;
    }
    supervisor_recover_set_resume(s, from, sizeof from);
    if (s->budget.counts.losses == 1)
        LOG_WARN("%s; restart %lld of %lld from %s", decision->text,
                 (long long)restart_budget_used(&s->budget), (long long)s->max_restarts, from);
    else
        LOG_WARN("%s, while the job recovers; starting again from %s", decision->text, from);
    s->node.restarts = s->budget.counts.restarts;
    text_copy(s->node.last_failure, sizeof s->node.last_failure, decision->text);
    supervisor_set_phase(s, BOARD_PHASE_RECOVERING);
    workers_start_later(s->workers, worker->worker_i, restart_budget_delay_ms(s->losses));
}

/* leave_with_fault — leaves the job if the results of this node cannot be trusted and the other
 * nodes are enough to go on. Returns false if they are not. */
static bool leave_with_fault(struct supervisor *s, const struct workers_end *worker)
{
    if (worker->decision.st != ST_FAULT || !supervisor_leaves_alone(s) ||
        cluster_bridge_running_nodes(s->bridge) <= conf_min_nodes(s->conf))
        return false;
    FAIL(ST_FAULT, "%s; the other nodes go on without this one (ON_LOSS=shrink)",
         worker->decision.text);
    supervisor_leave(s, ST_FAULT);
    return true;
}

void supervisor_recover_worker_ended(void *arg, const struct workers_end *worker)
{
    struct supervisor *s = arg;
    ASSERTF(worker->worker_i >= 0 && worker->worker_i < s->node.workers_n &&
                !workers_is_alive(s->workers, worker->worker_i),
            "worker %d of %d", worker->worker_i, s->node.workers_n);
    if (s->is_over || s->is_leaving)
        return;
    keep_checkpoint(s, worker->last);
    /* the wait before the next start grows with the losses in a row without a finished step */
    s->losses = board_worker_has_stepped(worker->last) ? 1 : s->losses + 1;
    if (worker->decision.st == ST_OK) {
        if (workers_alive(s->workers) == 0)
            supervisor_leave(s, ST_OK);
    } else if (is_clean_stop(s, worker)) {
        end_clean_stop(s, worker);
    } else if (worker->is_exit && !worker->decision.may_restart) {
        FAIL(worker->decision.st, "%s", worker->decision.text);
        supervisor_leave(s, worker->decision.st);
    } else if (stop_request_is_stop(s->stop)) {
        end_stopped(s, worker);
    } else if (s->bridge) {
        if (!leave_with_fault(s, worker)) {
            /* Start the worker again. Node 0 decides whether the job goes on, and answers by
             * on_abort or on_end. */
            if (!cluster_bridge_is_running(
                    s->bridge)) /* otherwise node 0 and all other nodes log it */
                LOG_WARN("%s", worker->decision.text);
            supervisor_set_phase(s, BOARD_PHASE_RECOVERING);
            /* before workers_start_later: the board still has the worker's last numbers */
            cluster_bridge_lost(s->bridge, worker->worker_i, worker->decision.st,
                                worker->decision.text);
            workers_start_later(s->workers, worker->worker_i, restart_budget_delay_ms(s->losses));
        }
    } else {
        recover_alone(s, worker);
    }
}
