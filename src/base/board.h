/* board — the shared memory between a node's supervisor and its workers; they share nothing else.
 *
 * Workers publish numbers and the supervisor reads copies. The supervisor publishes requests (save,
 * stop) and workers read them. Each side writes only its own sections.
 * - A section has two slots. Each is guarded by a sequence number, odd while it is written (a
 *   seqlock), so a reader never blocks the writer. A worker that is killed while it publishes
 *   leaves the last whole copy readable.
 * - The memory is a memfd, inherited across exec under a fixed descriptor.
 * - It holds plain data, no pointers.
 *
 * With several ranks the board also carries their rendezvous. It is published
 * - by a worker: that it is ready, and its address;
 * - by the supervisor: the world of a generation (the addresses of all ranks), or its end;
 * - by a worker's comm heartbeat, a thread: the collective that the worker is in.
 *
 * Must not know the use of the numbers. */
#ifndef CONVOY_BASE_BOARD_H
#define CONVOY_BASE_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/bit_flip.h"
#include "base/rank_stats.h"
#include "base/status.h"
#include "base/log_tail.h"

#define BOARD_WORKERS_MAX 64
#define BOARD_STEPS_KEPT RANK_STATS_TIMES
#define BOARD_FD 3           /* file descriptor of the board's memory in a worker */
#define BOARD_SHM_FD 4       /* the memory for shared-memory collectives of a node's workers */
#define BOARD_PEER_COPY_FD 5 /* the memory for copies of the state (train/peer_copy/peer_copy.h) */
#define BOARD_RANKS_MAX 65536
#define BOARD_ADDRESS_MAX 2048 /* bytes; opaque here, the transports read them */
#define BOARD_NOTE_MAX 512
#define BOARD_BLOB_MAX ((size_t)1 << 20)
#define BOARD_BLOB_SMALL_MAX ((size_t)1 << 16) /* a blob that lists few files */

/* The phases of a run, in the order of its life. */
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
/* board_phase_text — returns the text of a phase; for a value that is not in the list, the text of
 * FAILED. Never NULL. */
const char *board_phase_text(enum board_phase phase);
/* board_phase_named — returns the phase with this text; BOARD_PHASE_N: there is none. */
enum board_phase board_phase_named(const char *text);

/* Requests of a supervisor to its workers; a higher request replaces a lower one. Workers carry it
 * out between steps; long jobs (tokenising, loading) check for it themselves. */
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

/* An adapter (LORA). */
struct board_adapter {
    int64_t rank; /* 0: all weights train */
    double alpha;
    char targets[64];        /* matrices with an adapter, as LORA_TARGETS: "all", "q,v" … */
    int64_t trained, frozen; /* parameters of the adapter and of the model; -1: unknown */
};

struct board_model {
    char name[64];
    char task[8];  /* "lm", "qa" */
    char arch[16]; /* transformers' model_type: "gpt2", "llama" … */
    int32_t layers, heads, kv_heads, head_dim, embed, ffn, context, vocab;
    int64_t parameters;
    struct board_adapter adapter;
};

struct board_checkpoint {
    int64_t step; /* step of the last checkpoint; -1: none yet */
    int64_t wall_ms;
    int64_t failures; /* saves that failed since the start */
    int64_t skipped;  /* saves that were skipped because the previous one was still being written */
    double stall_ms;  /* milliseconds for which training waited for the last save; NAN: none yet */
    double save_ms;   /* milliseconds of the last save, up to its commit; NAN: none yet */
    char path[512];
    char error[1024]; /* reason why the last save failed; "": it did not */
};

/* Uploads of checkpoints to the bucket of CHECKPOINT_DIR. */
struct board_upload {
    char bucket[512];      /* s3://bucket/prefix, shortened if it is longer; "": there is none */
    int64_t step;          /* step of the last checkpoint in the bucket; -1: none yet */
    int64_t bytes_waiting; /* bytes of the newest checkpoint that are not uploaded yet */
    int64_t failures;      /* attempts that failed since the start */
    int64_t dropped;       /* checkpoints that were not uploaded because a newer one came first */
    char error[1024];      /* reason why the last request failed; "": it did not */
};

/* Copies of the state in the memory of peers. */
struct board_peer_copy {
    int64_t step;  /* step of the newest copy of this rank's part; -1: none */
    int64_t bytes; /* bytes that this rank copies after each step */
    double ms;     /* milliseconds for which training waited for the last copy; NAN: none yet */
    double bytes_per_second; /* NAN: none yet */
    int64_t every;           /* steps from one copy to the next; 0: being measured; -1: no copies */
    int64_t memory_bytes;    /* host memory of this rank for them */
};

/* Published by a worker. An unknown number is NAN, or -1 for whole numbers. */
struct board_worker {
    int32_t pid;
    int32_t rank;
    enum board_phase phase;
    char device[64];
    char device_note[BOARD_NOTE_MAX]; /* reason why it is not the expected device; "": it is */
    char backend[24]; /* transport between ranks: comm_backend; "": not connected yet */
    /* transport along each axis of the mesh; "": not connected yet, or one rank */
    struct {
        char data[24], tensor[24], context[24], pipeline[24];
    } links;
    struct board_model model;
    struct board_checkpoint checkpoint;
    struct board_peer_copy peer_copy;
#define JOB_STAT(NAME, field, kind, ...) RANK_STATS_FIELD_##kind(field)
#define RANK_STAT JOB_STAT
#include "base/rank_stats.def"
    int64_t generation; /* generation in which it trains, or trained last; 0: none yet */
    int64_t begun_step; /* steps that were done when it began that generation; -1: unknown */
    /* time of a step at the device's peak; no step is faster; 0: unknown */
    int64_t planned_ms;
    int64_t loading_done, loading_total; /* bytes or tensors while loading; -1: unknown */
    /* parameters in fp32 in which SENTINEL_EVERY finds a change: number and address; elems 0:
     * none */
    int64_t replica_elems;
    uint64_t replica_address;
    bool replica_is_on_device; /* the address is one of a GPU's memory */
    struct board_error error;  /* reason why this worker is about to end */
};

/* board_worker_has_stepped — returns true if the worker has finished a step since its generation,
 * or its start, began. */
static inline bool board_worker_has_stepped(const struct board_worker *worker)
{
    return worker->begun_step >= 0 && worker->step > worker->begun_step;
}

/* The network address of a rank, as its transport wrote it. */
struct board_address {
    int64_t bytes;
    uint8_t data[BOARD_ADDRESS_MAX];
};

/* Published by a worker that waits for the next generation. */
struct board_ready {
    int64_t revision; /* grows with each new address */
    int64_t after;    /* it waits for a generation later than this one; 0: for the first one */
    /* reason why it left that generation; "": the supervisor ended it, or there was none */
    char why[1024];
    /* rank that closed its connection in that generation, as comm_closed_rank; -1: none */
    int32_t closed_rank;
    struct board_address address;
};

/* The collective that a worker is in, published by a thread of its own (comm_heartbeat), so it is
 * current while the worker waits. */
struct board_call {
    char call[24];      /* name of the collective; "": in none */
    int64_t sequence;   /* sequence number of that collective, else of the last one that ended */
    int64_t entered_ms; /* clock_ms */
    /* clock_ms at the end of the last collective, in any generation; 0: none yet */
    int64_t left_ms;
    int64_t stuck_ms; /* clock_ms: as in comm_activity; 0: not stuck */
    int64_t published_ms;
    int64_t refused; /* number of closed connections and dropped messages that were not the job's */
};

/* Numbers of a worker's GPU, published by a thread of its own (gpu_stats). Unknown: NAN, -1. */
struct board_gpu {
#define GPU_STAT(field, kind, ...) RANK_STATS_FIELD_##kind(field)
#include "base/rank_stats.def"
    int64_t published_ms; /* clock_ms */
};

/* Blobs: data that are longer than numbers and seldom change. Only their writer and reader
 * interpret the content. */
enum board_blob {
    BOARD_BLOB_DATA,     /* by node 0's worker 0: the list of its files of DATA */
    BOARD_BLOB_VAL_DATA, /* by the same worker: its files of VAL_DATA */
    BOARD_BLOB_MODEL,    /* by the same worker: its files of MODEL, ADAPTER and TOKENIZER */
    BOARD_BLOB_ADAPTER,
    BOARD_BLOB_TOKENIZER,
    BOARD_BLOB_SOURCES, /* by the same worker: the paths of MODEL and ADAPTER (sources.h) */
    BOARD_BLOB_JOB_KEY, /* by the supervisor: the key with which workers download them */
    /* by rank 0: its step in digits, a blank, the sample of text as a JSON string */
    BOARD_BLOB_SAMPLE,
    BOARD_BLOB_CHECK, /* by a node's worker 0: the rows of a check (check/check_result.h) */
    BOARD_BLOBS_N
};

/* Published by the supervisor at its start and at each change. */
struct board_node {
    int32_t node_id, n_nodes, workers_n;
    bool is_check;          /* `check`: the workers only check, and train nothing */
    enum board_phase phase; /* phase of the node while no worker has published one */
    char run[72];           /* RUN_NAME; "": none */
    char version[64];
    char backend[16]; /* "self" for one rank; else empty, and the backend of the workers is used */
    char device[16];
    /* ranks along each axis (mesh/mesh.h); shard: ranks over which the state is sharded, -1: not
     * decided yet */
    int32_t mesh_data, mesh_shard, mesh_tensor, mesh_context, mesh_pipeline;
    int64_t started_ms; /* clock_ms */
    /* milliseconds of the longest silence in a step that this node's workers are allowed; 0: the
     * default */
    int64_t limit_ms;
    int64_t restarts;
    /* node 0: the address at which the other nodes reach it; "": none has connected, or DATA_ADDR
     * is set */
    char reached[64];
    char last_failure[1024]; /* the reason of the last restart; "": there was none */
    /* node 0: the lost rank that caused last_failure, of a lost node the first rank; -1: none */
    int32_t lost_rank;
    /* milliseconds from the last loss that this node noticed to its next step; -1: none yet */
    int64_t recovery_ms;
    int64_t checkpoint_every; /* steps between checkpoints; 0: none before the end */
    /* while recovering: the step from which the job resumes, 0: from the beginning; -1: unknown, or
     * not recovering */
    int64_t resume_step;
    /* the last checkpoint that rank 0 published, on its node; step -1: none */
    struct board_checkpoint checkpoint;
    struct board_peer_copy peer_copy; /* the last copy of this node's first worker; step -1: none */
    struct board_upload upload;       /* node 0; -1: no bucket */
    struct board_error error;
};

struct board; /* opaque: one process's mapping of the memory */

/* board_create — in the supervisor (and in tests): creates a memfd for workers_n workers, with room
 * for the addresses of ranks_n ranks. */
enum status board_create(int workers_n, int ranks_n, struct board **out);
/* board_attach — in a worker: maps the memory, and checks size and layout (ST_BUG). The caller
 * keeps the descriptor. */
enum status board_attach(int fd, struct board **out);
/* board_of_process — for `rehearse`: returns the board of another process of this user, a
 * supervisor, if it is the board of this node. NULL: it has none yet. */
struct board *board_of_process(pid_t pid, int node_id);
/* board_fd — returns the descriptor of the memory, which workers inherit. */
int board_fd(const struct board *board);
void board_close(struct board *board); /* accepts NULL */

/* board_node_publish — in the supervisor: publishes the state of its node. */
void board_node_publish(struct board *board, const struct board_node *node);
/* board_node_copy — copies the last publication. Before the first one it fills in zeros, with one
 * node and one rank along each axis. */
void board_node_copy(const struct board *board, struct board_node *out);
/* board_worker_publish — in a worker: publishes its numbers. */
void board_worker_publish(struct board *board, int worker_i, const struct board_worker *worker);
/* board_worker_copy — copies the last whole publication; false: none since board_worker_clear. */
bool board_worker_copy(const struct board *board, int worker_i, struct board_worker *out);
/* board_worker_clear — removes the publications of a worker and its heartbeat. Call it before the
 * worker is started again. */
void board_worker_clear(struct board *board, int worker_i);

/* board_heartbeat — publishes a sign of progress; cheap enough for inner loops. */
void board_heartbeat(struct board *board, int worker_i);
/* board_heartbeat_ms — returns the time of the last heartbeat, in clock_ms; 0: none. */
int64_t board_heartbeat_ms(const struct board *board, int worker_i);

/* ---- rendezvous of the ranks ---- */

/* board_ready_publish — in a worker: publishes its address, and that it waits for the next
 * generation. */
void board_ready_publish(struct board *board, int worker_i, const struct board_ready *ready);
/* board_ready_copy — copies the last publication; false: none since board_worker_clear. */
bool board_ready_copy(const struct board *board, int worker_i, struct board_ready *out);
/* board_call_publish — in a worker: publishes the collective that it is in. One thread only
 * (comm_heartbeat). */
void board_call_publish(struct board *board, int worker_i, const struct board_call *call);
/* board_call_copy — copies the last publication; false: none since board_worker_clear. */
bool board_call_copy(const struct board *board, int worker_i, struct board_call *out);
/* board_gpu_publish — in a worker: publishes the numbers of its GPU. One thread only
 * (gpu_stats). */
void board_gpu_publish(struct board *board, int worker_i, const struct board_gpu *gpu);
/* board_gpu_copy — copies the last publication; false: none since board_worker_clear. */
bool board_gpu_copy(const struct board *board, int worker_i, struct board_gpu *out);

#define BOARD_SECRET_BYTES 16
/* board_secret_publish — in the supervisor, before board_world_publish: publishes the secret by
 * which the ranks of a generation recognise each other. */
void board_secret_publish(struct board *board, int64_t generation,
                          const uint8_t secret[BOARD_SECRET_BYTES]);
/* board_secret_copy — in a worker: copies the secret; false: there is none, or it is another
 * generation's. */
bool board_secret_copy(const struct board *board, int64_t generation,
                       uint8_t out[BOARD_SECRET_BYTES]);
/* The world of a generation, without its addresses. */
struct board_world_place {
    int64_t generation;
    int32_t nodes, node; /* number of its nodes, and the number of this one, from 0 */
};
/* board_world_publish — in the supervisor: begins a generation, with the addresses of all its ranks
 * in order: at most board_ranks. */
void board_world_publish(struct board *board, const struct board_world_place *place,
                         const struct board_address *addresses, int ranks_n);
/* board_world_copy — in a worker: copies the newest generation, if it is later than `after` and not
 * over; addresses: room for board_ranks. false: there is none. */
bool board_world_copy(const struct board *board, int64_t after, struct board_world_place *out,
                      struct board_address *addresses);
int board_ranks(const struct board *board); /* for tests */
/* board_abort — in the supervisor: ends this generation and all before it. */
void board_abort(struct board *board, int64_t generation);
/* board_aborted — returns the last generation that is over; 0: none. Any thread. */
int64_t board_aborted(const struct board *board);

/* ---- faults, which `rehearse` makes from another process ---- */

/* A bit that a worker has inverted in its GPU's memory. */
struct board_flip {
    uint64_t choice;      /* number of the order */
    int64_t step, at_ms;  /* steps that were done; clock_ms */
    struct bit_flip flip; /* elem -1: no parameter is fit for it */
};
/* board_flip_order — orders the worker to invert a bit of a parameter in its GPU's memory between
 * two steps; choice: a random number, not 0, that selects it. 0 withdraws the order. */
void board_flip_order(struct board *board, int worker_i, uint64_t choice);
/* board_flip_ordered — returns the choice of an order that is not done; 0: there is none. */
uint64_t board_flip_ordered(const struct board *board, int worker_i);
/* board_flip_done — in a worker: publishes the change, which ends the order. */
void board_flip_done(struct board *board, int worker_i, const struct board_flip *flip);
/* board_flip_copy — copies the last published change; false: none since board_worker_clear. */
bool board_flip_copy(const struct board *board, int worker_i, struct board_flip *out);
/* board_break — makes the collectives of a worker fail in this generation. */
void board_break(struct board *board, int worker_i, int64_t generation);
/* board_broken — returns the last generation whose collectives must fail; 0: none. Any thread. */
int64_t board_broken(const struct board *board, int worker_i);

/* board_log_tail — returns a worker's newest log lines: the worker adds them, the supervisor reads
 * them. The lines of a worker that ended stay. */
struct log_tail *board_log_tail(const struct board *board, int worker_i);

/* board_blob_max — returns the most bytes of a blob: BOARD_BLOB_MAX, BOARD_BLOB_SMALL_MAX for MODEL
 * to SOURCES, and for CHECK 16 KiB for each rank, within 512 KiB and 16 MiB. */
size_t board_blob_max(const struct board *board, enum board_blob blob);
/* board_blob_publish — publishes n ≤ board_blob_max bytes; one writer for each blob. The memory of
 * a blob is allocated by its first publication. */
void board_blob_publish(struct board *board, enum board_blob blob, const void *bytes, size_t n);
/* board_blob_revision — returns a number that changes with each publication; 0: none yet. */
uint64_t board_blob_revision(const struct board *board, enum board_blob blob);
/* board_blob_copy — copies the last publication to `out`, which has board_blob_max bytes; false:
 * there is none, or it is being written. */
bool board_blob_copy(const struct board *board, enum board_blob blob, void *out, size_t *n_out);

/* board_request — in the supervisor: publishes a request. It does not replace a higher one. */
void board_request(struct board *board, enum board_request request);
/* board_requested — in a worker: returns the present request. */
enum board_request board_requested(const struct board *board);
/* board_request_done — a SAVE was carried out: sets the request to NONE, unless a higher one was
 * published since. */
void board_request_done(struct board *board, enum board_request request);

#endif
