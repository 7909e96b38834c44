/* outline — see outline.h. */
#include "train/weights/outline.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "format/hf.h"
#include "train/weights/adapter.h"
#include "train/weights/load.h"
#include "train/weights/peft.h"
#include "train/weights/weights.h"

#define BYTES_MAX ((size_t)64 << 10)
#define DIMS_MAX 2048 /* bytes of load_dims_json */

/* sum_manifest — sums a checkpoint: its manifest has the checksums of all files. */
static enum status sum_manifest(const char *path, uint64_t *out)
{
    struct ckpt *ckpt;
    char manifest[FILE_PATH_MAX];
    TRY(weights_peek(path, &ckpt));
    enum status st = file_join(manifest, sizeof manifest, ckpt_path(ckpt), "manifest.json");
    if (st == ST_OK)
        st = file_sum(manifest, out);
    ckpt_close(ckpt);
    return st;
}

enum status outline_of_model(const char *path, struct outline *out)
{
    struct outline outline = {.sum = 0};
    TRY(weights_dims(path, &outline.dims));
    if (hf_is_folder(path))
        TRY(hf_weights_sum(path, &outline.sum));
    else if (weights_are_ckpt(path))
        TRY(sum_manifest(path, &outline.sum));
    else
        TRY(file_sum(path, &outline.sum));
    *out = outline;
    return ST_OK;
}

enum status outline_of_adapter(const char *path, const struct model_dims *base, struct outline *out)
{
    struct outline outline = {.dims = *base};
    char weights[FILE_PATH_MAX];
    TRY(adapter_dims(path, base, &outline.dims.adapter));
    if (peft_is_folder(path)) {
        TRY(file_join(weights, sizeof weights, path, PEFT_WEIGHTS));
        TRY(file_sum(weights, &outline.sum));
    } else {
        TRY(sum_manifest(path, &outline.sum));
    }
    *out = outline;
    return ST_OK;
}

enum status outline_write(const struct outline *outline, struct text *out)
{
    char dims[DIMS_MAX];
    TRY(load_dims_json(&outline->dims, dims, sizeof dims));
    text_add(out, "{\"outline\":1,\"sum\":\"%016" PRIx64 "\",\"dims\":%s}\n", outline->sum, dims);
    return out->overflow ? FAIL(ST_RETRY, "out of memory: the outline of a model") : ST_OK;
}

enum status outline_parse(const char *bytes, size_t n, const char *what, struct outline *out)
{
    cJSON *root = NULL;
    struct outline outline = {.sum = 0};
    int64_t version;
    TRY(json_parse(bytes, n, what, &root));
    enum status st = json_get_i64(root, "outline", 1, 1, &version);
    if (st == ST_OK)
        st = json_get_hex(root, "sum", &outline.sum);
    const cJSON *dims = cJSON_GetObjectItemCaseSensitive(root, "dims");
    char *text = st == ST_OK && cJSON_IsObject(dims) ? cJSON_PrintUnformatted(dims) : NULL;
    if (st == ST_OK)
        st = text ? load_dims_parse(text, &outline.dims)
                  : FAIL(ST_BAD_DATA, "%s holds no dimensions", what);
    free(text);
    cJSON_Delete(root);
    TRY(st);
    *out = outline;
    return ST_OK;
}

bool outline_is_at(const char *folder)
{
    char path[FILE_PATH_MAX];
    const bool has_path = file_join(path, sizeof path, folder, OUTLINE_FILE) == ST_OK;
    status_clear();
    return has_path && file_bytes(path) >= 0;
}

enum status outline_read(const char *folder, struct outline *out)
{
    char path[FILE_PATH_MAX], *bytes = NULL;
    size_t n = 0;
    TRY(file_join(path, sizeof path, folder, OUTLINE_FILE));
    TRY(file_read(path, BYTES_MAX, &bytes, &n));
    const enum status st = outline_parse(bytes, n, path, out);
    free(bytes);
    return st;
}

/* write_dims — writes the dimensions without the name, which is the name of a folder. */
static bool write_dims(const struct outline *outline, char out[DIMS_MAX])
{
    struct model_dims dims = outline->dims;
    dims.name[0] = 0;
    dims.task = MODEL_TASK_LM; /* TASK decides it */
    return load_dims_json(&dims, out, DIMS_MAX) == ST_OK;
}

bool outline_is_same(const struct outline *one, int one_node, const struct outline *other,
                     int other_node, char *out, size_t cap)
{
    char a[DIMS_MAX], b[DIMS_MAX];
    const bool is_written = write_dims(one, a) && write_dims(other, b);
    const struct model_dims *x = &one->dims, *y = &other->dims;
    out[0] = 0;
    if (is_written && strcmp(a, b) != 0)
        text_format(out, cap,
                    "%s, %" PRId64 " layers, %" PRId64 " wide, vocabulary %" PRId64
                    ", checksum %016" PRIx64 " on node %d and %s, %" PRId64 " layers, %" PRId64
                    " wide, vocabulary %" PRId64 ", checksum %016" PRIx64 " on node %d",
                    model_arch_name(x->arch), x->layers, x->embed, x->vocab, one->sum, one_node,
                    model_arch_name(y->arch), y->layers, y->embed, y->vocab, other->sum,
                    other_node);
    else if (one->sum != other->sum && one->sum != 0 && other->sum != 0)
        text_format(out, cap,
                    "its weights have the checksum %016" PRIx64 " on node %d and %016" PRIx64
                    " on node %d",
                    one->sum, one_node, other->sum, other_node);
    return out[0] == 0;
}
