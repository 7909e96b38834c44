/* ckpt_sample — a small checkpoint whose every number follows from its step, so that any reader can
 * tell whether it is whole. */
#ifndef CONVOY_TESTS_CKPT_SAMPLE_H
#define CONVOY_TESTS_CKPT_SAMPLE_H

#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "format/ckpt.h"

#define SAMPLE_ARRAYS 3
static const char *const sample_array_name[SAMPLE_ARRAYS] = {"model", "optim_m", "optim_v"};

static inline struct ckpt_meta sample_meta(int64_t step)
{
    return (struct ckpt_meta){.step = step,
                              .samples = step * 8,
                              .tokens = step * 512,
                              .seed = UINT64_MAX - 1,
                              .data_fingerprint = 0x0123456789abcdef,
                              .model_json = "{\"layers\": 2, \"embed\": 4}",
                              .settings_json = "{\"LR\":0.0003,\"SEED\":\"1\"}",
                              .version = "0.1.0 \"test\""};
}

static inline float sample_value(int64_t step, int array, int i)
{
    return (float)(step * 1000 + array * 100 + i);
}

/* sample_save_big — the same with elems floats in each tensor "wte". */
static inline enum status sample_save_big(struct ckpt_lock *lock, int64_t step, int keep, int elems,
                                          char path[FILE_PATH_MAX])
{
    struct ckpt_meta meta = sample_meta(step);
    struct safetensors_source source[SAMPLE_ARRAYS][2];
    struct ckpt_array array[SAMPLE_ARRAYS];
    float *data = malloc(((size_t)elems + 4) * SAMPLE_ARRAYS * sizeof(float));
    if (!data)
        return ST_RETRY;
    for (int p = 0; p < SAMPLE_ARRAYS; p++) {
        float *at = data + (size_t)p * ((size_t)elems + 4);
        for (int i = 0; i < elems + 4; i++)
            at[i] = sample_value(step, p, i % 64);
        source[p][0] = (struct safetensors_source){"wte", DTYPE_F32, 2, {elems / 2, 2}, .data = at};
        source[p][1] = (struct safetensors_source){"bias", DTYPE_F32, 1, {4}, .data = at + elems};
        array[p] = (struct ckpt_array){sample_array_name[p], source[p], 2};
    }
    enum status st = ckpt_save(lock, &meta, array, SAMPLE_ARRAYS, keep, NULL, path, FILE_PATH_MAX);
    free(data);
    return st;
}

static inline enum status sample_save(struct ckpt_lock *lock, int64_t step, int keep,
                                      char path[FILE_PATH_MAX])
{
    return sample_save_big(lock, step, keep, 8, path);
}

/* sample_is_whole — meta and every number are those of its step. */
static inline bool sample_is_whole_big(const struct ckpt *ckpt, int elems)
{
    const struct ckpt_meta *have = ckpt_meta(ckpt);
    struct ckpt_meta want = sample_meta(have->step);
    if (have->samples != want.samples || have->tokens != want.tokens || have->seed != want.seed ||
        have->data_fingerprint != want.data_fingerprint ||
        strcmp(have->version, want.version) != 0 ||
        strcmp(have->model_json, "{\"layers\":2,\"embed\":4}") != 0 ||
        strcmp(have->settings_json, want.settings_json) != 0)
        return false;
    for (int p = 0; p < SAMPLE_ARRAYS; p++) {
        const int64_t dim[2] = {elems / 2, 2};
        const struct safetensors_entry *entry;
        if (ckpt_tensor(ckpt, sample_array_name[p], "wte", 2, dim, &entry) != ST_OK)
            return false;
        for (int i = 0; i < elems; i++) {
            float value;
            safetensors_to_f32(entry, i, 1, &value);
            if (value != sample_value(have->step, p, i % 64))
                return false;
        }
    }
    return true;
}

static inline bool sample_is_whole(const struct ckpt *ckpt) { return sample_is_whole_big(ckpt, 8); }

#endif
