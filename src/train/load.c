/* load — see load.h. */
#include "train/load.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/assert.h"
#include "base/text.h"

#define BUFFER_ELEMS ((int64_t)1 << 18)

/* One parameter in a file: plain, of llm.c, or of GGUF (tensor set); none: the file has none. */
struct source {
    const struct safetensors_entry *plain;
    bool is_llmc;
    struct llmc_entry llmc;
    struct gguf_entry gguf;
};

static void read_piece(const struct source *source, int64_t first, int64_t n, float *out)
{
    if (source->is_llmc)
        llmc_to_f32(&source->llmc, first, n, out);
    else if (source->gguf.tensor)
        gguf_model_to_f32(&source->gguf, first, n, out);
    else
        safetensors_to_f32(source->plain, first, n, out);
}

/* plain_f32 — true if the file's bytes are the bytes in memory, so they are only copied. */
static bool plain_f32(const struct source *source)
{
    return source->plain && source->plain->dtype == DTYPE_F32;
}

static int64_t elems_of(const struct source *source)
{
    return source->is_llmc       ? source->llmc.elems
           : source->gguf.tensor ? source->gguf.elems
                                 : source->plain->elems;
}

/* copy_source — f32 is copied directly, with all threads of the device. Other types and layouts are
 * converted in a small buffer, in whole rows where they fit. */
static enum status copy_source(const struct load_target *to, const struct param *p,
                               const struct source *source, float *buffer)
{
    int64_t elems = elems_of(source), row = p->dim[p->dims_n - 1];
    int64_t most = row < BUFFER_ELEMS ? BUFFER_ELEMS / row * row : BUFFER_ELEMS;
    ASSERTF(elems == p->elems, "%s: %lld elements, expected %lld", p->name, (long long)elems,
            (long long)p->elems);
    if (!to->put && to->stream && plain_f32(source)) {
        TRY(dev_copy(to->stream, tensor_at(to->data, p->offset).data, source->plain->data,
                     source->plain->bytes));
        return dev_sync(to->stream);
    }
    for (int64_t first = 0; first < p->elems; first += most) {
        int64_t n = p->elems - first < most ? p->elems - first : most;
        if (to->put) {
            read_piece(source, first, n, buffer);
            TRY(to->put(to->arg, p->offset + first, n, buffer));
            continue;
        }
        void *out = tensor_at(to->data, p->offset + first).data;
        if (!to->stream) {
            read_piece(source, first, n, out);
            continue;
        }
        read_piece(source, first, n, buffer);
        TRY(dev_copy(to->stream, out, buffer, (size_t)n * sizeof *buffer));
        TRY(dev_sync(to->stream));
    }
    return ST_OK;
}

typedef enum status load_find(const void *file, const char *part, const struct param *p,
                              struct source *out);

/* is_head — true for the head of question answering, which a language model lacks. */
static bool is_head(const struct param *p) { return text_starts(p->name, "qa_outputs."); }

static enum status find_hf(const void *file, const char *part, const struct param *p,
                           struct source *out)
{
    (void)part;
    const struct hf_model *hf = file;
    if (is_head(p) && !hf_has(hf, p->name))
        return ST_OK;
    return hf_tensor(hf, p->name, p->dims_n, p->dim, &out->plain);
}

static enum status find_llmc(const void *file, const char *part, const struct param *p,
                             struct source *out)
{
    (void)part;
    out->is_llmc = !is_head(p);
    return out->is_llmc ? llmc_tensor(file, p->name, p->dims_n, p->dim, &out->llmc) : ST_OK;
}

static enum status find_gguf(const void *file, const char *part, const struct param *p,
                             struct source *out)
{
    (void)part;
    return is_head(p) ? ST_OK : gguf_model_tensor(file, p->name, p->dims_n, p->dim, &out->gguf);
}

static enum status find_ckpt(const void *file, const char *part, const struct param *p,
                             struct source *out)
{
    return ckpt_tensor(file, part, p->name, p->dims_n, p->dim, &out->plain);
}

static enum status find_trunk(const void *file, const char *part, const struct param *p,
                              struct source *out)
{
    return is_head(p) ? ST_OK : find_ckpt(file, part, p, out);
}

static enum status load_all(const struct load_target *to, load_find *find, const void *file,
                            const char *part)
{
    float *buffer = malloc(BUFFER_ELEMS * sizeof *buffer);
    if (!buffer)
        return FAIL(ST_RETRY,
                    "out of memory: a buffer for loading; use a machine with more memory");
    enum status st = ST_OK;
    for (int i = 0; i < to->table->params_n; i++) {
        const struct param *p = &to->table->param[i];
        struct source source = {.plain = NULL};
        TRY_OR(find(file, part, p, &source), out_free);
        if (!to->data.data && !to->put)
            continue;
        if (source.plain || source.is_llmc || source.gguf.tensor)
            TRY_OR(copy_source(to, p, &source, buffer), out_free);
        else
            LOG_INFO(
                "%s is missing in the model that weights come from: it keeps its initial value",
                p->name);
    }
out_free:
    free(buffer);
    return st;
}

enum status load_hf(const struct load_target *to, const struct hf_model *hf)
{
    return load_all(to, find_hf, hf, NULL);
}

enum status load_llmc(const struct load_target *to, const struct llmc *llmc)
{
    return load_all(to, find_llmc, llmc, NULL);
}

enum status load_gguf(const struct load_target *to, const struct gguf_model *model)
{
    return load_all(to, find_gguf, model, NULL);
}

enum status load_ckpt(const struct load_target *to, const struct ckpt *ckpt, const char *part)
{
    return load_all(to, find_ckpt, ckpt, part);
}

enum status load_ckpt_trunk(const struct load_target *to, const struct ckpt *ckpt)
{
    return load_all(to, find_trunk, ckpt, "model");
}
