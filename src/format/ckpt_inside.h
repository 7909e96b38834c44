/* ckpt_inside — what ckpt.c (opens) and ckpt_fill.c (reads into place) share. Others use ckpt.h. */
#ifndef CONVOY_FORMAT_CKPT_INSIDE_H
#define CONVOY_FORMAT_CKPT_INSIDE_H

#include <stddef.h>

#include "base/file.h"
#include "format/ckpt.h"
#include "format/manifest.h"

/* One file. Not yet verified (fd >= 0): map is address space of its size, of which the header alone
 * has been read. */
struct ckpt_file {
    char name[MANIFEST_NAME_MAX]; /* of the part: without .safetensors */
    void *map;
    size_t bytes;
    struct safetensors tensors;
    int fd; /* -1: verified */
};

struct ckpt {
    char path[FILE_PATH_MAX];
    struct manifest manifest;
    struct ckpt_file part[MANIFEST_FILES_MAX];
    int parts_n;
};

/* ckpt_read_chunk — up to n bytes from offset; fewer only at the end of the file. In ckpt.c. */
enum status ckpt_read_chunk(int fd, const char *path, const char *name, void *out, size_t n,
                            int64_t offset, size_t *got_out);
/* ckpt_read_error — "cannot VERB PATH: …", and what that proves: ST_BAD_DATA: damage; ST_RETRY: it
 * passes; ST_STORE: neither. */
enum status ckpt_read_error(const char *verb, const char *path, int error);
/* ckpt_retry — after a failure that proves nothing: waits a moment and returns true, three
 * times in all. *tries begins with 0. */
bool ckpt_retry(enum status st, int *tries);
/* ckpt_check_sum — ST_BAD_DATA with both sums. In ckpt.c. */
enum status ckpt_check_sum(const char *path, const struct manifest_file *file, uint64_t sum);

#endif
