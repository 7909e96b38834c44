/* load — see load.h. */
#include "train/weights/load.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

#define BUFFER_ELEMS ((int64_t)1 << 18)

void load_read(const struct load_entry *entry, int64_t first, int64_t n, float *out)
{
    if (entry->is_llmc)
        llmc_to_f32(&entry->llmc, first, n, out);
    else if (entry->gguf.tensor)
        gguf_model_to_f32(&entry->gguf, first, n, out);
    else
        safetensors_to_f32(entry->plain, first, n, out);
}

bool load_has(const struct load_entry *entry)
{
    return entry->plain || entry->is_llmc || entry->gguf.tensor;
}

void load_release(const struct load_file *file, const struct load_entry *entry)
{
    if (entry->is_llmc)
        llmc_release(file->llmc, &entry->llmc);
    else if (entry->gguf.tensor)
        gguf_model_release(file->gguf, &entry->gguf);
    else if (file->hf)
        hf_release(file->hf, entry->plain);
    else if (file->ckpt)
        ckpt_release(file->ckpt, entry->plain);
}

enum status load_find(const struct load_file *file, const struct param *p, struct load_entry *out)
{
    *out = (struct load_entry){.plain = NULL};
    if ((text_starts(p->name, "qa_outputs.")) &&
        (file->llmc || file->gguf || file->is_headless || (file->hf && !hf_has(file->hf, p->name))))
        return ST_OK;
    out->is_llmc = file->llmc != NULL;
    if (file->llmc)
        return llmc_tensor(llmc_of(file->llmc), p->name, p->dims_n, p->dim, &out->llmc);
    if (file->gguf)
        return gguf_model_tensor(file->gguf, p->name, p->dims_n, p->dim, &out->gguf);
    if (file->peft)
        return peft_tensor(file->peft, p->name, p->dims_n, p->dim, &out->plain);
    if (file->hf)
        return hf_tensor(file->hf, p->name, p->dims_n, p->dim, &out->plain);
    return ckpt_tensor(file->ckpt, file->array, p->name, p->dims_n, p->dim, &out->plain);
}

/* ---- the sum, and the adapter that is added ---- */

EVP_MD_CTX *load_sum_open(void)
{
    EVP_MD_CTX *sum = EVP_MD_CTX_new();
    const bool is_open = sum && EVP_DigestInit_ex(sum, EVP_sha256(), NULL) == 1;
    ASSERT(is_open);
    return sum;
}

void load_sum_close(EVP_MD_CTX *sum, char out[MODEL_SHA256_MAX])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    if (!sum)
        return;
    const bool is_done = EVP_DigestFinal_ex(sum, digest, NULL) == 1;
    ASSERT(is_done);
    for (int i = 0; out && i < (MODEL_SHA256_MAX - 1) / 2; i++)
        text_format(out + 2 * i, 3, "%02x", digest[i]);
    EVP_MD_CTX_free(sum);
}

/* find_factor — finds A or B of a weight in the adapter's table; NULL: it has none. */
static const struct param *find_factor(const struct load_merge *merge, const char *weight,
                                       const char *ending)
{
    char name[PARAM_NAME_MAX];
    const size_t n = text_ends(weight, "weight") ? strlen(weight) - strlen("weight") : 0;
    if (n == 0 || !text_format(name, sizeof name, "%.*s%s", (int)n, weight, ending))
        return NULL;
    return param_find(merge->table, name);
}

/* Row by row. A weight of GPT-2 is (in, out), all others are (out, in). */
void load_merge_add(const struct load_merge *merge, const struct param *p, int64_t first, int64_t n,
                    float *values)
{
    const struct param *a = find_factor(merge, p->name, "lora_A.weight"),
                       *b = find_factor(merge, p->name, "lora_B.weight");
    if (!a || !b)
        return;
    const bool is_io = merge->dims.arch == MODEL_ARCH_GPT2;
    const int64_t in = a->dim[1], rank = a->dim[0], columns = p->dim[1];
    const float *a_values = merge->values + a->offset, *b_values = merge->values + b->offset;
    const float scale = (float)(merge->dims.adapter.alpha / (double)rank);
    for (int64_t at = 0, run; at < n; at += run) {
        const int64_t row = (first + at) / columns, column = (first + at) % columns;
        run = columns - column < n - at ? columns - column : n - at;
        for (int64_t k = 0; k < rank; k++) {
            const float factor =
                            scale * (is_io ? a_values[k * in + row] : b_values[row * rank + k]),
                        *other = is_io ? b_values + column * rank + k : a_values + k * in + column;
            const int64_t step = is_io ? rank : 1;
            for (int64_t i = 0; i < run; i++)
                values[at + i] += factor * other[i * step];
        }
    }
}

/* read_values — reads elements as they go into the target. */
static void read_values(const struct load_target *to, const struct param *p,
                        const struct load_entry *entry, int64_t first, int64_t n, float *out)
{
    load_read(entry, first, n, out);
    const bool is_added = !to->sum || EVP_DigestUpdate(to->sum, out, (size_t)n * sizeof *out) == 1;
    ASSERT(is_added);
    if (to->merge)
        load_merge_add(to->merge, p, first, n, out);
}

/* ---- a parameter, range by range ---- */

/* Elements that were read and not yet put: neighbours in the table are put together, because each
 * put is two calls of all ranks. first + n: the offset at which the next element begins, except for
 * padding. */
struct pending {
    float *values; /* BUFFER_ELEMS */
    int64_t first, n;
    const struct param *last; /* the parameter at the end */
};

static enum status put_pending(const struct load_target *to, struct pending *pending)
{
    int64_t n = pending->n;
    pending->n = 0;
    return n > 0 ? to->put(to->arg, pending->first, n, pending->values) : ST_OK;
}

/* copy_range — Copies a range to its offset in the target. */
static enum status copy_range(const struct load_target *to, const struct param *p,
                              const struct load_entry *entry, int64_t first, int64_t n,
                              struct pending *pending)
{
    if (to->put) {
        /* Padding lies only between a parameter and the next one of the table. */
        int64_t at = p->offset + first, padding = at - pending->first - pending->n;
        bool is_next = pending->n > 0 && padding >= 0 && p - pending->last <= 1 &&
                       pending->n + padding + n <= BUFFER_ELEMS;
        if (!is_next) {
            TRY(put_pending(to, pending));
            pending->first = at;
            padding = 0;
        }
        memset(pending->values + pending->n, 0, (size_t)padding * sizeof *pending->values);
        pending->n += padding;
        read_values(to, p, entry, first, n, pending->values + pending->n);
        pending->n += n;
        pending->last = p;
        return ST_OK;
    }
    float *buffer = pending->values;
    void *out = tensor_at(to->data, p->offset + first).data;
    read_values(to, p, entry, first, n, to->stream ? buffer : out);
    if (!to->stream)
        return ST_OK;
    TRY(dev_copy(to->stream, out, buffer, (size_t)n * sizeof *buffer));
    return dev_sync(to->stream);
}

/* copy_entry — Copies f32 directly, with all threads of the device. Other types and layouts are
 * converted in a small buffer, in whole rows if they fit. */
static enum status copy_entry(const struct load_target *to, const struct param *p,
                              const struct load_entry *entry, struct pending *pending)
{
    int64_t elems = (entry->is_llmc       ? entry->llmc.elems
                     : entry->gguf.tensor ? entry->gguf.elems
                                          : entry->plain->elems),
            row = p->dim[p->dims_n - 1];
    int64_t most = row < BUFFER_ELEMS ? BUFFER_ELEMS / row * row : BUFFER_ELEMS;
    ASSERTF(elems == p->elems, "%s: %lld elements, expected %lld", p->name, (long long)elems,
            (long long)p->elems);
    if (!to->put && !to->sum && !to->merge && to->stream &&
        (entry->plain && entry->plain->dtype == DTYPE_F32)) {
        TRY(dev_copy(to->stream, tensor_at(to->data, p->offset).data, entry->plain->data,
                     entry->plain->bytes));
        return dev_sync(to->stream);
    }
    for (int64_t first = 0; first < p->elems; first += most) {
        int64_t n = p->elems - first < most ? p->elems - first : most;
        TRY(copy_range(to, p, entry, first, n, pending));
    }
    return ST_OK;
}

static enum status load_one(const struct load_target *to, const struct load_file *file,
                            const struct param *p, struct pending *pending)
{
    struct load_entry entry;
    TRY(load_find(file, p, &entry));
    if (!to->data.data && !to->put)
        return ST_OK;
    if (!load_has(&entry)) {
        LOG_INFO("%s is missing in the source model: it keeps its initial value", p->name);
        return ST_OK;
    }
    TRY(copy_entry(to, p, &entry, pending));
    load_release(file, &entry);
    return ST_OK;
}

enum status load_params(const struct load_target *to, const struct load_file *file)
{
    struct pending pending = {.values = malloc(BUFFER_ELEMS * sizeof(float))};
    if (!pending.values)
        return FAIL(ST_RETRY,
                    "out of memory: a buffer for loading; use a machine with more memory");
    enum status st = ST_OK;
    for (int i = 0; i < to->table->params_n && st == ST_OK; i++)
        if (!to->skips_hidden || !to->table->param[i].is_hidden)
            st = load_one(to, file, &to->table->param[i], &pending);
    if (st == ST_OK && to->put)
        st = put_pending(to, &pending);
    free(pending.values);
    return st;
}
