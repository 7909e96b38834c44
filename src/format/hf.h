/* hf — a Hugging Face folder: config.json and model.safetensors (or several such files and
 * model.safetensors.index.json), with or without the model's prefix ("transformer.", "model.",
 * "gpt_neox.").
 *
 * Our parameter names are Hugging Face's without that prefix ("h.0.attn.c_attn.weight",
 * "layers.0.self_attn.q_proj.weight", "lm_head.weight"), and our layouts are theirs (GPT-2's Conv1D
 * weights (I,O), linear weights (O,I); qa_outputs.weight (2,C)). Buffers (attn.bias, masked_bias,
 * rotary_emb.inv_freq) are skipped. A tied output layer is skipped too, or replaces a missing token
 * embedding; GPT-NeoX's is embed_out.weight, which transformers 5 may call lm_head.weight. */
#ifndef CONVOY_FORMAT_HF_H
#define CONVOY_FORMAT_HF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "format/safetensors.h"

enum hf_arch { HF_ARCH_GPT2, HF_ARCH_LLAMA, HF_ARCH_QWEN2, HF_ARCH_QWEN3, HF_ARCH_NEOX, HF_ARCH_N };
enum hf_rope_kind { HF_ROPE_NONE, HF_ROPE_LINEAR, HF_ROPE_LLAMA3, HF_ROPE_YARN };

/* Rotary positions; all 0 for GPT-2, which has none. Fields that a kind does not use are 0. */
struct hf_rope {
    enum hf_rope_kind kind; /* how the frequencies are scaled for contexts longer than trained */
    double theta;
    double fraction; /* share of a head's width that rotates: int(fraction × head_dim) elements */
    double factor;   /* linear, llama3, yarn */
    double low_freq_factor, high_freq_factor; /* llama3 */
    int64_t original_context;                 /* llama3, yarn: positions before scaling */
    double beta_fast, beta_slow;              /* yarn */
    double attention_factor; /* yarn: factor of cos and sin; 0: 0.1 × ln(factor) + 1 is computed */
};

#define HF_EOS_MAX 8

struct hf_config {
    int64_t layers, heads, embed, context, vocab;
    bool is_qa; /* architectures names GPT2ForQuestionAnswering */
    enum hf_arch arch;
    int64_t kv_heads, head_dim, ffn; /* kv_heads divides heads */
    double norm_eps;
    bool is_tied;           /* the output layer is the token embedding */
    bool qkv_bias;          /* q, k and v have biases */
    bool out_bias;          /* the output projection of attention and the MLP have biases */
    bool gelu_tanh;         /* GPT-2, GPT-NeoX: GELU by tanh; else the exact one */
    bool parallel_residual; /* GPT-NeoX: x + attention(norm1(x)) + mlp(norm2(x)) */
    struct hf_rope rope;
    int64_t bos;             /* the token that begins a text; -1: the file has none */
    int64_t eos[HF_EOS_MAX]; /* tokens that end a text; the first is the usual one */
    int eos_n;
    bool has_more_eos; /* the list is longer; hf_read_config refuses it */
};

bool hf_is_folder(const char *path); /* holds a config.json */
/* hf_read_config — reads the config of a folder, or of a GGUF file (gguf/model.h). If a folder's
 * generation_config.json has tokens that end a text, these are used, as in transformers; a file
 * that cannot be read is left out with a warning. ST_BAD_DATA: over HF_EOS_MAX tokens. Refuses,
 * with a reason, other architectures, and models that compute something that these do not. */
enum status hf_read_config(const char *path, struct hf_config *out);

struct hf_model;
/* hf_open — maps and parses the weights. config: the folder's, which decides on names. Refuses,
 * with their names, files that the index lists but do not exist, tensors that are in another file
 * or not listed, two tensors for one parameter, and a tied output layer that differs from the token
 * embedding. */
enum status hf_open(const char *dir, const struct hf_config *config, struct hf_model **out);
void hf_close(struct hf_model *hf); /* accepts NULL */
/* hf_weights_sum — returns a checksum of the files of weights, and of the index if there is one.
 * Of a file over 1 MiB only the ends are read (file_sum_ends). The same tensors divided among other
 * files have another sum. 0: the folder has no weights. */
enum status hf_weights_sum(const char *dir, uint64_t *out);
/* hf_tensor — finds a tensor by our name; ST_BAD_DATA with file, name, expected and actual
 * shape. */
enum status hf_tensor(const struct hf_model *hf, const char *name, int dims_n, const int64_t *dim,
                      const struct safetensors_entry **out);
/* hf_check_layers — fails with ST_BAD_DATA if it holds a tensor of a layer beyond `layers`. */
enum status hf_check_layers(const struct hf_model *hf, int64_t layers);
/* hf_check_names — fails with ST_BAD_DATA and the first tensor that the architecture does not have.
 * Buffers that are computed anew, such as causal masks, belong to it. */
enum status hf_check_names(const struct hf_model *hf);
/* hf_release — removes the pages of a tensor from resident memory, after it was read. */
void hf_release(const struct hf_model *hf, const struct safetensors_entry *entry);
/* hf_has — returns true if it has a tensor of our name; the output layer of a tied model counts as
 * its token embedding. */
bool hf_has(const struct hf_model *hf, const char *name);

/* hf_save — writes a new Hugging Face folder, whole or not at all: as TO.tmp-<pid>, every file and
 * the folder synced, then renamed. It must not know the contents of the files. */

/* A file other than the weights. */
struct hf_save_file {
    const char *name;
    const char *data;
    size_t bytes;
};

/* hf_save_check — fails with ST_BAD_SETTING if TO exists and is not an empty folder. */
enum status hf_save_check(const char *to);
#define HF_SAVE_FILE_BYTES_MAX 5000000000 /* transformers' own limit */
/* hf_save — writes the folder, with a file `weights` (NULL: model.safetensors) of these tensors
 * (named as in the file); above file_bytes_max, as several files with an index, as transformers
 * does: the tensors in their order, each file at most that large unless one tensor is larger.
 * Checks free space first, and creates the folders above TO. ST_STORE: nothing is left. */
enum status hf_save(const char *to, const char *weights, const struct safetensors_source *source,
                    int sources_n, const struct hf_save_file *file, int files_n,
                    int64_t file_bytes_max);

#endif
