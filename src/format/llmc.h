/* llmc — a model file of llm.c: 1,024 bytes of header, then 16 tensors, each for all layers at
 * once.
 *
 * The header is 256 little-endian int32: magic 20240326, version (3: fp32, 5: bf16), positions, V,
 * L, H, C, padded V, zeros. Matrices are (out, in) in the file and (in, out) in our layout;
 * llmc_to_f32 transposes them. Parameters have our names (model/param.h). The parser is a pure
 * function of (bytes, size). It must not know our model's code. Source: llm.c's train_gpt2.py,
 * write_model. */
#ifndef CONVOY_FORMAT_LLMC_H
#define CONVOY_FORMAT_LLMC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/tensor.h"

#define LLMC_TENSORS 16

struct llmc {
    const char *what; /* borrowed: name of the bytes in messages */
    int64_t layers, heads, embed, context, vocab, vocab_padded;
    enum dtype dtype;                    /* DTYPE_F32 or DTYPE_BF16, of every tensor */
    const uint8_t *tensor[LLMC_TENSORS]; /* borrowed from the parsed bytes, in the file's order */
};

/* One parameter. */
struct llmc_entry {
    const uint8_t *data; /* not aligned */
    enum dtype dtype;
    int64_t in, out; /* is_transposed: the file has (out, in) */
    bool is_transposed;
    int64_t elems;
};

/* llmc_parse — parses a file; public for tests: ST_BAD_DATA with expected and actual values. A file
 * that passes has exactly the bytes of its dimensions, and zeros in the padding of the
 * vocabulary. */
enum status llmc_parse(const uint8_t *bytes, size_t n, const char *what, struct llmc *out);

/* llmc_tensor — finds a tensor by our name; ST_BAD_DATA with expected and actual shape. wte.weight
 * has V rows, without the padding. */
enum status llmc_tensor(const struct llmc *llmc, const char *name, int dims_n, const int64_t *dim,
                        struct llmc_entry *out);
/* llmc_to_f32 — converts elements [first, first+n) in our layout; the range must be valid. Whole
 * rows are fastest. */
void llmc_to_f32(const struct llmc_entry *entry, int64_t first, int64_t n, float *out);

bool llmc_is_file(const char *path); /* true for a regular file: no other kind of model is one */
struct llmc_file;                    /* a mapped file */
/* llmc_open — maps and parses a file. */
enum status llmc_open(const char *path, struct llmc_file **out);
void llmc_close(struct llmc_file *file); /* accepts NULL */
/* llmc_of — returns the model that the file holds; valid until llmc_close. */
const struct llmc *llmc_of(const struct llmc_file *file);

/* llmc_release — removes the pages of a tensor from resident memory, after it was read. */
void llmc_release(const struct llmc_file *file, const struct llmc_entry *entry);

#endif
