/* gguf — llama.cpp's model file: metadata by key, a list of tensors, then their bytes.
 *
 * The reader is a pure function of (bytes, size) with checked arithmetic; it accepts versions 2 and
 * 3, little-endian. In a file that passes, keys and names are unique, arrays are not nested, and
 * the tensors are in bounds, aligned, one after the other. Values are read in place: a list of
 * 100,000 tokens costs no memory. Errors are ST_BAD_DATA with key or tensor. It must not know the
 * meaning of keys and tensors. */
#ifndef CONVOY_FORMAT_GGUF_H
#define CONVOY_FORMAT_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define GGUF_DIMS_MAX 4
#define GGUF_NAME_MAX 128 /* bytes of a tensor's name, with closing 0; llama.cpp allows 64 */

/* Kinds of values; the numbers are the file's. */
enum gguf_kind {
    GGUF_KIND_U8,
    GGUF_KIND_I8,
    GGUF_KIND_U16,
    GGUF_KIND_I16,
    GGUF_KIND_U32,
    GGUF_KIND_I32,
    GGUF_KIND_F32,
    GGUF_KIND_BOOL,
    GGUF_KIND_STRING,
    GGUF_KIND_ARRAY,
    GGUF_KIND_U64,
    GGUF_KIND_I64,
    GGUF_KIND_F64,
    GGUF_KIND_N
};

/* One key; pointers are into the parsed bytes. */
struct gguf_value {
    const char *key; /* without closing 0 */
    size_t key_n;
    enum gguf_kind kind; /* kind of the value, or of an array's elements */
    bool is_array;
    int64_t n;           /* elements; 1 if it is no array */
    const uint8_t *data; /* not aligned; a string's length, then its bytes */
    size_t bytes;
};

struct gguf_tensor {
    char name[GGUF_NAME_MAX];
    const struct gguf_quant *quant;
    int dims_n;
    /* in the order of torch: elements of the last dimension are adjacent */
    int64_t dim[GGUF_DIMS_MAX];
    int64_t elems;
    const uint8_t *data; /* into the parsed bytes */
    size_t bytes;
    size_t offset; /* offset in the data area */
};

struct gguf {
    const char *what; /* borrowed: name of the bytes in messages */
    struct gguf_value *value;
    int values_n;
    struct gguf_tensor *tensor; /* by name, ascending */
    int tensors_n;
};

/* A string of an array. */
struct gguf_string {
    const char *text; /* without closing 0; it may hold any bytes */
    size_t n;
};

/* gguf_is_magic — returns true if the bytes begin with "GGUF". */
bool gguf_is_magic(const uint8_t *bytes, size_t n);
/* gguf_parse — reads keys and tensors of a whole file. *out points into `bytes` and `what` (the
 * name for messages), which must outlive it; unchanged if it fails. Free it with gguf_free. */
enum status gguf_parse(const uint8_t *bytes, size_t n, const char *what, struct gguf *out);
void gguf_free(struct gguf *gguf); /* accepts a zeroed struct; may be called twice */

/* gguf_keys — returns the bytes of a file with these keys and no tensors; gguf_parse accepts it.
 * The caller frees them. NULL: out of memory. */
uint8_t *gguf_keys(const struct gguf *gguf, const uint8_t *bytes, size_t *n_out);

/* gguf_find — returns the value of a key; NULL: there is none. */
const struct gguf_value *gguf_find(const struct gguf *gguf, const char *key);
/* gguf_find_tensor — returns the tensor of a name; NULL: there is none. */
const struct gguf_tensor *gguf_find_tensor(const struct gguf *gguf, const char *name);
/* gguf_get_i64 — reads a whole number of any width, in [min, max]. This getter and the next three
 * fail with ST_BAD_DATA and the key if it is missing, an array, of another kind, or out of
 * bounds. */
enum status gguf_get_i64(const struct gguf *gguf, const char *key, int64_t min, int64_t max,
                         int64_t *out);
/* gguf_get_f64 — reads a number of kind f32 or f64. */
enum status gguf_get_f64(const struct gguf *gguf, const char *key, double *out);
/* gguf_get_bool — reads a byte that is 0 or 1. */
enum status gguf_get_bool(const struct gguf *gguf, const char *key, bool *out);
/* gguf_get_text — copies a string without zeros of less than cap bytes. */
enum status gguf_get_text(const struct gguf *gguf, const char *key, char *out, size_t cap);
/* gguf_get_array — finds an array. kind: the kind of its elements. */
enum status gguf_get_array(const struct gguf *gguf, const char *key, enum gguf_kind kind,
                           const struct gguf_value **out);
/* gguf_next_string — returns the string at *at, and moves *at to the next; at begins as the array's
 * data, and may be called for each of its n strings once. */
struct gguf_string gguf_next_string(const uint8_t **at);

/* gguf_quant — element types of GGUF's tensors, and how their blocks become floats and back.
 *
 * F32, F16, BF16; blocks of 32 along a row: Q8_0 (f16 scale, 32 int8), Q4_0 (f16 scale, 32 nibbles
 * minus 8), Q4_1 (f16 scale, f16 minimum, 32 nibbles). Must not know files. */

#define GGUF_QUANT_BLOCK_MAX 32

struct gguf_quant {
    const char *name;
    uint32_t type; /* the file's number */
    int block_elems, block_bytes;
    void (*to_f32)(const uint8_t *block, int64_t blocks_n, float *out);
    bool (*from_f32)(const float *in, int64_t blocks_n, uint8_t *out); /* NULL: it is only read */
    uint32_t file_type; /* general.file_type of a file whose matrices have this type */
};

/* gguf_quant_of — finds an element type. NULL: a type that is not read; *name_out: its name, or
 * "unknown". */
const struct gguf_quant *gguf_quant_of(uint32_t type, const char **name_out);
/* gguf_quant_to_f32 — converts elements [first, first+n) of a row of blocks that begins at row. */
void gguf_quant_to_f32(const struct gguf_quant *quant, const uint8_t *row, int64_t first, int64_t n,
                       float *out);
/* gguf_quant_named — finds an element type that can be written: F32, F16, BF16, Q8_0, in letters of
 * either case. NULL: any other name. */
const struct gguf_quant *gguf_quant_named(const char *name);
/* gguf_quant_from_f32 — rounds n elements, whole blocks, to a type that can be written, as
 * llama.cpp does. false: a finite number is beyond the range of the type. */
bool gguf_quant_from_f32(const struct gguf_quant *quant, const float *in, int64_t n, uint8_t *out);

#endif
