/* view — one look at the board: copies of all parts at one moment, and what follows from them without a
 * judge's discretion (which phase, which worker speaks for the node, percentiles, is it healthy).
 *
 * Pure functions of the copy; the answers (report, metrics, route) are made from it. Must not know HTTP. */
#ifndef CONVOY_SERVE_VIEW_H
#define CONVOY_SERVE_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/board.h"

struct view_worker {
    bool has_posted; /* post is valid */
    bool is_hung;    /* in a phase that progresses, and silent for longer than hang_ms */
    int64_t beat_age_ms; /* -1: no beat yet */
    struct board_worker post;
};

/* About 200 KiB: keep one, do not put it on a stack. */
struct view {
    int64_t now_ms, wall_ms;
    bool is_stopping; /* a request to end is under way */
    struct board_node node;
    int workers_n;
    struct view_worker workers[BOARD_WORKERS_MAX];
    const struct board_worker *lead; /* the post that speaks for the node; NULL: none has posted */
    enum board_phase phase;
};

/* view_take — now_ms as of clock_ms, wall_ms as of clock_wall_ms. */
void view_take(struct view *out, const struct board *board, int64_t now_ms, int64_t wall_ms, int64_t hang_ms);
int view_rank(const struct view *view, int worker_i); /* the worker's rank, also before it has posted */
/* view_step_ms — q in (0, 1]: that quantile of the step times kept (nearest rank); q == 0: the last one. NAN:
 * none yet. */
double view_step_ms(const struct board_worker *worker, double q);
int64_t view_progress_age_ms(const struct view *view); /* of the worker longest silent; -1: no beat yet */
const struct board_error *view_error(const struct view *view); /* NULL: none */
/* view_is_live, view_is_ready — what /livez and /readyz answer; when false, why (reason_cap ≥ 64). */
bool view_is_live(const struct view *view, char *reason, int reason_cap);
bool view_is_ready(const struct view *view, char *reason, int reason_cap);

#endif
