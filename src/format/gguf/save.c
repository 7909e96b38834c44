/* gguf_save — see gguf/save.h. Types of tensors: as convert_hf_to_gguf.py of llama.cpp. */
#include "format/gguf/save.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/memory.h"
#include "format/gguf/form.h"
#include "format/sink.h"
#include "format/stage.h"

#define VERSION 3
#define ALIGNMENT 32
#define READ_ELEMS ((int64_t)1 << 20) /* elements of a tensor in memory, if a row is not longer */
#define SLACK_BYTES (64 << 10)        /* the folder and the file system's own blocks */
#define FILE_NAME "model"             /* in the temporary folder */
#define FREQS "rope_freqs.weight"
#define HEAD_BYTES_MAX ((size_t)1 << 30)

/* ---- keys ---- */

static void add_le(struct text *out, uint64_t value, int bytes)
{
    uint8_t le[8];
    for (int i = 0; i < bytes; i++)
        le[i] = (uint8_t)(value >> (8 * i));
    text_add_bytes(out, le, (size_t)bytes);
}

static void add_string(struct text *out, const char *text, size_t n)
{
    add_le(out, n, 8);
    text_add_bytes(out, text, n);
}

static void add_key(struct gguf_head *head, const char *key, size_t key_n, enum gguf_kind kind)
{
    head->bytes.limit = HEAD_BYTES_MAX;
    add_string(&head->bytes, key, key_n);
    add_le(&head->bytes, kind, 4);
    head->n++;
}

void gguf_head_u32(struct gguf_head *head, const char *key, int64_t value)
{
    ASSERTF(value >= 0 && value <= UINT32_MAX, "%s %" PRId64, key, value);
    add_key(head, key, strlen(key), GGUF_KIND_U32);
    add_le(&head->bytes, (uint64_t)value, 4);
}

void gguf_head_f32(struct gguf_head *head, const char *key, double value)
{
    const float f32 = (float)value;
    uint32_t bits;
    memcpy(&bits, &f32, sizeof(bits));
    add_key(head, key, strlen(key), GGUF_KIND_F32);
    add_le(&head->bytes, bits, 4);
}

void gguf_head_bool(struct gguf_head *head, const char *key, bool value)
{
    add_key(head, key, strlen(key), GGUF_KIND_BOOL);
    add_le(&head->bytes, value, 1);
}

void gguf_head_text(struct gguf_head *head, const char *key, const char *value)
{
    add_key(head, key, strlen(key), GGUF_KIND_STRING);
    add_string(&head->bytes, value, strlen(value));
}

void gguf_head_array(struct gguf_head *head, const char *key, enum gguf_kind kind, uint64_t n)
{
    add_key(head, key, strlen(key), GGUF_KIND_ARRAY);
    add_le(&head->bytes, kind, 4);
    add_le(&head->bytes, n, 8);
}

void gguf_head_string(struct gguf_head *head, const char *text, size_t n)
{
    add_string(&head->bytes, text, n);
}

void gguf_head_copy(struct gguf_head *head, const struct gguf_value *value)
{
    add_key(head, value->key, value->key_n, value->is_array ? GGUF_KIND_ARRAY : value->kind);
    if (value->is_array) {
        add_le(&head->bytes, value->kind, 4);
        add_le(&head->bytes, (uint64_t)value->n, 8);
    }
    text_add_bytes(&head->bytes, value->data, value->bytes);
}

/* ---- tensors ---- */

/* One tensor of the file. */
struct out_tensor {
    char name[GGUF_NAME_MAX];
    const struct gguf_source *source; /* NULL: the divisors of frequencies */
    const struct gguf_quant *quant;
    enum gguf_form form; /* order of its rows; a bias has rows of one element, or is one row */
    int64_t heads, head_dim;
    int64_t rows, width; /* in the file */
    uint64_t bytes;
};

/* One file that is being written. */
struct job {
    const struct hf_config *config;
    const struct gguf_quant *quant;
    struct out_tensor *tensor;
    int tensors_n;
    int f16_n;
    struct text begin; /* before the keys */
    struct text list;  /* after the keys: the list of tensors, and padding */
    struct stage stage;
};

static uint64_t align_up(uint64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* quant_of — returns the type of a tensor. */
static const struct gguf_quant *quant_of(struct job *job, const struct gguf_form_row *row,
                                         const struct out_tensor *t, int dims_n)
{
    if (dims_n == 1 || strcmp(row->file, "position_embd") == 0)
        return gguf_quant_named("F32");
    if (t->width % job->quant->block_elems == 0)
        return job->quant;
    job->f16_n++;
    return gguf_quant_named("F16");
}

/* describe_source — finds name, layout and type of a parameter in the file. */
static enum status describe_source(struct job *job, const struct gguf_source *source,
                                   struct out_tensor *out)
{
    const struct hf_config *c = job->config;
    const struct gguf_form_row *row =
        gguf_form_of(c->arch, source->name, out->name, sizeof(out->name));
    if (row == NULL)
        return FAIL(ST_BAD_SETTING,
                    "GGUF has no tensor for parameter %s of architecture %s; export the model as "
                    "a Hugging Face folder: TO without .gguf",
                    source->name, gguf_form_arch(c->arch));
    ASSERTF(source->dims_n == 1 || source->dims_n == 2, "%s", source->name);
    const bool is_matrix = source->dims_n == 2;
    const bool has_rows = row->form == GGUF_FORM_PAIRS || row->form == GGUF_FORM_QKV;
    out->source = source;
    out->form = !is_matrix && !has_rows ? GGUF_FORM_PLAIN : row->form;
    out->heads = row->is_kv ? c->kv_heads : c->heads;
    out->head_dim = c->head_dim;
    const bool is_turned = out->form == GGUF_FORM_TRANSPOSED;
    out->rows = is_matrix ? source->dim[is_turned] : has_rows ? source->dim[0] : 1;
    out->width = is_matrix ? source->dim[!is_turned] : has_rows ? 1 : source->dim[0];
    out->quant = quant_of(job, row, out, source->dims_n);
    return ST_OK;
}

/* describe_tensors — lists the tensors in the order of the file. */
static enum status describe_tensors(struct job *job, const struct gguf_source *source,
                                    int sources_n)
{
    job->tensor = memory_new((size_t)sources_n + 1, sizeof(*job->tensor));
    if (job->config->rope.kind == HF_ROPE_LLAMA3) {
        struct out_tensor *t = &job->tensor[job->tensors_n++];
        *t = (struct out_tensor){.name = FREQS,
                                 .quant = gguf_quant_named("F32"),
                                 .rows = 1,
                                 .width = job->config->head_dim / 2};
    }
    for (int i = 0; i < sources_n; i++)
        TRY(describe_source(job, &source[i], &job->tensor[job->tensors_n++]));
    for (int i = 0; i < job->tensors_n; i++) {
        struct out_tensor *t = &job->tensor[i];
        t->bytes = (uint64_t)(t->rows * (t->width / t->quant->block_elems)) *
                   (uint64_t)t->quant->block_bytes;
    }
    return ST_OK;
}

/* build_head — writes the parts around the keys; returns the bytes of the data. */
static uint64_t build_head(struct job *job, const struct gguf_head *head)
{
    struct text *out = &job->list;
    uint64_t offset = 0;
    text_add_bytes(&job->begin, "GGUF", 4);
    add_le(&job->begin, VERSION, 4);
    add_le(&job->begin, (uint64_t)job->tensors_n, 8);
    add_le(&job->begin, head->n, 8);
    out->limit = HEAD_BYTES_MAX;
    for (int i = 0; i < job->tensors_n; i++) {
        const struct out_tensor *t = &job->tensor[i];
        const bool is_matrix = t->source != NULL && t->source->dims_n == 2;
        add_string(out, t->name, strlen(t->name));
        add_le(out, is_matrix ? 2 : 1, 4);
        /* the dimension with adjacent elements first */
        add_le(out, (uint64_t)(is_matrix ? t->width : t->rows * t->width), 8);
        if (is_matrix)
            add_le(out, (uint64_t)t->rows, 8);
        add_le(out, t->quant->type, 4);
        add_le(out, offset, 8);
        offset += align_up(t->bytes);
    }
    const uint64_t bytes = job->begin.len + head->bytes.len + out->len;
    for (uint64_t i = bytes; i < align_up(bytes); i++)
        add_le(out, 0, 1);
    return offset;
}

/* read_rows — reads the file's rows [row, row+n) of a tensor. turned: space for n elements. */
static void read_rows(const struct job *job, const struct out_tensor *t, int64_t row, int64_t n,
                      float *turned, float *out)
{
    const struct gguf_source *source = t->source;
    if (source == NULL) {
        for (int64_t i = 0; i < t->width; i++)
            out[i] = (float)gguf_config_factor(&job->config->rope, i, t->width);
    } else if (t->form == GGUF_FORM_TRANSPOSED) {
        for (int64_t i = 0; i < t->width; i++) {
            source->read(source->arg, i * t->rows + row, n, turned);
            for (int64_t k = 0; k < n; k++)
                out[k * t->width + i] = turned[k];
        }
    } else if (t->form == GGUF_FORM_PLAIN) {
        source->read(source->arg, row * t->width, n * t->width, out);
    } else {
        for (int64_t k = 0; k < n; k++) {
            const int64_t ours = gguf_form_our_row(t->form, t->heads, t->head_dim, row + k);
            source->read(source->arg, ours * t->width, t->width, out + k * t->width);
        }
    }
}

/* write_tensor — writes a tensor with its padding. */
static enum status write_tensor(struct sink *sink, const struct job *job,
                                const struct out_tensor *t)
{
    static const uint8_t zeros[ALIGNMENT];
    const int64_t fit = READ_ELEMS / t->width > 0 ? READ_ELEMS / t->width : 1;
    const int64_t most = fit < t->rows ? fit : t->rows;
    const int64_t row_bytes = t->width / t->quant->block_elems * t->quant->block_bytes;
    float *values = memory_new((size_t)(most * t->width), sizeof(*values));
    float *turned = memory_new((size_t)most, sizeof(*turned));
    uint8_t *blocks = memory_new((size_t)(most * row_bytes), 1);
    bool fits = true;
    enum status st = ST_OK;
    for (int64_t row = 0, n; row < t->rows; row += n) {
        n = t->rows - row < most ? t->rows - row : most;
        read_rows(job, t, row, n, turned, values);
        fits = gguf_quant_from_f32(t->quant, values, n * t->width, blocks) && fits;
        TRY_OR(sink_add(sink, blocks, n * row_bytes), free_all);
    }
    if (t->source != NULL)
        TRY_OR(t->source->done(t->source->arg), free_all);
    if (!fits)
        st = FAIL(ST_BAD_SETTING,
                  "tensor %s has numbers beyond the range of %s; choose another type, such as "
                  "TO=NAME-BF16.gguf",
                  t->source != NULL ? t->source->name : t->name, t->quant->name);
    if (st == ST_OK)
        st = sink_add(sink, zeros, (int64_t)(align_up(t->bytes) - t->bytes));
free_all:
    free(values);
    free(turned);
    free(blocks);
    return st;
}

static enum status write_all(const struct job *job, const struct text *keys, struct sink *sink)
{
    uint64_t hash;
    int64_t bytes;
    TRY(sink_add(sink, job->begin.data, (int64_t)job->begin.len));
    TRY(sink_add(sink, keys->data, (int64_t)keys->len));
    TRY(sink_add(sink, job->list.data, (int64_t)job->list.len));
    for (int i = 0; i < job->tensors_n; i++)
        TRY(write_tensor(sink, job, &job->tensor[i]));
    return sink_end(sink, &hash, &bytes);
}

static enum status write_file(const struct job *job, const struct text *keys, int64_t bytes)
{
    char path[FILE_PATH_MAX];
    struct sink *sink = NULL;
    struct status_saved why;
    TRY(file_join(path, sizeof(path), job->stage.temp, FILE_NAME));
    TRY(sink_open(path, bytes, NULL, &sink));
    enum status st = write_all(job, keys, sink);
    status_save(&why);
    const enum status closed = sink_close(sink);
    if (st == ST_OK)
        return closed;
    status_restore(&why); /* the first failure is the one to report */
    return st;
}

enum status gguf_save_check(const char *to)
{
    struct stage stage;
    return stage_name(&stage, to, "file");
}

enum status gguf_save(const char *to, const struct hf_config *config,
                      const struct gguf_quant *quant, const struct gguf_head *head,
                      const struct gguf_source *source, int sources_n, int *f16_n_out)
{
    struct job job = {.config = config, .quant = quant};
    enum status st;
    TRY_OR(stage_name(&job.stage, to, "file"), free_all);
    TRY_OR(describe_tensors(&job, source, sources_n), free_all);
    const int64_t data_bytes = (int64_t)build_head(&job, head);
    if (job.begin.overflow || job.list.overflow || head->bytes.overflow) {
        st = FAIL(ST_RETRY, "out of memory: the keys of %s", to);
        goto free_all;
    }
    const int64_t bytes = (int64_t)(job.begin.len + head->bytes.len + job.list.len) + data_bytes;
    TRY_OR(stage_open(&job.stage, bytes + SLACK_BYTES), free_all);
    st = stage_commit(&job.stage, write_file(&job, &head->bytes, bytes), FILE_NAME);
    *f16_n_out = job.f16_n;
free_all:
    free(job.tensor);
    text_free(&job.begin);
    text_free(&job.list);
    return st;
}
