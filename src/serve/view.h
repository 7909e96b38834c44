/* view — one look at the board: copies of all parts at one moment, and what follows from them
 * without a judge's discretion (which phase, which worker speaks for the node, percentiles, is it
 * healthy).
 *
 * Pure functions of the copy; the answers (report, metrics, route) are made from it. Must not know
 * HTTP. */
#ifndef CONVOY_SERVE_VIEW_H
#define CONVOY_SERVE_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/board.h"

struct view_worker {
    bool has_posted;     /* post is valid */
    bool is_hung;        /* in a phase that progresses, and silent for longer than hang_ms */
    int64_t beat_age_ms; /* -1: no beat yet */
    struct board_worker post;
    bool has_call; /* it is in a call of communication */
    struct board_call call;
    bool has_gpu;
    struct board_gpu gpu;
};

struct history;
struct journal;

/* A rank, wherever it is. */
struct view_peer {
    int rank, node;
    char device[64];
    char state[16];
#define RANK_STAT(NAME, field, kind, ...) RANK_STATS_FIELD_##kind(field)
#include "base/rank_stats.def"
    /* of a rank that is not heard of now: since when; -1: all this is of now */
    int64_t heard_age_ms;
    char call[24]; /* the call of communication it is in; "" none */
    int64_t call_age_ms;
    /* of a worker of this node, in the view; NULL: none, or nothing is told of it */
    const struct board_gpu *gpu;
};

struct view_node {
    int node_id;
    char address[64];
    const char *state;            /* static text */
    double heartbeat_age_seconds; /* NAN: none yet */
};

/* Node 0's door: connections that have not shown the job's key. */
struct view_door {
    bool is_there, is_full; /* there: this node has one */
    int strangers_n;
    int64_t turned_away;
};

/* About 200 KiB: keep one, do not put it on a stack. */
struct view {
    int64_t now_ms, wall_ms;
    bool is_stopping; /* a request to end is under way */
    struct board_node node;
    int workers_n;
    struct view_worker workers[BOARD_WORKERS_MAX];
    /* What those who meet know beside the board; borrowed for the answer. nodes_n 0: this node is
     * alone. */
    const struct view_node *nodes;
    int nodes_n;
    const struct view_peer *peers; /* ranks of other nodes */
    int peers_n;
    struct view_door door;
    const struct history *history; /* borrowed likewise; NULL: none is kept */
    const struct journal *journal; /* likewise: of the log */
    /* likewise: those that differ from their defaults, as a line of JSON */
    const char *settings;
    const struct board_worker *lead; /* the post that speaks for the node; NULL: none has posted */
    enum board_phase phase;
};

/* view_backend — what carries data between the workers (comm_backend in comm.h); "": not connected
 * yet. view_device — "cpu" or "cuda": what the node's lead worker reports, else what is planned. */
const char *view_backend(const struct view *view);
const char *view_device(const struct view *view);

/* view_take — now_ms as of clock_ms, wall_ms as of clock_wall_ms. */
void view_take(struct view *out, const struct board *board, int64_t now_ms, int64_t wall_ms,
               int64_t hang_ms);
/* view_ranks — how many are known, this node's first; view_peer — the i-th of them. */
int view_ranks(const struct view *view);
void view_peer(const struct view *view, int i, struct view_peer *out);
/* the worker's rank, also before it has posted */
int view_rank(const struct view *view, int worker_i);
/* view_step_ms — q in (0, 1]: that quantile of the step times kept (nearest rank); q == 0: the last
 * one. NAN: none yet. */
double view_step_ms(const struct board_worker *worker, double q);
/* view_checkpoint — the newest that is known of; NULL: none. It outlives the worker that told of
 * it. */
const struct board_checkpoint *view_checkpoint(const struct view *view);
/* view_resume_step — while recovering: where the job goes on, 0 its beginning; -1: not known, or
 * not recovering. */
int64_t view_resume_step(const struct view *view);
bool view_is_over(const struct view *view); /* the run has ended, done or failed */
/* of the worker longest silent; -1: no beat yet */
int64_t view_progress_age_ms(const struct view *view);
const struct board_error *view_error(const struct view *view); /* NULL: none */
/* view_is_live, view_is_ready — what /livez and /readyz answer; when false, why (reason_cap ≥ 64).
 * A node that has ended is live as long as it answers: it goes by itself, and what acts on /livez
 * would only start it again. */
bool view_is_live(const struct view *view, char *reason, int reason_cap);
bool view_is_ready(const struct view *view, char *reason, int reason_cap);

#endif
