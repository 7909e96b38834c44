/* gguf_form — the parameters in llama.cpp's files: their names, and the layouts that its converter
 * gives them. One table for reading and writing. It must not know files. */
#ifndef CONVOY_FORMAT_GGUF_FORM_H
#define CONVOY_FORMAT_GGUF_FORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/hf.h"

/* The layout of a parameter in the file. */
enum gguf_form {
    GGUF_FORM_PLAIN,
    GGUF_FORM_PAIRS,     /* in each head, row 2i+s is our row s·D/2+i */
    GGUF_FORM_QKV,       /* all q, all k, all v; ours: q, k, v of each head */
    GGUF_FORM_TRANSPOSED /* (out,in); ours: (in,out) */
};

/* One kind of parameter, without its layer and its ".weight" or ".bias". */
struct gguf_form_row {
    const char *ours, *file;
    bool is_layered, has_bias;
    enum gguf_form form;
    bool is_kv; /* PAIRS: heads of keys */
};

#define GGUF_FORM_NAME_MAX 128
/* The fields of a name: "<prefix>.<layer>.<stem>.weight" or "<stem>.weight". */
struct gguf_form_name {
    int64_t layer; /* -1: not in a layer */
    char stem[GGUF_FORM_NAME_MAX];
    bool is_bias;
};

/* gguf_form_find — returns the row of a file's name, and its fields (stem "": no such form of a
 * name); NULL: the architecture has no such parameter. */
const struct gguf_form_row *gguf_form_find(enum hf_arch arch, const char *file,
                                           struct gguf_form_name *out);
/* gguf_form_of — returns the row of our name, and writes the file's name, or "?"; NULL: the file
 * has no such parameter. */
const struct gguf_form_row *gguf_form_of(enum hf_arch arch, const char *ours, char *file,
                                         size_t cap);
/* gguf_form_our_name — writes our name of a parameter of the file; for tests. */
void gguf_form_our_name(enum hf_arch arch, const struct gguf_form_row *row,
                        const struct gguf_form_name *name, char *out, size_t cap);
/* gguf_form_file_row — returns the file's row for our row of a matrix in form PAIRS or QKV. heads:
 * of this matrix; head_dim: rows of a head. */
int64_t gguf_form_file_row(enum gguf_form form, int64_t heads, int64_t head_dim, int64_t row);
/* gguf_form_our_row — returns our row for the file's row. */
int64_t gguf_form_our_row(enum gguf_form form, int64_t heads, int64_t head_dim, int64_t row);

/* gguf_form_arch — returns the file's name of an architecture. */
const char *gguf_form_arch(enum hf_arch arch);
/* gguf_form_arch_named — finds an architecture by the file's name; false: it is unknown. */
bool gguf_form_arch_named(const char *name, enum hf_arch *out);

#endif
