/* llmc — see the header. Every number of the file's header is bounded before it is multiplied, and
 * the file's length must be the length that follows from them, to the byte. Must not know our
 * model's code, only its names. */
#include "format/llmc.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/assert.h"
#include "base/memory.h"
#include "base/text.h"
#include "kernels/bf16.h"

#define HEADER_WORDS 256
#define HEADER_BYTES (4 * HEADER_WORDS)
#define HEADER_USED 8
#define MAGIC_MODEL 20240326
#define MAGIC_TOKENS 20240520
#define VERSION_F32 3
#define VERSION_BF16 5
#define DIM_MAX (1 << 24) /* far above any model; keeps products of two in range */
#define LAYERS_MAX 4096

struct llmc_file {
    char path[FILE_PATH_MAX];
    struct file_map map;
    struct llmc llmc;
};

/* The tensors in the file's order; sizes are for one layer if the tensor has layers. out and in as
 * multiples of C; in 0: a vector; in -1: a table with one row for each token of the vocabulary or
 * each position. */
static const struct form {
    const char *name; /* after "h.<layer>." if is_layered */
    bool is_layered;
    int in, out;
} form_list[LLMC_TENSORS] = {
    {"wte.weight", false, -1, 1},       {"wpe.weight", false, -1, 1},
    {"ln_1.weight", true, 0, 1},        {"ln_1.bias", true, 0, 1},
    {"attn.c_attn.weight", true, 1, 3}, {"attn.c_attn.bias", true, 0, 3},
    {"attn.c_proj.weight", true, 1, 1}, {"attn.c_proj.bias", true, 0, 1},
    {"ln_2.weight", true, 0, 1},        {"ln_2.bias", true, 0, 1},
    {"mlp.c_fc.weight", true, 1, 4},    {"mlp.c_fc.bias", true, 0, 4},
    {"mlp.c_proj.weight", true, 4, 1},  {"mlp.c_proj.bias", true, 0, 1},
    {"ln_f.weight", false, 0, 1},       {"ln_f.bias", false, 0, 1},
};
#define WTE 0
#define WPE 1

static int32_t read_i32_le(const uint8_t *p)
{
    return (int32_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                     (uint32_t)p[3] << 24);
}

/* shape_of — computes the shape of one layer's tensor: a table is rows × C, a matrix in × out, a
 * vector 1 × out. */
static void shape_of(const struct llmc *llmc, int i, bool is_padded, int64_t *in, int64_t *out)
{
    const struct form *form = &form_list[i];
    *out = form->out * llmc->embed;
    *in = form->in > 0 ? form->in * llmc->embed : 1;
    if (i == WTE)
        *in = is_padded ? llmc->vocab_padded : llmc->vocab;
    else if (i == WPE)
        *in = llmc->context;
}

static enum status check_kind(int32_t magic, int32_t version, const char *what, enum dtype *out)
{
    if (magic == MAGIC_TOKENS)
        return FAIL(ST_BAD_DATA,
                    "%s is a token file of llm.c (magic %d), not a model; give it as DATA", what,
                    magic);
    if (magic != MAGIC_MODEL)
        return FAIL(
            ST_BAD_DATA,
            "%s is not a model file of llm.c: its first number should be %d, but is %d; use such "
            "a file (.bin), or a Hugging Face folder (config.json, model.safetensors)",
            what, MAGIC_MODEL, magic);
    if (version != VERSION_F32 && version != VERSION_BF16)
        return FAIL(
            ST_BAD_DATA,
            "%s: version %d of llm.c's model file, expected %d (fp32) or %d (bf16); write it again",
            what, version, VERSION_F32, VERSION_BF16);
    *out = version == VERSION_F32 ? DTYPE_F32 : DTYPE_BF16;
    return ST_OK;
}

static enum status check_header(const uint8_t *bytes, const char *what, struct llmc *llmc)
{
    const struct {
        const char *name;
        int word;
        int64_t max, *value;
    } dim_list[] = {
        {"positions", 2, DIM_MAX, &llmc->context},
        {"vocabulary", 3, DIM_MAX, &llmc->vocab},
        {"layers", 4, LAYERS_MAX, &llmc->layers},
        {"heads", 5, DIM_MAX, &llmc->heads},
        {"width", 6, DIM_MAX, &llmc->embed},
        {"padded vocabulary", 7, DIM_MAX, &llmc->vocab_padded},
    };
    for (size_t i = 0; i < sizeof(dim_list) / sizeof(dim_list[0]); i++) {
        int32_t value = read_i32_le(bytes + 4 * dim_list[i].word);
        if (value < 1 || value > dim_list[i].max)
            return FAIL(ST_BAD_DATA,
                        "%s: %d %s in the header, expected 1 to %" PRId64 "; the file is damaged",
                        what, value, dim_list[i].name, dim_list[i].max);
        *dim_list[i].value = value;
    }
    if (llmc->embed % llmc->heads != 0)
        return FAIL(ST_BAD_DATA,
                    "%s: width %" PRId64 " is not divisible by %" PRId64
                    " heads; the file is damaged",
                    what, llmc->embed, llmc->heads);
    if (llmc->vocab_padded < llmc->vocab)
        return FAIL(ST_BAD_DATA,
                    "%s: padded vocabulary %" PRId64 " is below %" PRId64 "; the file is damaged",
                    what, llmc->vocab_padded, llmc->vocab);
    for (int i = HEADER_USED; i < HEADER_WORDS; i++)
        if (read_i32_le(bytes + 4 * i) != 0)
            return FAIL(ST_BAD_DATA,
                        "%s: word %d of the header is %d, expected 0; the file is damaged or of a "
                        "later version",
                        what, i, read_i32_le(bytes + 4 * i));
    return ST_OK;
}

/* Finds the beginning of each tensor; the last must end with the file. */
static enum status locate_tensors(const uint8_t *bytes, size_t n, struct llmc *llmc)
{
    int64_t at = HEADER_BYTES, begin[LLMC_TENSORS];
    for (int i = 0; i < LLMC_TENSORS; i++) {
        int64_t in, out, span;
        shape_of(llmc, i, true, &in, &out);
        begin[i] = at;
        if (__builtin_mul_overflow(in, out, &span) ||
            __builtin_mul_overflow(span, form_list[i].is_layered ? llmc->layers : 1, &span) ||
            __builtin_mul_overflow(span, (int64_t)dtype_bytes(llmc->dtype), &span) ||
            __builtin_add_overflow(at, span, &at))
            return FAIL(ST_BAD_DATA,
                        "%s: its dimensions need more than 2^63 bytes; the file is damaged",
                        llmc->what);
    }
    if ((uint64_t)at != n)
        return FAIL(ST_BAD_DATA,
                    "%s has %zu bytes, but its dimensions (%" PRId64 " layers, width %" PRId64
                    ", %" PRId64 " positions, padded vocabulary %" PRId64 ", %s) need %" PRId64
                    "; it is cut short or damaged",
                    llmc->what, n, llmc->layers, llmc->embed, llmc->context, llmc->vocab_padded,
                    llmc->dtype == DTYPE_F32 ? "fp32" : "bf16", at);
    for (int i = 0; i < LLMC_TENSORS; i++)
        llmc->tensor[i] = bytes + begin[i];
    return ST_OK;
}

enum status llmc_parse(const uint8_t *bytes, size_t n, const char *what, struct llmc *out)
{
    struct llmc llmc = {.what = what};
    if (n >= 8)
        TRY(check_kind(read_i32_le(bytes), read_i32_le(bytes + 4), what, &llmc.dtype));
    if (n < HEADER_BYTES)
        return FAIL(ST_BAD_DATA,
                    "%s has %zu bytes, too few for a model file of llm.c (its header has %d)", what,
                    n, HEADER_BYTES);
    TRY(check_header(bytes, what, &llmc));
    TRY(locate_tensors(bytes, n, &llmc));
    /* Rows of wte without a token are zero, and stay so in training: other values mean a wrong
     * vocabulary. */
    size_t width = dtype_bytes(llmc.dtype), row_bytes = (size_t)llmc.embed * width;
    const uint8_t *at = llmc.tensor[WTE] + (size_t)llmc.vocab * row_bytes;
    for (size_t i = 0; i < (size_t)(llmc.vocab_padded - llmc.vocab) * row_bytes; i++)
        if (at[i] != 0 && !(at[i] == 0x80 && i % width == width - 1)) /* minus zero is zero */
            return FAIL(ST_BAD_DATA,
                        "%s: row %" PRId64
                        " of the token embedding is not zero, but the vocabulary has %" PRId64
                        " tokens; the file is damaged",
                        llmc.what, llmc.vocab + (int64_t)(i / row_bytes), llmc.vocab);
    *out = llmc;
    return ST_OK;
}

/* find_form — finds the tensor of the file, and the layer in it. */
static bool find_form(const struct llmc *llmc, const char *name, int *form_out, int64_t *layer_out)
{
    char digits[24];
    int64_t layer = -1;
    size_t n = text_starts(name, "h.") ? strspn(name + 2, "0123456789") : 0;
    if (n > 0 && name[2 + n] == '.') {
        if (!text_format(digits, sizeof(digits), "%.*s", (int)n, name + 2) ||
            text_parse_i64(digits, 0, llmc->layers - 1, &layer) != TEXT_OK)
            return false;
        name += 3 + n;
    }
    for (int i = 0; i < LLMC_TENSORS; i++)
        if (form_list[i].is_layered == (layer >= 0) && strcmp(form_list[i].name, name) == 0) {
            *form_out = i;
            *layer_out = layer < 0 ? 0 : layer;
            return true;
        }
    return false;
}

enum status llmc_tensor(const struct llmc *llmc, const char *name, int dims_n, const int64_t *dim,
                        struct llmc_entry *out)
{
    struct llmc_entry entry = {.dtype = llmc->dtype};
    int64_t layer;
    int form;
    if (!find_form(llmc, name, &form, &layer))
        return FAIL(ST_BAD_DATA,
                    "%s: there is no tensor %s in a model file of llm.c with %" PRId64 " layers",
                    llmc->what, name, llmc->layers);
    shape_of(llmc, form, false, &entry.in, &entry.out);
    bool is_vector = form_list[form].in == 0;
    if (dims_n != (is_vector ? 1 : 2) || dim[dims_n - 1] != entry.out ||
        (!is_vector && dim[0] != entry.in))
        return FAIL(ST_BAD_DATA,
                    "%s: tensor %s has shape (%" PRId64 ", %" PRId64 "), expected (%" PRId64
                    ", %" PRId64 "); the model's dimensions differ from this file's",
                    llmc->what, name, entry.in, entry.out, dims_n == 2 ? dim[0] : 1,
                    dim[dims_n - 1]);
    entry.is_transposed = form_list[form].in > 0;
    entry.elems = entry.in * entry.out;
    entry.data = llmc->tensor[form] + (size_t)(layer * entry.elems) * dtype_bytes(llmc->dtype);
    *out = entry;
    return ST_OK;
}

static inline float value_at(const struct llmc_entry *entry, int64_t i)
{
    uint16_t half;
    float value;
    if (entry->dtype == DTYPE_F32) {
        memcpy(&value, entry->data + 4 * i, 4);
        return value;
    }
    memcpy(&half, entry->data + 2 * i, 2);
    return bf16_to_float(half);
}

void llmc_to_f32(const struct llmc_entry *entry, int64_t first, int64_t n, float *out)
{
    ASSERTF(first >= 0 && n >= 0 && first <= entry->elems && n <= entry->elems - first,
            "first %" PRId64 " n %" PRId64 " elems %" PRId64, first, n, entry->elems);
    if (!entry->is_transposed) {
        for (int64_t i = 0; i < n; i++)
            out[i] = value_at(entry, first + i);
        return;
    }
    if (n == 0)
        return;
    /* Rows of the file are our columns: each is read in one run over the requested rows. */
    int64_t row_first = first / entry->out, row_last = (first + n - 1) / entry->out;
    for (int64_t o = 0; o < entry->out; o++)
        for (int64_t i = row_first; i <= row_last; i++) {
            int64_t at = i * entry->out + o - first;
            if (at >= 0 && at < n)
                out[at] = value_at(entry, o * entry->in + i);
        }
}

bool llmc_is_file(const char *path) { return file_bytes(path) >= 0; }

enum status llmc_open(const char *path, struct llmc_file **out)
{
    struct llmc_file *file = memory_new(1, sizeof(*file));
    enum status st;
    text_copy(file->path, sizeof(file->path), path);
    TRY_OR(file_map_open(path, &file->map), close_file);
    TRY_OR(llmc_parse(file->map.data, file->map.bytes, file->path, &file->llmc), close_file);
    *out = file;
    return ST_OK;
close_file:
    llmc_close(file);
    return st;
}

void llmc_close(struct llmc_file *file)
{
    if (!file)
        return;
    file_map_close(&file->map);
    free(file);
}

const struct llmc *llmc_of(const struct llmc_file *file) { return &file->llmc; }

void llmc_release(const struct llmc_file *file, const struct llmc_entry *entry)
{
    file_map_release(&file->map, entry->data, (size_t)entry->elems * dtype_bytes(entry->dtype));
}

#ifdef FUZZ
/* read_last — reads the last elements of a tensor. */
static void read_last(const struct llmc *llmc, int form, bool is_vector)
{
    char name[64];
    int64_t dim[2];
    struct llmc_entry entry;
    float last[3];
    if (form_list[form].is_layered)
        text_format(name, sizeof(name), "h.%" PRId64 ".%s", llmc->layers - 1, form_list[form].name);
    else
        text_copy(name, sizeof(name), form_list[form].name);
    shape_of(llmc, form, false, &dim[0], &dim[1]);
    ASSERTF(llmc_tensor(llmc, name, is_vector ? 1 : 2, is_vector ? &dim[1] : dim, &entry) == ST_OK,
            "%s", name);
    int64_t n = entry.elems < 3 ? entry.elems : 3;
    llmc_to_f32(&entry, entry.elems - n, n, last);
}

/* Any bytes are refused, or hold every tensor up to its last element. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct llmc llmc;
    if (llmc_parse(bytes, n, "fuzz", &llmc) != ST_OK)
        return 0;
    for (int i = 0; i < LLMC_TENSORS; i++)
        read_last(&llmc, i, form_list[i].in == 0);
    return 0;
}
#endif
