/* ckpt_inside — an open checkpoint, shared by ckpt.c (opens) and ckpt_fill.c (loads). Other files
 * use ckpt.h. */
#ifndef CONVOY_FORMAT_CKPT_INSIDE_H
#define CONVOY_FORMAT_CKPT_INSIDE_H

#include <stddef.h>

#include "base/file.h"
#include "format/ckpt.h"
#include "format/manifest.h"

/* One file. Not verified yet (fd >= 0): map is address space of the file's size, and only the
 * header has been read into it. */
struct ckpt_file {
    char name[MANIFEST_NAME_MAX]; /* name of the array: without .safetensors */
    void *map;
    size_t bytes;
    struct safetensors tensors;
    int fd; /* -1: verified */
};

struct ckpt {
    char path[FILE_PATH_MAX];
    struct manifest manifest;
    struct ckpt_file file[MANIFEST_FILES_MAX];
    int files_n;
};

/* ckpt_check_sum — fails with ST_BAD_DATA and both sums if they differ. In ckpt.c. */
enum status ckpt_check_sum(const char *path, const struct manifest_file *file, uint64_t sum);

#endif
