/* gguf_config — see gguf/model.h and gguf/save.h. The config that was read is written as a
 * config.json and read back, so a GGUF file passes the same checks as a Hugging Face folder. */
#include "format/gguf/model.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "format/gguf/save.h"
#include "format/hf_config.h"

#define DIM_MAX (1 << 24)
#define KEY_CAP 96
#define WORD_CAP 32
/* Llama-3's scaling; its factor is the greatest number of rope_freqs.weight */
#define LLAMA3_LOW 1.0
#define LLAMA3_HIGH 4.0
#define LLAMA3_CONTEXT 8192

/* One read: keys of a model begin with its architecture. */
struct reader {
    const struct gguf *gguf;
    char arch[WORD_CAP];
    struct hf_config config;
};

/* key_of — writes the full key, and returns out. */
static const char *key_of(const struct reader *in, const char *key, char *out)
{
    text_format(out, KEY_CAP, "%s.%s", in->arch, key);
    return out;
}

static bool has_key(const struct reader *in, const char *key)
{
    char full[KEY_CAP];
    return gguf_find(in->gguf, key_of(in, key, full)) != NULL;
}

/* read_dim — reads a dimension; `usual` replaces a missing one; 0: it must not be missing. */
static enum status read_dim(const struct reader *in, const char *key, int64_t usual, int64_t *out)
{
    char full[KEY_CAP];
    *out = usual;
    return usual > 0 && !has_key(in, key)
               ? ST_OK
               : gguf_get_i64(in->gguf, key_of(in, key, full), 1, DIM_MAX, out);
}

/* read_number — reads the shortest decimal of the file's f32: 1e-5, not 9.99999974e-6. */
static enum status read_number(const struct reader *in, const char *key, double usual, double *out)
{
    char full[KEY_CAP], digits[40];
    double value = usual;
    if (has_key(in, key))
        TRY(gguf_get_f64(in->gguf, key_of(in, key, full), &value));
    *out = value;
    for (int precision = 6; isfinite(value) && precision <= 9; precision++) {
        text_format(digits, sizeof(digits), "%.*g", precision, value);
        double again;
        if (text_parse_f64(digits, -INFINITY, INFINITY, &again) == TEXT_OK &&
            (float)again == (float)value) {
            *out = again;
            break;
        }
    }
    return ST_OK;
}

static enum status find_arch(struct reader *in)
{
    TRY(gguf_get_text(in->gguf, "general.architecture", in->arch, sizeof(in->arch)));
    if (gguf_form_arch_named(in->arch, &in->config.arch))
        return ST_OK;
    return FAIL(
        ST_BAD_DATA,
        "%s: general.architecture is \"%s\", expected llama, qwen2, qwen3, gptneox or gpt2; "
        "use such a model",
        in->gguf->what, in->arch);
}

/* is_neutral — returns true for 0 of any kind, or a factor of 1. */
static bool is_neutral(const struct gguf_value *value)
{
    static const uint8_t one[4] = {0, 0, 0x80, 0x3f};
    bool is_zero = true;
    for (size_t i = 0; i < value->bytes; i++)
        is_zero = is_zero && value->data[i] == 0;
    return is_zero || (value->kind == GGUF_KIND_F32 && value->bytes == sizeof(one) &&
                       memcmp(value->data, one, sizeof(one)) == 0);
}

/* check_plain — refuses keys that would change the mathematics. */
static enum status check_plain(const struct reader *in)
{
    static const char *const list[] = {
        "expert_count",
        "attention.clamp_kqv",
        "attention.max_alibi_bias",
        "attention.scale",
        "attn_logit_softcapping",
        "final_logit_softcapping",
        "residual_scale",
        "embedding_scale",
        "logit_scale",
        "rope.scale_linear",
        "rope.scaling.attn_factor",
        "rope.scaling.yarn_log_multiplier",
        "rope.scaling.yarn_ext_factor",
        "rope.scaling.yarn_attn_factor",
    };
    char full[KEY_CAP];
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        const struct gguf_value *value = gguf_find(in->gguf, key_of(in, list[i], full));
        if (value && !is_neutral(value))
            return FAIL(ST_BAD_DATA, "%s: key %s is set, which is not supported; use another model",
                        in->gguf->what, full);
    }
    int64_t splits_n = 1;
    if (gguf_find(in->gguf, "split.count"))
        TRY(gguf_get_i64(in->gguf, "split.count", 0, INT32_MAX, &splits_n));
    if (splits_n > 1)
        return FAIL(ST_BAD_DATA,
                    "%s is one of %" PRId64
                    " parts of a split file; join them with llama-gguf-split --merge",
                    in->gguf->what, splits_n);
    return ST_OK;
}

static enum status read_dims(struct reader *in)
{
    struct hf_config *c = &in->config;
    int64_t window;
    TRY(read_dim(in, "block_count", 0, &c->layers));
    TRY(read_dim(in, "embedding_length", 0, &c->embed));
    TRY(read_dim(in, "context_length", 0, &c->context));
    TRY(read_dim(in, "feed_forward_length", 0, &c->ffn));
    /* The defaults of llama.cpp: the number of key heads is heads, and their width is embed /
     * heads. */
    int64_t value_dim;
    TRY(read_dim(in, "attention.head_count", 0, &c->heads));
    TRY(read_dim(in, "attention.head_count_kv", c->heads, &c->kv_heads));
    TRY(read_dim(in, "attention.key_length", c->embed / c->heads > 0 ? c->embed / c->heads : 1,
                 &c->head_dim));
    TRY(read_dim(in, "attention.value_length", c->head_dim, &value_dim));
    if (value_dim != c->head_dim ||
        (!has_key(in, "attention.key_length") && c->embed % c->heads != 0))
        return FAIL(ST_BAD_DATA,
                    "%s: %" PRId64 " heads of %" PRId64 " elements (keys) and %" PRId64
                    " (values) in a width of %" PRId64 " are not supported; use another model",
                    in->gguf->what, c->heads, c->head_dim, value_dim, c->embed);
    /* From the token embedding, which all files have. */
    const struct gguf_tensor *t = gguf_find_tensor(in->gguf, "token_embd.weight");
    if (!t || t->dims_n != 2 || t->dim[1] != in->config.embed || t->dim[0] > DIM_MAX)
        return FAIL(ST_BAD_DATA,
                    "%s: there is no token_embd.weight with rows of %" PRId64
                    " elements; is it a whole model?",
                    in->gguf->what, in->config.embed);
    in->config.vocab = t->dim[0];
    in->config.is_tied = !gguf_find_tensor(in->gguf, "output.weight");
    bool is_rms = c->arch != HF_ARCH_NEOX && c->arch != HF_ARCH_GPT2;
    TRY(read_number(in,
                    is_rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
                    1e-5, &c->norm_eps));
    TRY(read_dim(in, "attention.sliding_window", c->context, &window));
    if (window < c->context)
        return FAIL(ST_BAD_DATA,
                    "%s: attention.sliding_window %" PRId64
                    " is shorter than the context of %" PRId64
                    ", which is not supported; use another model",
                    in->gguf->what, window, c->context);
    return ST_OK;
}

static enum status read_scaling(struct reader *in)
{
    struct hf_rope *rope = &in->config.rope;
    char full[KEY_CAP], word[WORD_CAP] = "none";
    if (has_key(in, "rope.scaling.type"))
        TRY(gguf_get_text(in->gguf, key_of(in, "rope.scaling.type", full), word, sizeof(word)));
    if (strcmp(word, "none") == 0)
        return ST_OK;
    TRY(read_number(in, "rope.scaling.factor", 1, &rope->factor));
    rope->kind = HF_ROPE_LINEAR;
    if (strcmp(word, "linear") == 0)
        return ST_OK;
    rope->kind = HF_ROPE_YARN;
    if (strcmp(word, "yarn") != 0)
        return FAIL(ST_BAD_DATA,
                    "%s: rope.scaling.type is \"%s\", expected none, linear or yarn; use another "
                    "model",
                    in->gguf->what, word);
    TRY(read_dim(in, "rope.scaling.original_context_length", in->config.context,
                 &rope->original_context));
    TRY(read_number(in, "rope.scaling.yarn_beta_fast", 32, &rope->beta_fast));
    return read_number(in, "rope.scaling.yarn_beta_slow", 1, &rope->beta_slow);
}

double gguf_config_factor(const struct hf_rope *rope, int64_t i, int64_t n)
{
    double wavelength = 2 * M_PI * pow(rope->theta, (double)i / (double)n);
    double turns = (double)rope->original_context / wavelength;
    if (turns > rope->high_freq_factor)
        return 1;
    if (turns < rope->low_freq_factor)
        return rope->factor;
    double smooth =
        (turns - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor);
    return 1 / ((1 - smooth) / rope->factor + smooth);
}

/* read_freqs — reads rope_freqs.weight, which divides the frequencies; it must be Llama-3's
 * scaling. */
static enum status read_freqs(struct reader *in)
{
    struct hf_rope *rope = &in->config.rope;
    const struct gguf_tensor *t = gguf_find_tensor(in->gguf, "rope_freqs.weight");
    float value, most = 0;
    if (!t)
        return ST_OK;
    for (int64_t i = 0; i < t->elems && t->elems <= DIM_MAX; i++) {
        gguf_quant_to_f32(t->quant, t->data, i, 1, &value);
        most = value > most ? value : most;
    }
    if (rope->kind != HF_ROPE_NONE || t->dims_n != 1 || 2 * t->elems != in->config.head_dim ||
        !(most >= 1 && most <= DIM_MAX))
        return FAIL(ST_BAD_DATA,
                    "%s: rope_freqs.weight has %" PRId64 " numbers up to %g, expected %" PRId64
                    " numbers from 1 on and no other scaling; use another model",
                    in->gguf->what, t->elems, (double)most, in->config.head_dim / 2);
    int64_t original_context;
    TRY(read_dim(in, "rope.scaling.original_context_length", LLAMA3_CONTEXT, &original_context));
    rope->kind = most > 1 ? HF_ROPE_LLAMA3 : HF_ROPE_NONE;
    if (most > 1)
        *rope = (struct hf_rope){HF_ROPE_LLAMA3,
                                 rope->theta,
                                 rope->fraction,
                                 (double)most,
                                 LLAMA3_LOW,
                                 LLAMA3_HIGH,
                                 original_context,
                                 0,
                                 0,
                                 0};
    for (int64_t i = 0; i < t->elems; i++) {
        double want = most > 1 ? gguf_config_factor(rope, i, t->elems) : 1;
        gguf_quant_to_f32(t->quant, t->data, i, 1, &value);
        if (!(fabs(value - want) <= 1e-4 * want))
            return FAIL(ST_BAD_DATA,
                        "%s: number %" PRId64
                        " of rope_freqs.weight is %g, expected %g for Llama-3's scaling by %g; use "
                        "another model",
                        in->gguf->what, i, (double)value, want, (double)most);
    }
    return ST_OK;
}

static enum status read_rope(struct reader *in)
{
    if (in->config.arch == HF_ARCH_GPT2)
        return ST_OK;
    TRY(read_number(in, "rope.freq_base", 1e4, &in->config.rope.theta));
    /* So that int(fraction × head_dim) is the count again. */
    struct hf_config *c = &in->config;
    int64_t rotated;
    TRY(read_dim(in, "rope.dimension_count", c->head_dim, &rotated));
    if (rotated > c->head_dim || (c->arch != HF_ARCH_NEOX && rotated != c->head_dim))
        return FAIL(ST_BAD_DATA,
                    "%s: rope.dimension_count is %" PRId64 " in heads of %" PRId64
                    " elements, which is not supported; use another model",
                    in->gguf->what, rotated, c->head_dim);
    c->rope.fraction = (double)rotated / (double)c->head_dim;
    if ((int64_t)(c->rope.fraction * (double)c->head_dim) < rotated)
        c->rope.fraction = nextafter(c->rope.fraction, 2);
    TRY(read_scaling(in));
    return read_freqs(in);
}

/* read_mark — reads a token's number; -1: none. */
static int64_t read_mark(const struct reader *in, const char *key)
{
    int64_t token = -1;
    if (gguf_find(in->gguf, key) &&
        gguf_get_i64(in->gguf, key, 0, in->config.vocab - 1, &token) != ST_OK) {
        token = -1; /* some files have 2^32 - 1 for none */
        status_clear();
    }
    return token;
}

static void add_eos(struct reader *in, const char *key)
{
    int64_t token = read_mark(in, key);
    if (token >= 0 && (in->config.eos_n == 0 || in->config.eos[0] != token))
        in->config.eos[in->config.eos_n++] = token;
}

enum status gguf_config_read(const struct gguf *gguf, struct hf_config *out)
{
    struct reader in = {.gguf = gguf};
    TRY(find_arch(&in));
    TRY(check_plain(&in));
    TRY(read_dims(&in));
    struct hf_config *c = &in.config;
    char full[KEY_CAP];
    bool is_neox = c->arch == HF_ARCH_NEOX, is_gpt2 = c->arch == HF_ARCH_GPT2;
    c->qkv_bias = is_neox || is_gpt2 || c->arch == HF_ARCH_QWEN2;
    c->out_bias = is_neox || is_gpt2;
    c->parallel_residual = is_neox;
    if (is_neox && has_key(&in, "use_parallel_residual"))
        TRY(gguf_get_bool(in.gguf, key_of(&in, "use_parallel_residual", full),
                          &c->parallel_residual));
    c->is_tied = c->is_tied || is_gpt2;
    c->gelu_tanh = is_gpt2;
    if (is_gpt2 && (c->ffn != 4 * c->embed || c->norm_eps != 1e-5))
        return FAIL(ST_BAD_DATA,
                    "%s: feed_forward_length %" PRId64
                    " and layer_norm_epsilon %g, expected %" PRId64 " and 1e-05; use another model",
                    in.gguf->what, c->ffn, c->norm_eps, 4 * c->embed);
    TRY(read_rope(&in));
    in.config.bos = read_mark(&in, "tokenizer.ggml.bos_token_id");
    add_eos(&in, "tokenizer.ggml.eos_token_id");
    add_eos(&in, "tokenizer.ggml.eot_token_id"); /* the token that ends a turn in a chat */
    /* Checked like a config.json. */
    struct text text = {.data = NULL};
    hf_config_write(&in.config, 0, &text);
    enum status st = text.overflow ? FAIL(ST_RETRY, "out of memory: %s", in.gguf->what)
                                   : hf_config_parse(text.data, text.len, in.gguf->what, out);
    text_free(&text);
    return st;
}

/* ---- writing ---- */

/* One write. */
struct writer {
    const struct hf_config *config;
    struct gguf_head *head;
};

static void put_u32(const struct writer *w, const char *key, int64_t value)
{
    char full[KEY_CAP];
    text_format(full, sizeof(full), "%s.%s", gguf_form_arch(w->config->arch), key);
    gguf_head_u32(w->head, full, value);
}

static void put_f32(const struct writer *w, const char *key, double value)
{
    char full[KEY_CAP];
    text_format(full, sizeof(full), "%s.%s", gguf_form_arch(w->config->arch), key);
    gguf_head_f32(w->head, full, value);
}

/* check_keys — refuses a computation for which the format has no keys. */
static enum status check_keys(const struct hf_config *c)
{
    const struct hf_rope *rope = &c->rope;
    const char *what = c->is_qa                                  ? "a head that answers questions"
                       : c->arch == HF_ARCH_NEOX && c->gelu_tanh ? "GPT-NeoX with GELU by tanh"
                       : rope->kind == HF_ROPE_LLAMA3 && (rope->low_freq_factor != LLAMA3_LOW ||
                                                          rope->high_freq_factor != LLAMA3_HIGH)
                           ? "Llama-3's scaling with bounds other than 1 and 4"
                       : rope->kind == HF_ROPE_YARN && rope->attention_factor > 0
                           ? "YaRN with an attention factor of its own"
                           : NULL;
    if (what)
        return FAIL(ST_BAD_SETTING,
                    "GGUF has no keys for %s; export the model as a Hugging Face folder: TO "
                    "without .gguf",
                    what);
    return ST_OK;
}

static void write_rope(const struct writer *w)
{
    const struct hf_rope *rope = &w->config->rope;
    char full[KEY_CAP];
    put_u32(w, "rope.dimension_count", (int64_t)(rope->fraction * (double)w->config->head_dim));
    put_f32(w, "rope.freq_base", rope->theta);
    if (rope->kind == HF_ROPE_LLAMA3 || rope->kind == HF_ROPE_YARN)
        put_u32(w, "rope.scaling.original_context_length", rope->original_context);
    if (rope->kind != HF_ROPE_LINEAR && rope->kind != HF_ROPE_YARN)
        return; /* the rest of Llama-3's scaling is a tensor */
    text_format(full, sizeof(full), "%s.rope.scaling.type", gguf_form_arch(w->config->arch));
    gguf_head_text(w->head, full, rope->kind == HF_ROPE_YARN ? "yarn" : "linear");
    put_f32(w, "rope.scaling.factor", rope->factor);
    if (rope->kind == HF_ROPE_LINEAR)
        return;
    put_f32(w, "rope.scaling.yarn_beta_fast", rope->beta_fast);
    put_f32(w, "rope.scaling.yarn_beta_slow", rope->beta_slow);
}

enum status gguf_config_write(const struct hf_config *config, const char *name,
                              struct gguf_head *head)
{
    const struct writer w = {config, head};
    const char *arch = gguf_form_arch(config->arch);
    char full[KEY_CAP];
    const bool is_rms = config->arch != HF_ARCH_NEOX && config->arch != HF_ARCH_GPT2;
    TRY(check_keys(config));
    gguf_head_text(head, "general.architecture", arch);
    gguf_head_text(head, "general.type", "model");
    gguf_head_text(head, "general.name", name);
    put_u32(&w, "vocab_size", config->vocab);
    put_u32(&w, "context_length", config->context);
    put_u32(&w, "embedding_length", config->embed);
    put_u32(&w, "block_count", config->layers);
    put_u32(&w, "feed_forward_length", config->ffn);
    put_u32(&w, "attention.head_count", config->heads);
    put_u32(&w, "attention.head_count_kv", config->kv_heads);
    put_f32(&w, is_rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
            config->norm_eps);
    if (config->arch == HF_ARCH_GPT2)
        return ST_OK;
    put_u32(&w, "attention.key_length", config->head_dim);
    put_u32(&w, "attention.value_length", config->head_dim);
    if (config->arch == HF_ARCH_NEOX) {
        text_format(full, sizeof(full), "%s.use_parallel_residual", arch);
        gguf_head_bool(head, full, config->parallel_residual);
    }
    write_rope(&w);
    return ST_OK;
}
