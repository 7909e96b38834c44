/* gguf_model — what llama.cpp's converter did to names, orders and shapes is undone; a model
 * that would compute something else is refused; the tokenizer's lists are found. */
#include "harness.h"

#include "format/gguf/model.h"
#include "format/gguf/vocab.h"
#include "gguf_sample.h"

/* Sizes of the samples: C = 32, H heads of D = 8, K key heads, F = 64, V = 5, 2 layers. */
enum { C = 32, H = 4, D = 8, K = 2, F = 64, V = 5 };

static float zero[4096];

static void add_dims(struct gguf_sample *s, const char *arch)
{
    static const struct {
        const char *key;
        uint32_t value;
    } list[] = {{"block_count", 1},
                {"embedding_length", C},
                {"context_length", 64},
                {"feed_forward_length", F},
                {"attention.head_count", H}};
    char key[64];
    sample_text(s, "general.architecture", arch);
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        text_format(key, sizeof(key), "%s.%s", arch, list[i].key);
        sample_u32(s, key, list[i].value);
    }
}

static void add_f32(struct gguf_sample *s, const char *name, int64_t rows, int64_t columns,
                    const float *data)
{
    sample_tensor(s, name, columns > 0 ? 2 : 1, (int64_t[]){rows, columns}, 0, data,
                  (size_t)(rows * (columns > 0 ? columns : 1)) * sizeof(float));
}

/* a_llama — as published files are, with no more tensors than are looked at. */
static struct gguf_sample a_llama(void)
{
    struct gguf_sample s = {.keys_n = 0};
    add_dims(&s, "llama");
    sample_u32(&s, "llama.attention.head_count_kv", K);
    sample_f32(&s, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    add_f32(&s, "token_embd.weight", V, C, zero);
    return s;
}

/* open_sample — bytes_out: to be freed after the model is closed. */
static enum status open_sample(struct gguf_sample *s, struct gguf_model **out, uint8_t **bytes_out)
{
    size_t n;
    *bytes_out = sample_end(s, 3, &n);
    return gguf_model_parse(*bytes_out, n, "file", out);
}

static void refuse(struct gguf_sample s, const char *says)
{
    struct gguf_model *model;
    uint8_t *bytes;
    if (open_sample(&s, &model, &bytes) != ST_BAD_DATA)
        fail_msg("expected \"%s\", but it was taken", says);
    harness_assert_message(says);
    free(bytes);
}

static struct hf_config config_of(struct gguf_sample s)
{
    struct gguf_model *model;
    uint8_t *bytes;
    if (open_sample(&s, &model, &bytes) != ST_OK)
        fail_msg("%s", status_message());
    struct hf_config config = *gguf_model_config(model);
    gguf_model_close(model);
    free(bytes);
    return config;
}

TEST(test_config)
{
    struct gguf_sample s = a_llama();
    sample_f32(&s, "llama.rope.freq_base", 1e5f);
    sample_u32(&s, "llama.rope.dimension_count", D);
    sample_u32(&s, "tokenizer.ggml.bos_token_id", 1);
    sample_u32(&s, "tokenizer.ggml.eos_token_id", UINT32_MAX);
    struct hf_config c = config_of(s);
    assert_int_equal(c.arch, HF_ARCH_LLAMA);
    assert_int_equal(c.layers, 1);
    assert_int_equal(c.heads, H);
    assert_int_equal(c.kv_heads, K);
    assert_int_equal(c.head_dim, D);
    assert_int_equal(c.embed, C);
    assert_int_equal(c.ffn, F);
    assert_int_equal(c.vocab, V);
    assert_int_equal(c.context, 64);
    assert_float_equal(c.norm_eps, 1e-5, 0); /* not the f32's 9.99999974e-06 */
    assert_float_equal(c.rope.theta, 1e5, 0);
    assert_float_equal(c.rope.fraction, 1, 0);
    assert_true(c.is_tied && !c.qkv_bias);
    assert_int_equal(c.bos, 1);
    assert_int_equal(c.eos_n, 0);
    s = a_llama();
    add_f32(&s, "output.weight", V, C, zero);
    assert_false(config_of(s).is_tied);
    s = (struct gguf_sample){.keys_n = 0};
    add_dims(&s, "gptneox");
    sample_u32(&s, "gptneox.rope.dimension_count", 2);
    sample_bool(&s, "gptneox.use_parallel_residual", 0);
    add_f32(&s, "token_embd.weight", V, C, zero);
    c = config_of(s);
    assert_int_equal(c.arch, HF_ARCH_NEOX);
    assert_float_equal(c.rope.fraction, 0.25, 0);
    assert_true(c.qkv_bias && c.out_bias && !c.parallel_residual);
    s = (struct gguf_sample){.keys_n = 0};
    add_dims(&s, "qwen3");
    sample_u32(&s, "qwen3.attention.head_count_kv", K);
    sample_u32(&s, "qwen3.attention.key_length", 16);
    sample_u32(&s, "qwen3.attention.value_length", 16);
    sample_text(&s, "qwen3.rope.scaling.type", "yarn");
    sample_f32(&s, "qwen3.rope.scaling.factor", 4);
    sample_u32(&s, "qwen3.rope.scaling.original_context_length", 16);
    add_f32(&s, "token_embd.weight", V, C, zero);
    c = config_of(s);
    assert_int_equal(c.arch, HF_ARCH_QWEN3);
    assert_int_equal(c.head_dim, 16);
    assert_int_equal(c.rope.kind, HF_ROPE_YARN);
    assert_float_equal(c.rope.factor, 4, 0);
    assert_int_equal(c.rope.original_context, 16);
}

/* refuse_key — a llama with one more key. */
static void refuse_u32(const char *key, uint32_t value, const char *says)
{
    struct gguf_sample s = a_llama();
    sample_u32(&s, key, value);
    refuse(s, says);
}

TEST(test_refusals)
{
    struct gguf_sample s = {.keys_n = 0};
    refuse(s, "general.architecture is missing");
    add_dims(&s, "bert");
    refuse(s, "\"bert\"");
    s = (struct gguf_sample){.keys_n = 0};
    add_dims(&s, "llama");
    refuse(s, "no token_embd.weight");
    refuse_u32("llama.expert_count", 8, "llama.expert_count");
    refuse_u32("llama.attention.sliding_window", 8, "sliding_window 8");
    refuse_u32("llama.attention.value_length", 4, "4 (values)");
    refuse_u32("split.count", 2, "2 parts");
    refuse_u32("llama.rope.dimension_count", 4, "rope.dimension_count is 4 in heads of 8 elements");
    s = a_llama();
    sample_text(&s, "llama.rope.scaling.type", "longrope");
    refuse(s, "longrope");
    s = a_llama();
    sample_f32(&s, "llama.rope.scaling.attn_factor", 2);
    refuse(s, "attn_factor");
    s = a_llama();
    sample_f32(&s, "llama.rope.freq_base", NAN);
    refuse(s, "");
    s = a_llama();
    add_f32(&s, "blk.0.attn_q.bias", C, 0, zero);
    refuse(s, "tensor blk.0.attn_q.bias does not belong");
    s = a_llama();
    add_f32(&s, "blk.1.attn_norm.weight", C, 0, zero);
    refuse(s, "block_count is 1");
    s = a_llama();
    add_f32(&s, "blk.00.attn_norm.weight", C, 0, zero);
    refuse(s, "does not belong");
    s = a_llama();
    add_f32(&s, "blk.0.ffn_gate_exps.weight", C, 0, zero);
    refuse(s, "does not belong");
    s = (struct gguf_sample){.keys_n = 0};
    add_dims(&s, "gpt2");
    add_f32(&s, "token_embd.weight", V, C, zero);
    refuse(s, "feed_forward_length 64");
}

/* Llama-3's scaling is told by the numbers that divide the frequencies. */
TEST(test_freqs)
{
    float freqs[D / 2] = {1, 1, 1, 8};
    struct gguf_sample s = a_llama();
    sample_f32(&s, "llama.rope.freq_base", 5e5f);
    /* wavelengths 2π · 5e5^(i/4): 6.3, 167, 4443 (between 2048 and 8192), 118148 */
    double turns = 8192 / (2 * M_PI * sqrt(5e5)), smooth = (turns - 1) / 3;
    freqs[2] = (float)(1 / ((1 - smooth) / 8 + smooth));
    add_f32(&s, "rope_freqs.weight", D / 2, 0, freqs);
    struct hf_config c = config_of(s);
    assert_int_equal(c.rope.kind, HF_ROPE_LLAMA3);
    assert_float_equal(c.rope.factor, 8, 0);
    assert_float_equal(c.rope.low_freq_factor, 1, 0);
    assert_float_equal(c.rope.high_freq_factor, 4, 0);
    assert_int_equal(c.rope.original_context, 8192);
    freqs[2] *= 1.01f;
    s = a_llama();
    sample_f32(&s, "llama.rope.freq_base", 5e5f);
    add_f32(&s, "rope_freqs.weight", D / 2, 0, freqs);
    refuse(s, "number 2 of rope_freqs.weight");
    s = a_llama();
    add_f32(&s, "rope_freqs.weight", D / 2, 0, (float[]){1, 1, 1, 1});
    assert_int_equal(config_of(s).rope.kind, HF_ROPE_NONE);
    s = a_llama();
    add_f32(&s, "rope_freqs.weight", D, 0, zero);
    refuse(s, "rope_freqs.weight has 8 numbers");
}

/* read_all — a parameter in chunks of `most` elements. */
static void read_all(const struct gguf_entry *e, int64_t most, float *out)
{
    for (int64_t first = 0, n; first < e->elems; first += n) {
        n = e->elems - first < most ? e->elems - first : most;
        gguf_model_to_f32(e, first, n, out + first);
    }
}

static void assert_reads(const struct gguf_model *model, const char *name, int dims_n,
                         const int64_t *dim, const float *want, int64_t n)
{
    static const int64_t chunks[] = {1, 7, 32, 100, 1 << 20};
    struct gguf_entry e;
    float got[8192];
    if (gguf_model_tensor(model, name, dims_n, dim, &e) != ST_OK)
        fail_msg("%s", status_message());
    assert_int_equal(e.elems, n);
    for (size_t i = 0; i < sizeof(chunks) / sizeof(chunks[0]); i++) {
        memset(got, 0xff, sizeof(got));
        read_all(&e, chunks[i], got);
        assert_memory_equal(got, want, (size_t)n * sizeof(float));
    }
}

/* rows of heads: (head, half, i) becomes (head, i, half) */
TEST(test_pairs)
{
    float q[H * D * C], k[K * D * C], q_file[H * D * C], k_file[K * D * C];
    for (int i = 0; i < H * D * C; i++)
        q[i] = (float)i;
    for (int i = 0; i < K * D * C; i++)
        k[i] = (float)-i;
    for (int h = 0; h < H; h++)
        for (int half = 0; half < 2; half++)
            for (int i = 0; i < D / 2; i++) {
                int from = h * D + half * D / 2 + i, to = h * D + 2 * i + half;
                memcpy(q_file + to * C, q + from * C, C * sizeof(float));
                if (h < K)
                    memcpy(k_file + to * C, k + from * C, C * sizeof(float));
            }
    struct gguf_sample s = a_llama();
    add_f32(&s, "blk.0.attn_q.weight", H * D, C, q_file);
    add_f32(&s, "blk.0.attn_k.weight", K * D, C, k_file);
    add_f32(&s, "blk.0.attn_v.weight", K * D, C, k);
    struct gguf_model *model;
    struct gguf_entry e;
    uint8_t *bytes;
    assert_int_equal(open_sample(&s, &model, &bytes), ST_OK);
    assert_reads(model, "layers.0.self_attn.q_proj.weight", 2, (int64_t[]){H * D, C}, q, H * D * C);
    assert_reads(model, "layers.0.self_attn.k_proj.weight", 2, (int64_t[]){K * D, C}, k, K * D * C);
    assert_reads(model, "layers.0.self_attn.v_proj.weight", 2, (int64_t[]){K * D, C}, k, K * D * C);
    assert_int_equal(gguf_model_tensor(model, "layers.0.self_attn.q_proj.weight", 2,
                                       (int64_t[]){C, H * D + 1}, &e),
                     ST_BAD_DATA);
    harness_assert_message("blk.0.attn_q.weight");
    assert_int_equal(
        gguf_model_tensor(model, "layers.0.mlp.up_proj.weight", 2, (int64_t[]){F, C}, &e),
        ST_BAD_DATA);
    harness_assert_message(
        "no tensor blk.0.ffn_up.weight, which Convoy calls layers.0.mlp.up_proj.weight");
    assert_int_equal(gguf_model_tensor(model, "lm_head.weight", 2, (int64_t[]){V, C}, &e),
                     ST_BAD_DATA);
    assert_int_equal(gguf_model_tensor(model, "what", 2, (int64_t[]){V, C}, &e), ST_BAD_DATA);
    gguf_model_close(model);
    free(bytes);
}

/* (head, kind, i) becomes (kind, head, i), of weights and biases */
TEST(test_qkv)
{
    float w[3 * C * C], w_file[3 * C * C], b[3 * C], b_file[3 * C];
    for (int i = 0; i < 3 * C * C; i++)
        w[i] = (float)i;
    for (int i = 0; i < 3 * C; i++)
        b[i] = (float)-i;
    for (int h = 0; h < H; h++)
        for (int kind = 0; kind < 3; kind++)
            for (int i = 0; i < D; i++) {
                int from = (h * 3 + kind) * D + i, to = (kind * H + h) * D + i;
                memcpy(w_file + to * C, w + from * C, C * sizeof(float));
                b_file[to] = b[from];
            }
    struct gguf_sample s = {.keys_n = 0};
    add_dims(&s, "gptneox");
    add_f32(&s, "token_embd.weight", V, C, zero);
    add_f32(&s, "blk.0.attn_qkv.weight", 3 * C, C, w_file);
    add_f32(&s, "blk.0.attn_qkv.bias", 3 * C, 0, b_file);
    struct gguf_model *model;
    uint8_t *bytes;
    assert_int_equal(open_sample(&s, &model, &bytes), ST_OK);
    assert_reads(model, "layers.0.attention.query_key_value.weight", 2, (int64_t[]){3 * C, C}, w,
                 3 * C * C);
    assert_reads(model, "layers.0.attention.query_key_value.bias", 1, (int64_t[]){3 * C}, b, 3 * C);
    gguf_model_close(model);
    free(bytes);
}

/* GPT-2's matrices are turned; its output layer may be a second copy of the embedding. */
TEST(test_turned)
{
    enum { I = C, O = 3 * C };
    float w[I * O], w_file[O * I], other[V * C] = {1};
    for (int i = 0; i < I; i++)
        for (int o = 0; o < O; o++)
            w[i * O + o] = w_file[o * I + i] = (float)(i * 1000 + o);
    for (int copy = 0; copy < 2; copy++) {
        struct gguf_sample s = {.keys_n = 0};
        struct gguf_model *model;
        uint8_t *bytes;
        sample_text(&s, "general.architecture", "gpt2");
        sample_u32(&s, "gpt2.block_count", 1);
        sample_u32(&s, "gpt2.embedding_length", C);
        sample_u32(&s, "gpt2.context_length", 64);
        sample_u32(&s, "gpt2.feed_forward_length", 4 * C);
        sample_u32(&s, "gpt2.attention.head_count", H);
        sample_f32(&s, "gpt2.attention.layer_norm_epsilon", 1e-5f);
        add_f32(&s, "token_embd.weight", V, C, zero);
        add_f32(&s, "output.weight", V, C, copy ? zero : other);
        add_f32(&s, "blk.0.attn_qkv.weight", O, I, w_file);
        add_f32(&s, "blk.0.attn_qkv.bias", O, 0, w_file);
        if (!copy) {
            refuse(s, "tensor output.weight");
            continue;
        }
        assert_int_equal(open_sample(&s, &model, &bytes), ST_OK);
        assert_reads(model, "h.0.attn.c_attn.weight", 2, (int64_t[]){I, O}, w, I * O);
        assert_reads(model, "h.0.attn.c_attn.bias", 1, (int64_t[]){O}, w_file, O);
        assert_true(gguf_model_config(model)->is_tied);
        gguf_model_close(model);
        free(bytes);
    }
}

/* Each type against its definition, in chunks that begin inside a block. */
TEST(test_types)
{
    static const struct {
        uint32_t type;
        int bytes;
    } list[] = {{2, 18}, {3, 20}, {8, 34}};
    for (size_t t = 0; t < sizeof(list) / sizeof(list[0]); t++) {
        uint8_t block[2][34];
        float want[64], scale[2] = {0.5f, -2}, minimum[2] = {3, 0.25f};
        static const uint8_t scale_half[2][2] = {{0x00, 0x38}, {0x00, 0xc0}},
                             minimum_half[2][2] = {{0x00, 0x42}, {0x00, 0x34}};
        uint8_t file[68];
        for (int b = 0; b < 2; b++) {
            memcpy(block[b], scale_half[b], 2);
            memcpy(block[b] + 2, minimum_half[b], 2); /* Q4_1's; overwritten for others */
            int head = list[t].type == 3 ? 4 : 2;
            for (int i = 0; i < list[t].bytes - head; i++)
                block[b][head + i] = (uint8_t)(37 * i + 11 * b);
            for (int i = 0; i < 32; i++) {
                uint8_t nibbles = block[b][head + i % 16];
                int nibble = i < 16 ? nibbles & 15 : nibbles >> 4;
                want[32 * b + i] = list[t].type == 8   ? scale[b] * (int8_t)block[b][head + i]
                                   : list[t].type == 2 ? scale[b] * (nibble - 8)
                                                       : scale[b] * nibble + minimum[b];
            }
            memcpy(file + b * list[t].bytes, block[b], (size_t)list[t].bytes);
        }
        struct gguf_sample s = a_llama();
        struct gguf_model *model;
        uint8_t *bytes;
        sample_tensor(&s, "output_norm.weight", 1, (int64_t[]){64}, list[t].type, file,
                      (size_t)list[t].bytes * 2);
        assert_int_equal(open_sample(&s, &model, &bytes), ST_OK);
        assert_reads(model, "norm.weight", 1, (int64_t[]){64}, want, 64);
        gguf_model_close(model);
        free(bytes);
    }
}

TEST(test_halves)
{
    static const uint16_t f16[4] = {0x3c00, 0xc000, 0x0001, 0x7bff};
    static const uint16_t bf16[4] = {0x3f80, 0xc000, 0x0080, 0x7f7f};
    static const float want[2][4] = {{1, -2, 0x1p-24f, 65504}, {1, -2, 0x1p-126f, 0x1.fep127f}};
    for (int i = 0; i < 2; i++) {
        struct gguf_sample s = a_llama();
        struct gguf_model *model;
        uint8_t *bytes;
        sample_tensor(&s, "output_norm.weight", 1, (int64_t[]){4}, i ? 30 : 1, i ? bf16 : f16, 8);
        assert_int_equal(open_sample(&s, &model, &bytes), ST_OK);
        assert_reads(model, "norm.weight", 1, (int64_t[]){4}, want[i], 4);
        gguf_model_close(model);
        free(bytes);
    }
}

/* ---- the tokenizer ---- */

static void add_vocab(struct gguf_sample *s, const char *model)
{
    sample_text(s, "tokenizer.ggml.model", model);
    sample_texts(s, "tokenizer.ggml.tokens", (const char *const[]){"<s>", "a", "b", "ab"}, 4);
    sample_array(s, "tokenizer.ggml.token_type", GGUF_KIND_I32, 4);
    for (int i = 0; i < 4; i++)
        sample_le(&s->keys, i == 0 ? 3 : 1, 4);
    sample_u32(s, "tokenizer.ggml.bos_token_id", 0);
}

static enum status read_vocab(struct gguf_sample *s, struct gguf_vocab *out, uint8_t **bytes)
{
    size_t n;
    struct gguf gguf;
    *bytes = sample_end(s, 3, &n);
    assert_int_equal(gguf_parse(*bytes, n, "file", &gguf), ST_OK);
    enum status st = gguf_vocab_read(&gguf, out);
    gguf_free(&gguf); /* the strings lie in the bytes */
    return st;
}

TEST(test_vocab)
{
    for (int is_llama = 0; is_llama < 2; is_llama++) {
        struct gguf_sample s = {.keys_n = 0};
        struct gguf_vocab v = {.tokens_n = 0};
        uint8_t *bytes;
        add_vocab(&s, is_llama ? "llama" : "gpt2");
        if (is_llama) {
            sample_array(&s, "tokenizer.ggml.scores", GGUF_KIND_F32, 4);
            for (int i = 0; i < 4; i++)
                text_add_bytes(&s.keys, &(float){(float)-i}, 4);
        } else {
            sample_text(&s, "tokenizer.ggml.pre", "smollm");
            sample_texts(&s, "tokenizer.ggml.merges", (const char *const[]){"a b"}, 1);
        }
        assert_int_equal(read_vocab(&s, &v, &bytes), ST_OK);
        assert_string_equal(v.model, is_llama ? "llama" : "gpt2");
        assert_string_equal(v.pre, is_llama ? "" : "smollm");
        assert_int_equal(v.tokens_n, 4);
        assert_int_equal(v.token[3].n, 2);
        assert_memory_equal(v.token[3].text, "ab", 2);
        assert_int_equal(v.merges_n, !is_llama);
        assert_int_equal(v.type[0], 3);
        assert_int_equal(v.bos, 0);
        assert_int_equal(v.eos, -1);
        assert_int_equal(v.add_bos, is_llama);
        assert_int_equal(v.add_space, is_llama);
        if (is_llama)
            assert_float_equal(v.score[3], -3, 0);
        else
            assert_null(v.score);
        gguf_vocab_free(&v);
        gguf_vocab_free(&v);
        free(bytes);
    }
}

/* Without add_bos_token a Llama 3 begins its texts all the same; what the file says goes first. */
TEST(test_vocab_begin)
{
    static const struct {
        const char *pre;
        int says; /* -1: nothing */
        bool add_bos;
    } cases[] = {{"llama3", -1, true}, {"llama-v3", -1, true},  {"llama-bpe", -1, true},
                 {"tekken", -1, true}, {"llama-bpe", 0, false}, {"qwen2", -1, false},
                 {"qwen2", 1, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_sample s = {.keys_n = 0};
        struct gguf_vocab v = {.tokens_n = 0};
        uint8_t *bytes;
        add_vocab(&s, "gpt2");
        sample_text(&s, "tokenizer.ggml.pre", cases[i].pre);
        if (cases[i].says >= 0)
            sample_bool(&s, "tokenizer.ggml.add_bos_token", cases[i].says);
        assert_int_equal(read_vocab(&s, &v, &bytes), ST_OK);
        assert_int_equal(v.add_bos, cases[i].add_bos);
        assert_false(v.add_space);
        gguf_vocab_free(&v);
        free(bytes);
    }
}

static void refuse_vocab(struct gguf_sample *s, const char *says)
{
    struct gguf_vocab v;
    uint8_t *bytes;
    assert_int_equal(read_vocab(s, &v, &bytes), ST_BAD_DATA);
    harness_assert_message(says);
    free(bytes);
}

TEST(test_bad_vocab)
{
    struct gguf_sample s = {.keys_n = 0};
    refuse_vocab(&s, "tokenizer.ggml.model is missing");
    sample_text(&s, "tokenizer.ggml.model", "gpt2");
    refuse_vocab(&s, "tokenizer.ggml.tokens is missing");
    sample_text(&s, "tokenizer.ggml.model", "gpt2");
    sample_array(&s, "tokenizer.ggml.tokens", GGUF_KIND_U8, 1);
    sample_le(&s.keys, 0, 1);
    refuse_vocab(&s, "tokenizer.ggml.tokens is of another kind");
    add_vocab(&s, "gpt2");
    sample_array(&s, "tokenizer.ggml.scores", GGUF_KIND_F32, 3);
    sample_le(&s.keys, 0, 8);
    sample_le(&s.keys, 0, 4);
    refuse_vocab(&s, "3 numbers for 4 tokens");
    add_vocab(&s, "gpt2");
    sample_u32(&s, "tokenizer.ggml.eos_token_id", 4);
    refuse_vocab(&s, "eos_token_id is 4, but there are 4 tokens");
    add_vocab(&s, "gpt2");
    sample_u32(&s, "tokenizer.ggml.add_bos_token", 1);
    refuse_vocab(&s, "add_bos_token");
}

/* As a file: found by its first bytes, mapped, and read by hf_read_config too. */
TEST(test_file)
{
    char path[FILE_PATH_MAX];
    struct gguf_sample s = a_llama();
    struct gguf_model *model;
    struct hf_config config;
    size_t n;
    uint8_t *bytes = sample_end(&s, 2, &n);
    text_format(path, sizeof(path), "%s/small.gguf", harness_tmpdir());
    assert_false(gguf_model_is_file(path));
    assert_int_equal(gguf_model_open(path, &model), ST_NO_INPUT);
    assert_int_equal(file_replace(path, bytes, n), ST_OK);
    assert_true(gguf_model_is_file(path));
    assert_false(gguf_model_is_file(harness_tmpdir()));
    assert_int_equal(gguf_model_open(path, &model), ST_OK);
    assert_int_equal(gguf_model_file(model)->tensors_n, 1);
    gguf_model_close(model);
    assert_int_equal(hf_read_config(path, &config), ST_OK);
    assert_int_equal(config.embed, C);
    assert_int_equal(file_replace(path, bytes, n - 1), ST_OK);
    assert_int_equal(gguf_model_open(path, &model), ST_BAD_DATA);
    harness_assert_message("small.gguf");
    gguf_model_close(NULL);
    free(bytes);
}

HARNESS_RUN_ALL()
