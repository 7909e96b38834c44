/* ckpt_read — opens and reads the files of a checkpoint folder, and classifies the errors of doing
 * so.
 *
 * For ckpt.c and ckpt_fill.c. An error is proven damage (ST_BAD_DATA), passes by itself (ST_RETRY),
 * or is neither (ST_STORE): only damage may make a reader fall back to an older checkpoint. No
 * symbolic link is followed. It must not know the contents of the files. */
#ifndef CONVOY_FORMAT_CKPT_READ_H
#define CONVOY_FORMAT_CKPT_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* ckpt_read_open_folder — opens path for reading unless its last component is a symbolic link.
 * clean (cap bytes) gets the path without trailing slashes. The caller closes *fd_out. */
enum status ckpt_read_open_folder(const char *path, char *clean, size_t cap, int *fd_out);
/* ckpt_read_open_file — opens a regular file of an open folder; path is for messages. The caller
 * closes *fd_out. */
enum status ckpt_read_open_file(int dir_fd, const char *path, const char *name, int *fd_out,
                                int64_t *bytes_out);
/* ckpt_read_chunk — reads up to n bytes at offset; fewer only at the end of the file. */
enum status ckpt_read_chunk(int fd, const char *path, const char *name, void *out, size_t n,
                            int64_t offset, size_t *got_out);
/* ckpt_read_error — fails with "cannot VERB PATH: ERROR; REMEDY" and the status that errno `error`
 * proves. */
enum status ckpt_read_error(const char *verb, const char *path, int error);
/* ckpt_read_retry — logs a warning after ST_STORE or ST_RETRY, sleeps, and returns true if another
 * of three tries is left. *tries starts at 0. */
bool ckpt_read_retry(enum status st, int *tries);

#endif
