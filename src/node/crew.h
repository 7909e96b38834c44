/* crew — the workers of this node: started, watched, ended, started again.
 *
 * One process each, all from the same words. What an end means is decided in verdict.c, what
 * silence means in watch.c; what becomes of the job is the owner's affair: it is told of every end,
 * once. Must not know other nodes, HTTP or signals to this process. */
#ifndef CONVOY_NODE_CREW_H
#define CONVOY_NODE_CREW_H

#include "base/board.h"
#include "node/verdict.h"

struct crew;

/* How a worker ended. */
struct crew_end {
    int worker_i;
    bool is_exit; /* by itself, not by a signal or for its silence */
    bool is_cut;  /* crew_cut did it */
    struct verdict verdict;
    const struct board_worker *last; /* what it posted last; step -1: it never spoke */
};

struct crew_config {
    struct board *board;
    int workers_n;
    int rank_first; /* of worker 0 */
    int words_n;
    char *const *words;
    int share_fd;           /* what workers of a node exchange numbers in; -1: none */
    int64_t limit_set_ms;   /* STEP_TIMEOUT */
    int64_t pulse_limit_ms; /* a worker with a pulse that has none for so long is frozen */
    void (*on_end)(void *arg, const struct crew_end *end);
    void *arg;
};

enum status crew_open(const struct crew_config *config, struct crew **out);
void crew_close(struct crew *crew); /* ends what still lives; accepts NULL */

enum status crew_start(struct crew *crew); /* all that are not there */
/* crew_start_later — the one that ended, delay_ms from now; the board forgets the old one at
 * once. */
void crew_start_later(struct crew *crew, int worker_i, int64_t delay_ms);
/* crew_anew — a generation is over: silence counts from here: a rank that waited in it waited for
 * others. */
void crew_anew(struct crew *crew, int64_t now_ms);
void crew_stay_away(struct crew *crew); /* nobody is started any more */
/* starts who is due, looks after who is silent */
enum status crew_tick(struct crew *crew, int64_t now_ms);
void crew_reap(struct crew *crew); /* after SIGCHLD; calls on_end */
void crew_cut(struct crew *crew);  /* SIGKILL to all */
/* to those that have not begun to train */
void crew_cut_loading(struct crew *crew);

/* crew_limit_ms — the longest silence in a step that one of them is allowed. */
int64_t crew_limit_ms(const struct crew *crew);
int crew_alive(const struct crew *crew);
bool crew_is_alive(const struct crew *crew, int worker_i);
bool crew_is_due(const struct crew *crew); /* somebody waits to be started */

#endif
