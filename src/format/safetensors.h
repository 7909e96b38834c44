/* safetensors — Hugging Face's tensor file: 8 bytes of header length (little-endian), a JSON
 * header, then the bytes.
 *
 * The reader is a pure function of (bytes, size) with checked arithmetic. In a file that passes,
 * tensors are in bounds, do not overlap, and have the size of dtype × shape. Errors are ST_BAD_DATA
 * with the tensor's name. It must not know the meaning of tensors. */
#ifndef CONVOY_FORMAT_SAFETENSORS_H
#define CONVOY_FORMAT_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "format/sink.h"
#include "kernels/tensor.h"

#define SAFETENSORS_DIMS_MAX 8
#define SAFETENSORS_NAME_MAX 256

struct safetensors_entry {
    char name[SAFETENSORS_NAME_MAX];
    enum dtype dtype;
    int dims_n;
    int64_t dim[SAFETENSORS_DIMS_MAX];
    int64_t elems;
    const uint8_t *data; /* borrowed from the parsed bytes; not aligned */
    size_t bytes;
};

struct safetensors {
    struct safetensors_entry *entry;
    int entries_n;
    int others_n, entries_cap; /* names of tensors of other dtypes, for safetensors_has_other */
    int64_t data_bytes;        /* bytes of all tensors in the file's data */
    char *metadata_json;       /* the "__metadata__" object as text, or NULL */
};

/* safetensors_parse — parses a file. `what` names it in messages. The list is in the header's
 * order. Tensors of dtypes that the program does not use (I64, BOOL …) are checked, but not in the
 * list. */
enum status safetensors_parse(const uint8_t *bytes, size_t n, const char *what,
                              struct safetensors *out);
void safetensors_free(struct safetensors *st); /* accepts a zeroed struct; may be called twice */
/* safetensors_find — returns the entry of a tensor; NULL: there is none. */
const struct safetensors_entry *safetensors_find(const struct safetensors *st, const char *name);
/* safetensors_has_other — returns true if a tensor of this name is left out of the list for its
 * dtype. */
bool safetensors_has_other(const struct safetensors *st, const char *name);
/* safetensors_other — returns the name of tensor i (from 0) of the tensors that are left out; NULL:
 * the end. */
const char *safetensors_other(const struct safetensors *st, int i);
/* safetensors_check — checks that the shape is the expected one, and the dtype F32, F16 or BF16;
 * else ST_BAD_DATA with file, name, expected and actual shape. */
enum status safetensors_check(const struct safetensors_entry *entry, const char *what, int dims_n,
                              const int64_t *dim);
/* safetensors_to_f32 — converts elements [first, first+n) to float, from F32, F16 or BF16. The
 * range must be valid. */
void safetensors_to_f32(const struct safetensors_entry *entry, int64_t first, int64_t n,
                        float *out);

/* One tensor to write. data: in host memory; NULL: the writer calls read for ranges of elements, in
 * order, into host memory. */
struct safetensors_source {
    const char *name;
    enum dtype dtype;
    int dims_n;
    int64_t dim[SAFETENSORS_DIMS_MAX];
    const void *data;
    enum status (*read)(void *arg, int64_t first, int64_t n, void *out);
    void *arg;
};
/* safetensors_bytes — computes the size of the file that safetensors_write will write. */
enum status safetensors_bytes(const struct safetensors_source *source, int sources_n,
                              const char *metadata_json, int64_t *bytes_out);
/* safetensors_write — writes and syncs a new file at path, which must not exist; returns XXH3-64
 * and the number of all bytes. Tensors are ordered by element size, widest first, so each is
 * aligned to its elements. metadata_json: an object of strings, or NULL. ST_STORE: with path, bytes
 * needed and the system's text; the caller removes the incomplete file. Also errors of a source's
 * read, and ST_RETRY. */
enum status safetensors_write(const char *path, const struct safetensors_source *source,
                              int sources_n, const char *metadata_json,
                              const struct heartbeat *heartbeat, uint64_t *hash_out,
                              int64_t *bytes_out);

#endif
