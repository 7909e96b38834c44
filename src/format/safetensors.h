/* safetensors — Hugging Face's tensor file: 8 bytes little-endian header length, a JSON header,
 * then the bytes.
 *
 * The reader is a pure function of (bytes, size) with checked arithmetic; a file that passes has
 * tensors in bounds, not overlapping, sizes equal to dtype × shape. Fails with ST_BAD_DATA and the
 * tensor's name. Must not know what tensors mean. */
#ifndef CONVOY_FORMAT_SAFETENSORS_H
#define CONVOY_FORMAT_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/tensor.h"

#define SAFETENSORS_DIMS_MAX 8
#define SAFETENSORS_NAME_MAX 256

struct safetensors_entry {
    char name[SAFETENSORS_NAME_MAX];
    enum dtype dtype;
    int dims_n;
    int64_t dim[SAFETENSORS_DIMS_MAX];
    int64_t elems;
    const uint8_t *data; /* borrowed from the bytes parsed; not aligned */
    size_t bytes;
};

struct safetensors {
    struct safetensors_entry *entry;
    int entries_n;
    int others_n, entries_cap; /* tensors of other dtypes: their names, for safetensors_has_other */
    char *metadata_json;       /* the "__metadata__" object as text, or NULL */
};

/* safetensors_parse — `what` names the file in failures. Dtypes we have no use for (I64, BOOL …)
 * are checked too, but kept out of the list, which is in the header's order. */
enum status safetensors_parse(const uint8_t *bytes, size_t n, const char *what,
                              struct safetensors *out);
void safetensors_free(struct safetensors *st); /* accepts a zeroed one, twice */
/* NULL: none */
const struct safetensors_entry *safetensors_find(const struct safetensors *st, const char *name);
/* safetensors_has_other — is there a tensor of this name that is kept out of the list for its
 * dtype? */
bool safetensors_has_other(const struct safetensors *st, const char *name);
/* safetensors_check — the shape is the one expected and the dtype F32, F16 or BF16; ST_BAD_DATA
 * with file, name, expected, actual. */
enum status safetensors_check(const struct safetensors_entry *entry, const char *what, int dims_n,
                              const int64_t *dim);
/* safetensors_to_f32 — elements [first, first+n) as float from F32, F16 or BF16; ASSERTs range. */
void safetensors_to_f32(const struct safetensors_entry *entry, int64_t first, int64_t n,
                        float *out);

/* One tensor to write; data is host memory. */
struct safetensors_source {
    const char *name;
    enum dtype dtype;
    int dims_n;
    int64_t dim[SAFETENSORS_DIMS_MAX];
    const void *data;
};
/* A sign of life from a long job: called at least every 8 MiB with the bytes done since the last
 * call. NULL or fn NULL: none. */
struct safetensors_heartbeat {
    void (*fn)(void *arg, int64_t bytes);
    void *arg;
};
/* safetensors_bytes — how long the file of these tensors will be; what safetensors_write tells in
 * advance. */
enum status safetensors_bytes(const struct safetensors_source *source, int sources_n,
                              const char *metadata_json, int64_t *bytes_out);
/* safetensors_write — a new file at path (which must not exist), synced; the XXH3-64 of all its
 * bytes and their number come out. Tensors lie in the order of their element sizes, widest first,
 * so that each is aligned to its element. metadata_json: an object of strings, or NULL. ST_STORE
 * with path, bytes needed and the system's text; the cut file is left to the caller. */
enum status safetensors_write(const char *path, const struct safetensors_source *source,
                              int sources_n, const char *metadata_json,
                              const struct safetensors_heartbeat *heartbeat, uint64_t *hash_out,
                              int64_t *bytes_out);

#endif
