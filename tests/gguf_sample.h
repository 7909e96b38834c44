/* gguf_sample — builds GGUF files in memory, sound and damaged ones. */
#ifndef CONVOY_TESTS_GGUF_SAMPLE_H
#define CONVOY_TESTS_GGUF_SAMPLE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "format/gguf.h"

/* Bytes under construction: keys, entries of tensors, and their data. */
struct gguf_sample {
    struct text keys, tensors, data;
    uint64_t keys_n, tensors_n;
    size_t alignment; /* 0: 32 */
};

static inline void sample_le(struct text *t, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++, value >>= 8) {
        uint8_t byte = (uint8_t)value;
        text_add_bytes(t, &byte, 1);
    }
}

static inline void sample_string(struct text *t, const char *s)
{
    sample_le(t, strlen(s), 8);
    text_add_bytes(t, s, strlen(s));
}

/* sample_key — the value's bytes follow, by the caller. */
static inline void sample_key(struct gguf_sample *s, const char *key, enum gguf_kind kind)
{
    sample_string(&s->keys, key);
    sample_le(&s->keys, kind, 4);
    s->keys_n++;
}

static inline void sample_u32(struct gguf_sample *s, const char *key, uint32_t value)
{
    sample_key(s, key, GGUF_KIND_U32);
    sample_le(&s->keys, value, 4);
}

static inline void sample_f32(struct gguf_sample *s, const char *key, float value)
{
    sample_key(s, key, GGUF_KIND_F32);
    text_add_bytes(&s->keys, &value, 4);
}

static inline void sample_bool(struct gguf_sample *s, const char *key, int value)
{
    sample_key(s, key, GGUF_KIND_BOOL);
    sample_le(&s->keys, (uint64_t)value, 1);
}

static inline void sample_text(struct gguf_sample *s, const char *key, const char *value)
{
    sample_key(s, key, GGUF_KIND_STRING);
    sample_string(&s->keys, value);
}

/* sample_array — its elements follow, by the caller. */
static inline void sample_array(struct gguf_sample *s, const char *key, enum gguf_kind kind,
                                uint64_t n)
{
    sample_key(s, key, GGUF_KIND_ARRAY);
    sample_le(&s->keys, kind, 4);
    sample_le(&s->keys, n, 8);
}

static inline void sample_texts(struct gguf_sample *s, const char *key, const char *const *value,
                                uint64_t n)
{
    sample_array(s, key, GGUF_KIND_STRING, n);
    for (uint64_t i = 0; i < n; i++)
        sample_string(&s->keys, value[i]);
}

/* sample_entry — a tensor's entry alone; dim as torch orders them. */
static inline void sample_entry(struct gguf_sample *s, const char *name, int dims_n,
                                const int64_t *dim, uint32_t type, uint64_t offset)
{
    sample_string(&s->tensors, name);
    sample_le(&s->tensors, (uint64_t)dims_n, 4);
    for (int i = dims_n - 1; i >= 0; i--)
        sample_le(&s->tensors, (uint64_t)dim[i], 8);
    sample_le(&s->tensors, type, 4);
    sample_le(&s->tensors, offset, 8);
    s->tensors_n++;
}

/* sample_tensor — with its bytes, behind those before. */
static inline void sample_tensor(struct gguf_sample *s, const char *name, int dims_n,
                                 const int64_t *dim, uint32_t type, const void *bytes, size_t n)
{
    const size_t alignment = s->alignment ? s->alignment : 32;
    s->data.limit = 64 << 20;
    while (s->data.len % alignment != 0)
        sample_le(&s->data, 0, 1);
    sample_entry(s, name, dims_n, dim, type, s->data.len);
    text_add_bytes(&s->data, bytes, n);
}

/* sample_end — the whole file in malloc'ed memory of exactly its size, and nothing left in s. */
static inline uint8_t *sample_end(struct gguf_sample *s, uint32_t version, size_t *n_out)
{
    const size_t alignment = s->alignment ? s->alignment : 32;
    struct text t = {.limit = 128 << 20};
    text_add_bytes(&t, "GGUF", 4);
    sample_le(&t, version, 4);
    sample_le(&t, s->tensors_n, 8);
    sample_le(&t, s->keys_n, 8);
    text_add_bytes(&t, s->keys.data, s->keys.len);
    text_add_bytes(&t, s->tensors.data, s->tensors.len);
    while (t.len % alignment != 0)
        sample_le(&t, 0, 1);
    text_add_bytes(&t, s->data.data, s->data.len);
    uint8_t *bytes = malloc(t.len);
    memcpy(bytes, t.data, t.len);
    *n_out = t.len;
    text_free(&t);
    text_free(&s->keys);
    text_free(&s->tensors);
    text_free(&s->data);
    *s = (struct gguf_sample){.keys_n = 0};
    return bytes;
}

#endif
