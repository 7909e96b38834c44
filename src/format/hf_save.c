/* hf_save — see hf.h. */
#include "format/hf.h"

#include <inttypes.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "format/stage.h"

#define WEIGHTS "model.safetensors"
#define METADATA "{\"format\":\"pt\"}" /* transformers requires it */
#define INDEX_BYTES_MAX (16 << 20)
#define INDEX WEIGHTS ".index.json"
#define INDEX_ROW_BYTES 1024   /* about the most bytes of a tensor in headers and index */
#define SLACK_BYTES (64 << 10) /* the folder and the file system's own blocks */

/* One folder that is being written. */
struct job {
    const char *weights; /* name of a single file of tensors */
    const struct safetensors_source *source;
    int sources_n;
    const struct hf_save_file *file;
    int files_n;
    int64_t file_bytes_max;
    struct stage stage;
};

enum status hf_save_check(const char *to)
{
    struct stage stage;
    return stage_name(&stage, to, "folder");
}

static int64_t source_bytes(const struct safetensors_source *source)
{
    int64_t bytes = (int64_t)dtype_bytes(source->dtype);
    for (int i = 0; i < source->dims_n; i++)
        bytes *= source->dim[i];
    return bytes;
}

/* weights_end — returns the end of the tensors [first, end) that fit into one file; *bytes: their
 * size. */
static int weights_end(const struct job *job, int first, int64_t *bytes)
{
    int end = first;
    *bytes = 0;
    for (; end < job->sources_n; end++) {
        int64_t more = source_bytes(&job->source[end]);
        if (end > first && *bytes + more > job->file_bytes_max)
            break;
        *bytes += more;
    }
    return end;
}

static enum status write_weights(const struct job *job, const char *name, int first, int end)
{
    char path[FILE_PATH_MAX];
    uint64_t hash;
    int64_t bytes;
    TRY(file_join(path, sizeof(path), job->stage.temp, name));
    return safetensors_write(path, job->source + first, end - first, METADATA, NULL, &hash, &bytes);
}

/* write_weight_files — writes the files, and the list of the index. */
static enum status write_weight_files(const struct job *job, int weight_files_n, struct text *index)
{
    char name[64];
    int64_t bytes, total = 0;
    for (int i = 0; i < job->sources_n; i++)
        total += source_bytes(&job->source[i]);
    text_add(index,
             "{\n  \"metadata\": {\n    \"total_size\": %" PRId64 "\n  },\n  \"weight_map\": {",
             total);
    for (int first = 0, end, number = 1; first < job->sources_n; first = end, number++) {
        end = weights_end(job, first, &bytes);
        text_format(name, sizeof(name), "model-%05d-of-%05d.safetensors", number, weight_files_n);
        TRY(write_weights(job, name, first, end));
        /* Tensors [first, end) are in the file. Names need no escapes: they are ours. */
        for (int i = first; i < end; i++)
            text_add(index, "%s\n    \"%s\": \"%s\"", i > 0 ? "," : "", job->source[i].name, name);
    }
    text_add(index, "\n  }\n}\n");
    return index->overflow
               ? FAIL(ST_RETRY, "out of memory: the index of %d tensors", job->sources_n)
               : ST_OK;
}

static enum status write_files(const struct job *job)
{
    char path[FILE_PATH_MAX];
    int weight_files_n = 0;
    int64_t bytes;
    for (int first = 0; first < job->sources_n; first = weights_end(job, first, &bytes))
        weight_files_n++;
    if (weight_files_n > 1) {
        struct text index = {.limit = INDEX_BYTES_MAX};
        enum status st = write_weight_files(job, weight_files_n, &index);
        if (st == ST_OK)
            st = file_join(path, sizeof(path), job->stage.temp, INDEX);
        if (st == ST_OK)
            st = file_replace(path, index.data, index.len);
        text_free(&index);
        TRY(st);
    } else
        TRY(write_weights(job, job->weights, 0, job->sources_n));
    for (int i = 0; i < job->files_n; i++) {
        TRY(file_join(path, sizeof(path), job->stage.temp, job->file[i].name));
        /* syncs the file and its folder */
        TRY(file_replace(path, job->file[i].data, job->file[i].bytes));
    }
    return file_sync_dir(job->stage.temp);
}

enum status hf_save(const char *to, const char *weights, const struct safetensors_source *source,
                    int sources_n, const struct hf_save_file *file, int files_n,
                    int64_t file_bytes_max)
{
    struct job job = {.weights = weights ? weights : WEIGHTS,
                      .source = source,
                      .sources_n = sources_n,
                      .file = file,
                      .files_n = files_n,
                      .file_bytes_max = file_bytes_max};
    int64_t need_bytes;
    TRY(stage_name(&job.stage, to, "folder"));
    TRY(safetensors_bytes(job.source, job.sources_n, METADATA, &need_bytes));
    need_bytes += SLACK_BYTES + (int64_t)job.sources_n * INDEX_ROW_BYTES;
    for (int i = 0; i < job.files_n; i++)
        need_bytes += (int64_t)job.file[i].bytes;
    TRY(stage_open(&job.stage, need_bytes));
    return stage_commit(&job.stage, write_files(&job), NULL);
}
