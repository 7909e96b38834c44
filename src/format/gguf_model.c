/* gguf_model — see gguf_model.h. Names and orders: tensor_mapping.py and the conversions of
 * llama.cpp. */
#include "format/gguf_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

#define TILE 512 /* elements of a row that are transposed at a time */

/* One kind of parameter, without its layer and its ".weight" or ".bias". */
struct form_row {
    const char *ours, *file;
    bool is_layered, has_bias;
    enum gguf_form form;
    bool is_kv; /* PAIRS: heads of keys */
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

static const struct form_row llama_list[] = {
    LLAMA_ROWS,
    ROW("self_attn.q_proj", "attn_q", false, GGUF_FORM_PAIRS),
    {"self_attn.k_proj", "attn_k", true, false, GGUF_FORM_PAIRS, true},
    ROW("self_attn.v_proj", "attn_v", false, PLAIN),
    {NULL, NULL, false, false, PLAIN, false}};

static const struct form_row qwen2_list[] = {LLAMA_ROWS,
                                             ROW("self_attn.q_proj", "attn_q", true, PLAIN),
                                             ROW("self_attn.k_proj", "attn_k", true, PLAIN),
                                             ROW("self_attn.v_proj", "attn_v", true, PLAIN),
                                             {NULL, NULL, false, false, PLAIN, false}};

static const struct form_row qwen3_list[] = {LLAMA_ROWS,
                                             ROW("self_attn.q_proj", "attn_q", false, PLAIN),
                                             ROW("self_attn.k_proj", "attn_k", false, PLAIN),
                                             ROW("self_attn.v_proj", "attn_v", false, PLAIN),
                                             ROW("self_attn.q_norm", "attn_q_norm", false, PLAIN),
                                             ROW("self_attn.k_norm", "attn_k_norm", false, PLAIN),
                                             {NULL, NULL, false, false, PLAIN, false}};

static const struct form_row neox_list[] = {
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

static const struct form_row gpt2_list[] = {
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

static const struct form_row *const form_list[HF_ARCH_N] = {
    [HF_ARCH_GPT2] = gpt2_list,   [HF_ARCH_LLAMA] = llama_list, [HF_ARCH_QWEN2] = qwen2_list,
    [HF_ARCH_QWEN3] = qwen3_list, [HF_ARCH_NEOX] = neox_list,
};

struct gguf_model {
    char path[FILE_PATH_MAX];
    struct file_map map;
    struct gguf gguf;
    struct hf_config config;
};

/* The fields of a name: "<prefix>.<layer>.<stem>.weight" or "<stem>.weight". */
struct name_fields {
    int64_t layer; /* -1: not in a layer */
    char stem[GGUF_NAME_MAX];
    bool is_bias;
};

/* split_name — splits a name. prefix: "blk." or ours. false: no such form. */
static bool split_name(const char *name, const char *prefix, struct name_fields *out)
{
    char digits[GGUF_NAME_MAX];
    size_t n = 0;
    out->layer = -1;
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
static const struct form_row *find_form(enum hf_arch arch, const struct name_fields *fields,
                                        bool is_ours)
{
    for (const struct form_row *row = form_list[arch]; row->ours; row++)
        if (strcmp(is_ours ? row->ours : row->file, fields->stem) == 0 &&
            row->is_layered == (fields->layer >= 0) && (!fields->is_bias || row->has_bias))
            return row;
    return NULL;
}

static const char *our_prefix(enum hf_arch arch) { return arch == HF_ARCH_GPT2 ? "h." : "layers."; }

/* ---- the contents of the file ---- */

static bool is_equal(const struct gguf_model *model, const struct gguf_tensor *a,
                     const struct gguf_tensor *b)
{
    bool is_same = memcmp(a->data, b->data, a->bytes) == 0;
    file_map_release(&model->map, a->data, a->bytes);
    file_map_release(&model->map, b->data, b->bytes);
    return is_same;
}

/* is_copy — returns true for the output layer of a GPT-2 that equals its token embedding: some
 * files hold both. */
static bool is_copy(const struct gguf_model *model, const struct gguf_tensor *t)
{
    const struct gguf_tensor *embd = gguf_find_tensor(&model->gguf, "token_embd.weight");
    return model->config.arch == HF_ARCH_GPT2 && strcmp(t->name, "output.weight") == 0 && embd &&
           embd->quant == t->quant && embd->bytes == t->bytes && is_equal(model, embd, t);
}

static enum status parse_model(struct gguf_model *model, const uint8_t *bytes, size_t n)
{
    TRY(gguf_parse(bytes, n, model->path, &model->gguf));
    TRY(gguf_config_read(&model->gguf, &model->config));
    for (int i = 0; i < model->gguf.tensors_n; i++) {
        /* A tensor that the architecture lacks would be left out of the computation. */
        struct name_fields fields;
        bool is_split = split_name(model->gguf.tensor[i].name, "blk.", &fields);
        if (strcmp(model->gguf.tensor[i].name, "rope_freqs.weight") != 0 &&
            (!is_split || strcmp(fields.stem, "attn_rot_embd") != 0) &&
            !is_copy(model, &model->gguf.tensor[i])) {
            if (!is_split || !find_form(model->config.arch, &fields, false))
                return FAIL(ST_BAD_DATA,
                            "%s: tensor %s does not belong to the architecture, or would change "
                            "its results; use another model",
                            model->path, model->gguf.tensor[i].name);
            if (fields.layer >= model->config.layers)
                return FAIL(ST_BAD_DATA,
                            "%s: tensor %s is of layer %" PRId64 ", but block_count is %" PRId64
                            "; the file is damaged",
                            model->path, model->gguf.tensor[i].name, fields.layer,
                            model->config.layers);
        }
    }
    return ST_OK;
}

/* ---- life ---- */

bool gguf_model_is_file(const char *path)
{
    uint8_t magic[4];
    FILE *file = file_bytes(path) >= 4 ? fopen(path, "rbe") : NULL;
    if (!file)
        return false;
    size_t n = fread(magic, 1, sizeof(magic), file);
    fclose(file);
    return gguf_is_magic(magic, n);
}

static struct gguf_model *new_model(const char *path)
{
    struct gguf_model *model = memory_new(1, sizeof(*model));
    text_copy(model->path, sizeof(model->path), path);
    return model;
}

enum status gguf_model_parse(const uint8_t *bytes, size_t n, const char *what,
                             struct gguf_model **out)
{
    struct gguf_model *model = new_model(what);
    enum status st = parse_model(model, bytes, n);
    if (st != ST_OK)
        gguf_model_close(model);
    else
        *out = model;
    return st;
}

enum status gguf_model_open(const char *path, struct gguf_model **out)
{
    struct gguf_model *model = new_model(path);
    enum status st;
    TRY_OR(file_map_open(path, &model->map), close_model);
    TRY_OR(parse_model(model, model->map.data, model->map.bytes), close_model);
    *out = model;
    return ST_OK;
close_model:
    gguf_model_close(model);
    return st;
}

void gguf_model_close(struct gguf_model *model)
{
    if (!model)
        return;
    gguf_free(&model->gguf);
    file_map_close(&model->map);
    free(model);
}

const struct hf_config *gguf_model_config(const struct gguf_model *model) { return &model->config; }

const struct gguf *gguf_model_file(const struct gguf_model *model) { return &model->gguf; }

/* ---- parameters ---- */

/* find_tensor — finds a tensor by our name; *row_out: its form. */
static enum status find_tensor(const struct gguf_model *model, const char *name,
                               const struct form_row **row_out, const struct gguf_tensor **out)
{
    struct name_fields fields;
    char file[2 * GGUF_NAME_MAX] = "?", layer[32] = "";
    bool is_split = split_name(name, our_prefix(model->config.arch), &fields);
    const struct form_row *row = is_split ? find_form(model->config.arch, &fields, true) : NULL;
    if (row && row->is_layered)
        text_format(layer, sizeof(layer), "blk.%" PRId64 ".", fields.layer);
    if (row)
        text_format(file, sizeof(file), "%s%s.%s", layer, row->file,
                    fields.is_bias ? "bias" : "weight");
    *row_out = row;
    *out = row ? gguf_find_tensor(&model->gguf, file) : NULL;
    if (!*out)
        return FAIL(ST_BAD_DATA,
                    "%s: there is no tensor %s, which Convoy calls %s; is it a whole model?",
                    model->path, file, name);
    return ST_OK;
}

enum status gguf_model_tensor(const struct gguf_model *model, const char *name, int dims_n,
                              const int64_t *dim, struct gguf_entry *out)
{
    const struct form_row *row = NULL;
    const struct gguf_tensor *t = NULL;
    const struct hf_config *c = &model->config;
    TRY(find_tensor(model, name, &row, &t));
    /* The expected shape, in the order of the file. */
    bool is_turned = row->form == GGUF_FORM_TRANSPOSED && dims_n == 2;
    int64_t want[GGUF_DIMS_MAX] = {0};
    ASSERTF(dims_n == 1 || dims_n == 2, "%d dimensions", dims_n);
    for (int i = 0; i < dims_n; i++)
        want[i] = is_turned ? dim[1 - i] : dim[i];
    if (t->dims_n != dims_n || memcmp(t->dim, want, (size_t)dims_n * sizeof(want[0])) != 0)
        return FAIL(ST_BAD_DATA,
                    "%s: tensor %s has %d dimensions (%" PRId64 ", %" PRId64
                    "), expected %d (%" PRId64 ", %" PRId64 "); the file does not fit its keys",
                    model->path, t->name, t->dims_n, t->dim[0], t->dims_n > 1 ? t->dim[1] : 0,
                    dims_n, want[0], want[1]);
    if (dims_n == 1 && row->form == GGUF_FORM_QKV && t->quant->block_elems != 1)
        return FAIL(ST_BAD_DATA, "%s: tensor %s is of type %s, expected F32, F16 or BF16",
                    model->path, t->name, t->quant->name);
    *out = (struct gguf_entry){.tensor = t,
                               .form = row->form,
                               .heads = row->is_kv ? c->kv_heads : c->heads,
                               .head_dim = c->head_dim,
                               .elems = t->elems};
    int64_t rows =
        row->form == GGUF_FORM_QKV ? 3 * c->heads * c->head_dim : out->heads * out->head_dim;
    if ((row->form == GGUF_FORM_PAIRS || row->form == GGUF_FORM_QKV) && t->dim[0] != rows)
        return FAIL(ST_BAD_DATA, "%s: tensor %s has %" PRId64 " rows, expected %" PRId64,
                    model->path, t->name, t->dim[0], rows);
    return ST_OK;
}

/* source_row — returns the file's row for our row. */
static int64_t source_row(const struct gguf_entry *e, int64_t row)
{
    int64_t d = e->head_dim;
    if (e->form == GGUF_FORM_PAIRS) {
        int64_t head = row / d, half = row % d / (d / 2), i = row % (d / 2);
        return head * d + 2 * i + half;
    }
    int64_t head = row / (3 * d), kind = row / d % 3; /* QKV */
    return (kind * e->heads + head) * d + row % d;
}

static const uint8_t *row_at(const struct gguf_tensor *t, int64_t row, int64_t row_elems)
{
    return t->data + row * (row_elems / t->quant->block_elems) * t->quant->block_bytes;
}

static void read_rows(const struct gguf_entry *e, int64_t first, int64_t n, float *out)
{
    const struct gguf_tensor *t = e->tensor;
    int64_t width = t->dims_n == 1 ? 1 : t->dim[1];
    for (int64_t done; n > 0; first += done, out += done, n -= done) {
        int64_t column = first % width;
        done = n < width - column ? n : width - column;
        gguf_quant_to_f32(t->quant, row_at(t, source_row(e, first / width), width), column, done,
                          out);
    }
}

/* Transposes our rows [row, row+rows_n), columns [column, column+columns_n): a tile of each of the
 * file's rows becomes a column. */
static void transpose_rows(const struct gguf_tensor *t, int64_t row, int64_t rows_n, int64_t column,
                           int64_t columns_n, int64_t stride, float *out)
{
    float tile[TILE];
    for (int64_t j = 0; j < columns_n; j++)
        for (int64_t i = 0, n; i < rows_n; i += n) {
            n = rows_n - i < TILE ? rows_n - i : TILE;
            gguf_quant_to_f32(t->quant, row_at(t, column + j, t->dim[1]), row + i, n, tile);
            for (int64_t k = 0; k < n; k++)
                out[(i + k) * stride + j] = tile[k];
        }
}

static void read_turned(const struct gguf_entry *e, int64_t first, int64_t n, float *out)
{
    const struct gguf_tensor *t = e->tensor;
    int64_t width = t->dim[0]; /* width of our rows */
    for (int64_t done; n > 0; first += done, out += done, n -= done) {
        int64_t column = first % width, rows_n = column == 0 && n >= width ? n / width : 1;
        done = rows_n > 1 || n > width - column ? rows_n * (width - column) : n;
        transpose_rows(t, first / width, rows_n, column, done / rows_n, width, out);
    }
}

void gguf_model_to_f32(const struct gguf_entry *e, int64_t first, int64_t n, float *out)
{
    const struct gguf_tensor *t = e->tensor;
    ASSERTF(first >= 0 && n >= 0 && first <= e->elems && n <= e->elems - first,
            "first %" PRId64 " n %" PRId64 " elems %" PRId64, first, n, e->elems);
    if (e->form == GGUF_FORM_PAIRS || e->form == GGUF_FORM_QKV)
        read_rows(e, first, n, out);
    else if (e->form == GGUF_FORM_TRANSPOSED && t->dims_n == 2)
        read_turned(e, first, n, out);
    else
        gguf_quant_to_f32(t->quant, t->data, first, n, out);
}

void gguf_model_release(const struct gguf_model *model, const struct gguf_entry *entry)
{
    file_map_release(&model->map, entry->tensor->data, entry->tensor->bytes);
}

#ifdef FUZZ
#include "format/gguf_vocab.h"

/* read_last — reads the last elements of a tensor, by our name for it. */
static void read_last(const struct gguf_model *model, const struct gguf_tensor *t)
{
    struct name_fields fields;
    char name[3 * GGUF_NAME_MAX], layer[32] = "";
    struct gguf_entry entry;
    float last[40];
    if (t->dims_n > 2 || !split_name(t->name, "blk.", &fields))
        return;
    const struct form_row *row = find_form(model->config.arch, &fields, false);
    if (!row)
        return;
    if (row->is_layered)
        text_format(layer, sizeof(layer), "%s%" PRId64 ".", our_prefix(model->config.arch),
                    fields.layer);
    text_format(name, sizeof(name), "%s%s.%s", layer, row->ours,
                fields.is_bias ? "bias" : "weight");
    bool is_turned = row->form == GGUF_FORM_TRANSPOSED && t->dims_n == 2;
    int64_t dim[2] = {t->dim[is_turned], t->dim[!is_turned]};
    if (gguf_model_tensor(model, name, t->dims_n, dim, &entry) != ST_OK)
        return;
    ASSERT(entry.tensor == t && entry.elems == t->elems);
    int64_t n = entry.elems < 40 ? entry.elems : 40;
    gguf_model_to_f32(&entry, entry.elems - n, n, last);
}

/* Any bytes are refused, or are a model whose every parameter is read to its last element. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct gguf_model *model;
    struct gguf_vocab vocab;
    if (gguf_model_parse(bytes, n, "fuzz", &model) != ST_OK)
        return 0;
    ASSERT(model->config.vocab > 0 && model->config.heads % model->config.kv_heads == 0);
    for (int i = 0; i < model->gguf.tensors_n; i++)
        read_last(model, &model->gguf.tensor[i]);
    if (gguf_vocab_read(&model->gguf, &vocab) == ST_OK)
        gguf_vocab_free(&vocab);
    gguf_model_close(model);
    return 0;
}
#endif
