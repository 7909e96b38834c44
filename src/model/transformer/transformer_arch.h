/* transformer_arch — an architecture: its block, the names and the order of its parameters, the
 * layout of their weights in memory, its presets, and the features that it may have; for src/model
 * only.
 *
 * A new architecture is a folder with one struct transformer_arch, a value of enum model_arch, and
 * a row in transformer_arch. */
#ifndef CONVOY_MODEL_TRANSFORMER_ARCH_H
#define CONVOY_MODEL_TRANSFORMER_ARCH_H

#include "model/model.h"

/* The parameters of a block. An architecture has either QKV, or Q, K and V; MLPs with a gate have
 * GATE. Parameters that lie one after the other without padding (Q K V, their biases, GATE UP,
 * their biases) must be neighbours in its list. */
enum transformer_param {
    TRANSFORMER_PARAM_NORM1,
    TRANSFORMER_PARAM_NORM1_BIAS,
    TRANSFORMER_PARAM_QKV,
    TRANSFORMER_PARAM_QKV_BIAS,
    TRANSFORMER_PARAM_Q,
    TRANSFORMER_PARAM_K,
    TRANSFORMER_PARAM_V,
    TRANSFORMER_PARAM_Q_BIAS,
    TRANSFORMER_PARAM_K_BIAS,
    TRANSFORMER_PARAM_V_BIAS,
    TRANSFORMER_PARAM_Q_NORM,
    TRANSFORMER_PARAM_K_NORM,
    TRANSFORMER_PARAM_ATT,
    TRANSFORMER_PARAM_ATT_BIAS,
    TRANSFORMER_PARAM_NORM2,
    TRANSFORMER_PARAM_NORM2_BIAS,
    TRANSFORMER_PARAM_GATE,
    TRANSFORMER_PARAM_UP,
    TRANSFORMER_PARAM_GATE_BIAS,
    TRANSFORMER_PARAM_UP_BIAS,
    TRANSFORMER_PARAM_DOWN,
    TRANSFORMER_PARAM_DOWN_BIAS,
    TRANSFORMER_PARAMS
};

struct transformer_arch {
    const char *name;            /* transformers' model_type */
    enum matmul_layout layout;   /* layout of linear weights */
    enum attention_layout heads; /* layout of a row of q, k and v */
    bool has_qa;
    enum status (*block_fwd)(const struct pass *p, int block);
    enum status (*block_bwd)(const struct pass *p, int block);
    struct model_features features; /* features of most of its models */
    const char *embed, *positions;  /* positions NULL: no learned positions */
    const char *norm, *norm_bias;   /* after the last block; norm_bias NULL: none */
    const char *head;               /* weights of the vocabulary, if untied; NULL: always tied */
    const char *block;              /* prefix of a block's names; %d is its number */
    struct {
        enum transformer_param param;
        const char *name;
    } row[TRANSFORMER_PARAMS]; /* in the order of the table; name NULL: the end */
    const struct model_dims *preset;
    int presets_n;
    /* checks the dimensions: ST_BAD_SETTING with the values; NULL: any are allowed */
    enum status (*check)(const struct model_dims *dims);
};

extern const struct transformer_arch gpt2_arch, llama_arch, neox_arch, qwen_2_arch, qwen_3_arch;
/* Computes a block's forward pass; GPT-NeoX's blocks compute the same. */
enum status gpt2_block_fwd(const struct pass *p, int block);
/* Computes a block's backward pass; GPT-NeoX's blocks compute the same. */
enum status gpt2_block_bwd(const struct pass *p, int block);
/* Computes a block's forward pass; Qwen's blocks compute the same. */
enum status llama_block_fwd(const struct pass *p, int block);
/* Computes a block's backward pass; Qwen's blocks compute the same. */
enum status llama_block_bwd(const struct pass *p, int block);
/* Returns the table of an architecture. */
const struct transformer_arch *transformer_arch(enum model_arch arch);
/* transformer_arch_check — checks a setting that has only one value in an architecture; for
 * `check`. */
enum status transformer_arch_check(const struct model_dims *dims, const char *setting,
                                   int64_t value, int64_t want, const char *why);

#endif
