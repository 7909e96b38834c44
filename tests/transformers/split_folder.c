/* split_folder — FROM TO BYTES: writes the Hugging Face folder FROM, in one file, again as TO with
 * weights in files of up to BYTES each: what `export` does above 5 GB, for a small model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "format/hf.h"

/* read_named — a file of the folder. */
static enum status read_named(const char *folder, const char *name, char **out, size_t *n_out)
{
    char path[FILE_PATH_MAX];
    text_format(path, sizeof path, "%s/%s", folder, name);
    return file_read(path, 1 << 28, out, n_out);
}

static enum status split(const char *from, const char *to, int64_t file_bytes_max)
{
    char *config = NULL, *bytes = NULL;
    size_t config_n, n;
    struct safetensors tensors = {0};
    TRY(read_named(from, "config.json", &config, &config_n));
    TRY(read_named(from, "model.safetensors", &bytes, &n));
    TRY(safetensors_parse((const uint8_t *)bytes, n, from, &tensors));
    struct safetensors_source *source = calloc((size_t)tensors.entries_n, sizeof *source);
    const struct hf_save_file file = {"config.json", config, config_n};
    if (!source)
        return FAIL(ST_RETRY, "out of memory: %d tensors", tensors.entries_n);
    for (int i = 0; i < tensors.entries_n; i++) {
        const struct safetensors_entry *entry = &tensors.entry[i];
        source[i] = (struct safetensors_source){.name = entry->name,
                                                .dtype = entry->dtype,
                                                .dims_n = entry->dims_n,
                                                .data = entry->data};
        memcpy(source[i].dim, entry->dim, sizeof source[i].dim);
    }
    enum status st = hf_save(to, NULL, source, tensors.entries_n, &file, 1, file_bytes_max);
    free(source);
    safetensors_free(&tensors);
    free(bytes);
    free(config);
    return st;
}

int main(int argc, char **argv)
{
    int64_t file_bytes_max;
    if (argc != 4 || text_parse_i64(argv[3], 1, INT64_MAX, &file_bytes_max) != TEXT_OK) {
        fprintf(stderr, "usage: split_folder FROM TO BYTES\n");
        return 64;
    }
    if (split(argv[1], argv[2], file_bytes_max) == ST_OK)
        return 0;
    fprintf(stderr, "%s\n", status_message());
    return 1;
}
