/* hf_names — see hf_names.h. */
#include "format/hf_names.h"

#include <string.h>

#include "base/text.h"

static const char *const gpt2_single[] = {"wte.weight", "wpe.weight",        "ln_f.weight",
                                          "ln_f.bias",  "qa_outputs.weight", "qa_outputs.bias",
                                          NULL};
static const char *const gpt2_layered[] = {
    "ln_1.weight",
    "ln_1.bias",
    "attn.c_attn.weight",
    "attn.c_attn.bias",
    "attn.c_proj.weight",
    "attn.c_proj.bias",
    "ln_2.weight",
    "ln_2.bias",
    "mlp.c_fc.weight",
    "mlp.c_fc.bias",
    "mlp.c_proj.weight",
    "mlp.c_proj.bias",
    "attn.bias",
    "attn.masked_bias", /* the causal mask, kept by older versions */
    NULL};

/* Rotary positions are computed anew; older versions kept them as buffers. */
#define ROTARY_BUFFERS(of) \
    of "rotary_emb.inv_freq", of "rotary_emb.cos_cached", of "rotary_emb.sin_cached"

static const char *const llama_single[] = {"embed_tokens.weight", "norm.weight", ROTARY_BUFFERS(""),
                                           NULL};
#define LLAMA_LAYERED                                                                       \
    "input_layernorm.weight", "post_attention_layernorm.weight", "self_attn.q_proj.weight", \
        "self_attn.k_proj.weight", "self_attn.v_proj.weight", "self_attn.o_proj.weight",    \
        "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight",               \
        ROTARY_BUFFERS("self_attn.")
static const char *const llama_layered[] = {LLAMA_LAYERED, NULL};
static const char *const qwen2_layered[] = {LLAMA_LAYERED, "self_attn.q_proj.bias",
                                            "self_attn.k_proj.bias", "self_attn.v_proj.bias", NULL};
static const char *const qwen3_layered[] = {LLAMA_LAYERED, "self_attn.q_norm.weight",
                                            "self_attn.k_norm.weight", NULL};

static const char *const neox_single[] = {"embed_in.weight", "final_layer_norm.weight",
                                          "final_layer_norm.bias", ROTARY_BUFFERS(""), NULL};
static const char *const neox_layered[] = {"input_layernorm.weight",
                                           "input_layernorm.bias",
                                           "post_attention_layernorm.weight",
                                           "post_attention_layernorm.bias",
                                           "attention.query_key_value.weight",
                                           "attention.query_key_value.bias",
                                           "attention.dense.weight",
                                           "attention.dense.bias",
                                           "mlp.dense_h_to_4h.weight",
                                           "mlp.dense_h_to_4h.bias",
                                           "mlp.dense_4h_to_h.weight",
                                           "mlp.dense_4h_to_h.bias",
                                           "attention.bias", /* buffers of older versions */
                                           "attention.masked_bias",
                                           ROTARY_BUFFERS("attention."),
                                           NULL};

#define LLAMA_NAMES(title, layered)                                                               \
    {                                                                                             \
        title, "model.", "layers.", "embed_tokens.weight", "lm_head.weight", "num_hidden_layers", \
            llama_single, layered                                                                 \
    }
static const struct hf_names names_list[HF_ARCH_N] = {
    [HF_ARCH_GPT2] = {"GPT-2", "transformer.", "h.", "wte.weight", "lm_head.weight", "n_layer",
                      gpt2_single, gpt2_layered},
    [HF_ARCH_LLAMA] = LLAMA_NAMES("Llama", llama_layered),
    [HF_ARCH_QWEN2] = LLAMA_NAMES("Qwen2", qwen2_layered),
    [HF_ARCH_QWEN3] = LLAMA_NAMES("Qwen3", qwen3_layered),
    [HF_ARCH_NEOX] = {"GPT-NeoX", "gpt_neox.", "layers.", "embed_in.weight", "embed_out.weight",
                      "num_hidden_layers", neox_single, neox_layered},
};

const struct hf_names *hf_names_of(enum hf_arch arch) { return &names_list[arch]; }

static bool is_listed(const char *const *list, const char *name)
{
    for (; *list; list++)
        if (strcmp(*list, name) == 0)
            return true;
    return false;
}

/* layer_digits — returns the number of digits after the layer's word; 0: the name belongs to no
 * layer. */
static size_t layer_digits(const struct hf_names *names, const char *name)
{
    size_t before = strlen(names->layer);
    size_t n = text_starts(name, names->layer) ? strspn(name + before, "0123456789") : 0;
    return n > 0 && name[before + n] == '.' ? n : 0;
}

bool hf_names_has(const struct hf_names *names, const char *name)
{
    size_t n = layer_digits(names, name);
    if (n > 0)
        return is_listed(names->layered, name + strlen(names->layer) + n + 1);
    return is_listed(names->single, name) || strcmp(name, names->head) == 0;
}

int64_t hf_names_layer(const struct hf_names *names, const char *name)
{
    char digits[16];
    size_t n = layer_digits(names, name);
    int64_t layer;
    if (n == 0)
        return -1;
    if (n >= sizeof(digits))
        return INT32_MAX;
    memcpy(digits, name + strlen(names->layer), n);
    digits[n] = 0;
    return text_parse_i64(digits, 0, INT32_MAX, &layer) == TEXT_OK ? layer : INT32_MAX;
}

bool hf_names_full(const struct hf_names *names, const char *name, char *out, size_t cap)
{
    bool is_bare = strcmp(name, names->head) == 0 || text_starts(name, "qa_outputs.");
    return text_format(out, cap, "%s%s", is_bare ? "" : names->prefix, name);
}
