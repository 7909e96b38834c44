/* gguf_save — writes a model as a GGUF file (version 3) that llama.cpp and gguf/model.h read: the
 * keys, and the parameters under llama.cpp's names and in its layouts, rounded to one type.
 *
 * The file appears whole or not at all (stage.h). Parameters are read in ranges and nothing is
 * kept. It must not know where values and keys come from. */
#ifndef CONVOY_FORMAT_GGUF_SAVE_H
#define CONVOY_FORMAT_GGUF_SAVE_H

#include "base/status.h"
#include "base/text.h"
#include "format/gguf.h"
#include "format/hf.h"

/* Keys under construction. Zero-initialised is empty; free bytes. The caller checks
 * bytes.overflow. */
struct gguf_head {
    struct text bytes;
    uint64_t n;
};
/* gguf_head_u32 — adds a key with a whole number. */
void gguf_head_u32(struct gguf_head *head, const char *key, int64_t value);
/* gguf_head_f32 — adds a key with a number of kind f32. */
void gguf_head_f32(struct gguf_head *head, const char *key, double value);
/* gguf_head_bool — adds a key with true or false. */
void gguf_head_bool(struct gguf_head *head, const char *key, bool value);
/* gguf_head_text — adds a key with a string. */
void gguf_head_text(struct gguf_head *head, const char *key, const char *value);
/* gguf_head_array — adds a key with an array of n elements, which the caller adds next with
 * gguf_head_string, or as bytes. */
void gguf_head_array(struct gguf_head *head, const char *key, enum gguf_kind kind, uint64_t n);
/* gguf_head_string — adds an element of an array of strings. */
void gguf_head_string(struct gguf_head *head, const char *text, size_t n);
/* gguf_head_copy — adds a key of another file unchanged. */
void gguf_head_copy(struct gguf_head *head, const struct gguf_value *value);

/* gguf_config_write — adds the keys that gguf_config_read reads as the same config. name: of the
 * model. ST_BAD_SETTING: a computation for which the format has no keys. */
enum status gguf_config_write(const struct hf_config *config, const char *name,
                              struct gguf_head *head);
/* gguf_config_factor — returns the divisor of frequency i of n in Llama-3's scaling, an element of
 * rope_freqs.weight. */
double gguf_config_factor(const struct hf_rope *rope, int64_t i, int64_t n);

/* One parameter, by our name and in our layout. */
struct gguf_source {
    const char *name;
    int dims_n;
    int64_t dim[2];
    /* reads elements as f32; ranges come in any order */
    void (*read)(void *arg, int64_t first, int64_t n, float *out);
    enum status (*done)(void *arg); /* called once, after the last element */
    void *arg;
};

/* gguf_save_check — fails with ST_BAD_SETTING if TO cannot be a new file, or exists. */
enum status gguf_save_check(const char *to);
/* gguf_save — writes the file. Matrices get the type `quant`; a matrix whose rows are no multiple
 * of its blocks is F16; norms, biases and positions are F32. *f16_n_out: the number of such
 * matrices. Creates the folders above TO. ST_BAD_SETTING: the format has no such parameter, or a
 * number is beyond the type's range; ST_STORE: nothing is left. */
enum status gguf_save(const char *to, const struct hf_config *config,
                      const struct gguf_quant *quant, const struct gguf_head *head,
                      const struct gguf_source *source, int sources_n, int *f16_n_out);

#endif
