/* conf_rules — relations between settings that can be checked before any file is opened.
 *
 * What needs MODEL's dimensions is checked again when they are known (model_check, the worker).
 * Each refusal names both settings, their values and their sources. It must not know how values are
 * parsed. */
#include "conf/conf_row.h"

#include <string.h>

#define SHOWN_MAX 64
#define LOCAL_NODES_MAX 16

/* fail_pair — "A=1 (argument) <relation> B=2 (default); <what to do>". */
static enum status fail_pair(const struct conf *conf, enum conf_key a, const char *relation,
                             enum conf_key b, const char *remedy)
{
    char text_a[SHOWN_MAX], text_b[SHOWN_MAX];
    return FAIL(ST_BAD_SETTING, "%s=%s (%s) %s %s=%s (%s); %s", conf_rows[a].name,
                conf_clean(conf_text(conf, a), text_a, sizeof text_a), conf_source(conf, a),
                relation, conf_rows[b].name, conf_clean(conf_text(conf, b), text_b, sizeof text_b),
                conf_source(conf, b), remedy);
}

/* check_needs — a setting that has no effect without another. */
static enum status check_needs(const struct conf *conf, enum conf_key a, enum conf_key needed,
                               const char *remedy)
{
    char shown[SHOWN_MAX];
    if (conf_text(conf, needed)[0] != 0)
        return ST_OK;
    return FAIL(ST_BAD_SETTING, "%s=%s (%s) needs %s, which is not set; %s", conf_rows[a].name,
                conf_clean(conf_text(conf, a), shown, sizeof shown), conf_source(conf, a),
                conf_rows[needed].name, remedy);
}

/* check_precision — if DEVICE leaves it open, this is checked when the device is known, as is
 * whether the processor has bf16. */
static enum status check_precision(const struct conf *conf)
{
    int64_t precision = conf_i64(conf, CONF_PRECISION);
    if (precision <= CONF_PRECISION_FP32 || precision == CONF_PRECISION_BF16 ||
        conf_i64(conf, CONF_DEVICE) != CONF_DEVICE_CPU)
        return ST_OK;
    return fail_pair(conf, CONF_PRECISION, "needs a GPU, not", CONF_DEVICE,
                     "use PRECISION=fp32 or bf16, or DEVICE=cuda where a GPU is");
}

static enum status check_nodes(const struct conf *conf)
{
    int64_t nodes = conf_i64(conf, CONF_N_NODES), backend = conf_i64(conf, CONF_BACKEND);
    if (conf_i64(conf, CONF_NODE_ID) >= nodes)
        return fail_pair(conf, CONF_NODE_ID, "must be below", CONF_N_NODES,
                         "nodes are counted from 0; set NODE_ID=0 N_NODES=1 to use this one alone");
    if (nodes * conf_i64(conf, CONF_N_GPU_EACH_NODE) > CONF_RANKS_MAX)
        return FAIL(ST_BAD_SETTING,
                    "N_NODES=%lld (%s) times N_GPU_EACH_NODE=%lld (%s) is over the limit of %d "
                    "workers; lower one of them",
                    (long long)nodes, conf_source(conf, CONF_N_NODES),
                    (long long)conf_i64(conf, CONF_N_GPU_EACH_NODE),
                    conf_source(conf, CONF_N_GPU_EACH_NODE), CONF_RANKS_MAX);
    if (backend == CONF_BACKEND_NCCL && conf_i64(conf, CONF_DEVICE) == CONF_DEVICE_CPU)
        return fail_pair(conf, CONF_BACKEND, "is for GPUs, not", CONF_DEVICE,
                         "use BACKEND=auto or tcp");
    if (backend == CONF_BACKEND_SELF && conf_ranks(conf) > 1)
        return fail_pair(conf, CONF_BACKEND, "is for one worker, not",
                         nodes > 1 ? CONF_N_NODES : CONF_N_GPU_EACH_NODE,
                         "use BACKEND=auto or tcp");
    if (conf_fault(conf) == CONF_FAULT_ENOSPC && conf->fault_rank > 0)
        return FAIL(ST_BAD_SETTING,
                    "FAULT=%s (%s): rank 0 alone writes checkpoints, so no other rank can find the "
                    "disk full; remove :rank=%d",
                    conf_text(conf, CONF_FAULT), conf_source(conf, CONF_FAULT), conf->fault_rank);
    return ST_OK;
}

static enum status check_model(const struct conf *conf)
{
    int64_t heads = conf_i64(conf, CONF_HEADS), embed = conf_i64(conf, CONF_EMBED);
    int64_t context = conf_i64(conf, CONF_CONTEXT);
    bool fills = conf_i64(conf, CONF_HEAD_DIM) == 0; /* heads fill the width */
    if (fills && heads > 0 && embed > 0 && embed % heads != 0)
        return fail_pair(conf, CONF_HEADS, "does not divide", CONF_EMBED,
                         "every head takes an equal part of the width");
    if (context > 0 && conf_i64(conf, CONF_SEQ_LEN) > context)
        return fail_pair(conf, CONF_SEQ_LEN, "is over", CONF_CONTEXT,
                         "the model has no more positions; lower SEQ_LEN or raise CONTEXT");
    return ST_OK;
}

/* check_batch — MESH=auto finds another BATCH_SIZE and mesh. */
static enum status check_batch(const struct conf *conf)
{
    int64_t global = conf_i64(conf, CONF_GLOBAL_BATCH);
    int64_t ranks = conf_data_ranks(conf), pass = conf_i64(conf, CONF_BATCH_SIZE) * ranks;
    char remedy[128] = "a step is a whole number of micro-batches";
    if (ranks > 1)
        text_format(remedy, sizeof remedy,
                    "times %lld %s, %lld: a step is a whole number of micro-batches of each",
                    (long long)ranks, ranks < conf_ranks(conf) ? "groups of workers" : "workers",
                    (long long)pass);
    bool is_open = conf_i64(conf, CONF_MESH) == CONF_MESH_AUTO ||
                   conf_i64(conf, CONF_EXACT) == CONF_EXACT_LAYOUT; /* step_shards_check */
    return global % pass == 0 || is_open
               ? ST_OK
               : fail_pair(conf, CONF_GLOBAL_BATCH, "is not a multiple of", CONF_BATCH_SIZE,
                           remedy);
}

static enum status check_steps(const struct conf *conf)
{
    int64_t steps = conf_i64(conf, CONF_STEPS);
    if (steps > 0 && conf_i64(conf, CONF_WARMUP_STEPS) > steps)
        return fail_pair(conf, CONF_WARMUP_STEPS, "is over", CONF_STEPS,
                         "the run would end before the learning rate is reached");
    if (steps > 0 && conf_i64(conf, CONF_DECAY_STEPS) > steps)
        return fail_pair(conf, CONF_DECAY_STEPS, "is over", CONF_STEPS,
                         "the run would begin within the fall of the learning rate");
    if (conf_f64(conf, CONF_MIN_LR) > conf_f64(conf, CONF_LR))
        return fail_pair(conf, CONF_MIN_LR, "is over", CONF_LR,
                         "the schedule falls from LR to MIN_LR");
    return ST_OK;
}

/* check_run_name — TensorBoard's name of a run is the name of a folder. */
static enum status check_run_name(const struct conf *conf)
{
    const char *name = conf_text(conf, CONF_RUN_NAME);
    if (name[0] != '.' && strchr(name, '/') == NULL)
        return ST_OK;
    return FAIL(
        ST_BAD_SETTING,
        "RUN_NAME=%s (%s) begins with a dot or holds a slash; give a name that a folder can have",
        name, conf_source(conf, CONF_RUN_NAME));
}

static enum status check_files(const struct conf *conf)
{
    TRY(check_run_name(conf));
    if (conf_i64(conf, CONF_RESUME) == CONF_RESUME_REQUIRED)
        TRY(check_needs(conf, CONF_RESUME, CONF_CHECKPOINT_DIR,
                        "set it to the folder of the checkpoints"));
    if (conf_i64(conf, CONF_CHECKPOINT_EVERY) > 0)
        TRY(check_needs(conf, CONF_CHECKPOINT_EVERY, CONF_CHECKPOINT_DIR, "set it to a folder"));
    if (conf_i64(conf, CONF_SAMPLE_EVERY) > 0 && conf_i64(conf, CONF_TASK) == CONF_TASK_QA)
        return fail_pair(conf, CONF_SAMPLE_EVERY, "does not go with", CONF_TASK,
                         "only a language model writes text");
    if (conf_i64(conf, CONF_EVAL_EVERY) > 0)
        TRY(check_needs(conf, CONF_EVAL_EVERY, CONF_VAL_DATA, "set it to data to evaluate on"));
    return ST_OK;
}

/* quantises — Returns whether gradients are quantised, which the host does, with error feedback. */
static bool quantises(const struct conf *conf)
{
    return conf_i64(conf, CONF_COMPRESS) > CONF_COMPRESS_BF16;
}

/* check_shard — quantised gradients are reduced, and rows of tokens exchanged, over all ranks at
 * once. */
static enum status check_shard(const struct conf *conf)
{
    if (conf_i64(conf, CONF_SHARD) != CONF_SHARD_HYBRID)
        return ST_OK;
    if (quantises(conf))
        return fail_pair(conf, CONF_SHARD, "does not go with", CONF_COMPRESS,
                         "set COMPRESS=none or bf16, or SHARD=full");
    if (conf_i64(conf, CONF_EMBED_ROWS) == CONF_EMBED_ROWS_ON)
        return fail_pair(
            conf, CONF_SHARD, "does not go with", CONF_EMBED_ROWS,
            "rows are exchanged among all workers: set EMBED_ROWS=auto, or SHARD=full");
    return ST_OK;
}

/* check_optimizer — a matrix is orthogonalised whole, and with TP each worker has columns of it. */
static enum status check_optimizer(const struct conf *conf)
{
    if (conf_i64(conf, CONF_OPTIMIZER) != CONF_OPTIMIZER_MUON)
        return ST_OK;
    if (conf_i64(conf, CONF_TP) > 1)
        return fail_pair(conf, CONF_OPTIMIZER, "does not go with", CONF_TP,
                         "whole matrices are orthogonalised, and TP cuts them: set TP=1 (PP, CP "
                         "and SHARD go with it), or OPTIMIZER=adamw");
    return conf_i64(conf, CONF_VIRTUAL_TP) > 1
               ? fail_pair(conf, CONF_OPTIMIZER, "does not go with", CONF_VIRTUAL_TP,
                           "whole matrices are orthogonalised, and it cuts them: leave VIRTUAL_TP "
                           "out, or set OPTIMIZER=adamw")
               : ST_OK;
}

/* mesh_size — the workers that share a sample. */
static int64_t mesh_size(const struct conf *conf)
{
    return conf_i64(conf, CONF_TP) * conf_i64(conf, CONF_CP) * conf_i64(conf, CONF_PP);
}

/* text_sizes — "PP=2 (argument) x CP=2 do not", or "CP=2 (argument) does not": not axes of 1. */
static void text_sizes(const struct conf *conf, struct text *out)
{
    static const enum conf_key axes[] = {CONF_PP, CONF_CP, CONF_TP};
    int n = 0;
    for (int i = 0; i < 3; i++) {
        long long size = (long long)conf_i64(conf, axes[i]);
        if (size == 1)
            continue;
        text_add(out, n++ > 0 ? " x %s=%lld" : "%s=%lld", conf_rows[axes[i]].name, size);
        if (n == 1)
            text_add(out, " (%s)", conf_source(conf, axes[i]));
    }
    text_add(out, n == 1 ? " does not" : " do not");
}

/* fail_workers — the sizes of the mesh do not divide the job's workers. */
static enum status fail_workers(const struct conf *conf)
{
    struct text sizes = {.limit = 256};
    char remedy[64] = "change one of them";
    text_sizes(conf, &sizes);
    if (conf_ranks(conf) < mesh_size(conf) && conf_i64(conf, CONF_N_NODES) == 1)
        text_format(remedy, sizeof remedy, "set N_GPU_EACH_NODE=%lld", (long long)mesh_size(conf));
    enum status st = FAIL(
        ST_BAD_SETTING, "%s divide the job's %d worker%s (N_NODES=%lld x N_GPU_EACH_NODE=%lld); %s",
        sizes.data, conf_ranks(conf), conf_ranks(conf) == 1 ? "" : "s",
        (long long)conf_i64(conf, CONF_N_NODES), (long long)conf_i64(conf, CONF_N_GPU_EACH_NODE),
        remedy);
    text_free(&sizes);
    return st;
}

/* check_workers — what depends on the number of workers. */
static enum status check_workers(const struct conf *conf)
{
    int64_t tensor = conf_i64(conf, CONF_TP);
    if (conf_ranks(conf) % mesh_size(conf) != 0)
        return fail_workers(conf);
    if (conf_i64(conf, CONF_N_GPU_EACH_NODE) % tensor != 0 &&
        conf_i64(conf, CONF_TP_ACROSS_NODES) == 0)
        return fail_pair(conf, CONF_TP, "does not divide", CONF_N_GPU_EACH_NODE,
                         "a group would exchange activations over the network; choose a TP that "
                         "does, or set TP_ACROSS_NODES=1 if that is wanted");
    if (conf->fault_rank >= conf_ranks(conf))
        return FAIL(ST_BAD_SETTING,
                    "FAULT=%s (%s) names a rank that this run does not have; its ranks are 0 to %d",
                    conf_text(conf, CONF_FAULT), conf_source(conf, CONF_FAULT),
                    conf_ranks(conf) - 1);
    return ST_OK;
}

/* counts_workers — N_GPU_EACH_NODE is known, or one worker may be the whole job. Else its default
 * of 1 is taken for the number of GPUs later. */
static bool counts_workers(const struct conf *conf)
{
    return conf_is_set(conf, CONF_N_GPU_EACH_NODE) || conf->has_workers || mesh_size(conf) == 1;
}

/* check_divided — what goes with no axis but that of data, yet. shard, rows: why not SHARD=hybrid
 * and EMBED_ROWS=1, and what to set. */
static enum status check_divided(const struct conf *conf, enum conf_key key, const char *shard,
                                 const char *rows)
{
    if (conf_i64(conf, key) == 1)
        return ST_OK;
    if (conf_i64(conf, CONF_SHARD) == CONF_SHARD_HYBRID)
        return fail_pair(conf, key, "does not go with", CONF_SHARD, shard);
    if (quantises(conf))
        return fail_pair(conf, key, "does not go with", CONF_COMPRESS,
                         "this version quantises gradients of whole models and samples only: set "
                         "COMPRESS=none, or COMPRESS=bf16 for half the bytes");
    if (conf_i64(conf, CONF_EMBED_ROWS) == CONF_EMBED_ROWS_ON)
        return fail_pair(conf, key, "does not go with", CONF_EMBED_ROWS, rows);
    if (conf_i64(conf, CONF_COMM_GRAPH) != 0)
        return fail_pair(conf, key, "does not go with", CONF_COMM_GRAPH,
                         "graphs hold the collectives of one group only: set COMM_GRAPH=0");
    return ST_OK;
}

/* check_tensor — TP and what does not go with it yet. What the model's dimensions say is checked
 * when they are known (model_part_dims). */
static enum status check_tensor(const struct conf *conf)
{
    return check_divided(conf, CONF_TP,
                         "the workers of a node are divided by TP already: set SHARD=full",
                         "each worker of a group has a part of the rows: set EMBED_ROWS=auto");
}

/* check_context — the same of CP. Whether it divides samples is checked when SEQ_LEN is known
 * (model_part_tokens). */
static enum status check_context(const struct conf *conf)
{
    return check_divided(conf, CONF_CP,
                         "the workers of a node are divided by CP already: set SHARD=full",
                         "each worker of a group has other tokens of the same samples: set "
                         "EMBED_ROWS=auto");
}

/* check_pipeline — PP, PP_SCHEDULE, PP_CHUNKS, and what does not go with them yet. How many
 * micro-batches and layers there are is checked when it is known (pipe.h, pipe_split.h). */
static enum status check_pipeline(const struct conf *conf)
{
    int64_t stages = conf_i64(conf, CONF_PP), chunks = conf_i64(conf, CONF_PP_CHUNKS);
    bool is_interleaved = conf_i64(conf, CONF_PP_SCHEDULE) == CONF_PP_SCHEDULE_INTERLEAVED;
    if ((stages == 1 || chunks == 1) && is_interleaved)
        return fail_pair(conf, CONF_PP_SCHEDULE, "needs more stages or runs of layers than",
                         stages == 1 ? CONF_PP : CONF_PP_CHUNKS,
                         "set PP and PP_CHUNKS to 2 or more, or PP_SCHEDULE=1f1b");
    if (chunks > 1 && !is_interleaved)
        return fail_pair(conf, CONF_PP_CHUNKS, "does not go with", CONF_PP_SCHEDULE,
                         "set PP_SCHEDULE=interleaved, or PP_CHUNKS=1");
    return check_divided(conf, CONF_PP, "a stage has a part of the workers: set SHARD=full",
                         "another stage may have a part of the gradient: set EMBED_ROWS=auto");
}

/* check_comm_graph — what leaves no CUDA graph, or no NCCL calls on the device. BACKEND=auto may
 * find that NCCL is missing; the step says so then. */
static enum status check_comm_graph(const struct conf *conf)
{
    int64_t backend = conf_i64(conf, CONF_BACKEND);
    if (conf_i64(conf, CONF_COMM_GRAPH) == 0)
        return ST_OK;
    if (backend != CONF_BACKEND_AUTO && backend != CONF_BACKEND_NCCL)
        return fail_pair(conf, CONF_COMM_GRAPH, "is for NCCL, not", CONF_BACKEND,
                         "use BACKEND=auto or nccl, or COMM_GRAPH=0");
    if (conf_i64(conf, CONF_DEVICE) == CONF_DEVICE_CPU)
        return fail_pair(conf, CONF_COMM_GRAPH, "is for GPUs, not", CONF_DEVICE,
                         "set COMM_GRAPH=0");
    if (conf_i64(conf, CONF_CUDA_GRAPH) == CONF_CUDA_GRAPH_OFF)
        return fail_pair(conf, CONF_COMM_GRAPH, "does not go with", CONF_CUDA_GRAPH,
                         "there is no graph that collectives could be in: set COMM_GRAPH=0");
    if (conf_i64(conf, CONF_CUDA_TIMES) != 0)
        return fail_pair(conf, CONF_COMM_GRAPH, "does not go with", CONF_CUDA_TIMES,
                         "times are taken without graphs: set COMM_GRAPH=0");
    if (quantises(conf))
        return fail_pair(conf, CONF_COMM_GRAPH, "does not go with", CONF_COMPRESS,
                         "the host quantises gradients between collectives: use one of the two");
    if (conf_i64(conf, CONF_SPIKE) != CONF_SPIKE_OFF)
        return fail_pair(conf, CONF_COMM_GRAPH, "does not go with", CONF_SPIKE,
                         "the host decides between norm and update: use one of the two");
    return ST_OK;
}

/* check_fragments — of LOCAL_STEPS, not 0. */
static enum status check_fragments(const struct conf *conf)
{
    const int64_t steps = conf_i64(conf, CONF_LOCAL_STEPS),
                  n = conf_i64(conf, CONF_LOCAL_FRAGMENTS);
    if (steps % n != 0)
        return fail_pair(conf, CONF_LOCAL_STEPS, "is not a multiple of", CONF_LOCAL_FRAGMENTS,
                         "fragments are exchanged at equal distances: change one of them");
    if (conf_i64(conf, CONF_LOCAL_DELAY) > steps / n)
        return fail_pair(conf, CONF_LOCAL_DELAY, "is over a fragment's share of", CONF_LOCAL_STEPS,
                         "a fragment lands before the next one is sent: lower it to "
                         "LOCAL_STEPS/LOCAL_FRAGMENTS at most");
    return ST_OK;
}

/* check_local — LOCAL_STEPS, and what does not go with it yet: a replica is a node, and each of its
 * workers holds the whole model. */
static enum status check_local(const struct conf *conf)
{
    static const enum conf_key axes[] = {CONF_TP, CONF_PP, CONF_CP};
    int64_t shard = conf_i64(conf, CONF_SHARD);
    if (conf_i64(conf, CONF_LOCAL_STEPS) == 0)
        return ST_OK;
    TRY(check_fragments(conf));
    if (conf_i64(conf, CONF_N_NODES) > LOCAL_NODES_MAX)
        return fail_pair(conf, CONF_LOCAL_STEPS, "takes at most 16 nodes, not", CONF_N_NODES,
                         "a checkpoint holds the moments of every node in files of their own");
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        if (conf_i64(conf, axes[i]) > 1)
            return fail_pair(conf, CONF_LOCAL_STEPS, "does not go with", axes[i],
                             "outer steps are made of whole models so far: set it to 1");
    if (shard != CONF_SHARD_NONE && shard != CONF_SHARD_AUTO)
        return fail_pair(conf, CONF_LOCAL_STEPS, "does not go with", CONF_SHARD,
                         "outer steps are made of whole models so far: set SHARD=none");
    if (conf_i64(conf, CONF_OPTIMIZER) == CONF_OPTIMIZER_MUON)
        return fail_pair(conf, CONF_LOCAL_STEPS, "does not go with", CONF_OPTIMIZER,
                         "checkpoints hold the moments of every node, of all matrices so far: set "
                         "OPTIMIZER=adamw");
    if (conf_i64(conf, CONF_COMM_GRAPH) != 0)
        return fail_pair(conf, CONF_LOCAL_STEPS, "does not go with", CONF_COMM_GRAPH,
                         "graphs hold the collectives of one group only: set COMM_GRAPH=0");
    if (conf_i64(conf, CONF_MESH) == CONF_MESH_AUTO)
        return fail_pair(conf, CONF_LOCAL_STEPS, "does not go with", CONF_MESH,
                         "each worker holds the whole model, so there is one mesh: set MESH=set");
    if (conf_i64(conf, CONF_PRECISION) == CONF_PRECISION_FP16)
        return fail_pair(conf, CONF_LOCAL_STEPS, "does not go with", CONF_PRECISION,
                         "each node would find a loss scale of its own, and a checkpoint holds "
                         "one: set PRECISION=bf16");
    return ST_OK;
}

/* check_exact — EXACT=layout, and what makes the bits of a step depend on the ranks. That each has
 * whole shards is checked when they are known (step_shards_check). */
static enum status check_exact(const struct conf *conf)
{
    static const struct {
        enum conf_key key;
        int64_t allowed; /* or less */
        const char *remedy;
    } others[] = {
        {CONF_LOCAL_STEPS, 0, "replicas are nodes: set LOCAL_STEPS=0"},
        {CONF_BATCH_WARMUP, 0, "its shards are those of GLOBAL_BATCH: set BATCH_WARMUP=0"},
        {CONF_COMPRESS, CONF_COMPRESS_NONE, "each worker rounds its own sum: set COMPRESS=none"},
        {CONF_EMBED_ROWS, CONF_EMBED_ROWS_OFF,
         "rows are added worker by worker: set EMBED_ROWS=0"}};
    bool is_exact = conf_i64(conf, CONF_EXACT) == CONF_EXACT_LAYOUT;
    if (!is_exact && conf_i64(conf, CONF_VIRTUAL_SHARDS) > 0)
        return fail_pair(conf, CONF_VIRTUAL_SHARDS, "has no effect with", CONF_EXACT,
                         "set EXACT=layout, or leave VIRTUAL_SHARDS out");
    if (!is_exact && conf_i64(conf, CONF_VIRTUAL_TP) > 0)
        return fail_pair(conf, CONF_VIRTUAL_TP, "has no effect with", CONF_EXACT,
                         "set EXACT=layout, or leave VIRTUAL_TP out");
    if (!is_exact && conf_i64(conf, CONF_BALANCE) != CONF_BALANCE_OFF)
        return fail_pair(conf, CONF_BALANCE, "needs virtual shards, not", CONF_EXACT,
                         "set EXACT=layout, or BALANCE=off");
    if (!is_exact)
        return ST_OK;
    if (conf_i64(conf, CONF_BALANCE) != CONF_BALANCE_OFF && conf_i64(conf, CONF_PP) > 1)
        return fail_pair(conf, CONF_BALANCE, "does not go with", CONF_PP,
                         "the order of a pipeline's micro-batches is fixed: set BALANCE=off");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (conf_i64(conf, others[i].key) > others[i].allowed &&
            (others[i].key != CONF_EMBED_ROWS || conf_is_set(conf, CONF_EMBED_ROWS)))
            return fail_pair(conf, CONF_EXACT, "does not go with", others[i].key, others[i].remedy);
    if (conf_i64(conf, CONF_DETERMINISTIC) == 0)
        return fail_pair(conf, CONF_EXACT, "does not go with", CONF_DETERMINISTIC,
                         "additions in any order give other bits each time: set DETERMINISTIC=1");
    if (conf_i64(conf, CONF_SHARD) == CONF_SHARD_HYBRID)
        return fail_pair(conf, CONF_EXACT, "does not go with", CONF_SHARD,
                         "groups add among themselves first: set SHARD=full");
    if (conf_i64(conf, CONF_BACKEND) == CONF_BACKEND_NCCL)
        return fail_pair(conf, CONF_EXACT, "does not go with", CONF_BACKEND,
                         "NCCL adds in an order of its own: set BACKEND=auto");
    if (conf_i64(conf, CONF_DEVICE) == CONF_DEVICE_CUDA)
        return fail_pair(conf, CONF_EXACT, "is for CPUs in this version, not", CONF_DEVICE,
                         "set DEVICE=cpu, or EXACT=off");
    if (conf_i64(conf, CONF_GLOBAL_BATCH) == 0)
        return fail_pair(conf, CONF_EXACT, "needs a fixed number of samples, not",
                         CONF_GLOBAL_BATCH,
                         "set GLOBAL_BATCH; without it a step has more samples on more workers");
    return ST_OK;
}

/* check_on_loss — a job that goes on with fewer nodes, and must come to the same bits. */
static enum status check_on_loss(const struct conf *conf)
{
    const int64_t min = conf_i64(conf, CONF_MIN_NODES);
    if (conf_i64(conf, CONF_ON_LOSS) == CONF_ON_LOSS_WAIT)
        return min > 0 ? fail_pair(conf, CONF_MIN_NODES, "has no effect with", CONF_ON_LOSS,
                                   "set ON_LOSS=shrink, or leave MIN_NODES out")
                       : ST_OK;
    if (min > conf_i64(conf, CONF_N_NODES))
        return fail_pair(conf, CONF_MIN_NODES, "is over", CONF_N_NODES,
                         "a job has at most N_NODES nodes");
    if (conf_i64(conf, CONF_EXACT) != CONF_EXACT_LAYOUT)
        return fail_pair(conf, CONF_ON_LOSS, "does not go with", CONF_EXACT,
                         "fewer workers would come to other results: set EXACT=layout");
    if (conf_i64(conf, CONF_PP) > 1)
        return fail_pair(conf, CONF_ON_LOSS, "does not go with", CONF_PP,
                         "a stage may be lost with its node: set PP=1");
    if (conf_i64(conf, CONF_N_GPU_EACH_NODE) % mesh_size(conf) != 0)
        return fail_pair(conf, CONF_ON_LOSS, "needs all of a group's workers on one node, not",
                         CONF_N_GPU_EACH_NODE,
                         "a lost node would leave parts of groups: set a multiple of TP x CP");
    return ST_OK;
}

/* check_spike — a quantised gradient leaves its error to the next step, and a step that is skipped
 * has none. */
static enum status check_spike(const struct conf *conf)
{
    const int64_t spike = conf_i64(conf, CONF_SPIKE);
    if (spike == CONF_SPIKE_OFF)
        return ST_OK;
    if (spike != CONF_SPIKE_SKIP || !quantises(conf) || conf_i64(conf, CONF_LOCAL_STEPS) > 0)
        return ST_OK;
    return fail_pair(conf, CONF_SPIKE, "does not go with", CONF_COMPRESS,
                     "its error feedback would lose what a skipped step has sent: set SPIKE=stop, "
                     "or COMPRESS=bf16");
}

/* check_link — LINK=auto proposes COMPRESS or LOCAL_STEPS, for a run to which both are open. */
static enum status check_link(const struct conf *conf)
{
    static const enum conf_key axes[] = {CONF_TP, CONF_PP, CONF_CP};
    if (conf_i64(conf, CONF_LINK) == CONF_LINK_OFF)
        return ST_OK;
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        if (conf_i64(conf, axes[i]) > 1)
            return fail_pair(conf, CONF_LINK, "does not go with", axes[i],
                             "what it proposes is refused with it: set LINK=off");
    if (conf_i64(conf, CONF_SHARD) == CONF_SHARD_HYBRID)
        return fail_pair(conf, CONF_LINK, "does not go with", CONF_SHARD,
                         "what it proposes is refused with it: set LINK=off");
    if (conf_i64(conf, CONF_LOCAL_STEPS) > 0)
        return fail_pair(conf, CONF_LINK, "does not go with", CONF_LOCAL_STEPS,
                         "it measures the link by gradients that travel in every step: set "
                         "LINK=off, or LOCAL_STEPS=0 for a few steps");
    return ST_OK;
}

/* has_ending — does the name of n bytes end so? */
static bool has_ending(const char *name, size_t n, const char *ending)
{
    size_t m = strlen(ending);
    return n > m && strncmp(name + n - m, ending, m) == 0;
}

/* check_reports — the ending of each file says what is written into it. */
static enum status check_reports(const struct conf *conf)
{
    const char *at = conf_text(conf, CONF_REPORT);
    while (at[0] != 0) {
        size_t n = strcspn(at, ",");
        if (!has_ending(at, n, ".json") && !has_ending(at, n, ".prom"))
            return FAIL(
                ST_BAD_SETTING, "REPORT=%.*s (%s): a report is .json or .prom (Prometheus); %s",
                (int)n, at, conf_source(conf, CONF_REPORT),
                has_ending(at, n, ".xml") ? conf_removed_remedy("REPORT", strlen("REPORT"), ".xml")
                                          : "give a name that ends so");
        at += n + (at[n] != 0);
    }
    return ST_OK;
}

enum status conf_rules_check(const struct conf *conf)
{
    TRY(check_reports(conf));
    TRY(check_shard(conf));
    TRY(check_optimizer(conf));
    TRY(check_comm_graph(conf));
    TRY(check_local(conf));
    TRY(check_exact(conf));
    TRY(check_on_loss(conf));
    TRY(check_spike(conf));
    TRY(check_link(conf));
    TRY(check_nodes(conf));
    TRY(check_tensor(conf));
    TRY(check_context(conf));
    TRY(check_pipeline(conf));
    if (counts_workers(conf))
        TRY(check_workers(conf));
    TRY(check_precision(conf));
    TRY(check_model(conf));
    if (counts_workers(conf))
        TRY(check_batch(conf));
    TRY(check_steps(conf));
    return check_files(conf);
}

enum status conf_rules_check_missing(const struct conf *conf, bool needs_data)
{
    const bool is_split = conf_i64(conf, CONF_N_NODES) > 1;
    const bool has_token = conf_text(conf, CONF_JOB_TOKEN)[0] != 0 ||
                           conf_text(conf, CONF_JOB_TOKEN_FILE)[0] != 0,
               has_data = conf_text(conf, CONF_DATA)[0] != 0 || conf_i64(conf, CONF_NODE_ID) > 0;
    const struct {
        bool is_missing, has_default; /* a default may be meant, so it is named with others only */
        const char *name, *what;
    } rows[] = {
        {is_split && !conf_is_set(conf, CONF_MASTER_ADDR), false, "MASTER_ADDR",
         "the address of node 0, the same on every node"},
        {is_split && !has_token, false, "JOB_TOKEN or JOB_TOKEN_FILE",
         "a secret of at least 16 bytes, the same on every node (openssl rand -hex 32 makes one); "
         "JOB_TOKEN=none lets every machine join that reaches MASTER_PORT"},
        {needs_data && !has_data, false, "DATA",
         "name what to train on, such as DATA=book.txt (text, .jsonl, token files, a folder, an "
         "address; `convoy help DATA`); DATA=synthetic trains on random tokens, to try a machine"},
        {is_split && !conf_is_set(conf, CONF_NODE_ID), true, "NODE_ID",
         "the number of this node, 0 if it is not set"},
    };
    struct text list = {.limit = 900};
    int n = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].is_missing || (rows[i].has_default && n == 0))
            continue;
        text_add(&list, "%s%s is not set: %s", n > 0 ? "; " : "", rows[i].name, rows[i].what);
        n++;
    }
    enum status st = n == 0 ? ST_OK
                     : is_split
                         ? FAIL(ST_BAD_SETTING, "N_NODES=%s (%s) needs more settings. %s",
                                conf_text(conf, CONF_N_NODES), conf_source(conf, CONF_N_NODES),
                                list.data != NULL ? list.data : "")
                         : FAIL(ST_BAD_SETTING, "%s", list.data != NULL ? list.data : "");
    text_free(&list);
    return st;
}
