/* board — the shared memory between a node's supervisor and its workers, and all they share.
 *
 * Workers post numbers; the supervisor reads copies and posts requests (save, stop). Each side
 * writes only its own part. A part is guarded by a sequence counter (odd while being written), so a
 * reader copies without ever making a writer wait, and a worker killed half-way through a post
 * leaves the last whole copy readable (two slots). The memory is a memfd inherited across exec
 * under a fixed descriptor. Plain data only: no pointers. Must not know what the numbers are used
 * for.
 *
 * Where ranks meet, the board also carries how: a worker posts that it is ready and its address,
 * the supervisor the world of a generation (everybody's addresses) and that a generation is over,
 * and a worker's comm heartbeat the call of communication that it is in. */
#ifndef CONVOY_BASE_BOARD_H
#define CONVOY_BASE_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rank_stats.h"
#include "base/status.h"
#include "base/log_tail.h"

#define BOARD_WORKERS_MAX 64
#define BOARD_STEPS_KEPT RANK_STATS_TIMES
#define BOARD_FD 3     /* where a worker finds the memfd */
#define BOARD_SHM_FD 4 /* and the memory in which the workers of a node exchange numbers */
#define BOARD_RANKS_MAX 65536
#define BOARD_ADDRESS_MAX 2048 /* bytes; what they mean is the workers' affair */
#define BOARD_BLOB_MAX ((size_t)1 << 20)

/* The phases of contract §4, in the order of a run's life. */
#define BOARD_PHASE_LIST(X)           \
    X(STARTING, "starting")           \
    X(JOINING, "joining")             \
    X(CHECKING, "checking")           \
    X(LOADING, "loading")             \
    X(TRAINING, "training")           \
    X(EVALUATING, "evaluating")       \
    X(CHECKPOINTING, "checkpointing") \
    X(RECOVERING, "recovering")       \
    X(DONE, "done")                   \
    X(FAILED, "failed")
enum board_phase {
#define BOARD_PHASE_ENUM(name, text) BOARD_PHASE_##name,
    BOARD_PHASE_LIST(BOARD_PHASE_ENUM)
#undef BOARD_PHASE_ENUM
        BOARD_PHASE_N
};
const char *board_phase_text(enum board_phase phase);

/* What a supervisor asks of its workers; a higher request replaces a lower one. Carried out between
 * steps, or where a long job (tokenising, loading) looks at it. */
enum board_request {
    BOARD_REQUEST_NONE,
    BOARD_REQUEST_SAVE,      /* checkpoint now, go on */
    BOARD_REQUEST_PREEMPT,   /* checkpoint, end with ST_RETRY (SIGUSR1) */
    BOARD_REQUEST_TERMINATE, /* checkpoint, end with ST_TERMINATED (SIGTERM) */
    BOARD_REQUEST_INTERRUPT, /* checkpoint, end with ST_INTERRUPTED (SIGINT) */
};

struct board_error {
    int code; /* exit code, 0: none */
    int node; /* node_id */
    char message[1024];
};

struct board_model {
    char name[64];
    char task[8]; /* "lm", "qa" */
    int32_t layers, heads, embed, context, vocab;
    int64_t parameters;
};

struct board_checkpoint {
    int64_t step; /* -1: none yet */
    int64_t wall_ms;
    int64_t failures; /* saves that failed since the start */
    int64_t skipped;  /* saves left out because the one before was still being written */
    double stall_ms;  /* training waited for the last save; NAN: none yet */
    double save_ms;   /* the last checkpoint, from its beginning to its commit; NAN: none yet */
    char path[512];
    char error[256]; /* why the last save failed; "": it did not */
};

/* Posted by one worker. A number not known yet is NAN, or -1 for whole numbers. */
struct board_worker {
    int32_t pid;
    int32_t rank;
    enum board_phase phase;
    char device[64];
    char backend[24]; /* what carries data between ranks: comm_backend; "": not connected yet */
    struct board_model model;
    struct board_checkpoint checkpoint;
#define JOB_STAT(NAME, field, kind, ...) RANK_STATS_FIELD_##kind(field)
#define RANK_STAT JOB_STAT
#include "base/rank_stats.def"
    int64_t begun_step; /* done before this life began: the checkpoint's; -1: not known yet */
    /* a step's operations at the device's peak: no step is faster; 0: not known yet */
    int64_t planned_ms;
    int64_t loading_done, loading_total; /* bytes or tensors while loading; -1 unknown */
    struct board_error error;            /* why this worker is about to end */
};

/* Where a rank can be met. */
struct board_address {
    int64_t bytes;
    uint8_t data[BOARD_ADDRESS_MAX];
};

/* Posted by a worker that waits for a generation of the job to take part in. */
struct board_ready {
    int64_t revision; /* how often it has packed an address: another one, another address */
    int64_t after;    /* it waits for a later one than this: the last it knew of; 0: none yet */
    char why[256];    /* what made it leave that one; "": it was told to, or was never in one */
    struct board_address address;
};

/* The call of communication a worker is in, posted by a thread of its own, so that it can be told
 * from outside when the worker itself waits. */
struct board_call {
    char call[24];      /* "" when in none */
    int64_t sequence;   /* of that call, else of the last one finished */
    int64_t entered_ms; /* clock_ms */
    int64_t left_ms;    /* clock_ms: when the last one was left, in any generation; 0: none yet */
    int64_t published_ms;
    int64_t refused; /* connections of strangers that it has closed since it started */
};

/* Numbers of a worker's GPU, posted by a thread of its own, too. Not known: NAN, -1. */
struct board_gpu {
#define GPU_STAT(field, kind, ...) RANK_STATS_FIELD_##kind(field)
#include "base/rank_stats.def"
    int64_t published_ms; /* clock_ms */
};

/* What is longer than numbers, said once or seldom; what it means is its writer's and reader's
 * affair. */
enum board_blob {
    BOARD_BLOB_DATA,     /* node 0's worker 0: the files its data are made of */
    BOARD_BLOB_VAL_DATA, /* likewise, of those held out */
    BOARD_BLOB_JOB_KEY,  /* supervisor: by what workers may ask node 0 for them */
    /* rank 0: its step in digits, a blank, the text that it would write, as a JSON string */
    BOARD_BLOB_SAMPLE,
    BOARD_BLOBS_N
};

/* Posted by the supervisor, once and at each change. */
struct board_node {
    int32_t node_id, n_nodes, workers_n;
    enum board_phase phase; /* used while no worker speaks: starting, recovering, done, failed */
    char run[72];           /* RUN_NAME; "": none */
    char version[64];
    char backend[16];
    char device[16];
    int32_t mesh_data, mesh_shard, mesh_tensor, mesh_pipeline;
    int64_t started_ms; /* clock_ms */
    /* the longest silence that this node's workers are allowed in a step; 0: the usual */
    int64_t limit_ms;
    int64_t restarts;
    char last_failure[256]; /* why the last one was needed; "": there was none */
    /* recovering: the job goes on from here, 0 its beginning; -1: not known, or not recovering */
    int64_t resume_step;
    /* the last that rank 0 told of, on its node; step -1: none */
    struct board_checkpoint checkpoint;
    struct board_error error;
};

struct board; /* opaque: the mapping */

/* board_create — supervisor: a fresh memfd, with room for the addresses of ranks_n ranks; also for
 * tests. */
enum status board_create(int workers_n, int ranks_n, struct board **out);
/* board_attach — worker: checks size and layout; the descriptor stays the caller's. */
enum status board_attach(int fd, struct board **out);
int board_fd(const struct board *board);
void board_close(struct board *board); /* accepts NULL */

void board_node_publish(struct board *board, const struct board_node *node);
void board_node_copy(const struct board *board, struct board_node *out);
void board_worker_publish(struct board *board, int worker_i, const struct board_worker *worker);
/* board_worker_copy — the last whole post; false when this worker has posted nothing since
 * board_worker_clear. */
bool board_worker_copy(const struct board *board, int worker_i, struct board_worker *out);
void board_worker_clear(struct board *board, int worker_i); /* before a worker is started again */

/* Progress, apart from posts: cheap enough to call from inner loops. Monotonic milliseconds of the
 * last beat; 0: none. */
void board_heartbeat(struct board *board, int worker_i);
int64_t board_heartbeat_ms(const struct board *board, int worker_i);

/* ---- how ranks meet ---- */

void board_ready_publish(struct board *board, int worker_i, const struct board_ready *ready);
/* board_ready_copy — false: nothing posted since board_worker_clear. */
bool board_ready_copy(const struct board *board, int worker_i, struct board_ready *out);
void board_call_publish(struct board *board, int worker_i, const struct board_call *call);
/* as above */
bool board_call_copy(const struct board *board, int worker_i, struct board_call *out);
void board_gpu_publish(struct board *board, int worker_i, const struct board_gpu *gpu);
bool board_gpu_copy(const struct board *board, int worker_i, struct board_gpu *out); /* as above */

/* board_secret_publish — supervisor, before board_world_publish: by what that generation's ranks
 * know each other. board_secret_copy — worker: false: another generation's is there, or none. */
#define BOARD_SECRET_BYTES 16
void board_secret_publish(struct board *board, int64_t generation,
                          const uint8_t secret[BOARD_SECRET_BYTES]);
bool board_secret_copy(const struct board *board, int64_t generation,
                       uint8_t out[BOARD_SECRET_BYTES]);
/* board_world_publish — supervisor: a generation begins; addresses of all ranks, in their order. */
void board_world_publish(struct board *board, int64_t generation,
                         const struct board_address *addresses);
/* board_world_copy — worker: the newest generation when it is later than `after` and not over, with
 * the addresses of all board_ranks; false: there is none. */
bool board_world_copy(const struct board *board, int64_t after, int64_t *generation_out,
                      struct board_address *addresses);
int board_ranks(const struct board *board);
/* supervisor: this one and those before it are over */
void board_abort(struct board *board, int64_t generation);
int64_t board_aborted(const struct board *board); /* worker, any thread; 0: none */

/* board_log_tail — a worker's lines of log: it adds, the supervisor reads. Those of a worker that
 * was before stay. */
struct log_tail *board_log_tail(const struct board *board, int worker_i);

/* board_blob_publish — one writer; n ≤ BOARD_BLOB_MAX. Memory is taken by the first that is
 * posted. */
void board_blob_publish(struct board *board, enum board_blob blob, const void *bytes, size_t n);
/* changes with each post; 0: none */
uint64_t board_blob_revision(const struct board *board, enum board_blob blob);
/* board_blob_copy — the last one, into BOARD_BLOB_MAX bytes; false: none, or it is being
 * written. */
bool board_blob_copy(const struct board *board, enum board_blob blob, void *out, size_t *n_out);

void board_request(struct board *board, enum board_request request); /* supervisor */
enum board_request board_requested(const struct board *board);       /* worker */
/* board_request_done — a SAVE was carried out: back to NONE, unless something higher came
 * meanwhile. */
void board_request_done(struct board *board, enum board_request request);

#endif
