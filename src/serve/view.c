/* view — see view.h. */
#include "serve/view.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/quantile.h"
#include "base/text.h"

/* ms added to the node's own limit: the supervisor acts first */
#define VIEW_EXTRA_MS 30000

bool view_is_over(const struct view *view)
{
    return view->node.phase == BOARD_PHASE_DONE || view->node.phase == BOARD_PHASE_FAILED;
}

const struct board_checkpoint *view_checkpoint(const struct view *view)
{
    const struct board_checkpoint *posted =
        view->first_worker != NULL ? &view->first_worker->checkpoint : NULL;
    if (posted != NULL && posted->step >= 0 && posted->path[0] != 0)
        return posted;
    return view->node.checkpoint.step >= 0 && view->node.checkpoint.path[0] != 0
               ? &view->node.checkpoint
               : NULL;
}

const struct board_peer_copy *view_peer_copy(const struct view *view)
{
    const struct board_peer_copy *posted =
        view->first_worker != NULL ? &view->first_worker->peer_copy : NULL;
    return posted != NULL && posted->step >= 0 ? posted : &view->node.peer_copy;
}

/* A worker that has not published. */
static const struct board_worker unknown = {
    .model = {"", "", "", -1, -1, -1, -1, -1, -1, -1, -1, -1, {0}},
    .checkpoint = {.step = -1, .failures = -1, .skipped = -1, .stall_ms = NAN, .save_ms = NAN},
    .peer_copy = {.step = -1,
                  .bytes = -1,
                  .ms = NAN,
                  .bytes_per_second = NAN,
                  .every = -1,
                  .memory_bytes = -1},
#define JOB_STAT(NAME, field, kind, ...) RANK_STATS_UNKNOWN_##kind(field)
#define RANK_STAT JOB_STAT
#include "base/rank_stats.def"
};

const struct board_worker *view_numbers(const struct view *view)
{
    return view->first_worker != NULL ? view->first_worker : &unknown;
}

const struct board_model *view_model(const struct view *view)
{
    const struct board_model *model = &view_numbers(view)->model;
    return model->name[0] != 0 ? model : &unknown.model;
}

int64_t view_resume_step(const struct view *view)
{
    return view->phase == BOARD_PHASE_RECOVERING ? view->node.resume_step : -1;
}

void view_copy(struct view *out, const struct board *board, int64_t now_ms, int64_t wall_ms,
               int64_t hang_ms)
{
    out->now_ms = now_ms;
    out->wall_ms = wall_ms;
    out->is_stopping = board_requested(board) > BOARD_REQUEST_SAVE;
    board_node_copy(board, &out->node);
    out->workers_n = out->node.workers_n;
    out->first_worker = NULL;
    out->nodes_n = out->peers_n = 0;
    out->door = (struct view_door){0};
    out->machine = machine_stats_unknown();
    out->history = NULL;
    out->journal = NULL;
    out->settings = NULL;
    out->status_json = out->log_text = out->runs_json = NULL;
    if (out->node.limit_ms > 0 && out->node.limit_ms + VIEW_EXTRA_MS > hang_ms)
        hang_ms = out->node.limit_ms + VIEW_EXTRA_MS; /* longer steps allow a longer silence */
    for (int i = 0; i < out->workers_n; i++) {
        struct view_worker *worker = &out->workers[i];
        const struct board_worker *post = &worker->post;
        worker->has_gpu = board_gpu_copy(board, i, &worker->gpu);
        worker->has_call = board_call_copy(board, i, &worker->call) && worker->call.call[0];
        int64_t beat_ms = board_heartbeat_ms(board, i);
        worker->beat_age_ms = beat_ms <= 0 ? -1 : now_ms > beat_ms ? now_ms - beat_ms : 0;
        worker->has_posted = board_worker_copy(board, i, &worker->post);
        worker->is_hung = worker->has_posted && post->phase >= BOARD_PHASE_CHECKING &&
                          post->phase <= BOARD_PHASE_CHECKPOINTING && worker->beat_age_ms > hang_ms;
        if (worker->has_posted &&
            (out->first_worker == NULL || post->rank < out->first_worker->rank))
            out->first_worker = post;
    }
    out->phase =
        view_is_over(out) || out->first_worker == NULL ? out->node.phase : out->first_worker->phase;
}

int view_rank(const struct view *view, int worker_i)
{
    const struct view_worker *worker = &view->workers[worker_i];
    return worker->has_posted ? worker->post.rank : view->node.node_id * view->workers_n + worker_i;
}

const char *view_backend(const struct view *view)
{
    return view->first_worker != NULL && view->first_worker->backend[0] != 0
               ? view->first_worker->backend
               : view->node.backend;
}

const char *view_device(const struct view *view)
{
    return view->first_worker == NULL || view->first_worker->device[0] == 0 ? view->node.device
           : text_starts(view->first_worker->device, "cuda")                ? "cuda"
           : text_starts(view->first_worker->device, "hip")                 ? "hip"
                                                                            : "cpu";
}

int view_ranks(const struct view *view) { return view->workers_n + view->peers_n; }

/* Returns the state of a rank after the end of the run; a lost rank stays lost. */
static const char *end_state(const struct view *view, const char *state, bool has_error)
{
    if (strcmp(state, "lost") == 0 || strcmp(state, "unknown") == 0)
        return state;
    return view->node.phase == BOARD_PHASE_DONE ? "done" : has_error ? "failed" : "stopped";
}

static void own_peer(const struct view *view, int i, struct view_peer *out)
{
    const struct view_worker *worker = &view->workers[i];
    const struct board_worker *post = worker->has_posted ? &worker->post : &unknown;
    *out = (struct view_peer){
#define RANK_STAT(NAME, field, ...) .field = post->field,
#include "base/rank_stats.def"
        .rank = view_rank(view, i),
        .node = view->node.node_id,
        .heard_age_ms = -1,
        .call_age_ms = -1,
    };
    text_copy(out->device, sizeof(out->device),
              worker->has_posted ? post->device : view->node.device);
    text_copy(out->state, sizeof(out->state),
              worker->is_hung ? "hung"
                              : board_phase_text(worker->has_posted ? post->phase : view->phase));
    out->gpu = worker->has_gpu ? &worker->gpu : NULL;
    if (worker->has_gpu && worker->gpu.memory_used >= 0)
        out->memory_bytes = worker->gpu.memory_used;
    if (worker->has_call && !view_is_over(view)) {
        text_copy(out->call, sizeof(out->call), worker->call.call);
        out->call_age_ms = view->now_ms - worker->call.entered_ms;
    }
}

void view_peer(const struct view *view, int i, struct view_peer *out)
{
    const bool is_own = i < view->workers_n;
    if (is_own)
        own_peer(view, i, out);
    else
        *out = view->peers[i - view->workers_n];
    if (view_is_over(view))
        text_copy(out->state, sizeof(out->state),
                  end_state(view, out->state,
                            is_own && (view->workers[i].has_posted &&
                                       view->workers[i].post.error.code != 0)));
}

double view_step_ms(const struct board_worker *worker, double q)
{
    int64_t timed_n = worker->step_ms_n;
    if (timed_n <= 0)
        return NAN;
    if (q <= 0)
        return (double)worker->step_ms[(timed_n - 1) % BOARD_STEPS_KEPT];
    double sorted[BOARD_STEPS_KEPT];
    int n = timed_n < BOARD_STEPS_KEPT ? (int)timed_n : BOARD_STEPS_KEPT;
    for (int i = 0; i < n; i++)
        sorted[i] = worker->step_ms[i];
    quantile_sort(sorted, n);
    return quantile_of(sorted, n, q);
}

int64_t view_progress_age_ms(const struct view *view)
{
    int64_t age_ms = -1;
    for (int i = 0; i < view->workers_n; i++) {
        if (view->workers[i].beat_age_ms > age_ms)
            age_ms = view->workers[i].beat_age_ms;
    }
    return age_ms;
}

const struct board_error *view_error(const struct view *view)
{
    if (view->node.error.code != 0)
        return &view->node.error;
    for (int i = 0; i < view->workers_n; i++) {
        if (view->workers[i].has_posted && view->workers[i].post.error.code != 0)
            return &view->workers[i].post.error;
    }
    return NULL;
}

bool view_is_live(const struct view *view, char *reason, int reason_cap)
{
    for (int i = 0; i < view->workers_n; i++) {
        const struct view_worker *worker = &view->workers[i];
        if (!worker->is_hung || view_is_over(view))
            continue;
        text_format(reason, (size_t)reason_cap, "rank %d hung: no progress for %.1f s while %s",
                    view_rank(view, i), (double)worker->beat_age_ms / 1000,
                    board_phase_text(worker->post.phase));
        return false;
    }
    text_copy(reason, (size_t)reason_cap, "");
    return true;
}

bool view_is_ready(const struct view *view, char *reason, int reason_cap)
{
    if (!view_is_live(view, reason, reason_cap))
        return false;
    bool is_training = view->phase == BOARD_PHASE_TRAINING ||
                       view->phase == BOARD_PHASE_EVALUATING ||
                       view->phase == BOARD_PHASE_CHECKPOINTING;
    if (is_training && !view->is_stopping)
        return true;
    const struct board_error *error = view_error(view);
    if (view->phase == BOARD_PHASE_FAILED)
        text_format(reason, (size_t)reason_cap, "failed: %s",
                    error != NULL ? error->message : "the reason is unknown");
    else
        text_format(reason, (size_t)reason_cap, "not training: %s",
                    view->is_stopping ? "stopping" : board_phase_text(view->phase));
    return false;
}

/* ---- numbers of /status and /metrics ---- */

const struct view_stat_text view_stat_texts[VIEW_STATS_N] = {
#define VIEW_STAT(NAME, key, kind, metric, value, help) {key, kind, metric, help},
#include "serve/view_stats.def"
};

static double seconds(int64_t ms) { return ms >= 0 ? (double)ms / 1000 : NAN; }

void view_loss_cost(const struct view *view, struct loss_cost *out)
{
    const struct board_node *node = &view->node;
    const struct board_peer_copy *copy = view_peer_copy(view);
    const bool has_copies = copy->step >= 0 && copy->bytes > 0;
    *out =
        (struct loss_cost){.nodes = node->n_nodes,
                           .copy_every = !has_copies       ? 0
                                         : copy->every > 0 ? copy->every
                                                           : -1,
                           .copy_bytes = copy->memory_bytes * node->workers_n,
                           .checkpoint_every = node->checkpoint_every,
                           .step_ms = view_step_ms(view_numbers(view), 0.5),
                           .recovery_ms = node->recovery_ms >= 0 ? (double)node->recovery_ms : NAN};
}

void view_stats(const struct view *view, double out[VIEW_STATS_N])
{
    const struct board_node *node = &view->node;
    const struct board_worker *worker = view_numbers(view);
    const struct board_checkpoint *now = &worker->checkpoint, *last = view_checkpoint(view);
    static const struct board_upload none = {
        .step = -1, .bytes_waiting = -1, .failures = -1, .dropped = -1};
    const struct board_upload *upload = node->upload.bucket[0] != 0 ? &node->upload : &none;
    const struct board_peer_copy *copy = view_peer_copy(view);
    const double total = (double)worker->loading_total;
    const int64_t since_ms = last != NULL ? view->wall_ms - last->wall_ms : -1;
    const int64_t age_ms = last != NULL && since_ms < 0 ? 0 : since_ms; /* the clock was set back */
    last = last != NULL ? last : &unknown.checkpoint;
    copy = copy->step >= 0 && copy->bytes > 0 ? copy : &unknown.peer_copy;
    struct loss_cost cost;
    view_loss_cost(view, &cost);
#define VIEW_STAT(NAME, key, kind, metric, value, help) out[VIEW_##NAME] = value;
#include "serve/view_stats.def"
}

struct view *view_new_complete(void)
{
    static const struct view_node node = {.state = "joined"};
    struct view *view = memory_new(1, sizeof *view);
    view->phase = view->node.phase = BOARD_PHASE_FAILED;
    view->node.n_nodes = 2;
    view->workers_n = view->nodes_n = view->node.workers_n = 1;
    view->node.error.code = 1;
    text_copy(view->workers[0].post.model.name, sizeof view->workers[0].post.model.name, "model");
    view->workers[0].post.model.adapter.rank = 1;
    view->workers[0].has_posted = view->workers[0].has_gpu = true;
    view->first_worker = &view->workers[0].post;
    view->nodes = &node;
    view->door.is_there = true;
    return view;
}
