/* view — a copy of the board at one moment, and the values derived from it: the node's phase, the
 * worker whose numbers stand for the node, percentiles, health.
 *
 * All answers (report, metrics, route) are pure functions of a view. It must not know HTTP. */
#ifndef CONVOY_SERVE_VIEW_H
#define CONVOY_SERVE_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/board.h"
#include "base/loss_cost.h"
#include "base/machine_stats.h"

struct view_worker {
    bool has_posted;     /* post is valid */
    bool is_hung;        /* no heartbeat for longer than hang_ms, in a phase that has them */
    int64_t beat_age_ms; /* -1: no heartbeat yet */
    struct board_worker post;
    bool has_call; /* it is inside a collective or a send or receive */
    struct board_call call;
    bool has_gpu;
    struct board_gpu gpu;
};

struct history;
struct journal;

/* A rank on any node. */
struct view_peer {
    int rank, node;
    char device[64];
    char state[16];
#define RANK_STAT(NAME, field, kind, ...) RANK_STATS_FIELD_##kind(field)
#include "base/rank_stats.def"
    /* -1: these numbers are current; else the age of the last message from that rank */
    int64_t heard_age_ms;
    char call[24]; /* the communication call in progress; "": none */
    int64_t call_age_ms;
    /* points into the view, for a worker of this node; NULL: no statistics */
    const struct board_gpu *gpu;
};

struct view_node {
    int node_id;
    char address[64];
    const char *state;            /* static string */
    double heartbeat_age_seconds; /* NAN: no heartbeat yet */
    struct machine_stats machine;
};

/* Node 0's connections without the job's key. "door" is their name in /status and /metrics. */
struct view_door {
    bool is_there, is_full; /* is_there: this is node 0 of several */
    int strangers_n;
    int64_t turned_away;
};

/* About 200 KiB: too large for a stack. */
struct view {
    int64_t now_ms, wall_ms;
    bool is_stopping; /* a stop was requested */
    struct board_node node;
    int workers_n;
    struct view_worker workers[BOARD_WORKERS_MAX];
    /* From the cluster, not the board; borrowed during the answer. nodes_n 0: a single node. */
    const struct view_node *nodes;
    int nodes_n;
    const struct view_peer *peers; /* ranks of other nodes */
    int peers_n;
    struct view_door door;
    struct machine_stats machine; /* statistics of this node */
    /* results of the check: an object of JSON, lines of metrics, one line for people; borrowed;
     * NULL: there was no check */
    const char *check_json, *check_metrics, *check_line;
    const struct history *history; /* borrowed; NULL: none is kept */
    const struct journal *journal; /* borrowed; NULL: none */
    /* borrowed: the settings that differ from their defaults, one line of JSON */
    const char *settings;
    /* stored run: its last answers of /status and /log, and the answer of /runs; borrowed; NULL:
     * the answers are made from this view, and there are no stored runs */
    const char *status_json, *log_text, *runs_json;
    /* the values that the lowest rank of this node published; NULL: nothing yet */
    const struct board_worker *first_worker;
    enum board_phase phase;
};

/* view_backend — returns the transport between the workers (comm_backend in comm.h); "": not
 * connected yet. */
const char *view_backend(const struct view *view);
/* view_device — returns "cpu", "cuda" or "hip": the first worker's report, else the planned
 * device. */
const char *view_device(const struct view *view);

/* view_copy — copies the board. now_ms: clock_ms, wall_ms: clock_wall_ms. */
void view_copy(struct view *out, const struct board *board, int64_t now_ms, int64_t wall_ms,
               int64_t hang_ms);
/* view_ranks — returns the number of ranks in the view, this node's first. */
int view_ranks(const struct view *view);
/* view_peer — returns the i-th of them. */
void view_peer(const struct view *view, int i, struct view_peer *out);
/* view_rank — returns the rank of a worker, also before the worker publishes. Public for tests. */
int view_rank(const struct view *view, int worker_i);
/* view_numbers — returns first_worker, or a worker whose numbers are all unknown. */
const struct board_worker *view_numbers(const struct view *view);
/* view_model — returns the model of that worker; before it is read, all numbers are unknown. */
const struct board_model *view_model(const struct view *view);
/* view_step_ms — returns the quantile q, in (0, 1], of the kept step times (nearest rank); q = 0:
 * the last step's time. NAN: no step yet. */
double view_step_ms(const struct board_worker *worker, double q);
/* view_checkpoint — returns the newest checkpoint; NULL: none. It outlives the worker that wrote
 * it. */
const struct board_checkpoint *view_checkpoint(const struct view *view);
/* view_peer_copy — returns the copies of the state in the memory of peers, of this node's first
 * worker or of the worker before it; step -1: none. */
const struct board_peer_copy *view_peer_copy(const struct view *view);
/* view_loss_cost — returns the cost of a lost node by the numbers of this run. */
void view_loss_cost(const struct view *view, struct loss_cost *out);
/* view_resume_step — returns the step to resume from, 0 the beginning; -1: unknown, or the node is
 * not recovering. */
int64_t view_resume_step(const struct view *view);
bool view_is_over(const struct view *view); /* the run has ended, done or failed */
/* view_progress_age_ms — returns the age of the slowest worker's heartbeat; -1: no heartbeat
 * yet. */
int64_t view_progress_age_ms(const struct view *view);
const struct board_error *view_error(const struct view *view); /* NULL: none */
/* view_is_live — returns the answer of /livez; if false, with the reason (reason_cap ≥ 64). A node
 * whose run has ended stays live while it answers: it exits by itself, and a restart because of
 * /livez would only start it again. */
bool view_is_live(const struct view *view, char *reason, int reason_cap);
/* view_is_ready — returns the answer of /readyz: true while the node trains, evaluates or saves,
 * and no stop was requested; if false, with the reason. */
bool view_is_ready(const struct view *view, char *reason, int reason_cap);

/* The rows of view_stats.def. */
enum view_stat {
#define VIEW_STAT(NAME, ...) VIEW_##NAME,
#include "serve/view_stats.def"
    VIEW_STATS_N
};
struct view_stat_text {
    const char *key, *kind, *metric, *help;
};
extern const struct view_stat_text view_stat_texts[VIEW_STATS_N];
/* view_stats — computes their values; NAN: unknown. */
void view_stats(const struct view *view, double out[VIEW_STATS_N]);
/* view_new_complete — returns a view for docs/status.md: of one rank, whose node is one of several
 * and has failed. It has every member of /status and every metric. The caller frees it. */
struct view *view_new_complete(void);

#endif
