/* gguf_form — see gguf/form.h. Names and orders: tensor_mapping.py and the conversions of
 * llama.cpp. */
#include "format/gguf/form.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"

static const char *const arch_list[HF_ARCH_N] = {
    [HF_ARCH_GPT2] = "gpt2",   [HF_ARCH_LLAMA] = "llama",  [HF_ARCH_QWEN2] = "qwen2",
    [HF_ARCH_QWEN3] = "qwen3", [HF_ARCH_NEOX] = "gptneox",
};

#define ROW(ours, file, has_bias, form)         \
    {                                           \
        ours, file, true, has_bias, form, false \
    }
#define PLAIN GGUF_FORM_PLAIN
/* rows common to Llama and Qwen */
#define LLAMA_ROWS                                                 \
    {"embed_tokens", "token_embd", false, false, PLAIN, false},    \
        {"norm", "output_norm", false, false, PLAIN, false},       \
        {"lm_head", "output", false, false, PLAIN, false},         \
        ROW("input_layernorm", "attn_norm", false, PLAIN),         \
        ROW("post_attention_layernorm", "ffn_norm", false, PLAIN), \
        ROW("self_attn.o_proj", "attn_output", false, PLAIN),      \
        ROW("mlp.gate_proj", "ffn_gate", false, PLAIN),            \
        ROW("mlp.up_proj", "ffn_up", false, PLAIN), ROW("mlp.down_proj", "ffn_down", false, PLAIN)

static const struct gguf_form_row llama_list[] = {
    LLAMA_ROWS,
    ROW("self_attn.q_proj", "attn_q", false, GGUF_FORM_PAIRS),
    {"self_attn.k_proj", "attn_k", true, false, GGUF_FORM_PAIRS, true},
    ROW("self_attn.v_proj", "attn_v", false, PLAIN),
    {NULL, NULL, false, false, PLAIN, false}};

static const struct gguf_form_row qwen2_list[] = {LLAMA_ROWS,
                                                  ROW("self_attn.q_proj", "attn_q", true, PLAIN),
                                                  ROW("self_attn.k_proj", "attn_k", true, PLAIN),
                                                  ROW("self_attn.v_proj", "attn_v", true, PLAIN),
                                                  {NULL, NULL, false, false, PLAIN, false}};

static const struct gguf_form_row qwen3_list[] = {
    LLAMA_ROWS,
    ROW("self_attn.q_proj", "attn_q", false, PLAIN),
    ROW("self_attn.k_proj", "attn_k", false, PLAIN),
    ROW("self_attn.v_proj", "attn_v", false, PLAIN),
    ROW("self_attn.q_norm", "attn_q_norm", false, PLAIN),
    ROW("self_attn.k_norm", "attn_k_norm", false, PLAIN),
    {NULL, NULL, false, false, PLAIN, false}};

static const struct gguf_form_row neox_list[] = {
    {"embed_in", "token_embd", false, false, PLAIN, false},
    {"final_layer_norm", "output_norm", false, true, PLAIN, false},
    {"embed_out", "output", false, false, PLAIN, false},
    ROW("input_layernorm", "attn_norm", true, PLAIN),
    ROW("post_attention_layernorm", "ffn_norm", true, PLAIN),
    ROW("attention.query_key_value", "attn_qkv", true, GGUF_FORM_QKV),
    ROW("attention.dense", "attn_output", true, PLAIN),
    ROW("mlp.dense_h_to_4h", "ffn_up", true, PLAIN),
    ROW("mlp.dense_4h_to_h", "ffn_down", true, PLAIN),
    {NULL, NULL, false, false, PLAIN, false}};

static const struct gguf_form_row gpt2_list[] = {
    {"wte", "token_embd", false, false, PLAIN, false},
    {"wpe", "position_embd", false, false, PLAIN, false},
    {"ln_f", "output_norm", false, true, PLAIN, false},
    ROW("ln_1", "attn_norm", true, PLAIN),
    ROW("ln_2", "ffn_norm", true, PLAIN),
    ROW("attn.c_attn", "attn_qkv", true, GGUF_FORM_TRANSPOSED),
    ROW("attn.c_proj", "attn_output", true, GGUF_FORM_TRANSPOSED),
    ROW("mlp.c_fc", "ffn_up", true, GGUF_FORM_TRANSPOSED),
    ROW("mlp.c_proj", "ffn_down", true, GGUF_FORM_TRANSPOSED),
    {NULL, NULL, false, false, PLAIN, false}};

static const struct gguf_form_row *const form_list[HF_ARCH_N] = {
    [HF_ARCH_GPT2] = gpt2_list,   [HF_ARCH_LLAMA] = llama_list, [HF_ARCH_QWEN2] = qwen2_list,
    [HF_ARCH_QWEN3] = qwen3_list, [HF_ARCH_NEOX] = neox_list,
};

const char *gguf_form_arch(enum hf_arch arch) { return arch_list[arch]; }

bool gguf_form_arch_named(const char *name, enum hf_arch *out)
{
    for (int i = 0; i < HF_ARCH_N; i++)
        if (strcmp(name, arch_list[i]) == 0) {
            *out = (enum hf_arch)i;
            return true;
        }
    return false;
}

/* split_name — splits a name. prefix: "blk." or ours. false: no such form. */
static bool split_name(const char *name, const char *prefix, struct gguf_form_name *out)
{
    char digits[GGUF_FORM_NAME_MAX];
    size_t n = 0;
    *out = (struct gguf_form_name){.layer = -1};
    if (text_starts(name, prefix)) {
        name += strlen(prefix);
        n = strspn(name, "0123456789");
        if (n == 0 || n > 9 || name[n] != '.' || (n > 1 && name[0] == '0'))
            return false;
        text_format(digits, sizeof(digits), "%.*s", (int)n, name);
        if (text_parse_i64(digits, 0, INT32_MAX, &out->layer) != TEXT_OK)
            return false;
        name += n + 1;
    }
    const char *end = strrchr(name, '.');
    if (!end || (strcmp(end, ".weight") != 0 && strcmp(end, ".bias") != 0) || end == name)
        return false;
    out->is_bias = end[1] == 'b';
    return text_format(out->stem, sizeof(out->stem), "%.*s", (int)(end - name), name);
}

/* find_form — finds a form by our stem, or by the file's; NULL: the architecture has no such
 * parameter. */
static const struct gguf_form_row *find_form(enum hf_arch arch, const struct gguf_form_name *fields,
                                             bool is_ours)
{
    for (const struct gguf_form_row *row = form_list[arch]; row->ours; row++)
        if (strcmp(is_ours ? row->ours : row->file, fields->stem) == 0 &&
            row->is_layered == (fields->layer >= 0) && (!fields->is_bias || row->has_bias))
            return row;
    return NULL;
}

static const char *our_prefix(enum hf_arch arch) { return arch == HF_ARCH_GPT2 ? "h." : "layers."; }

const struct gguf_form_row *gguf_form_find(enum hf_arch arch, const char *file,
                                           struct gguf_form_name *out)
{
    return split_name(file, "blk.", out) ? find_form(arch, out, false) : NULL;
}

const struct gguf_form_row *gguf_form_of(enum hf_arch arch, const char *ours, char *file,
                                         size_t cap)
{
    struct gguf_form_name fields;
    const struct gguf_form_row *row =
        split_name(ours, our_prefix(arch), &fields) ? find_form(arch, &fields, true) : NULL;
    const char *end = fields.is_bias ? "bias" : "weight";
    if (row == NULL)
        text_copy(file, cap, "?");
    else if (row->is_layered)
        text_format(file, cap, "blk.%" PRId64 ".%s.%s", fields.layer, row->file, end);
    else
        text_format(file, cap, "%s.%s", row->file, end);
    return row;
}

void gguf_form_our_name(enum hf_arch arch, const struct gguf_form_row *row,
                        const struct gguf_form_name *name, char *out, size_t cap)
{
    const char *end = name->is_bias ? "bias" : "weight";
    if (row->is_layered)
        text_format(out, cap, "%s%" PRId64 ".%s.%s", our_prefix(arch), name->layer, row->ours, end);
    else
        text_format(out, cap, "%s.%s", row->ours, end);
}

int64_t gguf_form_file_row(enum gguf_form form, int64_t heads, int64_t d, int64_t row)
{
    if (form == GGUF_FORM_PAIRS) {
        int64_t head = row / d, half = row % d / (d / 2), i = row % (d / 2);
        return head * d + 2 * i + half;
    }
    int64_t head = row / (3 * d), kind = row / d % 3; /* QKV */
    return (kind * heads + head) * d + row % d;
}

int64_t gguf_form_our_row(enum gguf_form form, int64_t heads, int64_t d, int64_t row)
{
    if (form == GGUF_FORM_PAIRS) {
        int64_t head = row / d, i = row % d / 2, half = row % 2;
        return head * d + half * (d / 2) + i;
    }
    int64_t kind = row / (heads * d), head = row / d % heads; /* QKV */
    return (head * 3 + kind) * d + row % d;
}
