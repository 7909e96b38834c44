/* gguf — see gguf.h. The reader trusts no number of the file: every length is checked against the
 * remaining bytes before anything is read or allocated. */
#include "format/gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define MAGIC "GGUF"
#define VERSION_MIN 2
#define VERSION_MAX 3
#define VALUES_MAX 65536
#define TENSORS_MAX 65536
#define KEY_MAX 65535
#define ALIGNMENT_USUAL 32
#define ALIGNMENT_MAX (1 << 20)
/* the least bytes of a key with its value, and of a tensor's entry */
#define VALUE_BYTES_MIN (8 + 1 + 4 + 1)
#define TENSOR_BYTES_MIN (8 + 1 + 4 + 8 + 4 + 8)

/* One parse, with the remaining bytes. */
struct scan {
    const char *what;
    const uint8_t *begin, *at, *end;
    struct gguf *out;
};

static uint64_t read_le(const uint8_t *at, int bytes)
{
    uint64_t v = 0;
    for (int i = bytes - 1; i >= 0; i--)
        v = v << 8 | at[i];
    return v;
}

static enum status fail_short(const struct scan *scan, const char *field, uint64_t need)
{
    return FAIL(ST_BAD_DATA,
                "%s: %s at byte %zu needs %" PRIu64
                " bytes, %zu are left; the file is cut short or damaged: fetch it again",
                scan->what, field, (size_t)(scan->at - scan->begin), need,
                (size_t)(scan->end - scan->at));
}

/* Moves past `bytes` bytes; *out: their beginning. */
static enum status read_bytes(struct scan *scan, const char *field, uint64_t bytes,
                              const uint8_t **out)
{
    if (bytes > (uint64_t)(scan->end - scan->at))
        return fail_short(scan, field, bytes);
    *out = scan->at;
    scan->at += bytes;
    return ST_OK;
}

static enum status read_u64(struct scan *scan, const char *field, int bytes, uint64_t *out)
{
    const uint8_t *at = NULL;
    TRY(read_bytes(scan, field, (uint64_t)bytes, &at));
    *out = read_le(at, bytes);
    return ST_OK;
}

static enum status read_string(struct scan *scan, const char *field, struct gguf_string *out)
{
    uint64_t n = 0;
    const uint8_t *at = NULL;
    TRY(read_u64(scan, field, 8, &n));
    TRY(read_bytes(scan, field, n, &at));
    *out = (struct gguf_string){(const char *)at, (size_t)n};
    return ST_OK;
}

/* check_name — checks that the name of a key or a tensor is fit for messages and logs. */
static enum status check_name(const struct scan *scan, const char *field, struct gguf_string name,
                              size_t most)
{
    if (name.n == 0 || name.n > most)
        return FAIL(ST_BAD_DATA, "%s: %s has %zu bytes, expected 1 to %zu", scan->what, field,
                    name.n, most);
    for (size_t i = 0; i < name.n; i++)
        if ((unsigned char)name.text[i] < 0x20 || name.text[i] == 0x7f)
            return FAIL(ST_BAD_DATA, "%s: %s holds control byte %d; the file is damaged or hostile",
                        scan->what, field, name.text[i]);
    return ST_OK;
}

/* ---- metadata ---- */

/* kind_bytes — returns the bytes of a value of a kind; 0: a string or an array. */
static int kind_bytes(enum gguf_kind kind)
{
    static const uint8_t bytes[GGUF_KIND_N] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return bytes[kind];
}

static enum status read_kind(struct scan *scan, const struct gguf_value *value, enum gguf_kind *out)
{
    uint64_t kind = 0;
    TRY(read_u64(scan, "the kind of a value", 4, &kind));
    if (kind >= GGUF_KIND_N)
        return FAIL(ST_BAD_DATA, "%s: key %.*s has kind %" PRIu64 ", expected 0 to %d", scan->what,
                    (int)(value->key_n < 80 ? value->key_n : 80), value->key, kind,
                    GGUF_KIND_N - 1);
    *out = (enum gguf_kind)kind;
    return ST_OK;
}

static enum status read_value(struct scan *scan, struct gguf_value *value)
{
    uint64_t n = 1;
    struct gguf_string key = {NULL, 0};
    TRY(read_string(scan, "a key", &key));
    TRY(check_name(scan, "a key", key, KEY_MAX));
    value->key = key.text;
    value->key_n = key.n;
    TRY(read_kind(scan, value, &value->kind));
    value->is_array = value->kind == GGUF_KIND_ARRAY;
    if (value->is_array) {
        TRY(read_kind(scan, value, &value->kind));
        TRY(read_u64(scan, "the length of an array", 8, &n));
    }
    if (value->kind == GGUF_KIND_ARRAY)
        return FAIL(ST_BAD_DATA, "%s: key %.*s is an array of arrays, which is not supported",
                    scan->what, (int)(value->key_n < 80 ? value->key_n : 80), value->key);
    if (n > INT64_MAX)
        return fail_short(scan, "an array", n);
    value->n = (int64_t)n;
    /* The bytes of value->n elements. */
    const uint8_t *begin = scan->at, *at = NULL;
    const uint64_t width = (uint64_t)kind_bytes(value->kind), items = (uint64_t)value->n;
    if (width > 0 && items <= UINT64_MAX / width)
        TRY(read_bytes(scan, "a value", items * width, &at));
    else if (items > (uint64_t)(scan->end - scan->at) / 8) /* each string has 8 bytes of length */
        return fail_short(scan, "an array", items);
    struct gguf_string string;
    for (uint64_t i = 0; width == 0 && i < items; i++)
        TRY(read_string(scan, "a string", &string));
    value->data = begin;
    value->bytes = (size_t)(scan->at - begin);
    return ST_OK;
}

static int compare_values(const void *a, const void *b)
{
    const struct gguf_value *x = a, *y = b;
    int order = memcmp(x->key, y->key, x->key_n < y->key_n ? x->key_n : y->key_n);
    return order != 0 ? order : x->key_n < y->key_n ? -1 : x->key_n > y->key_n;
}

/* ---- tensors ---- */

/* Reads the element type, and computes the bytes that follow from it. */
static enum status read_type(struct scan *scan, struct gguf_tensor *t)
{
    uint64_t type = 0;
    const char *name;
    int64_t bytes;
    TRY(read_u64(scan, "a tensor's type", 4, &type));
    t->quant = gguf_quant_of((uint32_t)type, &name);
    if (!t->quant)
        return FAIL(ST_BAD_DATA,
                    "%s: tensor %s has type %" PRIu64
                    " (%s), expected F32, F16, BF16, Q8_0, Q4_0 or Q4_1; use such a file",
                    scan->what, t->name, type, name);
    if (t->dim[t->dims_n - 1] % t->quant->block_elems != 0)
        return FAIL(ST_BAD_DATA,
                    "%s: a row of tensor %s has %" PRId64
                    " elements, which is no multiple of %s's blocks of %d",
                    scan->what, t->name, t->dim[t->dims_n - 1], t->quant->name,
                    t->quant->block_elems);
    if (__builtin_mul_overflow(t->elems / t->quant->block_elems, (int64_t)t->quant->block_bytes,
                               &bytes))
        return FAIL(ST_BAD_DATA, "%s: tensor %s has more than 2^63 bytes", scan->what, t->name);
    t->bytes = (size_t)bytes;
    return ST_OK;
}

static enum status read_tensors(struct scan *scan, uint64_t n)
{
    struct gguf *out = scan->out;
    if (n > TENSORS_MAX || n > (uint64_t)(scan->end - scan->at) / TENSOR_BYTES_MIN)
        return FAIL(ST_BAD_DATA,
                    "%s: its header counts %" PRIu64
                    " tensors, more than the file can hold (limit %d); it is cut short or damaged",
                    scan->what, n, TENSORS_MAX);
    out->tensor = calloc((size_t)n + 1, sizeof(out->tensor[0]));
    if (!out->tensor)
        return FAIL(ST_RETRY, "out of memory: %" PRIu64 " tensors of %s", n, scan->what);
    for (; (uint64_t)out->tensors_n < n; out->tensors_n++) {
        struct gguf_tensor *t = &out->tensor[out->tensors_n];
        struct gguf_string name = {NULL, 0};
        uint64_t offset = 0;
        TRY(read_string(scan, "a tensor's name", &name));
        TRY(check_name(scan, "a tensor's name", name, GGUF_NAME_MAX - 1));
        memcpy(t->name, name.text, name.n);
        /* Reads the dimensions; in the file, the dimension with adjacent elements is the first. */
        uint64_t dims_n = 0, dim = 0;
        TRY(read_u64(scan, "a tensor's shape", 4, &dims_n));
        if (dims_n < 1 || dims_n > GGUF_DIMS_MAX)
            return FAIL(ST_BAD_DATA, "%s: tensor %s has %" PRIu64 " dimensions, expected 1 to %d",
                        scan->what, t->name, dims_n, GGUF_DIMS_MAX);
        t->dims_n = (int)dims_n;
        t->elems = 1;
        for (int i = t->dims_n - 1; i >= 0; i--) {
            TRY(read_u64(scan, "a tensor's shape", 8, &dim));
            if (dim < 1 || dim > INT64_MAX)
                return FAIL(ST_BAD_DATA, "%s: tensor %s has a dimension of %" PRIu64, scan->what,
                            t->name, dim);
            t->dim[i] = (int64_t)dim;
            if (__builtin_mul_overflow(t->elems, t->dim[i], &t->elems))
                return FAIL(ST_BAD_DATA,
                            "%s: the shape of tensor %s has more than 2^63 elements; the file is "
                            "damaged or hostile",
                            scan->what, t->name);
        }
        TRY(read_type(scan, t));
        TRY(read_u64(scan, "a tensor's offset", 8, &offset));
        t->offset = (size_t)offset;
    }
    return ST_OK;
}

static int compare_offsets(const void *a, const void *b)
{
    const struct gguf_tensor *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int compare_tensors(const void *a, const void *b)
{
    return strcmp(((const struct gguf_tensor *)a)->name, ((const struct gguf_tensor *)b)->name);
}

/* read_alignment — reads the alignment of the data area and of each tensor. */
static enum status read_alignment(const struct scan *scan, size_t *out)
{
    int64_t alignment = ALIGNMENT_USUAL;
    if (gguf_find(scan->out, "general.alignment"))
        TRY(gguf_get_i64(scan->out, "general.alignment", 1, ALIGNMENT_MAX, &alignment));
    if ((alignment & (alignment - 1)) != 0)
        return FAIL(ST_BAD_DATA, "%s: general.alignment is %" PRId64 ", expected a power of two",
                    scan->what, alignment);
    *out = (size_t)alignment;
    return ST_OK;
}

/* locate_all — finds the bytes of all tensors, and sorts them by name. */
static enum status locate_all(struct scan *scan)
{
    struct gguf *out = scan->out;
    size_t alignment = ALIGNMENT_USUAL, end = 0, skip;
    TRY(read_alignment(scan, &alignment));
    skip = (alignment - (size_t)(scan->at - scan->begin) % alignment) % alignment;
    /* only a file without tensors may lack the padding */
    if (skip > (size_t)(scan->end - scan->at))
        skip = (size_t)(scan->end - scan->at);
    scan->at += skip;
    qsort(out->tensor, (size_t)out->tensors_n, sizeof(out->tensor[0]), compare_offsets);
    for (int i = 0; i < out->tensors_n; i++) {
        /* Tensors follow each other, with less than the alignment between them. */
        struct gguf_tensor *t = &out->tensor[i];
        const size_t data_bytes = (size_t)(scan->end - scan->at);
        if (t->offset % alignment != 0)
            return FAIL(ST_BAD_DATA, "%s: tensor %s lies at byte %zu, which is no multiple of %zu",
                        scan->what, t->name, t->offset, alignment);
        if (t->offset > data_bytes || t->bytes > data_bytes - t->offset)
            return FAIL(
                ST_BAD_DATA,
                "%s: tensor %s has %zu bytes at byte %zu of a data area of %zu; the file is "
                "cut short or damaged: fetch it again",
                scan->what, t->name, t->bytes, t->offset, data_bytes);
        if (t->offset < end || t->offset - end >= alignment)
            return FAIL(ST_BAD_DATA,
                        "%s: tensor %s lies at byte %zu of the data area, but the tensor before it "
                        "ends at %zu: the two overlap, or bytes between them belong to no tensor",
                        scan->what, t->name, t->offset, end);
        t->data = scan->at + t->offset;
        end = t->offset + t->bytes;
    }
    if ((size_t)(scan->end - scan->at) - end >= alignment)
        return FAIL(ST_BAD_DATA,
                    "%s: the tensors end at byte %zu of a data area of %zu; bytes that belong to "
                    "no tensor are refused",
                    scan->what, end, (size_t)(scan->end - scan->at));
    qsort(out->tensor, (size_t)out->tensors_n, sizeof(out->tensor[0]), compare_tensors);
    for (int i = 1; i < out->tensors_n; i++)
        if (compare_tensors(&out->tensor[i - 1], &out->tensor[i]) == 0)
            return FAIL(ST_BAD_DATA, "%s: tensor %s appears twice", scan->what,
                        out->tensor[i].name);
    return ST_OK;
}

/* ---- all ---- */

bool gguf_is_magic(const uint8_t *bytes, size_t n)
{
    return n >= 4 && memcmp(bytes, MAGIC, 4) == 0;
}

static enum status read_all(struct scan *scan)
{
    uint64_t tensors_n = 0, values_n = 0;
    uint64_t version = 0;
    if (!gguf_is_magic(scan->at, (size_t)(scan->end - scan->at)))
        return FAIL(ST_BAD_DATA, "%s does not begin with \"" MAGIC "\"; it is no GGUF file",
                    scan->what);
    scan->at += 4;
    TRY(read_u64(scan, "the version", 4, &version));
    if (version != 0 && (version & 0xffff) == 0)
        return FAIL(ST_BAD_DATA,
                    "%s is a GGUF file in big-endian order; use one in little-endian order",
                    scan->what);
    if (version < VERSION_MIN || version > VERSION_MAX)
        return FAIL(ST_BAD_DATA,
                    "%s is a GGUF file of version %" PRIu64 ", expected %d or %d; convert it again",
                    scan->what, version, VERSION_MIN, VERSION_MAX);
    TRY(read_u64(scan, "the number of tensors", 8, &tensors_n));
    TRY(read_u64(scan, "the number of keys", 8, &values_n));
    /* The keys, sorted. */
    struct gguf *out = scan->out;
    if (values_n > VALUES_MAX || values_n > (uint64_t)(scan->end - scan->at) / VALUE_BYTES_MIN)
        return FAIL(ST_BAD_DATA,
                    "%s: its header counts %" PRIu64
                    " keys, more than the file can hold (limit %d); it is cut short or damaged",
                    scan->what, values_n, VALUES_MAX);
    out->value = calloc((size_t)values_n + 1, sizeof(out->value[0]));
    if (!out->value)
        return FAIL(ST_RETRY, "out of memory: %" PRIu64 " keys of %s", values_n, scan->what);
    for (; (uint64_t)out->values_n < values_n; out->values_n++)
        TRY(read_value(scan, &out->value[out->values_n]));
    qsort(out->value, (size_t)values_n, sizeof(out->value[0]), compare_values);
    for (int i = 1; i < out->values_n; i++)
        if (compare_values(&out->value[i - 1], &out->value[i]) == 0)
            return FAIL(ST_BAD_DATA, "%s: key %.*s appears twice", scan->what,
                        (int)(out->value[i].key_n < 80 ? out->value[i].key_n : 80),
                        out->value[i].key);
    TRY(read_tensors(scan, tensors_n));
    return locate_all(scan);
}

enum status gguf_parse(const uint8_t *bytes, size_t n, const char *what, struct gguf *out)
{
    struct gguf gguf = {.what = what};
    struct scan scan = {.what = what, .begin = bytes, .at = bytes, .end = bytes + n, .out = &gguf};
    enum status st = read_all(&scan);
    if (st != ST_OK) {
        gguf_free(&gguf);
        return st;
    }
    *out = gguf;
    return ST_OK;
}

void gguf_free(struct gguf *gguf)
{
    free(gguf->value);
    free(gguf->tensor);
    *gguf = (struct gguf){.values_n = 0};
}

uint8_t *gguf_keys(const struct gguf *gguf, const uint8_t *bytes, size_t *n_out)
{
    size_t n = 24; /* magic, version, the numbers of tensors and of keys */
    for (int i = 0; i < gguf->values_n; i++) {
        size_t end = (size_t)(gguf->value[i].data - bytes) + gguf->value[i].bytes;
        n = end > n ? end : n;
    }
    uint8_t *out = malloc(n);
    if (out) {
        memcpy(out, bytes, n);
        memset(out + 8, 0, 8); /* tensors */
    }
    *n_out = n;
    return out;
}

/* ---- getters ---- */

const struct gguf_value *gguf_find(const struct gguf *gguf, const char *key)
{
    const struct gguf_value want = {.key = key, .key_n = strlen(key)};
    return gguf->values_n == 0
               ? NULL
               : bsearch(&want, gguf->value, (size_t)gguf->values_n, sizeof(want), compare_values);
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *gguf, const char *name)
{
    for (int low = 0, high = gguf->tensors_n; low < high;) {
        int middle = low + (high - low) / 2;
        int order = strcmp(name, gguf->tensor[middle].name);
        if (order == 0)
            return &gguf->tensor[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* find_single — finds a value that is no array. expected: the expected kind, for the message. */
static enum status find_single(const struct gguf *gguf, const char *key, const char *expected,
                               const struct gguf_value **out)
{
    *out = gguf_find(gguf, key);
    if (!*out || (*out)->is_array)
        return FAIL(ST_BAD_DATA, "%s: key %s is %s, expected %s", gguf->what, key,
                    *out ? "an array" : "missing", expected);
    return ST_OK;
}

static bool is_signed(enum gguf_kind kind)
{
    return kind == GGUF_KIND_I8 || kind == GGUF_KIND_I16 || kind == GGUF_KIND_I32 ||
           kind == GGUF_KIND_I64;
}

/* Converts to a whole number; false: the kind holds none, or the number is beyond int64. */
static bool convert_to_i64(const struct gguf_value *value, int64_t *out)
{
    int bytes = kind_bytes(value->kind), unused = 64 - 8 * bytes;
    if (bytes == 0 || value->kind == GGUF_KIND_F32 || value->kind == GGUF_KIND_F64 ||
        value->kind == GGUF_KIND_BOOL)
        return false;
    uint64_t bits = read_le(value->data, bytes);
    if (is_signed(value->kind))
        *out = (int64_t)(bits << unused) >> unused;
    else
        *out = (int64_t)bits;
    return is_signed(value->kind) || bits <= INT64_MAX;
}

enum status gguf_get_i64(const struct gguf *gguf, const char *key, int64_t min, int64_t max,
                         int64_t *out)
{
    const struct gguf_value *value = NULL;
    int64_t n = 0;
    TRY(find_single(gguf, key, "a whole number", &value));
    if (!convert_to_i64(value, &n) || n < min || n > max)
        return FAIL(ST_BAD_DATA,
                    "%s: key %s is %" PRId64 " (kind %d), expected a whole number from %" PRId64
                    " to %" PRId64,
                    gguf->what, key, n, value->kind, min, max);
    *out = n;
    return ST_OK;
}

enum status gguf_get_f64(const struct gguf *gguf, const char *key, double *out)
{
    const struct gguf_value *value = NULL;
    float f32;
    TRY(find_single(gguf, key, "a number", &value));
    if (value->kind == GGUF_KIND_F64)
        memcpy(out, value->data, sizeof(*out));
    else if (value->kind == GGUF_KIND_F32) {
        memcpy(&f32, value->data, sizeof(f32));
        *out = f32;
    } else
        return FAIL(ST_BAD_DATA, "%s: key %s is of kind %d, expected a number with a point",
                    gguf->what, key, value->kind);
    return ST_OK;
}

enum status gguf_get_bool(const struct gguf *gguf, const char *key, bool *out)
{
    const struct gguf_value *value = NULL;
    TRY(find_single(gguf, key, "true or false", &value));
    if (value->kind != GGUF_KIND_BOOL || value->data[0] > 1)
        return FAIL(ST_BAD_DATA, "%s: key %s is not true or false", gguf->what, key);
    *out = value->data[0];
    return ST_OK;
}

enum status gguf_get_text(const struct gguf *gguf, const char *key, char *out, size_t cap)
{
    const struct gguf_value *value = NULL;
    TRY(find_single(gguf, key, "a text", &value));
    size_t n = value->bytes - 8;
    if (value->kind != GGUF_KIND_STRING || n >= cap || memchr(value->data + 8, 0, n))
        return FAIL(ST_BAD_DATA, "%s: key %s is not a text of less than %zu bytes", gguf->what, key,
                    cap);
    memcpy(out, value->data + 8, n);
    out[n] = 0;
    return ST_OK;
}

enum status gguf_get_array(const struct gguf *gguf, const char *key, enum gguf_kind kind,
                           const struct gguf_value **out)
{
    const struct gguf_value *value = gguf_find(gguf, key);
    if (!value || !value->is_array || value->kind != kind)
        return FAIL(ST_BAD_DATA, "%s: key %s is %s, expected an array of kind %d", gguf->what, key,
                    value ? "of another kind" : "missing", kind);
    *out = value;
    return ST_OK;
}

struct gguf_string gguf_next_string(const uint8_t **at)
{
    size_t n = (size_t)read_le(*at, 8);
    const char *text = (const char *)*at + 8;
    *at += 8 + n;
    return (struct gguf_string){text, n};
}

#ifdef FUZZ
/* Reads every value as every kind, and walks over its strings. */
static void read_as_all_kinds(const struct gguf *gguf, const struct gguf_value *value)
{
    char key[256], text[64];
    int64_t whole_out;
    double f64;
    bool flag;
    const uint8_t *at = value->data;
    if (value->is_array && value->kind == GGUF_KIND_STRING) {
        for (int64_t i = 0; i < value->n; i++)
            gguf_next_string(&at);
        ASSERT(at == value->data + value->bytes);
    }
    if (value->key_n >= sizeof(key))
        return;
    memcpy(key, value->key, value->key_n);
    key[value->key_n] = 0;
    ASSERT(gguf_find(gguf, key) == value);
    if (gguf_get_i64(gguf, key, -5, 1 << 20, &whole_out) == ST_OK)
        ASSERT(whole_out >= -5 && whole_out <= 1 << 20);
    gguf_get_f64(gguf, key, &f64);
    gguf_get_bool(gguf, key, &flag);
    if (gguf_get_text(gguf, key, text, sizeof(text)) == ST_OK)
        ASSERT(strlen(text) == value->bytes - 8);
}

/* Any bytes are refused, or describe tensors that can be read up to the last element. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct gguf gguf;
    float last;
    if (gguf_parse(bytes, n, "fuzz", &gguf) != ST_OK)
        return 0;
    for (int i = 0; i < gguf.values_n; i++)
        read_as_all_kinds(&gguf, &gguf.value[i]);
    for (int i = 0; i < gguf.tensors_n; i++) {
        const struct gguf_tensor *t = &gguf.tensor[i];
        ASSERT(gguf_find_tensor(&gguf, t->name) == t);
        ASSERT(t->data >= bytes && t->bytes <= n && t->data + t->bytes <= bytes + n);
        gguf_quant_to_f32(t->quant, t->data, t->elems - 1, 1, &last);
    }
    gguf_free(&gguf);
    return 0;
}
#endif
