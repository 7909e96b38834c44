/* check_gpu_list — see check_gpu_list.h. */
#include "check/check_gpu_list.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/thread.h"
#include "check/check_file.h"

#define TEXT_BYTES (1 << 20)

/* ---- the file that stands for the library ---- */

struct list_text {
    struct nvml_health *out;
    struct nvml_health_gpu every, *gpu; /* what the lines are of */
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

static enum status read_text(const char *root, struct nvml_health *out)
{
    struct list_text t = {.out = out, .every = nvml_health_unknown()};
    t.gpu = &t.every;
    *out = (struct nvml_health){0};
    if (!check_file_lines(root, "/nvml.txt", TEXT_BYTES, text_line, &t))
        return FAIL(ST_NO_DEVICE, "%s has no nvml.txt, which stands for NVML there", root);
    if (t.refused[0])
        return FAIL(ST_NO_DEVICE, "NVML does not start: %s", t.refused);
    return t.hangs ? FAIL(ST_PEER, "NVML does not answer") : ST_OK;
}

/* ---- with a time limit ---- */

struct reading {
    struct thread thread; /* its lock guards what follows */
    struct nvml_health health;
    struct status_saved saved;
    enum status st;
    bool is_done, is_left; /* left: the thread frees it */
};

static void *read_library(void *arg)
{
    struct reading *r = arg;
    struct nvml_health *health = calloc(1, sizeof *health);
    enum status st = health ? nvml_health_read(health) : FAIL(ST_RETRY, "out of memory: GPUs");
    pthread_mutex_lock(&r->thread.lock);
    if (st == ST_OK)
        r->health = *health;
    free(health);
    r->st = st;
    status_save(&r->saved);
    r->is_done = true;
    bool is_left = r->is_left;
    pthread_cond_signal(&r->thread.wake);
    pthread_mutex_unlock(&r->thread.lock);
    if (is_left) {
        thread_free(&r->thread);
        free(r);
    }
    return NULL;
}

static bool wait_for(struct reading *r, int64_t limit_ms)
{
    struct timespec until = thread_deadline(limit_ms);
    pthread_mutex_lock(&r->thread.lock);
    while (!r->is_done && pthread_cond_timedwait(&r->thread.wake, &r->thread.lock, &until) == 0)
        ;
    bool is_done = r->is_done;
    r->is_left = !is_done;
    pthread_mutex_unlock(&r->thread.lock);
    return is_done;
}

static enum status collect(struct reading *r, struct nvml_health *out)
{
    enum status st = r->st;
    *out = r->health;
    status_restore(&r->saved);
    thread_free(&r->thread);
    free(r);
    return st;
}

enum status check_gpu_list_read(const char *root, int64_t limit_ms, struct nvml_health *out)
{
    if (root[0])
        return read_text(root, out);
    struct reading *r = calloc(1, sizeof *r);
    if (r == NULL)
        return FAIL(ST_RETRY, "out of memory: the GPUs of a node");
    enum status st = thread_start(&r->thread, read_library, r, "reads the GPUs' health");
    if (st != ST_OK) {
        free(r);
        return st;
    }
    pthread_t id = r->thread.id;
    if (!wait_for(r, limit_ms)) {
        pthread_detach(id);
        return FAIL(ST_PEER, "NVML has not answered for %lld ms", (long long)limit_ms);
    }
    pthread_join(id, NULL);
    return collect(r, out);
}
