/* check_gpu_list — see host/static.h. */
#include "check/host/static.h"

#include <string.h>

#include "base/limited.h"
#include "base/text.h"
#include "check/host/file.h"

#define TEXT_BYTES (1 << 20)

/* ---- the file that replaces the library ---- */

struct list_text {
    struct nvml_health *out;
    /* every: lines for all GPUs; gpu: the GPU of the present lines */
    struct nvml_health_gpu every, *gpu;
    char refused[128];
    bool hangs;
};

static struct nvml_health_gpu *gpu_at(struct list_text *t, const char *bus)
{
    char address[24];
    nvml_health_bus(address, bus);
    for (int i = 0; i < t->out->gpus_n; i++)
        if (strcmp(t->out->gpu[i].bus, address) == 0)
            return &t->out->gpu[i];
    if (t->out->gpus_n == NVML_HEALTH_GPUS_MAX)
        return t->gpu;
    struct nvml_health_gpu *gpu = &t->out->gpu[t->out->gpus_n++];
    *gpu = t->every;
    text_copy(gpu->bus, sizeof gpu->bus, address);
    return gpu;
}

static void set_number(struct nvml_health_gpu *gpu, const char *key, int64_t value)
{
#define SET(field)                \
    if (strcmp(key, #field) == 0) \
        gpu->field = value;
    NVML_HEALTH_LIST(SET)
#undef SET
}

static void text_line(void *arg, char *line)
{
    struct list_text *t = arg;
    char *rest = line, *key = check_file_word(&rest);
    int64_t value;
    if (key == NULL)
        return;
    t->hangs = t->hangs || strcmp(key, "hangs") == 0;
    if (rest == NULL)
        return;
    if (strcmp(key, "gpu") == 0)
        t->gpu = gpu_at(t, rest);
    else if (strcmp(key, "driver") == 0)
        text_copy(t->out->driver, sizeof t->out->driver, rest);
    else if (strcmp(key, "refused") == 0)
        text_copy(t->refused, sizeof t->refused, rest);
    else if (strcmp(key, "name") == 0)
        text_copy(t->gpu->name, sizeof t->gpu->name, rest);
    else if (strcmp(key, "error") == 0)
        text_copy(t->gpu->error, sizeof t->gpu->error, rest);
    else if (text_parse_i64(rest, -1, INT64_MAX, &value) == TEXT_OK)
        set_number(t->gpu, key, value);
}

/* ---- the library ---- */

static enum status read_library(void *arg) { return nvml_health_read(arg); }
static enum status read_kernel(void *arg) { return check_gpu_amd_read("", arg); }

enum status check_gpu_list_read(const char *root, bool is_amd, int64_t limit_ms,
                                struct nvml_health *out)
{
    bool is_late;
    *out = (struct nvml_health){0};
    if (root[0] && is_amd)
        return check_gpu_amd_read(root, out);
    if (root[0]) {
        struct list_text t = {.out = out, .every = nvml_health_unknown()};
        t.gpu = &t.every;
        if (!check_file_lines(root, "/nvml.txt", TEXT_BYTES, text_line, &t))
            return FAIL(ST_NO_DEVICE, "%s has no nvml.txt, which stands for NVML there", root);
        if (t.refused[0])
            return FAIL(ST_NO_DEVICE, "NVML does not start: %s", t.refused);
        return t.hangs ? FAIL(ST_PEER, "NVML does not answer") : ST_OK;
    }
    const enum status st = limited_run(is_amd ? read_kernel : read_library, out, sizeof *out,
                                       limit_ms, "reads the GPUs' health", &is_late);
    if (!is_late)
        return st;
    status_clear();
    return FAIL(ST_PEER, "%s has not answered for %lld ms", is_amd ? "amdgpu" : "NVML",
                (long long)limit_ms);
}
