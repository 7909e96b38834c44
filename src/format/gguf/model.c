/* gguf_model — see gguf/model.h. */
#include "format/gguf/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

#define TILE 512 /* elements of a row that are transposed at a time */

struct gguf_model {
    char path[FILE_PATH_MAX];
    struct file_map map;
    struct gguf gguf;
    struct hf_config config;
};

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
        struct gguf_form_name fields;
        const struct gguf_form_row *row =
            gguf_form_find(model->config.arch, model->gguf.tensor[i].name, &fields);
        if (strcmp(model->gguf.tensor[i].name, "rope_freqs.weight") != 0 &&
            strcmp(fields.stem, "attn_rot_embd") != 0 && !is_copy(model, &model->gguf.tensor[i])) {
            if (!row)
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
                               const struct gguf_form_row **row_out, const struct gguf_tensor **out)
{
    char file[2 * GGUF_NAME_MAX];
    *row_out = gguf_form_of(model->config.arch, name, file, sizeof(file));
    *out = *row_out ? gguf_find_tensor(&model->gguf, file) : NULL;
    if (!*out)
        return FAIL(ST_BAD_DATA,
                    "%s: there is no tensor %s, which Convoy calls %s; is it a whole model?",
                    model->path, file, name);
    return ST_OK;
}

enum status gguf_model_tensor(const struct gguf_model *model, const char *name, int dims_n,
                              const int64_t *dim, struct gguf_entry *out)
{
    const struct gguf_form_row *row = NULL;
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
        int64_t row = gguf_form_file_row(e->form, e->heads, e->head_dim, first / width);
        gguf_quant_to_f32(t->quant, row_at(t, row, width), column, done, out);
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
#include "format/gguf/vocab.h"

/* read_last — reads the last elements of a tensor, by our name for it. */
static void read_last(const struct gguf_model *model, const struct gguf_tensor *t)
{
    struct gguf_form_name fields;
    char name[3 * GGUF_NAME_MAX];
    struct gguf_entry entry;
    float last[40];
    const struct gguf_form_row *row = gguf_form_find(model->config.arch, t->name, &fields);
    if (t->dims_n > 2 || !row)
        return;
    gguf_form_our_name(model->config.arch, row, &fields, name, sizeof(name));
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
