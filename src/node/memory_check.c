/* memory_check — see memory_check.h. Read memory_check_train first, at the foot: plan, compare, and
 * when it does not fit, try what would. */
#include "node/memory_check.h"

#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "comm/nccl/nccl_lib.h"
#include "node/device.h"
#include "node/config_map.h"

#define SUPERVISOR_BYTES ((int64_t)12 << 20)
#define SYSTEM_PART 64 /* of the machine's memory: the system's own, never free */
/* What a choice of ours leaves free: other processes share a machine's memory, not a GPU's. */
#define HOST_MARGIN_PART 8
#define DEVICE_MARGIN_PART 32
#define NODES_LINEAR 16 /* nodes are tried one by one up to here, then doubled */
#define RANKS_MOST 1024 /* more ranks than this are not tried */

/* What is compared: one run as settings would have it, and what there is. */
struct memory_check {
    const struct conf *conf;
    struct memory_plan_place place;
    /* the memory of a worker's GPU; else the host's of all workers of the node */
    bool is_device;
    int64_t free_bytes; /* now; -1 unknown, and then not compared */
    int64_t most_bytes; /* ever */
    int64_t each_bytes; /* that one process may take; -1 no limit */
    const char *owner;  /* of most_bytes: "the machine" */
};

/* What one run would take. */
struct need {
    int64_t kind[MEMORY_PLAN_N]; /* of all workers */
    int64_t sum, each;           /* of all; of the worker that takes most */
};

/* ---- how much ---- */

static enum status add_worker(const struct memory_check *f, const struct trainer_config *c,
                              struct comm_place at, int times, struct need *need)
{
    struct memory_plan plan;
    struct memory_plan_place place = f->place;
    place.at = at;
    TRY(memory_plan_train(c, &place, &plan));
    const int64_t *bytes = f->is_device ? plan.device : plan.host;
    int64_t sum = memory_plan_sum(bytes);
    for (int kind = 0; kind < MEMORY_PLAN_N; kind++)
        need->kind[kind] += times * bytes[kind];
    need->sum += times * sum;
    need->each = sum > need->each ? sum : need->each;
    return ST_OK;
}

/* add_others — the node's workers but the first. They are alike, but for stages of a pipeline. */
static enum status add_others(const struct memory_check *f, const struct trainer_config *c,
                              struct comm_place at, struct need *need)
{
    bool differ = c->step.axis_ranks[MESH_AXIS_PIPELINE] > 1;
    int each = differ ? 1 : at.locals - 1;
    for (int left = at.locals - 1; left > 0; left -= each) {
        at.rank++;
        at.local++;
        TRY(add_worker(f, c, at, each, need));
    }
    return ST_OK;
}

/* measure — the node's first worker, which alone may hold a copy for checkpoints, and the others;
 * of a GPU its own worker. */
static enum status measure(const struct memory_check *f, const struct trainer_config *c,
                           struct comm_place at, struct need *out)
{
    struct need need = {.sum = 0};
    TRY(add_worker(f, c, at, 1, &need));
    if (!f->is_device)
        TRY(add_others(f, c, at, &need));
    if (!f->is_device) {
        need.kind[MEMORY_PLAN_PROGRAM] += SUPERVISOR_BYTES;
        need.sum += SUPERVISOR_BYTES;
    }
    *out = need;
    return ST_OK;
}

static bool is_over(int64_t bytes, int64_t limit) { return limit >= 0 && bytes > limit; }

static bool fits(const struct memory_check *f, const struct trainer_config *c, struct comm_place at)
{
    struct need need;
    if (measure(f, c, at, &need) != ST_OK) {
        status_clear();
        return false;
    }
    return !is_over(need.sum, f->most_bytes) && !is_over(need.sum, f->free_bytes) &&
           !is_over(need.each, f->each_bytes);
}

/* ---- what would fit ---- */

/* suggest_batch — a smaller micro-batch; the samples of a step stay the same. */
static void suggest_batch(const struct memory_check *f, const struct trainer_config *c,
                          int64_t batch, struct text *out)
{
    text_add(out, "BATCH_SIZE=%lld", (long long)batch);
    if (conf_i64(f->conf, CONF_GLOBAL_BATCH) == 0)
        text_add(out, " GLOBAL_BATCH=%lld", (long long)c->step.global_samples);
}

/* pass_samples — of one micro-batch on all of so many ranks; 0: they are no mesh. */
static int64_t pass_samples(const struct trainer_config *c, int ranks)
{
    struct mesh mesh;
    if (step_mesh(&c->step, ranks, &mesh) == ST_OK)
        return c->step.batch_samples * mesh.size[MESH_AXIS_DATA];
    status_clear();
    return 0;
}

/* is_dealt — so many ranks divide the samples of a step. */
static bool is_dealt(const struct trainer_config *c, int ranks)
{
    int64_t pass = pass_samples(c, ranks);
    return pass > 0 && c->step.global_samples % pass == 0;
}

static bool set_batch(const struct memory_check *f, struct trainer_config *c, int64_t batch)
{
    c->step.batch_samples = batch;
    return batch > 0 && is_dealt(c, f->place.at.ranks);
}

static void try_batch(const struct memory_check *f, const struct trainer_config *from,
                      struct text *out)
{
    struct trainer_config c = *from;
    for (int64_t batch = from->step.batch_samples - 1; batch > 0; batch--)
        if (set_batch(f, &c, batch) && fits(f, &c, f->place.at)) {
            text_add(out, "; ");
            suggest_batch(f, &c, batch, out);
            return;
        }
}

static void try_tokens(const struct memory_check *f, const struct trainer_config *from,
                       struct text *out)
{
    struct trainer_config c = *from;
    for (c.step.seq_tokens /= 2; c.step.seq_tokens >= 32; c.step.seq_tokens /= 2)
        if (fits(f, &c, f->place.at)) {
            text_add(out, "; SEQ_LEN=%lld", (long long)c.step.seq_tokens);
            return;
        }
}

/* try_recompute — with the batch as it is, else with the smallest. */
static void try_recompute(const struct memory_check *f, const struct trainer_config *from,
                          struct text *out)
{
    static const char *const words[] = {[MODEL_RECOMPUTE_LIGHT] = "light",
                                        [MODEL_RECOMPUTE_ATTENTION] = "attention",
                                        [MODEL_RECOMPUTE_BLOCK] = "block"};
    struct trainer_config c = *from;
    for (int way = (int)from->step.recompute + 1; way <= MODEL_RECOMPUTE_BLOCK; way++) {
        c.step.recompute = (enum model_recompute)way;
        if (fits(f, &c, f->place.at)) {
            text_add(out, "; RECOMPUTE=%s", words[way]);
            return;
        }
    }
    if (c.step.batch_samples > 1 && set_batch(f, &c, 1) && fits(f, &c, f->place.at)) {
        text_add(out, "; RECOMPUTE=block ");
        suggest_batch(f, &c, 1, out);
    }
}

/* with_nodes — the same workers on so many nodes; false: the batch cannot be divided among them. */
static bool with_nodes(const struct memory_check *f, struct trainer_config *c, int nodes,
                       struct comm_place *at)
{
    *at = f->place.at;
    at->nodes = nodes;
    at->ranks = nodes * at->locals;
    at->node = at->rank = 0; /* node 0 holds most */
    if (conf_i64(f->conf, CONF_GLOBAL_BATCH) == 0)
        c->step.global_samples = pass_samples(c, at->ranks);
    return is_dealt(c, at->ranks);
}

/* fits_spread — in parts on so many nodes. */
static bool fits_spread(const struct memory_check *f, struct trainer_config c, int nodes,
                        bool is_any_batch)
{
    struct comm_place at;
    bool has_samples = with_nodes(f, &c, nodes, &at);
    c.step.store.shard = LAYOUT_SHARD_FULL;
    if (is_any_batch)
        c.step.global_samples = pass_samples(&c, at.ranks);
    return (has_samples || is_any_batch) && fits(f, &c, at);
}

/* nodes_for — as few nodes as it takes with everything in parts; 0: it never fits. */
static int nodes_for(const struct memory_check *f, const struct trainer_config *c)
{
    const struct comm_place *at = &f->place.at;
    int first =
        at->ranks > 1 && c->step.store.shard != LAYOUT_SHARD_FULL ? at->nodes : at->nodes + 1;
    int most = RANKS_MOST / at->locals;
    /* what is not in parts is too much by itself */
    if (!fits_spread(f, *c, most > first ? most : first, true))
        return 0;
    for (int nodes = first; nodes <= most; nodes += nodes < NODES_LINEAR ? 1 : nodes)
        if (fits_spread(f, *c, nodes, false))
            return nodes;
    return 0;
}

/* try_shard — over the workers that there are, else over more; with less beside it where that is
 * not enough. */
static void try_shard(const struct memory_check *f, const struct trainer_config *from,
                      struct text *out)
{
    static const char *const words[] = {"", " RECOMPUTE=block", " RECOMPUTE=block BATCH_SIZE=1"};
    struct trainer_config c = *from;
    int locals = f->place.at.locals;
    for (int i = 0; i < 3; i++) {
        c.step.recompute = i > 0 ? MODEL_RECOMPUTE_BLOCK : c.step.recompute;
        c.step.batch_samples = i > 1 ? 1 : c.step.batch_samples;
        int nodes = nodes_for(f, &c);
        if (nodes == 0)
            continue;
        text_add(out, "; SHARD=full%s on %d workers (N_NODES=%d)", words[i], nodes * locals, nodes);
        return;
    }
}

/* try_copy — the copy for checkpoints in the background, where training can do without. */
static void try_copy(const struct memory_check *f, const struct trainer_config *from,
                     struct text *out)
{
    struct trainer_config c = *from;
    if (from->checkpoint_mode != CHECKPOINT_ASYNC_MODE_ON)
        return;
    c.checkpoint_mode = CHECKPOINT_ASYNC_MODE_AUTO;
    if (fits(f, &c, f->place.at))
        text_add(out, "; CHECKPOINT_ASYNC=auto");
}

static void try_workers(const struct memory_check *f, const struct trainer_config *from,
                        struct text *out)
{
    struct trainer_config c = *from;
    struct comm_place at = {.ranks = 1, .nodes = 1, .locals = 1};
    if (f->is_device || f->place.at.nodes > 1 || f->place.at.locals == 1)
        return;
    if (conf_i64(f->conf, CONF_GLOBAL_BATCH) == 0)
        c.step.global_samples = c.step.batch_samples;
    if (fits(f, &c, at))
        text_add(out, "; N_GPU_EACH_NODE=1");
}

static void try_all(const struct memory_check *f, const struct trainer_config *c, struct text *out)
{
    try_copy(f, c, out);
    try_batch(f, c, out);
    try_tokens(f, c, out);
    try_recompute(f, c, out);
    try_workers(f, c, out);
    try_shard(f, c, out);
}

/* ---- the report ---- */

/* log_table — a row for each kind that takes something. */
static void log_table(const struct need *need, int workers_n, const char *where)
{
    char all[32];
    LOG_INFO("%-24s %12s  (%d worker%s, %s)", "memory for", "planned", workers_n,
             workers_n == 1 ? "" : "s", where);
    for (int kind = 0; kind < MEMORY_PLAN_N; kind++)
        if (need->kind[kind] > 0)
            LOG_INFO("%-24s %12s", memory_plan_text((enum memory_plan_kind)kind),
                     text_format_bytes(all, sizeof all, (double)need->kind[kind]));
    LOG_INFO("%-24s %12s", "all", text_format_bytes(all, sizeof all, (double)need->sum));
}

/* compare_memory — the beginning of the sentence: what is needed, what there is. ST_OK: it fits. */
static enum status compare_memory(const struct memory_check *f, const struct need *need, char *out,
                                  size_t cap)
{
    char sum[32], each[32], most[32], left[32];
    text_format_bytes(sum, sizeof sum, (double)need->sum);
    text_format_bytes(each, sizeof each, (double)need->each);
    text_format_bytes(most, sizeof most, (double)f->most_bytes);
    text_format_bytes(left, sizeof left, (double)f->free_bytes);
    if (is_over(need->sum, f->most_bytes)) {
        text_format(out, cap, "needs %s of memory, but %s has %s", sum, f->owner, most);
        return ST_BAD_SETTING;
    }
    if (is_over(need->each, f->each_bytes)) {
        text_format(out, cap,
                    "needs %s of memory in a process, the limits of this one (ulimit -v, -d) leave "
                    "%s; raise them",
                    each, text_format_bytes(left, sizeof left, (double)f->each_bytes));
        return ST_BAD_SETTING;
    }
    if (!is_over(need->sum, f->free_bytes))
        return ST_OK;
    text_format(out, cap,
                "needs %s of memory, %s are free now; %s has %s, and other processes hold the "
                "rest: start again when they have ended",
                sum, left, f->owner, most);
    return ST_RETRY;
}

static enum status log_planned(const struct memory_check *f, const struct need *need, int workers_n)
{
    char sum[32], left[32];
    if (f->place.at.local == 0)
        LOG_INFO("memory planned: %s of %s for %d worker%s, %s free",
                 text_format_bytes(sum, sizeof sum, (double)need->sum),
                 f->is_device ? "a GPU" : "this node", workers_n, workers_n == 1 ? "" : "s",
                 f->free_bytes < 0 ? "unknown how much is"
                                   : text_format_bytes(left, sizeof left, (double)f->free_bytes));
    return ST_OK;
}

/* take_way — of the ways that a config leaves open the first that fits, else the last. */
static void take_way(const struct memory_check *f, struct trainer_config *c)
{
    struct plan_way ways[PLAN_WAYS_MAX];
    int ways_n = plan_choice_ways(&c->step, &f->place, ways), way = 0;
    do
        plan_choice_set(&c->step, ways[way]);
    while (!fits(f, c, f->place.at) && ++way < ways_n);
}

/* check — ST_OK, or the table and the sentence with what fits. */
static enum status check(const struct memory_check *f, const struct trainer_config *asked)
{
    struct trainer_config config = *asked;
    const struct trainer_config *c = &config;
    struct need need;
    struct text would = {.limit = 512};
    char why[384];
    take_way(f, &config);
    TRY(measure(f, c, f->place.at, &need));
    enum status st = compare_memory(f, &need, why, sizeof why);
    int workers_n = f->is_device ? 1 : f->place.at.locals;
    if (st == ST_OK)
        return log_planned(f, &need, workers_n);
    log_table(&need, workers_n, f->is_device ? "memory of its GPU" : "memory of this node");
    try_all(f, c, &would);
    st = FAIL(st, "training %s (%lld layers, %lld wide) %s; %s%s", c->step.dims.name,
              (long long)c->step.dims.layers, (long long)c->step.dims.embed, why,
              would.len > 0 ? "what would fit:"
                            : "no BATCH_SIZE, SEQ_LEN, RECOMPUTE or SHARD makes it fit: use a "
                              "smaller model, or a machine with more memory",
              would.len > 0 ? would.data + 1 : "");
    text_free(&would);
    return st;
}

/* ---- what there is ---- */

static void read_host(struct memory_check *f)
{
    struct memory_limits available;
    memory_limits(&available);
    f->free_bytes = available.free_bytes;
    f->most_bytes = available.is_group || available.total_bytes < 0
                        ? available.total_bytes
                        : available.total_bytes - available.total_bytes / SYSTEM_PART;
    f->each_bytes = available.process_bytes;
    f->owner = available.is_group ? "the control group (a container's limit)" : "the machine";
}

/* limit_each — half of the address space of a node's workers is for the memory that they share. */
static void limit_each(struct memory_check *f)
{
    if (f->place.at.locals > 1 && f->each_bytes >= 0)
        f->each_bytes /= 2;
}

/* rounding — of NCCL's allocator. Without the library here no rank uses NCCL; where BACKEND=nccl
 * needs it, opening the comm says what is missing. */
static int64_t rounding(const struct memory_check *f, const struct dev_info *info)
{
    const struct nccl_lib *nccl;
    if (f->place.at.ranks == 1 || !f->place.stays_on_device)
        return 0;
    if (nccl_lib_open(&nccl) == ST_OK)
        return nccl_lib_rounding(nccl_lib_version(), info->granularity_bytes);
    status_clear();
    return 0;
}

static void read_device(struct memory_check *f, const struct dev *dev)
{
    struct dev_info info;
    dev_info(dev, &info);
    f->place.rounding_bytes = rounding(f, &info);
    f->is_device = true;
    /* the plan counts the libraries, which have taken most of theirs already */
    f->free_bytes = info.free_bytes < 0 ? -1 : info.free_bytes + MEMORY_PLAN_GPU_LIBRARIES_BYTES;
    f->most_bytes = info.memory_bytes;
    f->each_bytes = -1;
    f->owner = "the GPU";
}

static void set_place(struct memory_check *f, int worker_i, bool is_discrete)
{
    f->place =
        (struct memory_plan_place){.at = config_map_place(f->conf, worker_i),
                                   .is_discrete = is_discrete,
                                   .stays_on_device = is_discrete && device_may_use_nccl(f->conf),
                                   .threads_n = device_threads(f->conf)};
}

/* ---- the questions ---- */

enum status memory_check_train(const struct conf *conf)
{
    struct memory_check f = {.conf = conf};
    struct model_dims dims;
    struct trainer_config config;
    bool has_weights, is_discrete = strcmp(device_kind(conf), "cuda") == 0;
    TRY(config_map_dims(conf, &dims, &has_weights));
    TRY(config_map_trainer(conf, &dims, has_weights, &config));
    config.step.store.dtype = device_dtype(conf, is_discrete);
    set_place(&f, 0, is_discrete);
    read_host(&f);
    limit_each(&f);
    return check(&f, &config);
}

enum status memory_check_device(const struct conf *conf, const struct trainer_config *config,
                                int worker_i, const struct dev *dev)
{
    struct memory_check f = {.conf = conf};
    if (!dev_is_discrete(dev))
        return ST_OK;
    set_place(&f, worker_i, true);
    read_device(&f, dev);
    return check(&f, config);
}

enum status memory_check_offer(const struct conf *conf, const struct trainer_config *config,
                               int worker_i, const struct dev *dev, int64_t *need_bytes,
                               struct plan_offer *out)
{
    struct memory_check f = {.conf = conf};
    struct need need;
    set_place(&f, dev_is_discrete(dev) ? worker_i : 0, dev_is_discrete(dev));
    if (f.place.is_discrete)
        read_device(&f, dev);
    else
        read_host(&f);
    limit_each(&f);
    TRY(measure(&f, config, f.place.at, &need));
    *need_bytes = need.sum;
    int64_t all_bytes = f.each_bytes < 0 ? -1 : f.each_bytes * f.place.at.locals;
    bool is_limited = is_over(f.free_bytes, all_bytes);
    out->free_bytes = is_limited ? all_bytes : f.free_bytes;
    out->margin_bytes = out->free_bytes / (f.is_device ? DEVICE_MARGIN_PART : HOST_MARGIN_PART);
    return ST_OK;
}

static enum status check_command(const struct memory_check *f, const char *what,
                                 const int64_t bytes[MEMORY_PLAN_N], const char *remedy)
{
    struct need need = {.sum = memory_plan_sum(bytes)};
    char why[384];
    memcpy(need.kind, bytes, sizeof need.kind);
    need.each = need.sum;
    enum status st = compare_memory(f, &need, why, sizeof why);
    if (st == ST_OK)
        return ST_OK;
    log_table(&need, 1, f->is_device ? "memory of the GPU" : "memory of this machine");
    return FAIL(st, "%s %s; %s", what, why, remedy);
}

enum status memory_check_command(const char *what, const struct memory_plan *plan,
                                 const struct dev *dev, const char *remedy)
{
    struct memory_check f = {.is_device = false};
    read_host(&f);
    TRY(check_command(&f, what, plan->host, remedy));
    if (dev == NULL || !dev_is_discrete(dev))
        return ST_OK;
    read_device(&f, dev);
    return check_command(&f, what, plan->device, remedy);
}
