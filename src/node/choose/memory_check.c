/* memory_check — see memory_check.h. Read memory_check_train first, at the foot: plan, compare, and
 * try other settings if the run does not fit. */
#include "node/choose/memory_check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "comm/nccl/lib.h"
#include "node/choose/device.h"
#include "node/choose/config_map.h"
#include "node/choose/memory_advice.h"

/* fraction 1/64 of the machine's memory, which the system itself uses and which is never free */
#define SYSTEM_SHARE 64
/* Fractions that the automatic choices leave free: other processes share a machine's memory, but
 * not a GPU's. */
#define HOST_MARGIN_SHARE 8
#define DEVICE_MARGIN_SHARE 32

/* On a GPU, a need of host memory below this is only an estimate: the driver uses most of it. */
#define HOST_ESTIMATE_BYTES ((int64_t)2 << 30)

/* The memory that one run needs. */
struct need {
    int64_t kind[MEMORY_PLAN_N]; /* bytes of all workers */
    int64_t sum, each;           /* bytes of all workers; bytes of the worker that needs most */
};

/* ---- the need ---- */

/* add_worker — adds the need of `times` equal workers. */
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

/* compute_need — returns the need of the node: its first worker, which may hold a copy for
 * checkpoints, and the others. For a GPU, returns the need of the GPU's own worker. */
static enum status compute_need(const struct memory_check *f, const struct trainer_config *c,
                                struct comm_place at, struct need *out)
{
    struct need need = {.sum = 0};
    TRY(add_worker(f, c, at, 1, &need));
    if (!f->is_device) {
        /* Add the other workers of the node. They are equal unless the model has pipeline
         * stages. */
        bool differ = c->step.axis_ranks[MESH_AXIS_PIPELINE] > 1;
        int each = differ ? 1 : at.locals - 1;
        for (int left = at.locals - 1; left > 0; left -= each) {
            at.rank++;
            at.local++;
            TRY(add_worker(f, c, at, each, &need));
        }
    }
    if (!f->is_device) {
        need.kind[MEMORY_PLAN_PROGRAM] += MEMORY_PLAN_SUPERVISOR_BYTES;
        need.sum += MEMORY_PLAN_SUPERVISOR_BYTES;
    }
    *out = need;
    return ST_OK;
}

static bool is_over(int64_t bytes, int64_t limit) { return limit >= 0 && bytes > limit; }

bool memory_check_fits(const struct memory_check *f, const struct trainer_config *c,
                       struct comm_place at)
{
    struct need need;
    if (compute_need(f, c, at, &need) != ST_OK) {
        status_clear();
        return false;
    }
    return !is_over(need.sum, f->most_bytes) && !is_over(need.sum, f->free_bytes) &&
           !is_over(need.each, f->each_bytes);
}

/* ---- the report ---- */

/* log_table — logs a row for each kind of memory that is used. */
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

/* compare_memory — compares the need with the available memory. On failure, writes the beginning of
 * the message: the need and the available memory. ST_OK: it fits. */
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
                    "needs %s of memory in a process, but the limits of this process (ulimit -v, "
                    "-d) leave %s; raise them",
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

/* is_only_warned — returns true and logs a warning if only the small host memory of a run on a GPU
 * does not fit. The run is not refused for that: a virtual machine may show little free memory at
 * the start and get more. */
static bool is_only_warned(const struct memory_check *f, const struct need *need, const char *why)
{
    if (!f->place.is_discrete || f->is_device || need->sum >= HOST_ESTIMATE_BYTES)
        return false;
    LOG_WARN("this run on a GPU %s; that is an estimate, so the run starts anyway", why);
    return true;
}

/* log_stages — logs the need of the node's first worker in each pipeline stage: the first stage has
 * most micro-batches in flight, and the last one has the output layer. */
static enum status log_stages(const struct memory_check *f, const struct trainer_config *c)
{
    struct mesh mesh;
    struct text text = {.limit = 4096};
    int last = -1;
    enum status st = ST_OK;
    if (f->is_device || c->step.axis_ranks[MESH_AXIS_PIPELINE] <= 1)
        return ST_OK;
    TRY(step_mesh(&c->step, f->place.at.ranks, &mesh));
    for (struct comm_place at = f->place.at; st == ST_OK && at.local < at.locals;
         at.local++, at.rank++) {
        const int stage = mesh_coord_of(&mesh, at.rank).at[MESH_AXIS_PIPELINE];
        struct need need = {.sum = 0};
        char all[32], acts[32];
        if (stage == last)
            continue;
        last = stage;
        st = add_worker(f, c, at, 1, &need);
        /* "; stage 1: 480.1 MiB, activations 61.2 MiB" */
        text_add(&text, "%s stage %d: %s, activations %s", text.len > 0 ? ";" : "", stage,
                 text_format_bytes(all, sizeof all, (double)need.sum),
                 text_format_bytes(acts, sizeof acts, (double)need.kind[MEMORY_PLAN_ACTIVATIONS]));
    }
    if (st == ST_OK)
        LOG_INFO("memory of a worker, planned:%s", text.data);
    text_free(&text);
    return st;
}

/* log_peer_copies — logs the additional memory that PEER_COPIES=auto uses. Copies are left out if
 * memory is short. */
static enum status log_peer_copies(const struct memory_check *f, const struct trainer_config *c)
{
    char bytes[32];
    int64_t sum = 0;
    if (f->is_device)
        return ST_OK;
    /* Add the copies of all workers of the node: with TP and PP each worker may copy other
     * ranks. */
    struct memory_plan_place place = f->place;
    int64_t each = 0;
    place.at.rank -= place.at.local;
    for (place.at.local = 0; place.at.local < place.at.locals; place.at.local++, place.at.rank++) {
        TRY(memory_plan_peer_copies(c, &place, &each));
        sum += each;
    }
    if (sum > 0)
        LOG_INFO("memory planned: %s more, if it is free, for copies of the state in peers' memory "
                 "(PEER_COPIES=auto)",
                 text_format_bytes(bytes, sizeof bytes, (double)sum));
    return ST_OK;
}

/* A config, and the ways that it leaves open. */
struct open_config {
    const struct memory_check *f;
    struct trainer_config config;
    struct plan_ways ways;
};

static enum status fits_way(void *arg, int way, bool *out)
{
    struct open_config *open = arg;
    plan_choice_set(&open->config.step, plan_choice_way(&open->ways, way));
    *out = memory_check_fits(open->f, &open->config, open->f->place.at);
    return ST_OK;
}

/* choose_way — sets the first way that fits among the ways that a config leaves open, or the last
 * one if none fits. */
static enum status choose_way(const struct memory_check *f, struct trainer_config *c)
{
    struct open_config open = {.f = f, .config = *c};
    bool fits_last;
    plan_choice_ways(&c->step, &f->place, &open.ways);
    int way = open.ways.n - 1;
    TRY(fits_way(&open, way, &fits_last));
    if (fits_last) {
        /* Find the number of the first way that fits. */
        float *votes = memory_new((size_t)open.ways.n, sizeof *votes);
        enum status st = plan_choice_vote(&open.ways, fits_way, &open, votes);
        way = plan_choice_first(votes, open.ways.n, 1);
        free(votes);
        TRY(st);
    }
    plan_choice_set(&c->step, plan_choice_way(&open.ways, way));
    return ST_OK;
}

/* check_memory — returns ST_OK, or logs the table and fails with a message that lists settings that
 * fit. */
static enum status check_memory(const struct memory_check *f, const struct trainer_config *asked)
{
    struct trainer_config config = *asked;
    const struct trainer_config *c = &config;
    struct need need;
    struct text would = {.limit = 768};
    char why[384];
    TRY(choose_way(f, &config));
    TRY(compute_need(f, c, f->place.at, &need));
    enum status st = compare_memory(f, &need, why, sizeof why);
    int workers_n = f->is_device ? 1 : f->place.at.locals;
    if (st != ST_OK && is_only_warned(f, &need, why))
        st = ST_OK;
    if (st == ST_OK) {
        char sum[32], left[32];
        if (f->place.at.local == 0)
            LOG_INFO("memory planned: %s of %s for %d worker%s, %s free",
                     text_format_bytes(sum, sizeof sum, (double)need.sum),
                     f->is_device ? "a GPU" : "this node", workers_n, workers_n == 1 ? "" : "s",
                     f->free_bytes < 0
                         ? "an unknown amount"
                         : text_format_bytes(left, sizeof left, (double)f->free_bytes));
        LOG_DEBUG("memory planned: %lld KiB", (long long)(need.sum >> 10));
    }
    if (st == ST_OK)
        TRY(log_peer_copies(f, c));
    TRY(log_stages(f, c));
    if (st == ST_OK)
        return ST_OK;
    log_table(&need, workers_n, f->is_device ? "memory of its GPU" : "memory of this node");
    memory_advice_add(f, c, &would);
    st = FAIL(st, "training %s (%lld layers, %lld wide) %s; %s%s", c->step.dims.name,
              (long long)c->step.dims.layers, (long long)c->step.dims.embed, why,
              would.len > 0 ? "it would fit with:"
                            : "no BATCH_SIZE, SEQ_LEN, RECOMPUTE, TP, CP, PP or SHARD makes it "
                              "fit here: use more machines, or ones with more memory, or a "
                              "smaller model",
              would.len > 0 ? would.data + 1 : "");
    text_free(&would);
    return st;
}

/* ---- the available memory ---- */

static void read_host(struct memory_check *f)
{
    struct memory_limits available;
    memory_limits(&available);
    f->free_bytes = available.free_bytes;
    f->most_bytes = available.is_group || available.total_bytes < 0
                        ? available.total_bytes
                        : available.total_bytes - available.total_bytes / SYSTEM_SHARE;
    f->each_bytes = available.process_bytes;
    f->owner = available.is_group ? "the control group (a container's limit)" : "the machine";
}

/* limit_each — halves the limit of a process: half of its address space is for the memory that the
 * workers of a node share. */
static void limit_each(struct memory_check *f)
{
    if (f->place.at.locals > 1 && f->each_bytes >= 0)
        f->each_bytes /= 2;
}

/* find_nccl_rounding — returns the bytes to which NCCL's allocator rounds. No rank uses NCCL if
 * this node has no NCCL library; if BACKEND=nccl needs it, opening the comm reports the missing
 * library. */
static int64_t find_nccl_rounding(const struct memory_check *f, const struct dev_info *info)
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
    f->place.rounding_bytes = find_nccl_rounding(f, &info);
    f->is_device = true;
    /* the plan includes the GPU libraries, which have already allocated most of their memory */
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

/* ---- the checks ---- */

enum status memory_check_train(const struct conf *conf)
{
    struct memory_check f = {.conf = conf};
    struct model_dims dims;
    struct trainer_config config;
    bool has_weights, is_discrete = device_is_gpu(conf);
    TRY(config_map_dims(conf, &dims, &has_weights));
    TRY(config_map_trainer(conf, &dims, has_weights, &config));
    config.step.store.dtype = device_dtype(conf, is_discrete);
    set_place(&f, 0, is_discrete);
    read_host(&f);
    limit_each(&f);
    return check_memory(&f, &config);
}

enum status memory_check_device(const struct conf *conf, const struct trainer_config *config,
                                int worker_i, const struct dev *dev)
{
    struct memory_check f = {.conf = conf};
    if (!dev_is_discrete(dev))
        return ST_OK;
    set_place(&f, worker_i, true);
    read_device(&f, dev);
    return check_memory(&f, config);
}

/* place_of — sets the place of a worker's GPU, or of the node's first worker for all workers in
 * host memory. */
static void place_of(struct memory_check *f, int worker_i, const struct dev *dev)
{
    set_place(f, dev_is_discrete(dev) ? worker_i : 0, dev_is_discrete(dev));
    if (f->place.is_discrete)
        read_device(f, dev);
    else
        read_host(f);
    limit_each(f);
}

enum status memory_check_need(const struct conf *conf, const struct trainer_config *config,
                              int worker_i, const struct dev *dev, int64_t *bytes_out)
{
    struct memory_check f = {.conf = conf};
    struct need need;
    place_of(&f, worker_i, dev);
    TRY(compute_need(&f, config, f.place.at, &need));
    *bytes_out = need.sum;
    return ST_OK;
}

void memory_check_offer(const struct conf *conf, int worker_i, const struct dev *dev,
                        struct plan_offer *out)
{
    struct memory_check f = {.conf = conf};
    place_of(&f, worker_i, dev);
    *out = (struct plan_offer){0};
    int64_t all_bytes = f.each_bytes < 0 ? -1 : f.each_bytes * f.place.at.locals;
    bool is_limited = is_over(f.free_bytes, all_bytes);
    out->free_bytes = is_limited ? all_bytes : f.free_bytes;
    out->margin_bytes = out->free_bytes / (f.is_device ? DEVICE_MARGIN_SHARE : HOST_MARGIN_SHARE);
}

static enum status check_command(const struct memory_check *f, const char *what,
                                 const int64_t bytes[MEMORY_PLAN_N], const char *remedy)
{
    struct need need = {.sum = memory_plan_sum(bytes)};
    char why[384];
    memcpy(need.kind, bytes, sizeof need.kind);
    need.each = need.sum;
    enum status st = compare_memory(f, &need, why, sizeof why);
    if (st == ST_OK || is_only_warned(f, &need, why))
        return ST_OK;
    log_table(&need, 1, f->is_device ? "memory of the GPU" : "memory of this machine");
    return FAIL(st, "%s %s; %s", what, why, remedy);
}

enum status memory_check_command(const char *what, const struct memory_plan *plan,
                                 const struct dev *dev, const char *remedy)
{
    struct memory_check f = {.place.is_discrete = dev != NULL && dev_is_discrete(dev)};
    read_host(&f);
    TRY(check_command(&f, what, plan->host, remedy));
    if (!f.place.is_discrete)
        return ST_OK;
    read_device(&f, dev);
    return check_command(&f, what, plan->device, remedy);
}

void memory_check_log_peak(void)
{
    struct rusage used;
    if (getrusage(RUSAGE_SELF, &used) == 0)
        LOG_DEBUG("memory: %lld KiB at the most", (long long)used.ru_maxrss);
}
