/* config_map — see config_map.h. */
#include "node/choose/config_map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/version.h"
#include "node/choose/device.h"
#include "node/choose/model_source.h"
#include "node/choose/tokenizer_source.h"
#include "train/weights/adapter.h"
#include "train/weights/peft.h"
#include "train/weights/weights.h"

_Static_assert(CONF_RANKS_MAX == COMM_RANKS_MAX, "conf refuses more ranks than comm has");

#define SEQ_LEN_LM 1024
#define SEQ_LEN_QA 512
#define ROPE_THETA 10000 /* Su et al. 2021 */

/* Choices are cast to enums of other modules. These lines assert that both use the same numbers. */
/* clang-format off */
#define IS_OPTIM(row, value, word) CONF_CHOICE_IS(CONF_##row##_##value, OPTIM_KIND_##value)
#define IS_LR_SCHEDULE(row, value, word) \
    CONF_CHOICE_IS(CONF_##row##_##value, LR_SCHEDULE_KIND_##value)
#define IS_SHARD(row, value, word) CONF_CHOICE_IS(CONF_##row##_##value, LAYOUT_SHARD_##value)
#define IS_COMPRESS(row, value, word) \
    CONF_CHOICE_IS(CONF_##row##_##value, GRAD_COMPRESS_KIND_##value)
#define IS_RECOMPUTE(row, value, word) CONF_CHOICE_IS(CONF_##row##_##value, MODEL_RECOMPUTE_##value)
#define IS_CHECKPOINT_ASYNC(row, value, word) \
    CONF_CHOICE_IS(CONF_##row##_##value, CHECKPOINT_ASYNC_MODE_##value)
#define IS_SPIKE(row, value, word) CONF_CHOICE_IS(CONF_##row##_##value, SPIKE_MODE_##value)
#define IS_RESUME(row, value, word) CONF_CHOICE_IS(CONF_##row##_##value, TRAINER_RESUME_##value)
#define IS_PEER_COPIES(row, value, word) \
    CONF_CHOICE_IS(CONF_##row##_##value, PEER_COPY_MODE_##value)
CONF_OPTIMIZER_LIST(IS_OPTIM)
CONF_LR_SCHEDULE_LIST(IS_LR_SCHEDULE)
CONF_SHARD_LIST(IS_SHARD)
CONF_COMPRESS_LIST(IS_COMPRESS)
CONF_RECOMPUTE_LIST(IS_RECOMPUTE)
CONF_CHECKPOINT_ASYNC_LIST(IS_CHECKPOINT_ASYNC)
CONF_SPIKE_LIST(IS_SPIKE)
CONF_RESUME_LIST(IS_RESUME)
CONF_PEER_COPIES_LIST(IS_PEER_COPIES)
/* clang-format on */

#define CHOICE_WORD(row, value, word) word,

/* One dimension: its setting, and the field that receives the value. */
struct dim_row {
    enum conf_key key;
    const char *name;
    int64_t *value;
};

enum model_task config_map_task(const struct conf *conf)
{
    return conf_i64(conf, CONF_TASK) == CONF_TASK_QA ? MODEL_TASK_QA : MODEL_TASK_LM;
}

static enum status base_dims(const struct conf *conf, struct model_dims *out, bool *has_weights_out)
{
    const char *model = conf_text(conf, CONF_MODEL);
    const enum model_task task = config_map_task(conf);
    *has_weights_out =
        !model_preset(model, out) && (weights_are_at(model) || weights_are_ckpt(model));
    if (*has_weights_out)
        TRY(weights_dims(model, out));
    if (*has_weights_out || model_preset(model, out)) {
        out->task = task;
        return ST_OK;
    }
    if (peft_is_folder(model))
        return peft_refuse(model);
    if (file_is_dir(model))
        return FAIL(ST_NO_INPUT,
                    "MODEL=%s is a folder without config.json and without a checkpoint; give a "
                    "Hugging Face folder (config.json, model.safetensors), a checkpoint or its "
                    "CHECKPOINT_DIR, or a preset such as gpt2-nano",
                    conf_given(conf, CONF_MODEL));
    char hint[512];
    if (strchr(model, '/'))
        return FAIL(ST_NO_INPUT,
                    "MODEL=%s is not there; give a Hugging Face folder (config.json, "
                    "model.safetensors), a GGUF file, a model file of llm.c (.bin), a checkpoint "
                    "or its CHECKPOINT_DIR, or a preset such as gpt2-nano%s",
                    model, model_source_hub_hint(model, hint, sizeof hint));
    /* MODEL is neither a preset nor an existing path. */
    char names[1024] = "";
    size_t at = 0;
    for (int i = 0; model_preset_name(i); i++) {
        text_format(names + at, sizeof names - at, "%s%s", i ? ", " : "", model_preset_name(i));
        at += strlen(names + at);
    }
    return FAIL(ST_BAD_SETTING,
                "MODEL=%s is neither a preset (%s) nor a Hugging Face folder, a GGUF file, a model "
                "file of llm.c, or a checkpoint",
                model, names);
}

static enum status override_dim(const struct conf *conf, bool has_weights,
                                const struct dim_row *row)
{
    int64_t value = conf_i64(conf, row->key);
    if (value == 0 || value == *row->value)
        return ST_OK;
    if (has_weights) /* the shapes of loaded weights are fixed */
        return FAIL(ST_BAD_SETTING,
                    "%s=%lld (%s), but the weights of MODEL=%s have %lld; leave %s out", row->name,
                    (long long)value, conf_source(conf, row->key), conf_given(conf, CONF_MODEL),
                    (long long)*row->value, row->name);
    *row->value = value;
    return ST_OK;
}

static enum status override_dims(const struct conf *conf, bool has_weights, struct model_dims *dims)
{
    const struct model_dims preset = *dims;
    const struct dim_row base[] = {
        {CONF_LAYERS, "LAYERS", &dims->layers}, {CONF_HEADS, "HEADS", &dims->heads},
        {CONF_EMBED, "EMBED", &dims->embed},    {CONF_CONTEXT, "CONTEXT", &dims->context},
        {CONF_VOCAB, "VOCAB", &dims->vocab},
    };
    const struct dim_row derived[] = {{CONF_KV_HEADS, "KV_HEADS", &dims->kv_heads},
                                      {CONF_HEAD_DIM, "HEAD_DIM", &dims->head_dim},
                                      {CONF_FFN, "FFN", &dims->ffn}};
    if (has_weights)
        model_resolve(dims);
    for (size_t i = 0; i < sizeof base / sizeof *base; i++)
        TRY(override_dim(conf, has_weights, &base[i]));
    /* Dimensions derived from HEADS and EMBED, if those were changed and the dimension was not set:
     * as many query heads share a key head as in the preset, heads fill EMBED, and the MLP grows in
     * proportion. */
    int64_t group = preset.heads / model_kv_heads(&preset);
    bool has_heads = dims->heads != preset.heads, has_embed = dims->embed != preset.embed;
    if (has_heads && preset.kv_heads > 0)
        dims->kv_heads = dims->heads % group == 0 ? dims->heads / group : dims->heads;
    if (has_heads || has_embed)
        dims->head_dim = 0;
    if (has_embed)
        dims->ffn = 0;
    for (size_t i = 0; i < sizeof derived / sizeof *derived; i++)
        TRY(override_dim(conf, has_weights, &derived[i]));
    return ST_OK;
}

/* asked_features — returns the model's features, changed by the settings. */
static struct model_features asked_features(const struct conf *conf, const struct model_dims *dims)
{
    struct model_features features = dims->features;
    int64_t mlp = conf_i64(conf, CONF_ACTIVATION), position = conf_i64(conf, CONF_POSITIONS);
    if (mlp != CONF_ACTIVATION_MODEL)
        features.mlp = mlp == CONF_ACTIVATION_RELU2 ? MODEL_MLP_RELU2 : MODEL_MLP_GELU_TANH;
    if (position != CONF_POSITIONS_MODEL)
        features.position =
            position == CONF_POSITIONS_ROPE ? MODEL_POSITION_ROPE : MODEL_POSITION_LEARNED;
    if (features.position != dims->features.position)
        features.rope = features.position == MODEL_POSITION_ROPE
                            ? (struct model_rope){.theta = ROPE_THETA, .fraction = 1}
                            : (struct model_rope){.theta = 0};
    if (conf_is_set(conf, CONF_QK_NORM))
        features.has_qk_norm = conf_i64(conf, CONF_QK_NORM) != 0;
    if (conf_is_set(conf, CONF_TIE_EMBEDDINGS))
        features.is_untied = conf_i64(conf, CONF_TIE_EMBEDDINGS) == 0;
    if (conf_is_set(conf, CONF_LOGIT_CAP))
        features.logit_cap = conf_f64(conf, CONF_LOGIT_CAP);
    if (conf_is_set(conf, CONF_ZERO_INIT))
        features.has_zero_init = conf_i64(conf, CONF_ZERO_INIT) != 0;
    return features;
}

/* refuse_setting — refuses a setting that would change a model that has weights, or a model other
 * than GPT-2. */
static enum status refuse_setting(const struct conf *conf, bool has_weights,
                                  const struct model_dims *dims, enum conf_key key,
                                  const char *name)
{
    if (dims->arch != MODEL_ARCH_GPT2)
        return FAIL(ST_BAD_SETTING,
                    "%s=%s (%s) is for GPT-2, and MODEL=%s is of the architecture %s; leave it out",
                    name, conf_text(conf, key), conf_source(conf, key),
                    conf_given(conf, CONF_MODEL), model_arch_name(dims->arch));
    return has_weights ? FAIL(ST_BAD_SETTING,
                              "%s=%s (%s) differs from the value with which the weights of "
                              "MODEL=%s were trained; leave it out",
                              name, conf_text(conf, key), conf_source(conf, key),
                              conf_given(conf, CONF_MODEL))
                       : ST_OK;
}

/* map_adapter — sets the adapter: ADAPTER's, or LORA's. */
static enum status map_adapter(const struct conf *conf, struct model_dims *dims)
{
    const int64_t rank = conf_i64(conf, CONF_LORA);
    const double alpha = conf_f64(conf, CONF_LORA_ALPHA);
    const char *path = conf_text(conf, CONF_ADAPTER);
    struct model_adapter asked = {.r = rank, .alpha = alpha > 0 ? alpha : 2.0 * (double)rank};
    char targets[MODEL_TARGETS_TEXT_MAX];
    if (dims->adapter.r > 0)
        return FAIL(
            ST_BAD_SETTING,
            "MODEL=%s is a checkpoint of an adapter, not of a model; set MODEL to the model "
            "with which it was trained, and ADAPTER=%s",
            conf_given(conf, CONF_MODEL), conf_given(conf, CONF_MODEL));
    TRY(model_targets_parse(dims, "LORA_TARGETS", conf_text(conf, CONF_LORA_TARGETS),
                            &asked.targets));
    dims->adapter = rank > 0 ? asked : (struct model_adapter){0};
    if (!path[0] && rank == 0 && (alpha > 0 || conf_is_set(conf, CONF_LORA_TARGETS)))
        return FAIL(
            ST_BAD_SETTING,
            "LORA_ALPHA and LORA_TARGETS belong to an adapter, and LORA is 0, so all weights "
            "would train; set LORA, such as LORA=16, or leave them out");
    if (!path[0])
        return ST_OK;
    struct model_adapter is;
    TRY(adapter_dims(path, dims, &is));
    dims->adapter = is;
    if ((conf_is_set(conf, CONF_LORA) && rank != is.r) || (alpha > 0 && alpha != is.alpha) ||
        (conf_is_set(conf, CONF_LORA_TARGETS) && asked.targets != is.targets))
        return FAIL(ST_BAD_SETTING,
                    "ADAPTER=%s has LORA=%lld, LORA_ALPHA=%g and LORA_TARGETS=%s, and other values "
                    "are set; leave them out",
                    conf_given(conf, CONF_ADAPTER), (long long)is.r, is.alpha,
                    model_targets_text(dims, targets));
    return ST_OK;
}

/* plain_dims — maps everything but the adapter. */
static enum status plain_dims(const struct conf *conf, struct model_dims *out,
                              bool *has_weights_out)
{
    TRY(base_dims(conf, out, has_weights_out));
    TRY(override_dims(conf, *has_weights_out, out));
    const struct model_features was = out->features, is = asked_features(conf, out);
    const struct {
        enum conf_key key;
        const char *name;
        bool differs;
    } row[] = {{CONF_ACTIVATION, "ACTIVATION", was.mlp != is.mlp},
               {CONF_POSITIONS, "POSITIONS", was.position != is.position},
               {CONF_QK_NORM, "QK_NORM", was.has_qk_norm != is.has_qk_norm},
               {CONF_TIE_EMBEDDINGS, "TIE_EMBEDDINGS", was.is_untied != is.is_untied},
               {CONF_LOGIT_CAP, "LOGIT_CAP", was.logit_cap != is.logit_cap},
               {CONF_ZERO_INIT, "ZERO_INIT", was.has_zero_init != is.has_zero_init}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (row[i].differs)
            TRY(refuse_setting(conf, *has_weights_out, out, row[i].key, row[i].name));
    out->features = is;
    return ST_OK;
}

enum status config_map_dims(const struct conf *conf, struct model_dims *out, bool *has_weights_out)
{
    TRY(plain_dims(conf, out, has_weights_out));
    TRY(map_adapter(conf, out));
    TRY(model_check(out));
    model_resolve(out);
    return ST_OK;
}

static enum status seq_tokens(const struct conf *conf, const struct model_dims *dims, int64_t *out)
{
    int64_t asked = conf_i64(conf, CONF_SEQ_LEN),
            usual = dims->task == MODEL_TASK_QA ? SEQ_LEN_QA : SEQ_LEN_LM;
    if (asked > dims->context)
        return FAIL(
            ST_BAD_SETTING,
            "SEQ_LEN=%lld (%s) is over the model's CONTEXT of %lld positions; lower SEQ_LEN%s",
            (long long)asked, conf_source(conf, CONF_SEQ_LEN), (long long)dims->context,
            conf_is_set(conf, CONF_CONTEXT) ? " or raise CONTEXT" : "");
    if (asked == 0)
        asked = usual < dims->context ? usual : dims->context;
    *out = asked;
    return ST_OK;
}

/* map_local — maps LOCAL_STEPS: a node is a replica, and each of its workers holds the whole model.
 * Only the outer gradients cross the network, and they are compressed. */
static void map_local(const struct conf *conf, struct step_config *out)
{
    out->local =
        (struct step_local_config){.steps = conf_i64(conf, CONF_LOCAL_STEPS),
                                   .replica_ranks = (int)conf_i64(conf, CONF_N_GPU_EACH_NODE),
                                   .lr = conf_f64(conf, CONF_OUTER_LR),
                                   .momentum = conf_f64(conf, CONF_OUTER_MOMENTUM),
                                   .compress = out->store.compress};
    if (out->local.steps == 0)
        return;
    out->store.shard = LAYOUT_SHARD_NONE;
    out->store.compress = GRAD_COMPRESS_KIND_NONE;
}

/* ---- the samples of a step ---- */

static enum status check_lm(const struct conf *conf, const struct step_config *c, enum conf_key key,
                            const char *name, const char *remedy)
{
    if (c->dims.task == MODEL_TASK_LM)
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "%s=%s (%s) is not for TASK=qa, whose samples are single questions; use %s=%s",
                name, conf_text(conf, key), conf_source(conf, key), name, remedy);
}

static enum status map_mask(const struct conf *conf, struct step_config *out)
{
    const int64_t from = conf_i64(conf, CONF_WINDOW_START);
    out->masks_documents = conf_i64(conf, CONF_ATTENTION_MASK) == CONF_ATTENTION_MASK_DOCUMENT;
    out->restarts_positions = out->masks_documents && conf_i64(conf, CONF_PACK_DOCUMENTS) &&
                              conf_i64(conf, CONF_TASK) == CONF_TASK_CHAT;
    out->window_warmup = (struct warmup){.from = from < out->seq_tokens ? from : out->seq_tokens,
                                         .steps = conf_i64(conf, CONF_WINDOW_WARMUP)};
    if (out->masks_documents)
        TRY(check_lm(conf, out, CONF_ATTENTION_MASK, "ATTENTION_MASK", "causal"));
    if (conf_i64(conf, CONF_PACK_DOCUMENTS))
        TRY(check_lm(conf, out, CONF_PACK_DOCUMENTS, "PACK_DOCUMENTS", "0"));
    return out->window_warmup.steps > 0
               ? check_lm(conf, out, CONF_WINDOW_WARMUP, "WINDOW_WARMUP", "0")
               : ST_OK;
}

/* check_warmup — checks that the samples of the first step are a multiple of a micro-batch and
 * divide the samples of the last step. */
static enum status check_warmup(const struct conf *conf, const struct step_config *c, int64_t pass)
{
    const long long from = c->batch_warmup.from, to = c->global_samples;
    if (from == to)
        return FAIL(ST_BAD_SETTING,
                    "BATCH_WARMUP=%s (%s) has no effect: the first step already has the %lld "
                    "samples of GLOBAL_BATCH; raise GLOBAL_BATCH",
                    conf_text(conf, CONF_BATCH_WARMUP), conf_source(conf, CONF_BATCH_WARMUP), to);
    if (from < to && to % from == 0 && from % pass == 0)
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "BATCH_START=%lld (%s) must divide GLOBAL_BATCH=%lld and be a multiple of %lld, "
                "BATCH_SIZE times workers; BATCH_START=0 means that number",
                from, conf_source(conf, CONF_BATCH_START), to, (long long)pass);
}

#define SHARD_SAMPLES 8  /* most samples of a default shard: the default of BATCH_SIZE */
#define SHARDS_WANTED 64 /* with more shards than this, a default shard has more than one sample */
#define SHARDS_MAX 4096  /* the limit of VIRTUAL_SHARDS */

/* shard_samples — returns the samples of a default virtual shard, which depend on GLOBAL_BATCH
 * only. A shard has one sample; in large batches it has the largest divisor up to SHARD_SAMPLES
 * that leaves SHARDS_WANTED shards. */
static int64_t shard_samples(int64_t all)
{
    int64_t n = all / SHARDS_WANTED < SHARD_SAMPLES ? all / SHARDS_WANTED : SHARD_SAMPLES;
    while (n > 1 && all % n != 0)
        n--;
    n = n > 1 ? n : 1;
    while (all / n > SHARDS_MAX || all % n != 0)
        n++;
    return n;
}

/* map_shards — maps EXACT=layout: the virtual shards of a step. A pass never holds more samples
 * than a shard, so a larger BATCH_SIZE changes no bit. */
static enum status map_shards(const struct conf *conf, struct step_config *out)
{
    const int64_t set = conf_i64(conf, CONF_VIRTUAL_SHARDS), all = out->global_samples,
                  by_batch = shard_samples(all), batch = out->batch_samples;
    if (conf_i64(conf, CONF_EXACT) != CONF_EXACT_LAYOUT)
        return ST_OK;
    out->checks_shards = conf_i64(conf, CONF_SENTINEL_EVERY) > 0;
    out->shards = (int)(set > 0 ? set : all / by_batch);
    if (set == 0 && batch < by_batch)
        return FAIL(
            ST_BAD_SETTING,
            "EXACT=layout: GLOBAL_BATCH=%lld has %d virtual shards of %lld samples, each one "
            "pass, and BATCH_SIZE=%lld (%s) allows %lld; set BATCH_SIZE=%lld, or "
            "VIRTUAL_SHARDS=%lld, which changes the bits",
            (long long)all, out->shards, (long long)by_batch, (long long)batch,
            conf_source(conf, CONF_BATCH_SIZE), (long long)batch, (long long)by_batch,
            (long long)(all % batch == 0 ? all / batch : all));
    if (all % out->shards == 0 && batch > all / out->shards)
        out->batch_samples = all / out->shards;
    return ST_OK;
}

/* check_fewer_nodes — checks that the pipelines of any number of nodes of ON_LOSS=shrink can have
 * equal numbers of micro-batches; with virtual shards, of shards. */
static enum status check_fewer_nodes(const struct conf *conf, const struct step_config *c)
{
    const int64_t stages = conf_i64(conf, CONF_PP), n_nodes = conf_i64(conf, CONF_N_NODES),
                  runs = stages > 1 && c->pipe_chunks > 1 ? stages : 1,
                  all = c->shards > 0 ? c->shards : c->global_samples / c->batch_samples;
    for (int64_t nodes = conf_min_nodes(conf); stages > 1 && nodes < n_nodes; nodes++) {
        const int64_t pipes = conf_data_ranks(conf) / n_nodes * nodes;
        if (all % (pipes * runs) != 0)
            return FAIL(ST_BAD_SETTING,
                        "ON_LOSS=shrink: on %lld nodes %lld pipelines of PP=%lld need equal "
                        "numbers of %s, and %lld is not a multiple of %lld; change %s or MIN_NODES",
                        (long long)nodes, (long long)pipes, (long long)stages,
                        c->shards > 0 ? "virtual shards" : "micro-batches", (long long)all,
                        (long long)(pipes * runs),
                        c->shards > 0 ? "VIRTUAL_SHARDS" : "GLOBAL_BATCH");
    }
    return ST_OK;
}

/* ---- a step, a trainer ---- */

/* map_step — fills the configuration of a step and its store. */
static enum status map_step(const struct conf *conf, const struct model_dims *dims,
                            struct step_config *out)
{
    out->dims = *dims;
    out->axis_ranks[MESH_AXIS_TENSOR] = (int)conf_i64(conf, CONF_TP);
    out->axis_ranks[MESH_AXIS_CONTEXT] = (int)conf_i64(conf, CONF_CP);
    out->axis_ranks[MESH_AXIS_PIPELINE] = (int)conf_i64(conf, CONF_PP);
    out->pipe_chunks = (int)conf_i64(conf, CONF_PP_CHUNKS);
    out->recompute.way = (enum model_recompute)conf_i64(conf, CONF_RECOMPUTE);
    out->recompute.layers = conf_count(conf, CONF_RECOMPUTE);
    if (out->recompute.layers > dims->layers) {
        return FAIL(ST_BAD_SETTING,
                    "RECOMPUTE=%s (%s) names more layers than the %lld of the model; lower it, or "
                    "leave :%lld out to mean all layers",
                    conf_text(conf, CONF_RECOMPUTE), conf_source(conf, CONF_RECOMPUTE),
                    (long long)dims->layers, (long long)out->recompute.layers);
    }
    TRY(seq_tokens(conf, dims, &out->seq_tokens));
    /* Check that the mesh can divide the model and its samples. */
    const struct model_shard shard = {.tensor_ranks = out->axis_ranks[MESH_AXIS_TENSOR]};
    struct model_dims first;
    int64_t own_tokens;
    TRY(model_shard_dims(&out->dims, &shard, &first));
    TRY(model_shard_tokens(out->seq_tokens, out->axis_ranks[MESH_AXIS_CONTEXT], &own_tokens));
    /* Sets batch_samples, global_samples, their warm-up and the attention mask. out->dims and
     * out->seq_tokens are already set. */
    const int64_t all = conf_i64(conf, CONF_GLOBAL_BATCH), from = conf_i64(conf, CONF_BATCH_START),
                  pass = conf_i64(conf, CONF_BATCH_SIZE) * conf_data_ranks(conf);
    TRY(map_mask(conf, out));
    out->batch_samples = conf_i64(conf, CONF_BATCH_SIZE);
    out->global_samples = all > 0 ? all : pass;
    out->batch_warmup =
        (struct warmup){.from = from > 0 ? from : pass, .steps = conf_i64(conf, CONF_BATCH_WARMUP)};
    out->balances = conf_i64(conf, CONF_BALANCE) == CONF_BALANCE_AUTO;
    TRY(map_shards(conf, out));
    TRY(check_fewer_nodes(conf, out));
    TRY(out->batch_warmup.steps > 0 ? check_warmup(conf, out, pass) : ST_OK);
    out->store.shard = (enum layout_shard)conf_i64(conf, CONF_SHARD);
    out->store.group_ranks = (int)conf_i64(conf, CONF_N_GPU_EACH_NODE);
    out->store.compress = (enum grad_compress_kind)conf_i64(conf, CONF_COMPRESS);
    map_local(conf, out);
    out->optim = (struct optim_config){
        .kind = (enum optim_kind)conf_i64(conf, CONF_OPTIMIZER),
        .beta1 = conf_f64(conf, CONF_BETA1),
        .beta2 = conf_f64(conf, CONF_BETA2),
        .eps = conf_f64(conf, CONF_EPS),
        .momentum = conf_f64(conf, CONF_MOMENTUM),
        .weight_decay = conf_f64(conf, CONF_WEIGHT_DECAY),
        .grad_clip = conf_f64(conf, CONF_GRAD_CLIP),
    };
    if (out->optim.kind == OPTIM_KIND_MUON && !conf_is_set(conf, CONF_MOMENTUM))
        out->optim.momentum = MUON_MOMENTUM; /* momentum is 0 only if the user sets it */
    out->spike = (struct spike_config){.mode = (enum spike_mode)conf_i64(conf, CONF_SPIKE),
                                       .sigma = conf_f64(conf, CONF_SPIKE_SIGMA)};
    out->comm_sms = (int)conf_i64(conf, CONF_COMM_SMS);
    out->is_timed = conf_i64(conf, CONF_CUDA_TIMES) != 0;
    out->is_eager = conf_i64(conf, CONF_CUDA_GRAPH) == CONF_CUDA_GRAPH_OFF || out->is_timed;
    out->dropout = (float)conf_f64(conf, CONF_DROPOUT);
    out->seed = (uint64_t)conf_i64(conf, CONF_SEED);
    return ST_OK;
}

/* Sets the mode of PEER_COPIES, but no memory yet. The step is already set. */
static enum status map_copies(const struct conf *conf, struct trainer_config *out)
{
    const char *why = peer_copy_why(&out->step, (int)conf_i64(conf, CONF_N_NODES));
    out->peer_copies = (enum peer_copy_mode)conf_i64(conf, CONF_PEER_COPIES);
    out->peer_copy_fd = -1;
    out->ranks_max = conf_ranks(conf);
    out->ranks_min = conf_min_nodes(conf) * (int)conf_i64(conf, CONF_N_GPU_EACH_NODE);
    if (out->peer_copies != PEER_COPY_MODE_ON || !why)
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "PEER_COPIES=1 (%s) is not possible: %s; leave it out: a loss then costs the steps "
                "since the last checkpoint",
                conf_source(conf, CONF_PEER_COPIES), why);
}

bool config_map_copies_memory(const struct conf *conf)
{
    return conf_i64(conf, CONF_N_NODES) > 1 &&
           conf_i64(conf, CONF_PEER_COPIES) != CONF_PEER_COPIES_OFF;
}

enum status config_map_trainer(const struct conf *conf, const struct model_dims *dims,
                               bool has_weights, struct trainer_config *out)
{
    memset(out, 0, sizeof *out);
    TRY(map_step(conf, dims, &out->step));
    out->attention = device_attention(conf);
    out->is_atomic =
        conf_i64(conf, CONF_DETERMINISTIC) == 0 && out->attention != DEV_CUDA_ATTENTION_OWN;
    out->ignores_tensors = conf_i64(conf, CONF_IGNORE_TENSORS) != 0;
    out->model_path = has_weights ? conf_text(conf, CONF_MODEL) : "";
    out->model_name = conf_given(conf, CONF_MODEL);
    out->adapter_path = conf_text(conf, CONF_ADAPTER);
    out->epochs = conf_i64(conf, CONF_EPOCHS);
    out->steps = conf_i64(conf, CONF_STEPS);
    out->stop_after = conf_i64(conf, CONF_STOP_AFTER);
    out->lr_schedule = (struct lr_schedule_config){
        .kind = (enum lr_schedule_kind)conf_i64(conf, CONF_LR_SCHEDULE),
        .lr = conf_f64(conf, CONF_LR),
        .lr_min = conf_f64(conf, CONF_MIN_LR),
        .warmup_steps = conf_i64(conf, CONF_WARMUP_STEPS),
        .decay_steps = conf_i64(conf, CONF_DECAY_STEPS),
    };
    out->checkpoint_dir = conf_text(conf, CONF_CHECKPOINT_DIR);
    out->checkpoint_every = conf_i64(conf, CONF_CHECKPOINT_EVERY);
    out->step.sentinel_every = conf_i64(conf, CONF_SENTINEL_EVERY);
    out->checkpoint_mode = (enum checkpoint_async_mode)conf_i64(conf, CONF_CHECKPOINT_ASYNC);
    out->checkpoint_keep = (int)conf_i64(conf, CONF_CHECKPOINT_KEEP);
    out->resume = (enum trainer_resume)conf_i64(conf, CONF_RESUME);
    TRY(map_copies(conf, out));
    out->eval_every = conf_i64(conf, CONF_EVAL_EVERY);
    out->metrics_file = conf_text(conf, CONF_METRICS_FILE);
    out->tensorboard_dir = conf_text(conf, CONF_TENSORBOARD_DIR);
    out->run_name = conf_text(conf, CONF_RUN_NAME);
    out->log_every = conf_i64(conf, CONF_LOG_EVERY);
    out->sample_every = conf_i64(conf, CONF_SAMPLE_EVERY);
    out->sample_prompt = conf_text(conf, CONF_PROMPT);
    out->sampling_params = (struct sampling_params){.temperature = conf_f64(conf, CONF_TEMPERATURE),
                                                    .top_k = conf_i64(conf, CONF_TOP_K),
                                                    .top_p = conf_f64(conf, CONF_TOP_P)};
    return ST_OK;
}

struct comm_place config_map_place(const struct conf *conf, int worker_i)
{
    const int locals = (int)conf_i64(conf, CONF_N_GPU_EACH_NODE);
    const int node = (int)conf_i64(conf, CONF_NODE_ID);
    return (struct comm_place){.rank = node * locals + worker_i,
                               .ranks = conf_ranks(conf),
                               .node = node,
                               .nodes = (int)conf_i64(conf, CONF_N_NODES),
                               .local = worker_i,
                               .locals = locals};
}

enum status config_map_mesh(const struct conf *conf, struct mesh *out)
{
    return mesh_make(conf_ranks(conf), (int)conf_i64(conf, CONF_TP), (int)conf_i64(conf, CONF_CP),
                     (int)conf_i64(conf, CONF_PP), out);
}

void config_map_feed(const struct conf *conf, const struct trainer_config *trainer,
                     bool is_validation, struct feed_config *out)
{
    *out = (struct feed_config){
        .task = trainer->step.dims.task == MODEL_TASK_QA ? FEED_TASK_QA : FEED_TASK_LM,
        .data = conf_text(conf, is_validation ? CONF_VAL_DATA : CONF_DATA),
        .cache_dir = conf_text(conf, CONF_CACHE_DIR),
        .allows_local_urls = conf_i64(conf, CONF_ALLOW_LOCAL_URLS),
        .stride_tokens = conf_i64(conf, CONF_DOC_STRIDE),
        .seq_tokens = trainer->step.seq_tokens,
        .global_samples = trainer->step.global_samples,
        .vocab = trainer->step.dims.vocab,
        .model = tokenizer_source_lack(conf, &trainer->step.dims),
        .knows_documents = trainer->step.masks_documents,
        .packs_documents = !is_validation && conf_i64(conf, CONF_PACK_DOCUMENTS),
        .trains_all = conf_i64(conf, CONF_LOSS_ON) == CONF_LOSS_ON_ALL,
        .allows_cut = conf_i64(conf, CONF_ALLOW_CUT),
        .seed = trainer->step.seed,
        .is_shuffled = !is_validation && conf_i64(conf, CONF_SHUFFLE),
    };
}

enum status config_map_cache(const struct conf *conf)
{
    const char *dir = conf_text(conf, CONF_CACHE_DIR);
    struct stat info = {.st_mode = 0};
    if (conf_is_set(conf, CONF_CACHE_DIR) || !text_starts(dir, "/tmp/convoy-cache-"))
        return ST_OK;
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return FAIL(ST_STORE, "cannot make the folder %s: %s; set CACHE_DIR to another folder", dir,
                    strerror(errno));
    bool is_ours = lstat(dir, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
                   (info.st_mode & 07777) == 0700;
    if (is_ours)
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "CACHE_DIR=%s (default, because neither XDG_CACHE_HOME nor HOME is set) is not a "
                "folder that only this user can use (user %u, mode %04o%s): its content may come "
                "from another user; remove it, or set CACHE_DIR",
                dir, (unsigned)info.st_uid, (unsigned)info.st_mode & 07777,
                S_ISLNK(info.st_mode) ? ", a symbolic link" : "");
}

enum status config_map_name_setting(enum status st, bool is_validation)
{
    const bool is_told = !is_validation && strstr(status_message(), "DATA") != NULL;
    if (st == ST_OK || st == ST_RETRY || is_told)
        return st;
    return FAIL(st, "%s: %s", is_validation ? "VAL_DATA" : "DATA", status_message());
}

/* ---- settings that decide the losses ---- */

/* The value of a setting that a run uses. */
struct used {
    enum conf_key key;
    bool has_effect; /* false: this run does not use the setting */
    double number;
    const char *word; /* NULL: the value is a number */
};

/* add_used — appends the value of a setting as a member of a JSON object, if the setting has an
 * effect. used: the values that differ from conf. */
static void add_used(const struct conf *conf, enum conf_key key, const struct used *used,
                     size_t used_n, struct text *out)
{
    size_t i = 0;
    while (i < used_n && used[i].key != key)
        i++;
    if (i < used_n && !used[i].has_effect)
        return;
    text_add(out, ",\"%s\":", conf_row_name(key));
    if (i == used_n)
        conf_write_value(conf, key, out);
    else if (used[i].word != NULL)
        text_add(out, "\"%s\"", used[i].word);
    else
        text_add(out, "%s", text_f64(used[i].number).text);
}

void config_map_settings(const struct conf *conf, const struct trainer_config *trainer,
                         const struct tokenizer *tokenizer, const char *arithmetic,
                         struct text *out)
{
    const struct step_config *s = &trainer->step;
    const struct step_local_config *local = &s->local;
    const struct warmup *batch = &s->batch_warmup, *window = &s->window_warmup;
    const bool is_exact = s->shards > 0, is_f32 = s->store.dtype == DTYPE_F32,
               is_chat = conf_i64(conf, CONF_TASK) == CONF_TASK_CHAT,
               skips = s->spike.mode == SPIKE_MODE_SKIP;
    const int64_t decay = trainer->lr_schedule.decay_steps;
    const char *precision = is_f32 ? "tf32" : s->store.dtype == DTYPE_F16 ? "fp16" : "bf16";
    const struct used used[] = {
        {CONF_GLOBAL_BATCH, true, (double)s->global_samples, NULL},
        {CONF_SEQ_LEN, true, (double)s->seq_tokens, NULL},
        {CONF_BATCH_SIZE, true, (double)s->batch_samples, NULL},
        {CONF_MOMENTUM, true, s->optim.momentum, NULL},
        {CONF_DECAY_STEPS, trainer->lr_schedule.kind == LR_SCHEDULE_KIND_WSD && decay > 0,
         (double)decay, NULL},
        {CONF_EXACT, is_exact, 0, "layout"},
        {CONF_VIRTUAL_SHARDS, is_exact, s->shards, NULL},
        {CONF_TP, is_exact && s->axis_ranks[MESH_AXIS_TENSOR] > 1, s->axis_ranks[MESH_AXIS_TENSOR],
         NULL},
        {CONF_CP, is_exact && s->axis_ranks[MESH_AXIS_CONTEXT] > 1,
         s->axis_ranks[MESH_AXIS_CONTEXT], NULL},
        {CONF_ATTENTION_MASK, s->masks_documents, 0, "document"},
        {CONF_PACK_DOCUMENTS, conf_i64(conf, CONF_PACK_DOCUMENTS) != 0, 1, NULL},
        {CONF_BATCH_WARMUP, batch->steps > 0, (double)batch->steps, NULL},
        {CONF_BATCH_START, batch->steps > 0, (double)batch->from, NULL},
        {CONF_WINDOW_WARMUP, window->steps > 0, (double)window->steps, NULL},
        {CONF_WINDOW_START, window->steps > 0, (double)window->from, NULL},
        {CONF_SPIKE, skips, 0, "skip"},
        {CONF_SPIKE_SIGMA, skips, s->spike.sigma, NULL},
        {CONF_LOCAL_STEPS, local->steps > 0, (double)local->steps, NULL},
        {CONF_OUTER_LR, local->steps > 0, local->lr, NULL},
        {CONF_OUTER_MOMENTUM, local->steps > 0, local->momentum, NULL},
        {CONF_DETERMINISTIC, trainer->is_atomic && !is_f32, 0, NULL},
        /* Without conversations they have no effect; else their values are written as they are. */
        {is_chat ? CONF_N : CONF_CHAT_TEMPLATE, false, 0, NULL},
        {is_chat ? CONF_N : CONF_LOSS_ON, false, 0, NULL},
        {CONF_PRECISION, !is_f32 || conf_i64(conf, CONF_PRECISION) == CONF_PRECISION_TF32, 0,
         precision},
    };
    text_add(out, "{\"moments\":%d", optim_moments(&s->optim));
    for (int key = 0; key < CONF_SETTINGS_N; key++)
        if (conf_row_result((enum conf_key)key) == CONF_RESULT_LOSSES)
            add_used(conf, (enum conf_key)key, used, sizeof used / sizeof *used, out);
    /* TP and CP decide bits with EXACT=layout. */
    add_used(conf, CONF_TP, used, sizeof used / sizeof *used, out);
    add_used(conf, CONF_CP, used, sizeof used / sizeof *used, out);
    if (is_exact && arithmetic[0] != 0) {
        text_add(out, ",\"arithmetic\":");
        json_quote_text(out, arithmetic);
    }
    if (local->steps > 0)
        text_add(out, ",\"nodes\":%lld", (long long)conf_i64(conf, CONF_N_NODES));
    if (tokenizer)
        tokenizer_source_add(tokenizer, out);
    text_add(out, "}");
}

void config_map_layout(const struct conf *conf, const struct trainer_config *trainer,
                       struct text *out)
{
    static const char *const shards[] = {CONF_SHARD_LIST(CHOICE_WORD)};
    /* written above, as it was chosen */
    static const struct used others[] = {{CONF_SHARD, false, 0, NULL},
                                         {CONF_DEVICE, false, 0, NULL},
                                         {CONF_N_NODES, false, 0, NULL},
                                         {CONF_N_GPU_EACH_NODE, false, 0, NULL}};
    text_add(out, "{\"SHARD\":\"%s\"", shards[trainer->step.store.shard]);
    for (int key = 0; key < CONF_N; key++)
        if (conf_row_result((enum conf_key)key) == CONF_RESULT_ROUNDING)
            add_used(conf, (enum conf_key)key, others, sizeof others / sizeof *others, out);
    text_add(out, "}");
}

enum status config_map_agreement(const struct conf *conf, struct text *out)
{
    struct model_dims dims;
    bool has_weights;
    char model[256] = "a model with weights";
    /* A node may join before node 0 has given it the outline of such a model. source_sync compares
     * the outlines. */
    if (model_preset(conf_text(conf, CONF_MODEL), &dims)) {
        TRY(plain_dims(conf, &dims, &has_weights));
        TRY(model_check(&dims));
        model_resolve(&dims);
        text_format(model, sizeof model,
                    "%s, %lld layers, %lld heads (%lld key heads of %lld), %lld wide, MLP %lld, "
                    "context %lld, vocabulary %lld",
                    model_arch_name(dims.arch), (long long)dims.layers, (long long)dims.heads,
                    (long long)dims.kv_heads, (long long)dims.head_dim, (long long)dims.embed,
                    (long long)dims.ffn, (long long)dims.context, (long long)dims.vocab);
    }
    text_add(out, "{");
    conf_write_agree(conf, out);
    text_add(out, "\"MODEL\":\"%s\",\"ADAPTER\":\"%s\",\"version\":\"%s %s\",\"device\":\"%s\"}",
             model, conf_text(conf, CONF_ADAPTER)[0] ? "set" : "not set", version_text(),
             version_commit(), device_kind(conf));
    return out->overflow ? FAIL(ST_RETRY, "out of memory: the settings that the nodes compare")
                         : ST_OK;
}

void config_map_board_model(const struct model_dims *dims, struct board_model *out)
{
    memset(out, 0, sizeof *out);
    text_copy(out->name, sizeof out->name, dims->name);
    text_copy(out->task, sizeof out->task, dims->task == MODEL_TASK_QA ? "qa" : "lm");
    text_copy(out->arch, sizeof out->arch, model_arch_name(dims->arch));
    out->layers = (int32_t)dims->layers;
    out->heads = (int32_t)dims->heads;
    out->kv_heads = (int32_t)model_kv_heads(dims);
    out->head_dim = (int32_t)model_head_dim(dims);
    out->embed = (int32_t)dims->embed;
    out->ffn = (int32_t)model_ffn(dims);
    out->context = (int32_t)dims->context;
    out->vocab = (int32_t)dims->vocab;
    out->parameters = -1;
    if (dims->adapter.r == 0)
        return;
    out->adapter = (struct board_adapter){
        .rank = dims->adapter.r, .alpha = dims->adapter.alpha, .trained = -1, .frozen = -1};
    model_targets_text(dims, out->adapter.targets);
}
