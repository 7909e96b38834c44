/* model — the mathematics of a model on one device. It must not know how many devices train it, nor
 * how parameters are sharded.
 *
 * All models are decoder-only transformers, computed by one set of functions (transformer/). Models
 * differ in data only: struct model_features describes the computation of a model, and an
 * architecture's own folder (gpt2/, llama/ …) has the names of its parameters, and its presets.
 *
 * The caller walks the units (param.h) in order for the forward pass and in reverse for the
 * backward pass. Before each unit it may bring the parameters into memory; after each unit's
 * backward it may send the gradients. struct pass holds their addresses.
 *
 * Dimensions: B samples, T tokens, C embedding, H query heads, K key heads (K divides H), D width
 * of a head, F width of the MLP, V vocabulary, L layers; a row is one of the N = B·T tokens of a
 * pass. */
#ifndef CONVOY_MODEL_MODEL_H
#define CONVOY_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "dev/op.h"
#include "kernels/attention.h"
#include "model/param.h"

/* In the order of enum hf_arch. LLAMA: also Mistral and SmolLM2. NEOX: GPT-NeoX and Pythia. */
enum model_arch {
    MODEL_ARCH_GPT2,
    MODEL_ARCH_LLAMA,
    MODEL_ARCH_QWEN2,
    MODEL_ARCH_QWEN3,
    MODEL_ARCH_NEOX,
    MODEL_ARCH_N
};
enum model_task { MODEL_TASK_LM, MODEL_TASK_QA, MODEL_TASK_N };
/* The tensors that a backward pass computes again, from none to most; each way includes the ways
 * before it. LIGHT: outputs of norms and of the MLP's activation. ATTENTION: attention and its
 * input. BLOCK: all of a block but its input. */
enum model_recompute {
    MODEL_RECOMPUTE_NONE,
    MODEL_RECOMPUTE_LIGHT,
    MODEL_RECOMPUTE_ATTENTION,
    MODEL_RECOMPUTE_BLOCK,
    MODEL_RECOMPUTE_AUTO /* to be decided before model_plan (node/choose/plan_choice.h) */
};

/* The recomputation of a model: `way` for its first `layers` layers (0: all), the way before it for
 * the others. Layers are counted in the whole model, whatever shard of it a plan is for. */
struct model_recomputed {
    enum model_recompute way;
    int64_t layers;
};
/* model_recompute_of — returns the way of one layer. */
enum model_recompute model_recompute_of(struct model_recomputed what, int64_t layer);
/* model_recompute_nth — returns way i of a model of `layers` layers, in the order of memory: way 0
 * is none, way 1 is light:1, way `layers` is light, and way 3·layers is block. Each way keeps less
 * than the way before; with scratch included it never needs more memory. */
struct model_recomputed model_recompute_nth(int64_t layers, int64_t i);
/* model_recompute_text — writes "block", or "block:12" for the first twelve layers. Returns out. */
const char *model_recompute_text(struct model_recomputed what, char *out, size_t cap);

/* The computation of a model. All zero: GPT-2's. */
enum model_norm { MODEL_NORM_LAYER, MODEL_NORM_RMS };
enum model_mlp { MODEL_MLP_GELU_TANH, MODEL_MLP_GELU_ERF, MODEL_MLP_SWIGLU, MODEL_MLP_RELU2 };
enum model_bias { MODEL_BIAS_ALL, MODEL_BIAS_QKV, MODEL_BIAS_NONE }; /* biases of linear layers */
enum model_position { MODEL_POSITION_LEARNED, MODEL_POSITION_ROPE };
enum model_rope_kind {
    MODEL_ROPE_KIND_NONE, /* frequencies are not scaled */
    MODEL_ROPE_KIND_LINEAR,
    MODEL_ROPE_KIND_LLAMA3,
    MODEL_ROPE_KIND_YARN
};

/* Rotary positions (Su et al. 2021), with the fields of transformers' rope_parameters. */
struct model_rope {
    enum model_rope_kind kind;
    double theta;
    double fraction; /* share of a head's elements that rotate: the first ones */
    double factor, low_freq_factor, high_freq_factor, beta_fast, beta_slow;
    double attention_factor; /* YARN; 0: computed from factor */
    int64_t original_context;
};

struct model_features {
    enum model_norm norm;
    enum model_mlp mlp;
    enum model_bias bias;
    enum model_position position;
    bool is_parallel; /* both halves of a block read its input: x + attention(x) + mlp(x) */
    bool has_qk_norm; /* RMSNorm of each head of q and k */
    bool is_untied;   /* the vocabulary product has weights of its own */
    struct model_rope rope;
    /* only for GPT-2 */
    double logit_cap;   /* LM: logits are cap·tanh(logits/cap); 0: as they are */
    bool has_zero_init; /* output projections of attention and MLP begin at 0 */
};

/* Tokens that begin and end a text, if the tokenizer has them: for generation and export, not for
 * the mathematics. */
#define MODEL_EOS_MAX 8
struct model_marks {
    bool has_bos;
    int64_t bos;
    int eos_n;
    int64_t eos[MODEL_EOS_MAX]; /* the first is the usual one */
};

/* LoRA (Hu et al. 2021): an adapter of the linear layers of the blocks. A layer computes
 * W·x + (alpha/r)·B·(A·x); A (r,I) and B (O,r) train, and all else is frozen. */
enum model_target {
    MODEL_TARGET_Q = 1,
    MODEL_TARGET_K = 2,
    MODEL_TARGET_V = 4,
    MODEL_TARGET_O = 8,
    MODEL_TARGET_GATE = 16,
    MODEL_TARGET_UP = 32,
    MODEL_TARGET_DOWN = 64
};
/* Sets of matrices. One matrix for q, k and v counts as all three; the first matrix of an MLP
 * without a gate counts as GATE and UP. */
#define MODEL_TARGETS_ATTENTION (MODEL_TARGET_Q | MODEL_TARGET_K | MODEL_TARGET_V | MODEL_TARGET_O)
#define MODEL_TARGETS_MLP (MODEL_TARGET_GATE | MODEL_TARGET_UP | MODEL_TARGET_DOWN)
#define MODEL_TARGETS_ALL (MODEL_TARGETS_ATTENTION | MODEL_TARGETS_MLP)
#define MODEL_TARGETS_TEXT_MAX 64
#define MODEL_SHA256_MAX 65
struct model_adapter {
    int64_t r; /* the inner dimension; 0: no adapter, and the rest is not read */
    double alpha;
    unsigned targets; /* the matrices that have one: a set of enum model_target */
    /* the SHA-256 of the model's weights (train/weights/load.h), in hexadecimal; "": unknown */
    char base_sha256[MODEL_SHA256_MAX];
};
#define MODEL_ADAPTER_RANK_MAX 1024

/* The shard of a model that the dimensions describe (model_shard_dims). All zero: the whole
 * model. */
#define MODEL_CHUNKS_MAX 8
struct model_shard {
    int tensor_rank, tensor_ranks, context_ranks; /* 0 ranks means one */
    /* own layers, as runs of the whole model's layers, ascending; chunks_n 0: all */
    int chunks_n;
    struct {
        int64_t first, n;
    } chunk[MODEL_CHUNKS_MAX];
    bool lacks_embed, lacks_head; /* another stage of the pipeline has them */
    int64_t vocab_multiple; /* rows of the vocabulary product are a multiple of it; 0 means 1 */
    /* dimensions of the whole model; 0: as the dimensions of the shard */
    int64_t layers, heads, kv_heads, ffn;
};

/* kv_heads, head_dim, ffn and norm_eps may be 0; the values that 0 stands for are returned by
 * model_kv_heads, model_head_dim, model_ffn and model_norm_eps. */
struct model_dims {
    char name[64];
    enum model_arch arch;
    enum model_task task;
    int64_t layers, heads, embed, context, vocab;
    int64_t kv_heads, head_dim, ffn;
    double norm_eps;
    struct model_features features;
    struct model_marks marks;
    struct model_adapter adapter;
    struct model_shard shard;
};

/* model_kv_heads — returns kv_heads; 0 stands for `heads`. */
int64_t model_kv_heads(const struct model_dims *dims);
/* model_head_dim — returns head_dim; 0 stands for embed / heads. */
int64_t model_head_dim(const struct model_dims *dims);
/* model_ffn — returns ffn; 0 stands for 4·C, or, for SwiGLU, for 8/3·C rounded up to a multiple of
 * 256 (Llama). */
int64_t model_ffn(const struct model_dims *dims);
/* model_norm_eps — returns norm_eps; 0 stands for 1e-5. */
double model_norm_eps(const struct model_dims *dims);
/* model_resolve — writes the values that 0 stands for into the dimensions. */
void model_resolve(struct model_dims *dims);

/* The following functions accept the dimensions of a shard, too. */
int model_tensor_ranks(const struct model_dims *dims); /* at least 1 */
/* Returns the ranks that share samples, at least 1. */
int model_context_ranks(const struct model_dims *dims);
/* model_layer — returns the number of own block `block` in the whole model. */
int64_t model_layer(const struct model_dims *dims, int64_t block);
/* model_vocab_shard — computes the own rows of the vocabulary: [*first, *first + *n). */
void model_vocab_shard(const struct model_dims *dims, int64_t *first, int64_t *n);
/* model_vocab_rows — returns the rows of the vocabulary product: own rows, and rows of zeros up to
 * a multiple of shard.vocab_multiple. */
int64_t model_vocab_rows(const struct model_dims *dims);

/* ---- shards (model_shard.c): the work of a tensor rank, or of a pipeline stage ---- */

/* model_shard_dims — computes the dimensions of a shard: own heads, key heads (at least one:
 * replicated if there are fewer than ranks), width of the MLP and layers; embed, vocab and context
 * stay the whole's. The parameters of a shard are described by model_ops(out)->describe; struct
 * param_cut (param.h) holds their positions in the whole model. shard: its layers, heads, kv_heads
 * and ffn are not read, and vocab_multiple is the whole's. If the shard is everything, *out is the
 * whole, unchanged. ST_BAD_SETTING: the ranks do not divide heads, key heads (nor these the ranks)
 * or ffn, or are more than the tokens of the vocabulary; chunks are empty, overlap or lie outside
 * the layers. */
enum status model_shard_dims(const struct model_dims *whole, const struct model_shard *shard,
                             struct model_dims *out);

/* model_shard_tokens — computes the number of a sample's seq_tokens tokens that each of `ranks`
 * ranks has. ST_BAD_SETTING: they are not 2·ranks equal chunks. */
enum status model_shard_tokens(int64_t seq_tokens, int ranks, int64_t *out);
/* model_shard_runs — returns the positions of a rank: chunks `rank` and 2·ranks-1-rank of the
 * 2·ranks equal ones, so that causal attention is equal work for all. */
struct attention_runs model_shard_runs(int at, int ranks, int64_t seq_tokens);

/* The shard.vocab_multiple of GPUs: cuBLASLt's fastest kernels for tensor cores need dimensions of
 * whole tiles. A CPU's products need none. */
#define MODEL_VOCAB_MULTIPLE_GPU 64

/* model_preset — finds the dimensions of a model by its name (model_preset_name). false: no such
 * name. */
bool model_preset(const char *name, struct model_dims *out);
/* model_preset_name — returns the name of preset i, in the order of architectures; NULL: there are
 * fewer. */
const char *model_preset_name(int i);
/* model_arch_name — returns "gpt2", "llama" …: transformers' model_type. */
const char *model_arch_name(enum model_arch arch);
/* model_arch_find — finds an architecture by that name. false: there is none. */
bool model_arch_find(const char *name, enum model_arch *out);
/* model_arch_features — returns the features of most models of an architecture. All models of an
 * architecture have the same norm and, except for GPT-2, the same position and has_qk_norm. */
struct model_features model_arch_features(enum model_arch arch);

/* model_check — returns ST_BAD_SETTING if a dimension is out of bounds, if heads do not divide
 * embed, or if the architecture does not support such features. The message contains the value. */
enum status model_check(const struct model_dims *dims);

struct model_acts; /* transformer/transformer.h */

/* The ranks that compute the same pass with other columns of its matrices (tensor parallelism), or
 * with other positions of its samples (context parallelism). All calls are collective among them
 * and in the stream's order. A tensor of all ranks consists of equal shares in the order of the
 * ranks. elems counts the elements of the larger tensor.
 *   gather       *all = the shares of all ranks, in the memory to which *all points; own may be at
 *                its offset there. One rank: *all = own.
 *   scatter_sum  own = this rank's share of the sum of `in` over the ranks; `in` is then undefined.
 *                One rank: own is `in`.
 *   sum          x = its sum over `copies` neighbours (param.h: tensor_copies); the same bits on
 *                all of them. If ranks share samples, copies is ranks. */
struct model_axis {
    int at, ranks; /* at: the number of this rank */
    void *arg;
    enum status (*gather)(void *arg, struct stream *s, struct tensor own, struct tensor *all,
                          int64_t elems);
    enum status (*scatter_sum)(void *arg, struct stream *s, struct tensor own, struct tensor in,
                               int64_t elems);
    enum status (*sum)(void *arg, struct stream *s, struct tensor x, int64_t elems, int copies);
};
/* One rank: nothing is moved. */
extern const struct model_axis model_axis_self;

/* One micro-batch, forward or backward. */
struct pass {
    const struct model_dims *dims;
    const struct param_table *table;
    int64_t b, t; /* t: own positions of each sample (model_shard_runs) */
    const struct op_table *op;
    struct stream *stream;

    struct tensor params, grads;          /* memory from which the tables' offsets count */
    const struct param_table *grad_table; /* offsets of gradients; NULL: the offsets of `table` */
    /* The parameters of the adapter, if the dimensions have one. Gradients are the adapter's
     * then. */
    struct {
        const struct param_table *table;
        struct tensor params;
    } adapter;
    struct model_acts *acts;                   /* from model_plan */
    const struct model_axis *tensor, *context; /* one rank: model_axis_self */

    /* number of earlier tokens in the KV cache (model_plan_kv_cache); > 0: b = t = 1 */
    int64_t past;
    bool want_grad;  /* false: evaluation: no dropout, nothing is kept for a backward pass */
    bool accumulate; /* add to gradients; false: write them first */
    float dropout;
    uint64_t dropout_seed; /* seed of this step */
    int64_t sample_first;  /* number of the first sample within the step, over all ranks */

    /* Inputs on the device; feed_batch describes their shapes. Tokens, targets and LM's losses are
     * of own positions, the others of whole samples. Without data, first_key and mask hide no
     * key. */
    struct tensor tokens, targets, first_key, mask, starts, ends;
    /* (B,T) i32, of own positions: rows of the learned positions. NULL: they count from the first
     * token of the sample */
    struct tensor positions;
    /* language model, without want_grad: 1 for each target that is the argmax, else 0; ranks that
     * share the vocabulary have it for targets of own columns. NULL: not wanted */
    struct tensor hits;
    /* LM with tied weights: memory for the token embedding's gradient; data NULL: in `grads`.
     * lacks_token_grad: embed_bwd omits it, because another shard of the model adds it. */
    struct tensor token_grad;
    bool lacks_token_grad;
    struct tensor losses;   /* LM (B·T) f32, QA (B,2) f32, on the device, not summed */
    float scale, scale_end; /* d loss / d losses: LM 1/tokens; QA of starts, of ends */

    /* LM with tied weights: head calls it after all work on its share of the token embedding's
     * gradient is on the stream; NULL: not called. */
    enum status (*embedding_grad_ready)(void *arg);
    void *embedding_grad_ready_arg;
};

/* The functions of a task. Work is submitted to p->stream; nothing waits for it. Units as in
 * param.h.
 *   describe         lists the parameters; the caller frees the table
 *   describe_adapter lists the parameters of the adapter, in the same units; the same
 *   embed, block     forward and backward of one unit; backward adds to or writes gradients. In a
 *                    shard without the embedding, embed_fwd computes the data that all blocks
 *                    share, and embed_bwd is for a tied head: it adds to the gradient of the
 *                    tokens.
 *   head             losses and, with want_grad, the gradients of its parameters and of its input
 *   logits           after a forward pass: LM: (V) of one row; QA: (B·T,2) of all rows, row is 0.
 *                    Rows are counted in whole samples. */
struct model_ops {
    enum status (*describe)(const struct model_dims *dims, struct param_table *out);
    enum status (*describe_adapter)(const struct model_dims *dims, struct param_table *out);
    enum status (*embed_fwd)(const struct pass *p);
    enum status (*embed_bwd)(const struct pass *p);
    enum status (*block_fwd)(const struct pass *p, int block);
    enum status (*block_bwd)(const struct pass *p, int block);
    enum status (*head)(const struct pass *p);
    enum status (*logits)(const struct pass *p, int64_t row, struct tensor out);
};
/* model_ops — returns the functions of the model's task. */
const struct model_ops *model_ops(const struct model_dims *dims);

/* model_targets_parse — reads the matrices that get an adapter: "all", "attention", "mlp", or words
 * with commas: q, k, v, qkv, o, gate, up, down, or the last words of a name in transformers, such
 * as q_proj (c_proj of GPT-2 is o and down). ST_BAD_SETTING: a word is unknown, or q, k or v are
 * one matrix and not all are there; the message begins with `what`. */
enum status model_targets_parse(const struct model_dims *dims, const char *what, const char *text,
                                unsigned *out);
/* model_targets_text — writes the set as model_targets_parse reads it. Returns out. */
const char *model_targets_text(const struct model_dims *dims, char out[MODEL_TARGETS_TEXT_MAX]);
/* model_targets_of — returns the targets of a tensor of an adapter, by its name
 * ("layers.0.self_attn.q_proj.lora_A.weight"); 0: it is of none. */
unsigned model_targets_of(const struct model_dims *dims, const char *name);

/* model_describe_trained — lists the parameters that training changes: the adapter's, or, without
 * one, the model's. */
enum status model_describe_trained(const struct model_dims *dims, struct param_table *out);

/* The rows (N,C) of a shard of a model at its borders, in the plan's dtype. */

/* model_shard_input — returns the input of its first block; embed_fwd writes it, or, in a shard
 * without the embedding, the caller. */
struct tensor model_shard_input(const struct pass *p);
/* model_shard_output — returns the output of its last block; the head reads it. */
struct tensor model_shard_output(const struct pass *p);
/* model_shard_grad — returns the gradient of the output before the last block's backward pass, then
 * the gradient of the input. All plans that share scratch share it. */
struct tensor model_shard_grad(const struct pass *p);

/* model_flops_per_token — returns the operations of forward and backward at T = t: matrix products
 * only, causal attention counted as half, recomputation not counted. With an adapter no gradients
 * of the model's matrices are computed. */
double model_flops_per_token(const struct model_dims *dims, int64_t t);

/* model_plan — allocates activations and scratch for passes of up to (b, t), with struct pass's t
 * and the ranks of the dimensions' shard, from two arenas; arenas without memory (base NULL)
 * measure only. dtype: type of parameters, activations and their gradients, f32 or a 16-bit type.
 * Gradients of parameters, losses and the statistics of norms and softmax are always f32. */
enum status model_plan(const struct model_dims *dims, int64_t b, int64_t t,
                       struct model_recomputed recompute, bool want_grad, enum dtype dtype,
                       struct arena *acts, struct arena *scratch, struct model_acts **out);
/* model_plan_kv_cache — adds a KV cache to a plan of one sample without gradients: q, k and v of
 * all tokens and blocks stay from pass to pass. A pass with `past` then computes one token.
 * Allocates (L-1)·t·(H+2K)·D elements more. q is not read again; it is kept because q, k and v lie
 * side by side. */
void model_plan_kv_cache(const struct model_dims *dims, struct model_acts *plan,
                         struct arena *acts);
void model_plan_free(struct model_acts *acts); /* accepts NULL; the arenas stay */

#endif
