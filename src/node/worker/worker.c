/* worker — the process that trains. It opens device, data and model once, and runs the trainer on
 * them in each generation (generations.h).
 *
 * Only the supervisor starts it, with the board on BOARD_FD and, when the node has several workers,
 * their shared memory on BOARD_SHM_FD. It ignores SIGINT, SIGTERM and SIGUSR1 (the supervisor sets
 * that before exec): a signal to the whole process group reaches the supervisor, which requests the
 * stop through the board. Must not know HTTP. */
#include "node/command.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/board.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/assert.h"
#include "base/text.h"
#include "dev/dev.h"
#include "mesh/mesh_comm.h"
#include "node/check/worker.h"
#include "node/process/crash.h"
#include "node/choose/device.h"
#include "node/worker/file_sync.h"
#include "node/worker/source_sync.h"
#include "node/choose/memory_check.h"
#include "node/choose/plan_beside.h"
#include "node/choose/plan_choice.h"
#include "node/choose/sources.h"
#include "node/worker/gpu_stats.h"
#include "net/listener.h"
#include "node/worker/generations.h"
#include "node/choose/config_map.h"
#include "node/process/exit_policy.h"
#include "node/choose/chat_source.h"
#include "node/choose/tokenizer_source.h"
#include "node/process/watchdog.h"
#include "train/trainer/consensus.h"
#include "train/trainer/stop_request.h"
#include "train/trainer/trainer.h"
#include "train/weights/weights.h"

#define PUBLISH_EVERY_MS 200
#define CALL_EXTRA_MS (60 * 1000)
#define GPU_STATS_EVERY_MS 1000

struct worker {
    struct conf *conf;
    int worker_i; /* number of the worker on this node */
    struct board *board;
    struct board_node node;
    struct board_worker stats, last;
    int64_t published_ms;
    struct dev *dev;
    struct gpu_stats *gpu_stats; /* NULL: no GPU, or no numbers of it */
    struct tokenizer *tokenizer;
    struct chat *chat; /* NULL: TASK is not chat */
    struct feed *feed, *val_feed;
    struct text settings, layout; /* the settings that decide losses and rounding, as JSON */
    char arithmetic[CONSENSUS_TEXT];
    struct text commits; /* commits of the Hugging Face hub, as JSON */
    struct trainer_config config;
    struct plan_beside beside;    /* on rank 0 */
    struct plan_beside_link link; /* on rank 0 */
    struct plan_way way;          /* way of the last generation */
    struct check_worker *check;
    bool is_checked; /* this process has taken part in a complete check */
};

static void publish_phase(struct worker *w, enum board_phase phase)
{
    w->stats.phase = phase;
    board_worker_publish(w->board, w->worker_i, &w->stats);
    board_heartbeat(w->board, w->worker_i);
    w->published_ms = clock_ms();
}

/* keep_counts — keeps the counts of the last generation, or of the previous process. */
static void keep_counts(struct worker *w)
{
    if (!board_worker_copy(w->board, w->worker_i, &w->last))
        return;
    w->stats.comparisons = w->last.comparisons;
    w->stats.differences = w->last.differences;
}

static void publish_loading(struct worker *w)
{
    publish_phase(w, w->node.restarts > 0 ? BOARD_PHASE_RECOVERING : BOARD_PHASE_LOADING);
}

/* progress — publishes the progress of tokenising. Returns false if a stop was requested, which
 * ends it. */
static bool progress(void *arg, int64_t bytes_done, int64_t bytes_total)
{
    struct worker *w = arg;
    board_heartbeat(w->board, w->worker_i);
    w->stats.loading_done = bytes_done;
    w->stats.loading_total = bytes_total;
    if (clock_ms() - w->published_ms >= PUBLISH_EVERY_MS)
        publish_loading(w);
    return !stop_request_is_stop(board_requested(w->board));
}

/* check_stop_request — returns the status of a stop request, or ST_OK. Called between two parts of
 * loading. */
static enum status check_stop_request(const struct worker *w)
{
    enum board_request request = board_requested(w->board);
    if (!stop_request_is_stop(request))
        return ST_OK;
    return FAIL(stop_request_status(request),
                "stopped by %s while loading, before the first step; there was nothing to save",
                stop_request_signal(request));
}

/* is_logger — returns true for the one worker of a node that logs the lines that are equal for all
 * of them. */
static bool is_logger(const struct worker *w) { return w->worker_i == 0; }

/* is_data_source — returns true if this worker publishes the files that nodes without data
 * download. */
static bool is_data_source(const struct worker *w)
{
    return w->node.n_nodes > 1 && w->node.node_id == 0 && w->worker_i == 0;
}

/* open_own_or_node0 — opens this node's data or, if there are none, node 0's. */
static enum status open_own_or_node0(struct worker *w, bool is_validation,
                                     struct feed_config *config, struct feed **out)
{
    const struct file_sync_config sync = {.conf = w->conf,
                                          .board = w->board,
                                          .kind = is_validation ? FILE_LIST_KIND_VAL_DATA
                                                                : FILE_LIST_KIND_DATA,
                                          .progress = progress,
                                          .progress_arg = w};
    struct text data = {0};
    enum status st =
        w->node.n_nodes > 1 && w->node.node_id > 0 ? file_sync_fetch(&sync, &data) : ST_OK;
    if (st == ST_OK && data.len > 0)
        config->data = data.data;
    if (st == ST_OK)
        assert_note("opening %s", is_validation ? "VAL_DATA" : "DATA");
    if (st == ST_OK)
        st = feed_open(config, out);
    text_free(&data);
    return st;
}

/* Logs the first sample of the run as the model reads it, with the trained tokens between marks. A
 * wrong mask is the fault of fine-tuning that no loss shows. */
static enum status show_sample(const struct worker *w, const struct feed *feed, int64_t seq_tokens)
{
    enum { SHOWN_BYTES_MAX = 2000 };
    int32_t *tokens = memory_new(2 * (size_t)seq_tokens, sizeof *tokens),
            *targets = tokens + seq_tokens;
    struct text text = {.limit = SHOWN_BYTES_MAX}, line = {.limit = 2 * SHOWN_BYTES_MAX};
    int64_t n = 0;
    const enum status st =
        feed_get(feed, 0, 1, &(struct feed_batch){.tokens = tokens, .targets = targets});
    for (int64_t t = 0; st == ST_OK && t + 1 < seq_tokens; t++)
        if (targets[t] >= 0) {
            tokens[t + 1] |= (int32_t)CHAT_TRAINED;
            n = t + 2;
        }
    chat_show(w->tokenizer, tokens, n, false, &text);
    for (const char *p = text.data; p != NULL && *p != '\0'; p++)
        text_add(&line, *p == '\n' ? "\\n" : "%c", *p);
    if (st == ST_OK)
        LOG_INFO("the first sample, with the tokens that count in the loss between marks: %s%s",
                 line.data, text.overflow ? "…" : "");
    text_free(&line);
    text_free(&text);
    free(tokens);
    return st;
}

static enum status open_feed(struct worker *w, bool is_validation, struct feed **out)
{
    struct feed_config config;
    config_map_feed(w->conf, &w->config, is_validation, &config);
    config.tokenizer = w->tokenizer;
    config.chat = w->chat;
    config.progress = progress;
    config.progress_arg = w;
    enum status st = open_own_or_node0(w, is_validation, &config, out);
    if (st != ST_OK)
        /* a stop during tokenising returns ST_RETRY; return the code of the stop instead */
        TRY(check_stop_request(w));
    TRY(config_map_name_setting(st, is_validation));
    if (is_logger(w))
        LOG_INFO("%s %s: %lld samples of %lld tokens", is_validation ? "held-out data" : "data",
                 feed_name(*out), (long long)feed_samples(*out), (long long)config.seq_tokens);
    if (is_logger(w) && w->chat != NULL && !is_validation)
        TRY(show_sample(w, *out, config.seq_tokens));
    return check_stop_request(w);
}

static enum status open_device(struct worker *w)
{
    struct dev_info info;
    const bool is_exact = w->config.step.shards > 0;
    assert_note("opening the device");
    TRY(device_open(w->conf, w->worker_i, device_threads(w->conf), &w->dev));
    w->config.step.store.dtype = device_dtype(w->conf, dev_is_discrete(w->dev));
    if (is_exact)
        device_arithmetic(w->conf, w->dev, w->arithmetic, sizeof w->arithmetic);
    w->config.arithmetic = w->arithmetic;
    config_map_settings(w->conf, &w->config, w->tokenizer,
                        dev_is_discrete(w->dev) ? w->arithmetic : "", &w->settings);
    if (w->settings.overflow)
        return FAIL(ST_RETRY, "out of memory: the settings that a checkpoint records");
    w->config.settings_json = w->settings.data;
    w->config.commits_json = w->commits.data;
    w->way.recompute.way = MODEL_RECOMPUTE_AUTO;
    dev_info(w->dev, &info);
    text_copy(w->stats.device, sizeof w->stats.device, info.name);
    text_copy(w->stats.device_note, sizeof w->stats.device_note, device_note());
    if (is_logger(w))
        LOG_INFO("device %s%s", info.name,
                 conf_i64(w->conf, CONF_N_GPU_EACH_NODE) > 1 ? ", of each worker" : "");
    publish_loading(w);
    TRY(memory_check_device(w->conf, &w->config, w->worker_i, w->dev));
    const char *amd_root =
        dev_cuda_chosen() == DEV_GPU_HIP ? conf_text(w->conf, CONF_CHECK_ROOT) : NULL;
    if (info.bus[0])
        TRY(gpu_stats_open(w->board, w->worker_i, info.bus, amd_root, is_logger(w),
                           GPU_STATS_EVERY_MS, &w->gpu_stats));
    return check_stop_request(w);
}

/* check_weights_tokenizer — checks the tokenizer: the weights of a checkpoint expect the ids on
 * which they were trained. */
static enum status check_weights_tokenizer(const struct worker *w)
{
    const char *model = conf_text(w->conf, CONF_MODEL);
    struct ckpt *ckpt;
    if (!weights_are_ckpt(model))
        return ST_OK;
    TRY(weights_peek(model, &ckpt));
    enum status st = tokenizer_source_check(w->tokenizer, ckpt_meta(ckpt)->settings_json);
    ckpt_close(ckpt);
    return st;
}

/* find_sources — finds MODEL, ADAPTER and TOKENIZER. The supervisor has not checked the memory for
 * a model that was not on this machine. */
static enum status find_sources(struct worker *w)
{
    const struct source_sync_config config = {.conf = w->conf,
                                              .board = w->board,
                                              .worker_i = w->worker_i,
                                              .progress = progress,
                                              .progress_arg = w};
    const bool was_here = sources_are_here(w->conf);
    assert_note("finding MODEL");
    const enum status st = source_sync(&config);
    if (st != ST_OK)
        TRY(check_stop_request(w));
    TRY(st);
    sources_commits(w->conf, &w->commits);
    if (!was_here && is_logger(w))
        TRY(memory_check_train(w->conf));
    return check_stop_request(w);
}

static enum status open_model(struct worker *w)
{
    struct model_dims dims;
    bool has_weights;
    TRY(config_map_dims(w->conf, &dims, &has_weights));
    if (dims.adapter.r > 0 && !has_weights)
        return FAIL(ST_BAD_SETTING,
                    "LORA=%lld trains an adapter of trained weights, and MODEL=%s has none; set "
                    "MODEL to a Hugging Face folder, a GGUF file or a checkpoint, or LORA=0",
                    (long long)dims.adapter.r, conf_given(w->conf, CONF_MODEL));
    TRY(config_map_trainer(w->conf, &dims, has_weights, &w->config));
    config_map_board_model(&dims, &w->stats.model);
    if (w->stats.rank == 0 && conf_i64(w->conf, CONF_SAMPLE_EVERY) > 0)
        tokenizer_source_warn(w->conf, &dims, "its samples (SAMPLE_EVERY)");
    TRY(tokenizer_source_open(w->conf, &dims, &w->tokenizer));
    w->config.tokenizer = w->tokenizer;
    if (conf_i64(w->conf, CONF_TASK) == CONF_TASK_CHAT)
        TRY(chat_source_open(w->conf, w->tokenizer, NULL, &w->chat));
    w->config.chat = w->chat;
    if (has_weights)
        TRY(check_weights_tokenizer(w));
    if (w->stats.rank == 0) /* rank 0 saves the checkpoints */
        TRY(tokenizer_source_keep(w->conf, w->tokenizer));
    publish_loading(w);
    return ST_OK;
}

/* clang-format off */
#define IS_FAULT(row, value, word) CONF_CHOICE_IS(CONF_##row##_##value, TRAINER_FAULT_##value)
CONF_FAULT_LIST(IS_FAULT)
/* clang-format on */

/* backend_why — returns the reason for a transport that reports none itself. */
static const char *backend_why(const struct comm *comm)
{
    const struct comm_place *place = comm_place(comm);
    if (comm_choice_reason(comm)[0])
        return comm_choice_reason(comm);
    if (place->ranks == 1)
        return "there is one worker";
    if (strcmp(comm_backend(comm), "nccl") == 0)
        return "every worker has a GPU";
    if (place->nodes == 1)
        return "all workers run on one node and share memory";
    return place->locals == 1 ? "each node has one worker, so all data cross the network"
                              : "shared memory inside a node, the network between nodes";
}

/* add_axis — appends "; tensor groups inside a node over shm"; appends nothing for an axis of one
 * rank. */
static void add_axis(const struct mesh *mesh, enum mesh_axis axis, int locals, const char *link,
                     struct text *out)
{
    if (mesh->size[axis] > 1)
        text_add(out, "; %s groups %s over %s", mesh_axis_name(axis),
                 mesh_comm_is_within_node(mesh, MESH_BIT(axis), locals) ? "inside a node"
                                                                        : "across nodes",
                 link);
}

/* warn_pipeline — warns if stages have only one micro-batch in a step: they then work one after the
 * other. */
static void warn_pipeline(const struct step_config *step, const struct mesh *mesh)
{
    int64_t data = mesh->size[MESH_AXIS_DATA],
            each = step->global_samples / (step->batch_samples * data);
    int stages = mesh->size[MESH_AXIS_PIPELINE];
    if (stages > 1 && each < stages)
        LOG_WARN(
            "PP=%d and a step of %lld micro-batch%s: a stage waits for at least %.0f %% of the "
            "time; set GLOBAL_BATCH to %lld or more, or a smaller BATCH_SIZE",
            stages, (long long)each, each == 1 ? "" : "es",
            100.0 * (stages - 1) /
                (double)(each * (step->pipe_chunks > 1 ? step->pipe_chunks : 1) + stages - 1),
            (long long)(4 * stages * step->batch_samples * data));
}

/* on_connected — publishes the transport and logs it once, after the ranks of a generation have
 * connected. */
static void on_connected(void *arg, const struct comm *comm)
{
    struct worker *w = arg;
    struct mesh mesh;
    const struct comm_place *place = comm_place(comm);
    ASSERTF(place->rank >= 0 && place->rank < place->ranks, "rank %d of %d", place->rank,
            place->ranks);
    w->stats.rank = place->rank;
    log_set_rank(place->rank);
    if (step_mesh(&w->config.step, place->ranks, &mesh) == ST_OK) {
        /* The transport of each axis. */
        const struct {
            enum mesh_axis axis;
            char *link;
        } axes[] = {{MESH_AXIS_DATA, w->stats.links.data},
                    {MESH_AXIS_TENSOR, w->stats.links.tensor},
                    {MESH_AXIS_CONTEXT, w->stats.links.context},
                    {MESH_AXIS_PIPELINE, w->stats.links.pipeline}};
        for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
            mesh_comm_link(&mesh, MESH_BIT(axes[i].axis), comm_place(comm)->locals,
                           comm_backend(comm), axes[i].link, sizeof w->stats.links.data);
    }
    if (place->rank == 0 && !w->stats.backend[0]) {
        LOG_INFO("BACKEND=%s uses %s: %s", conf_text(w->conf, CONF_BACKEND), comm_name(comm),
                 backend_why(comm));
        if (place->ranks > 1) {
            /* "mesh: data 2 x tensor 2; tensor groups …": the places of the ranks and the links
             * between them. */
            int locals = place->locals;
            struct text text = {.limit = 512};
            text_add(&text, "data %d", mesh.size[MESH_AXIS_DATA]);
            for (int i = MESH_AXES - 1; i >= 0; i--)
                if (i != MESH_AXIS_DATA && mesh.size[i] > 1)
                    text_add(&text, " x %s %d", mesh_axis_name((enum mesh_axis)i), mesh.size[i]);
            add_axis(&mesh, MESH_AXIS_TENSOR, locals, w->stats.links.tensor, &text);
            add_axis(&mesh, MESH_AXIS_CONTEXT, locals, w->stats.links.context, &text);
            add_axis(&mesh, MESH_AXIS_DATA, locals, w->stats.links.data, &text);
            add_axis(&mesh, MESH_AXIS_PIPELINE, locals, w->stats.links.pipeline, &text);
            LOG_INFO("mesh: %s", text.data);
            text_free(&text);
        }
        warn_pipeline(&w->config.step, &mesh);
    }
    text_copy(w->stats.backend, sizeof w->stats.backend, comm_backend(comm));
}

/* ---- checks ---- */

static struct check_worker_config check_config(struct worker *w)
{
    /* The device is not open yet; one worker checks the whole node. */
    const bool is_gpu = !w->dev && w->worker_i == 0 && device_is_gpu(w->conf);
    return (struct check_worker_config){.conf = w->conf,
                                        .board = w->board,
                                        .worker_i = w->worker_i,
                                        .stats = &w->stats,
                                        .place = config_map_place(w->conf, w->worker_i),
                                        .has_gpus = w->dev ? dev_is_discrete(w->dev) : is_gpu,
                                        .is_command = w->node.is_check};
}

/* on_check_connected — publishes the transport and logs it. */
static void on_check_connected(void *arg, const struct comm *comm)
{
    struct worker *w = arg;
    const struct comm_place *place = comm_place(comm);
    if (place->rank == 0 && place->ranks > 1)
        LOG_INFO("BACKEND=%s uses %s: %s", conf_text(w->conf, CONF_BACKEND), comm_name(comm),
                 backend_why(comm));
    text_copy(w->stats.backend, sizeof w->stats.backend, comm_backend(comm));
}

/* run_check — runs the only generation of `check`. */
static enum status run_check(void *arg, struct comm *comm, int64_t generation)
{
    const struct worker *w = arg;
    (void)generation;
    return check_worker_run(w->check, comm);
}

static enum status run_generation(void *arg, struct comm *comm, int64_t generation)
{
    struct worker *w = arg;
    ASSERTF(generation > w->stats.generation, "generation %lld after %lld", (long long)generation,
            (long long)w->stats.generation);
    ASSERT(w->dev != NULL && w->feed != NULL);
    board_node_copy(w->board, &w->node);
    /* FAULT acts only on one rank and in the job's first generation: otherwise no restart could
     * heal it. */
    bool is_first = w->node.restarts == 0 && generation == 1;
    w->config.fault = TRAINER_FAULT_NONE;
    if (is_first && conf_fault_rank(w->conf) == w->stats.rank && conf_fault_step(w->conf) > 0) {
        w->config.fault = (enum trainer_fault)conf_fault(w->conf);
        w->config.fault_step = conf_fault_step(w->conf);
    }
    if (!is_first) /* resume from a checkpoint of this run; RESUME concerns older runs */
        w->config.resume = TRAINER_RESUME_AUTO;
    w->config.is_repeated = !is_first;
    w->config.step.comm = comm;
    w->stats.generation = generation;
    const struct check_worker_config check = check_config(w);
    TRY(check_worker_before(&check, w->dev, comm, &w->is_checked));
    keep_counts(w);
    publish_loading(w);
    struct trainer_config config = w->config;
    TRY(plan_choice_make(w->conf, comm, w->dev, &config, &w->way));
    if (w->stats.rank == 0) {
        plan_beside_begin(w->conf, dev_is_discrete(w->dev), comm_place(comm), &w->beside, &config);
        plan_beside_begin_link(w->conf, &w->link, &config);
    }
    if (config.step.shards == 0) { /* otherwise the bits do not depend on the layout */
        text_free(&w->layout);
        config_map_layout(w->conf, &config, &w->layout);
        config.layout_json = w->layout.data;
    }
    return trainer_run(&config);
}

/* wait_for_world — publishes the phase while other ranks are still loading, starting or lost. The
 * numbers of training stay on the board. */
static void wait_for_world(void *arg, bool is_first)
{
    struct worker *w = arg;
    board_heartbeat(w->board, w->worker_i);
    enum board_phase phase = is_first ? BOARD_PHASE_JOINING : BOARD_PHASE_RECOVERING;
    if (w->stats.phase == phase && clock_ms() - w->published_ms < PUBLISH_EVERY_MS)
        return;
    if (!board_worker_copy(w->board, w->worker_i, &w->last))
        w->last = w->stats;
    w->last.phase = w->stats.phase = phase;
    board_worker_publish(w->board, w->worker_i, &w->last);
    w->published_ms = clock_ms();
}

static enum status stopped_waiting(void *arg)
{
    const struct worker *w = arg;
    enum board_request request = board_requested(w->board);
    if (!stop_request_is_stop(request))
        return ST_OK;
    struct board_worker last;
    struct board_node node;
    char rest[96];
    if (w->node.is_check)
        return FAIL(stop_request_status(request), "stopped by %s while waiting for other nodes",
                    stop_request_signal(request));
    bool has_published = board_worker_copy(w->board, w->worker_i, &last);
    exit_policy_resume_hint(conf_text(w->conf, CONF_CHECKPOINT_DIR)[0] != 0,
                            has_published ? &last : NULL, rest, sizeof rest);
    board_node_copy(w->board, &node);
    if (!has_published || last.step < 0 || !node.last_failure[0])
        return FAIL(stop_request_status(request),
                    "stopped by %s while waiting for other workers; %s",
                    stop_request_signal(request), rest);
    return FAIL(stop_request_status(request),
                "stopped by %s after step %lld without another checkpoint: %s; %s",
                stop_request_signal(request), (long long)last.step, node.last_failure, rest);
}

/* call_limit_ms — returns the limit of a collective. Each node watches its own workers; this limit
 * is for a hang that no node can detect, so it is the longest. */
static int64_t call_limit_ms(const struct worker *w)
{
    int64_t limit_ms = conf_i64(w->conf, CONF_STEP_TIMEOUT);
    struct dev_info info;
    dev_info(w->dev, &info);
    int ranks = conf_ranks(w->conf);
    double peak =
        (w->config.step.store.dtype == DTYPE_F32 ? info.peak_flops : info.peak_flops_16) * ranks;
    if (limit_ms == 0 && !w->node.is_check)
        limit_ms = watchdog_plan_ms(trainer_planned_ms(&w->config, peak, ranks));
    return (limit_ms > WATCHDOG_DISK_MS_MIN ? limit_ms : WATCHDOG_DISK_MS_MIN) + CALL_EXTRA_MS;
}

static enum status run_generations(struct worker *w,
                                   enum status (*run)(void *, struct comm *, int64_t),
                                   void (*connected)(void *, const struct comm *))
{
    const struct comm_place place = config_map_place(w->conf, w->worker_i);
    const char *data_addr = conf_text(w->conf, CONF_DATA_ADDR),
               *master = conf_text(w->conf, CONF_MASTER_ADDR);
    struct generations_config config = {
        .board = w->board,
        .worker_i = w->worker_i,
        .comm = {.kind = device_comm(w->conf, w->dev, place.ranks),
                 .place = place,
                 .timeout_ms = call_limit_ms(w),
                 .device_sms = (int)conf_i64(w->conf, CONF_COMM_SMS),
                 .dev = w->dev,
                 .net = device_net(w->conf),
                 .data_addr = data_addr,
                 .master = master,
                 .shm_fd = place.locals > 1 ? BOARD_SHM_FD : -1},
        .needs_reached =
            place.nodes > 1 && place.node == 0 && !data_addr[0] && listener_is_loopback(master),
        .opens_host = !w->node.is_check && config_map_copies_memory(w->conf) &&
                      peer_copy_why(&w->config.step, place.nodes) == NULL,
        .join_timeout_ms = conf_i64(w->conf, CONF_JOIN_TIMEOUT),
        .extra_ms = CALL_EXTRA_MS,
        .data = w->feed ? feed_fingerprint(w->feed) : 0,
        .val_data = w->val_feed ? feed_fingerprint(w->val_feed) : 0,
        .run = run,
        .connected = connected,
        .wait = wait_for_world,
        .stopped = stopped_waiting,
        .arg = w,
    };
    return generations_run(&config);
}

static enum status run_train_command(struct worker *w)
{
    TRY(check_stop_request(w));
    TRY(find_sources(w));
    TRY(open_model(w));
    TRY(open_device(w));
    TRY(open_feed(w, false, &w->feed));
    if (is_data_source(w))
        file_sync_publish(w->board, false, w->feed);
    if (conf_text(w->conf, CONF_VAL_DATA)[0])
        TRY(open_feed(w, true, &w->val_feed));
    if (is_data_source(w))
        file_sync_publish(w->board, true, w->val_feed);
    w->config.step.dev = w->dev;
    w->config.peer_copy_fd = config_map_copies_memory(w->conf) ? BOARD_PEER_COPY_FD : -1;
    w->config.board = w->board;
    w->config.worker_i = w->worker_i;
    w->config.feed = w->feed;
    w->config.val_feed = w->val_feed;
    w->config.version = w->node.version;
    w->config.is_terminal = isatty(STDOUT_FILENO) && !conf_is_dumb(environ) &&
                            !strcmp(conf_text(w->conf, CONF_LOG_FORMAT), "text");
    w->config.is_brief = w->node.node_id > 0 && w->worker_i == 0;
    w->stats.loading_done = w->stats.loading_total = -1;
    publish_loading(w);
    return run_generations(w, run_generation, on_connected);
}

/* run_check_command — runs `check`: checks this node, its device, then all ranks. */
static enum status run_check_command(struct worker *w)
{
    TRY(check_stop_request(w));
    publish_phase(w, BOARD_PHASE_CHECKING);
    const struct check_worker_config config = check_config(w);
    TRY(check_worker_open(&config, &w->check));
    TRY(device_open(w->conf, w->worker_i, device_threads(w->conf), &w->dev));
    check_worker_device(w->check, w->dev);
    return run_generations(w, run_check, on_check_connected);
}

static void publish_first(struct worker *w)
{
    w->stats = (struct board_worker){
        .pid = getpid(),
        .rank = config_map_place(w->conf, w->worker_i).rank,
        .model.parameters = -1,
        .checkpoint = {.step = -1, .stall_ms = NAN, .save_ms = NAN},
        .peer_copy = {.step = -1, .ms = NAN, .bytes_per_second = NAN},
        .begun_step = -1,
#define JOB_STAT(NAME, field, kind, ...) RANK_STATS_UNKNOWN_##kind(field)
#define RANK_STAT JOB_STAT
#include "base/rank_stats.def"
        .loading_done = -1,
        .loading_total = -1,
    };
    keep_counts(w);
    publish_loading(w);
}

/* publish_end — adds the failure to the trainer's last numbers and publishes them. */
static void publish_end(struct worker *w, enum status st, const char *sentence)
{
    struct board_worker last;
    if (!board_worker_copy(w->board, w->worker_i, &last))
        last = w->stats;
    last.error.code = status_exit_code(st);
    last.error.node = w->node.node_id;
    text_copy(last.error.message, sizeof last.error.message, sentence);
    board_worker_publish(w->board, w->worker_i, &last);
}

/* end_of_file — publishes the message about a mapped file, which the supervisor logs. Called in a
 * signal handler. */
static void end_of_file(void *arg, enum status st, const char *sentence)
{
    publish_end(arg, st, sentence);
}

enum status worker_main(struct conf *conf, int worker_i)
{
    struct worker w = {.conf = conf, .worker_i = worker_i};
    TRY(board_attach(BOARD_FD, &w.board));
    prctl(PR_SET_NAME, "convoy-worker");
    crash_on_mapped_file(end_of_file, &w);
    log_tap(log_tail_add, board_log_tail(w.board, worker_i));
    crash_install();
    board_node_copy(w.board, &w.node);
    publish_first(&w);
    enum status st = w.node.is_check ? run_check_command(&w) : run_train_command(&w);
    if (!w.node.is_check)
        memory_check_log_peak();
    if (st != ST_OK) {
        publish_end(&w, st, status_message());
        LOG_DEBUG("worker ends with %s at %s", status_name(st), status_trace());
        status_clear(); /* the supervisor logs it once */
    }
    check_worker_close(w.check);
    feed_close(w.feed);
    feed_close(w.val_feed);
    chat_close(w.chat);
    tokenizer_close(w.tokenizer);
    gpu_stats_close(w.gpu_stats);
    dev_close(w.dev);
    text_free(&w.settings);
    text_free(&w.commits);
    text_free(&w.layout);
    crash_on_mapped_file(NULL, NULL);
    log_tap(NULL, NULL);
    board_close(w.board);
    return st;
}
