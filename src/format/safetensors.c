/* safetensors — see safetensors.h. The reader trusts no number of the file: lengths, products and
 * offsets are checked before use. The tensors must tile the data area exactly, so no two share a
 * byte and no byte is hidden. It must not know files: the caller passes bytes. The writer makes one
 * pass through a sink. */
#include "format/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/json_walk.h"
#include "base/assert.h"
#include "base/text.h"
#include "format/half.h"
#include "format/sink.h"

/* the format allows 100 MB; the largest published models have some hundred KB */
#define HEADER_BYTES_MAX (16 << 20)
#define ENTRY_BYTES_MAX (64 << 10) /* bytes of one tensor's JSON */
#define METADATA_BYTES_MAX (1 << 20)
#define TENSORS_MAX 65536             /* the largest published models have some thousands */
#define READ_BYTES ((int64_t)4 << 20) /* bytes of a tensor for one read of a source */
#define EXACT_MAX 9007199254740992.0  /* 2^53: larger whole numbers are not exact in JSON */

/* All element types of the format. bits: some are narrower than a byte. dtype -1: checked, but not
 * used here. */
static const struct {
    const char *name;
    int bits;
    int dtype;
} dtype_list[] = {
    {"F32", 32, DTYPE_F32}, {"BF16", 16, DTYPE_BF16},
    {"F16", 16, DTYPE_F16}, {"F64", 64, DTYPE_F64},
    {"I32", 32, DTYPE_I32}, {"U8", 8, DTYPE_U8},
    {"BOOL", 8, -1},        {"I8", 8, -1},
    {"I16", 16, -1},        {"U16", 16, -1},
    {"U32", 32, -1},        {"I64", 64, -1},
    {"U64", 64, -1},        {"C64", 64, -1},
    {"F8_E5M2", 8, -1},     {"F8_E4M3", 8, -1},
    {"F8_E8M0", 8, -1},     {"F6_E2M3", 6, -1},
    {"F6_E3M2", 6, -1},     {"F4", 4, -1},
};

/* The position of one tensor in the data area. */
struct span {
    const char *name; /* borrowed from the list of entries */
    int64_t begin, end;
};

/* One parse. */
struct scan {
    const char *what;
    const uint8_t *data; /* the data area */
    int64_t data_bytes;
    struct span *span;
    int spans_n;
    struct safetensors *out;
};

/* read_count — reads a JSON number that is whole and in [0, 2^53]. */
static bool read_count(const cJSON *item, int64_t *out)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= EXACT_MAX))
        return false;
    *out = (int64_t)item->valuedouble;
    return (double)*out == item->valuedouble;
}

static enum status read_metadata(const struct scan *scan, const cJSON *item)
{
    if (!cJSON_IsObject(item))
        return FAIL(ST_BAD_DATA,
                    "%s: \"__metadata__\" is not an object; the file is not valid safetensors",
                    scan->what);
    for (const cJSON *pair = item->child; pair; pair = pair->next)
        if (!cJSON_IsString(pair))
            return FAIL(ST_BAD_DATA,
                        "%s: \"__metadata__\" holds a value that is not a string; the file is not "
                        "valid safetensors",
                        scan->what);
    if (scan->out->metadata_json)
        return FAIL(ST_BAD_DATA,
                    "%s: \"__metadata__\" appears twice; the file is not valid safetensors",
                    scan->what);
    scan->out->metadata_json = cJSON_PrintUnformatted(item);
    return scan->out->metadata_json ? ST_OK
                                    : FAIL(ST_RETRY, "out of memory: metadata of %s", scan->what);
}

static enum status read_dtype(const struct scan *scan, const cJSON *info, const char *name,
                              int *list_i_out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(info, "dtype");
    if (!cJSON_IsString(item))
        return FAIL(ST_BAD_DATA,
                    "%s: tensor %s has no \"dtype\" string; the file is not valid safetensors",
                    scan->what, name);
    for (size_t i = 0; i < sizeof(dtype_list) / sizeof(dtype_list[0]); i++)
        if (strcmp(item->valuestring, dtype_list[i].name) == 0) {
            *list_i_out = (int)i;
            return ST_OK;
        }
    return FAIL(ST_BAD_DATA, "%s: tensor %s has dtype \"%.20s\", which safetensors does not have",
                scan->what, name, item->valuestring);
}

/* read_shape — reads the dimensions and computes their product. */
static enum status read_shape(const struct scan *scan, const cJSON *info,
                              struct safetensors_entry *entry)
{
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(info, "shape");
    if (!cJSON_IsArray(shape))
        return FAIL(ST_BAD_DATA,
                    "%s: tensor %s has no \"shape\" array; the file is not valid safetensors",
                    scan->what, entry->name);
    entry->elems = 1;
    for (const cJSON *item = shape->child; item; item = item->next) {
        int64_t dim;
        if (entry->dims_n == SAFETENSORS_DIMS_MAX)
            return FAIL(ST_BAD_DATA, "%s: tensor %s has more than %d dimensions", scan->what,
                        entry->name, SAFETENSORS_DIMS_MAX);
        if (!read_count(item, &dim))
            return FAIL(ST_BAD_DATA,
                        "%s: dimension %d of tensor %s is not a whole number in [0, 2^53]",
                        scan->what, entry->dims_n, entry->name);
        if (__builtin_mul_overflow(entry->elems, dim, &entry->elems))
            return FAIL(ST_BAD_DATA,
                        "%s: the shape of tensor %s has more than 2^63 elements; the file is "
                        "damaged or hostile",
                        scan->what, entry->name);
        entry->dim[entry->dims_n++] = dim;
    }
    return ST_OK;
}

/* read_span — reads data_offsets, and checks them against the data area and against dtype ×
 * shape. */
static enum status read_span(struct scan *scan, const cJSON *info, int bits,
                             struct safetensors_entry *entry)
{
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(info, "data_offsets");
    const cJSON *first = cJSON_IsArray(offsets) ? offsets->child : NULL;
    int64_t begin, end, need_bits;
    if (!first || !first->next || first->next->next || !read_count(first, &begin) ||
        !read_count(first->next, &end))
        return FAIL(ST_BAD_DATA, "%s: \"data_offsets\" of tensor %s are not two whole numbers",
                    scan->what, entry->name);
    if (begin > end || end > scan->data_bytes)
        return FAIL(ST_BAD_DATA,
                    "%s: tensor %s lies at bytes [%" PRId64 ", %" PRId64
                    ") of a data area of %" PRId64 "; the file is cut short or damaged",
                    scan->what, entry->name, begin, end, scan->data_bytes);
    if (__builtin_mul_overflow(entry->elems, (int64_t)bits, &need_bits) || need_bits % 8 != 0 ||
        need_bits / 8 != end - begin)
        return FAIL(ST_BAD_DATA,
                    "%s: tensor %s has %" PRId64
                    " elements of %d bits, but its data_offsets span %" PRId64 " bytes",
                    scan->what, entry->name, entry->elems, bits, end - begin);
    entry->data = scan->data + begin;
    entry->bytes = (size_t)(end - begin);
    scan->span[scan->spans_n] = (struct span){NULL, begin, end};
    return ST_OK;
}

static enum status read_tensor(struct scan *scan, const char *name, const cJSON *info)
{
    struct safetensors_entry entry = {.elems = 0}, *to;
    int list_i = 0;
    /* Fit for messages and logs, and short enough for the struct. */
    size_t n = strlen(name);
    if (n >= SAFETENSORS_NAME_MAX)
        return FAIL(ST_BAD_DATA,
                    "%s: a tensor's name has %zu bytes, at most %d are allowed: %.60s…", scan->what,
                    n, SAFETENSORS_NAME_MAX - 1, name);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return FAIL(
                ST_BAD_DATA,
                "%s: the name of tensor %d holds control byte %d; the file is damaged or hostile",
                scan->what, scan->spans_n, name[i]);
    text_copy(entry.name, sizeof(entry.name), name);
    if (!cJSON_IsObject(info))
        return FAIL(
            ST_BAD_DATA,
            "%s: the entry of tensor %s is not an object; the file is not valid safetensors",
            scan->what, entry.name);
    TRY(read_dtype(scan, info, entry.name, &list_i));
    TRY(read_shape(scan, info, &entry));
    TRY(read_span(scan, info, dtype_list[list_i].bits, &entry));
    /* at the list's end, where there is room: each tensor is on it once */
    if (dtype_list[list_i].dtype < 0) {
        to = &scan->out->entry[scan->out->entries_cap - ++scan->out->others_n];
    } else {
        entry.dtype = (enum dtype)dtype_list[list_i].dtype;
        to = &scan->out->entry[scan->out->entries_n++];
    }
    *to = entry;
    scan->span[scan->spans_n++].name = to->name;
    return ST_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct span *)a)->name, ((const struct span *)b)->name);
}

static int compare_spans(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* read_item — reads one tensor, or the metadata: a small document of its own. */
static enum status read_item(struct scan *scan, const struct json_item *item)
{
    cJSON *name = NULL, *info = NULL;
    bool is_metadata = json_walk_is(item, "__metadata__");
    size_t most = is_metadata ? METADATA_BYTES_MAX : ENTRY_BYTES_MAX;
    if (item->key_n > ENTRY_BYTES_MAX || item->value_n > most)
        return FAIL(ST_BAD_DATA, "%s: the entry %.60s… has %zu bytes, at most %zu are allowed",
                    scan->what, item->key, item->value_n, most);
    enum status st;
    TRY_OR(json_parse(item->key, item->key_n, scan->what, &name), free_all);
    TRY_OR(json_parse(item->value, item->value_n, scan->what, &info), free_all);
    TRY_OR(is_metadata ? read_metadata(scan, info) : read_tensor(scan, name->valuestring, info),
           free_all);
free_all:
    cJSON_Delete(name);
    cJSON_Delete(info);
    return st;
}

/* walk_header — goes over the header. count_out: counts the items; NULL: reads them. */
static enum status walk_header(struct scan *scan, const char *header, size_t bytes,
                               int64_t *count_out)
{
    struct json_walk walk;
    struct json_item item;
    bool is_end = false;
    TRY(json_walk_begin(&walk, header, bytes, '{', scan->what));
    while (!is_end) {
        TRY(json_walk_next(&walk, &item, &is_end));
        if (!is_end && !count_out)
            TRY(read_item(scan, &item));
    }
    if (count_out)
        *count_out = walk.n;
    return ST_OK;
}

/* read_header — reads the header. Memory is proportional to the list, for any header. */
static enum status read_header(struct scan *scan, const char *header, size_t bytes)
{
    int64_t n = 0;
    TRY(walk_header(scan, header, bytes, &n));
    if (n > TENSORS_MAX)
        return FAIL(ST_BAD_DATA, "%s lists %" PRId64 " tensors, at most %d are allowed", scan->what,
                    n, TENSORS_MAX);
    scan->out->entries_cap = (int)n + 1;
    scan->span = calloc((size_t)n + 1, sizeof(scan->span[0]));
    scan->out->entry = calloc((size_t)n + 1, sizeof(scan->out->entry[0]));
    if (!scan->span || !scan->out->entry)
        return FAIL(ST_RETRY, "out of memory: the list of %" PRId64 " tensors of %s", n,
                    scan->what);
    TRY(walk_header(scan, header, bytes, NULL));
    /* Checks that no two tensors have the same name. */
    if (scan->spans_n > 0)
        qsort(scan->span, (size_t)scan->spans_n, sizeof(scan->span[0]), compare_names);
    for (int i = 1; i < scan->spans_n; i++)
        if (strcmp(scan->span[i - 1].name, scan->span[i].name) == 0)
            return FAIL(ST_BAD_DATA,
                        "%s: tensor \"%s\" appears twice; the file is not valid safetensors",
                        scan->what, scan->span[i].name);
    /* Sorted by position, each tensor begins where the one before ended, and the last ends with the
     * file. */
    int64_t at = 0;
    if (scan->spans_n > 0)
        qsort(scan->span, (size_t)scan->spans_n, sizeof(scan->span[0]), compare_spans);
    for (int i = 0; i < scan->spans_n; i++) {
        const struct span *span = &scan->span[i];
        if (span->begin < at)
            return FAIL(ST_BAD_DATA,
                        "%s: tensors %s and %s overlap at byte %" PRId64 " of the data area",
                        scan->what, scan->span[i - 1].name, span->name, span->begin);
        if (span->begin > at)
            return FAIL(ST_BAD_DATA,
                        "%s: bytes [%" PRId64 ", %" PRId64 ") before tensor %s belong to no tensor",
                        scan->what, at, span->begin, span->name);
        at = span->end;
    }
    if (at != scan->data_bytes)
        return FAIL(ST_BAD_DATA,
                    "%s: the tensors end at byte %" PRId64 " of a data area of %" PRId64
                    "; bytes that belong to no tensor are refused",
                    scan->what, at, scan->data_bytes);
    return ST_OK;
}

enum status safetensors_parse(const uint8_t *bytes, size_t n, const char *what,
                              struct safetensors *out)
{
    struct safetensors st_out = {.entry = NULL};
    struct scan scan = {.what = what, .out = &st_out};
    if (n < 8)
        return FAIL(ST_BAD_DATA,
                    "%s has %zu bytes, too few for a safetensors file; fetch or write it again",
                    what, n);
    uint64_t header_bytes = 0;
    for (int i = 7; i >= 0; i--)
        header_bytes = header_bytes << 8 | bytes[i];
    if (header_bytes < 2 || header_bytes > HEADER_BYTES_MAX || header_bytes > n - 8)
        return FAIL(ST_BAD_DATA,
                    "%s: its first 8 bytes give a header of %" PRIu64
                    " bytes, but %zu follow (limit %d); it is cut short or not safetensors",
                    what, header_bytes, n - 8, HEADER_BYTES_MAX);
    if (bytes[8] != '{')
        return FAIL(ST_BAD_DATA,
                    "%s: the header does not begin with '{'; the file is not safetensors", what);
    scan.data = bytes + 8 + header_bytes;
    scan.data_bytes = st_out.data_bytes = (int64_t)(n - 8 - header_bytes);
    enum status st;
    TRY_OR(read_header(&scan, (const char *)bytes + 8, (size_t)header_bytes), free_all);
    *out = st_out;
    st_out = (struct safetensors){.entry = NULL};
free_all:
    free(scan.span);
    safetensors_free(&st_out);
    return st;
}

void safetensors_free(struct safetensors *st)
{
    free(st->entry);
    cJSON_free(st->metadata_json);
    *st = (struct safetensors){.entry = NULL};
}

const struct safetensors_entry *safetensors_find(const struct safetensors *st, const char *name)
{
    for (int i = 0; i < st->entries_n; i++)
        if (strcmp(st->entry[i].name, name) == 0)
            return &st->entry[i];
    return NULL;
}

bool safetensors_has_other(const struct safetensors *st, const char *name)
{
    for (int i = 1; i <= st->others_n; i++)
        if (strcmp(st->entry[st->entries_cap - i].name, name) == 0)
            return true;
    return false;
}

const char *safetensors_other(const struct safetensors *st, int i)
{
    return i < st->others_n ? st->entry[st->entries_cap - 1 - i].name : NULL;
}

static const char *dtype_name(enum dtype dtype)
{
    for (size_t i = 0; i < sizeof(dtype_list) / sizeof(dtype_list[0]); i++)
        if (dtype_list[i].dtype == (int)dtype)
            return dtype_list[i].name;
    ASSERTF(false, "dtype %d", dtype);
    return "";
}

/* shape_text — writes a shape, such as "(311, 64)"; returns out. */
static const char *shape_text(char *out, size_t cap, int dims_n, const int64_t *dim)
{
    struct text t = {.data = NULL};
    text_add(&t, "(");
    for (int i = 0; i < dims_n; i++)
        text_add(&t, "%s%" PRId64, i > 0 ? ", " : "", dim[i]);
    text_add(&t, ")");
    text_copy(out, cap, t.data ? t.data : "(?)");
    text_free(&t);
    return out;
}

enum status safetensors_check(const struct safetensors_entry *entry, const char *what, int dims_n,
                              const int64_t *dim)
{
    char want[200], have[200];
    if (entry->dims_n != dims_n || memcmp(entry->dim, dim, (size_t)dims_n * sizeof(dim[0])) != 0)
        return FAIL(ST_BAD_DATA,
                    "%s: tensor %s has shape %s, expected %s; the model's dimensions differ from "
                    "this file's",
                    what, entry->name, shape_text(have, sizeof(have), entry->dims_n, entry->dim),
                    shape_text(want, sizeof(want), dims_n, dim));
    if (entry->dtype != DTYPE_F32 && entry->dtype != DTYPE_F16 && entry->dtype != DTYPE_BF16)
        return FAIL(ST_BAD_DATA,
                    "%s: tensor %s has dtype %s, expected F32, F16 or BF16; convert the file", what,
                    entry->name, dtype_name(entry->dtype));
    return ST_OK;
}

void safetensors_to_f32(const struct safetensors_entry *entry, int64_t first, int64_t n, float *out)
{
    ASSERTF(first >= 0 && n >= 0 && first <= entry->elems && n <= entry->elems - first,
            "first %" PRId64 " n %" PRId64 " elems %" PRId64, first, n, entry->elems);
    ASSERTF(entry->dtype == DTYPE_F32 || entry->dtype == DTYPE_F16 || entry->dtype == DTYPE_BF16,
            "dtype %d", entry->dtype);
    if (n == 0)
        return;
    const uint8_t *from = entry->data + (size_t)first * dtype_bytes(entry->dtype);
    if (entry->dtype == DTYPE_F32) {
        memcpy(out, from, (size_t)n * sizeof(float));
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, from + 2 * i, 2);
        uint32_t bits = entry->dtype == DTYPE_F16 ? half_bits(half) : (uint32_t)half << 16;
        memcpy(out + i, &bits, 4);
    }
}

static int64_t source_bytes(const struct safetensors_source *source)
{
    int64_t bytes = (int64_t)dtype_bytes(source->dtype);
    ASSERT(source->dims_n >= 0 && source->dims_n <= SAFETENSORS_DIMS_MAX);
    for (int i = 0; i < source->dims_n; i++)
        ASSERTF(source->dim[i] >= 0 && !__builtin_mul_overflow(bytes, source->dim[i], &bytes),
                "dim %d of %s", i, source->name);
    return bytes;
}

/* build_header — builds the JSON, padded with spaces so that the data area starts at a multiple of
 * 8, and computes the data area's length. */
static enum status build_header(const struct safetensors_source *source, int sources_n,
                                const char *metadata_json, struct text *header,
                                int64_t *data_bytes_out)
{
    int64_t at = 0;
    header->limit = HEADER_BYTES_MAX;
    text_add(header, "{");
    if (metadata_json)
        text_add(header, "\"__metadata__\":%s", metadata_json);
    for (size_t width = 8; width > 0; width /= 2)
        for (int i = 0; i < sources_n; i++)
            if (dtype_bytes(source[i].dtype) == width) {
                char quoted[SAFETENSORS_NAME_MAX * 6 + 3];
                if (strlen(source[i].name) >= SAFETENSORS_NAME_MAX ||
                    !json_quote(quoted, sizeof(quoted), source[i].name))
                    return FAIL(ST_BAD_DATA, "the tensor name %.60s… is longer than %d bytes",
                                source[i].name, SAFETENSORS_NAME_MAX - 1);
                text_add(header, "%s%s:{\"dtype\":\"%s\",\"shape\":[", header->len > 1 ? "," : "",
                         quoted, dtype_name(source[i].dtype));
                for (int d = 0; d < source[i].dims_n; d++)
                    text_add(header, "%s%" PRId64, d > 0 ? "," : "", source[i].dim[d]);
                text_add(header, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", at,
                         at + source_bytes(&source[i]));
                at += source_bytes(&source[i]);
            }
    text_add(header, "}");
    while (header->len % 8 != 0)
        text_add(header, " ");
    if (header->overflow)
        return FAIL(ST_RETRY, "out of memory: header of %d tensors", sources_n);
    *data_bytes_out = at;
    return ST_OK;
}

enum status safetensors_bytes(const struct safetensors_source *source, int sources_n,
                              const char *metadata_json, int64_t *bytes_out)
{
    struct text header = {.data = NULL};
    int64_t data_bytes = 0;
    enum status st = build_header(source, sources_n, metadata_json, &header, &data_bytes);
    if (st == ST_OK)
        *bytes_out = 8 + (int64_t)header.len + data_bytes;
    text_free(&header);
    return st;
}

/* write_read — writes a tensor that is not in host memory, through a buffer. */
static enum status write_read(struct sink *sink, const struct safetensors_source *source)
{
    int64_t each = (int64_t)dtype_bytes(source->dtype), elems = source_bytes(source) / each,
            most = READ_BYTES / each < elems ? READ_BYTES / each : elems;
    char *buffer = malloc((size_t)(most * each) + 1);
    enum status st = ST_OK;
    if (!buffer)
        return FAIL(ST_RETRY, "out of memory: a buffer of %" PRId64 " bytes to write %s",
                    most * each, source->name);
    for (int64_t at = 0, n; at < elems; at += n) {
        n = elems - at < most ? elems - at : most;
        TRY_OR(source->read(source->arg, at, n, buffer), out_free);
        TRY_OR(sink_add(sink, buffer, n * each), out_free);
    }
out_free:
    free(buffer);
    return st;
}

static enum status write_all(struct sink *sink, const struct text *header,
                             const struct safetensors_source *source, int sources_n)
{
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)header->len >> (8 * i));
    TRY(sink_add(sink, length, 8));
    TRY(sink_add(sink, header->data, (int64_t)header->len));
    for (size_t width = 8; width > 0; width /= 2)
        for (int i = 0; i < sources_n; i++)
            if (dtype_bytes(source[i].dtype) == width)
                TRY(source[i].data ? sink_add(sink, source[i].data, source_bytes(&source[i]))
                                   : write_read(sink, &source[i]));
    return ST_OK;
}

enum status safetensors_write(const char *path, const struct safetensors_source *source,
                              int sources_n, const char *metadata_json,
                              const struct heartbeat *heartbeat, uint64_t *hash_out,
                              int64_t *bytes_out)
{
    struct text header = {.data = NULL};
    struct sink *sink = NULL;
    int64_t data_bytes = 0;
    enum status st;
    TRY_OR(build_header(source, sources_n, metadata_json, &header, &data_bytes), close_all);
    TRY_OR(sink_open(path, 8 + (int64_t)header.len + data_bytes, heartbeat, &sink), close_all);
    TRY_OR(write_all(sink, &header, source, sources_n), close_all);
    TRY_OR(sink_end(sink, hash_out, bytes_out), close_all);
    st = sink_close(sink);
    sink = NULL;
close_all:;
    struct status_saved why;
    status_save(&why);
    if (sink_close(sink) == ST_OK || st != ST_OK)
        status_restore(&why); /* the first failure is the one to report */
    text_free(&header);
    return st;
}

#ifdef FUZZ
/* Any bytes are refused, or describe tensors that can be read up to the last element. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct safetensors st = {.entry = NULL};
    if (safetensors_parse(bytes, n, "fuzz", &st) != ST_OK)
        return 0;
    for (int i = 0; i < st.entries_n; i++) {
        const struct safetensors_entry *e = &st.entry[i];
        ASSERT(safetensors_find(&st, e->name) != NULL);
        ASSERT(e->data >= bytes && e->bytes <= n && e->data + e->bytes <= bytes + n);
        float last = 0;
        if (e->elems > 0 &&
            (e->dtype == DTYPE_F32 || e->dtype == DTYPE_F16 || e->dtype == DTYPE_BF16))
            safetensors_to_f32(e, e->elems - 1, 1, &last);
    }
    safetensors_free(&st);
    return 0;
}
#endif
