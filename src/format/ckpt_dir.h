/* ckpt_dir — the folder of checkpoints: the steps that it holds, and the names in it that are
 * ours.
 *
 * For ckpt.c (reads), ckpt_lock.c (locks), ckpt_save.c (writes), and node/bucket, which uploads and
 * downloads such folders. It must not know the
 * contents of a checkpoint. */
#ifndef CONVOY_FORMAT_CKPT_DIR_H
#define CONVOY_FORMAT_CKPT_DIR_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"
#include "format/manifest.h"

#define CKPT_DIR_MANIFEST "manifest.json"

/* The steps of names like step-00000100, newest first; step is allocated with malloc. */
struct ckpt_dir_steps {
    int64_t *step;
    int steps_n;
};
/* ckpt_dir_list — lists the steps. A folder that does not exist has no steps; a path that is not a
 * folder, or cannot be read, fails. */
enum status ckpt_dir_list(const char *dir, struct ckpt_dir_steps *out);
/* ckpt_dir_next — reads the next entry. NULL at the end (*st stays ST_OK), or if reading fails: an
 * end that is only assumed would hide checkpoints. */
struct dirent *ckpt_dir_next(DIR *listing, const char *dir, enum status *st);
/* ckpt_dir_step_of — reads the step in a name that this program writes: false for "step-7". */
bool ckpt_dir_step_of(const char *name, int64_t *out);
/* ckpt_dir_step_path — writes the path of a step's checkpoint. Fails if it is too long for cap. */
enum status ckpt_dir_step_path(char *out, size_t cap, const char *dir, int64_t step);

/* ckpt_dir_temp_path — writes the path where this process writes the checkpoint of a step, or to
 * which it moves a checkpoint before removing it. */
enum status ckpt_dir_temp_path(char *out, size_t cap, const char *dir, int64_t step, bool is_old);
/* ckpt_dir_clean — removes folders with such names, left by processes that died. The caller holds
 * the lock, so none is in use. Warns about folders that cannot be removed. */
void ckpt_dir_clean(const char *dir);

/* ckpt_peek — checks the manifest's checksum and the files' sizes, not their content. In ckpt.c. */
enum status ckpt_peek(const char *path, struct manifest *out);
/* ckpt_verify_file — reads an open file of the folder `path` and compares its checksum with the
 * manifest's. go_on is called with the number of bytes of each chunk; it returns false to stop
 * (ST_RETRY). ST_BAD_DATA: the file is damaged. In ckpt.c. */
typedef bool ckpt_go_on(void *arg, int64_t bytes);
enum status ckpt_verify_file(int fd, const char *path, const struct manifest_file *file,
                             ckpt_go_on *go_on, void *arg);

/* The lock of a folder. */
struct ckpt_lock {
    int fd; /* file descriptor of DIR/.lock, locked while it is open */
    char dir[FILE_PATH_MAX];
};
/* ckpt_lock_renew — checks that the folder is still the locked one. A deleted folder is created
 * again and locked. ST_STORE: it cannot be, or another process holds it now. In ckpt_lock.c. */
enum status ckpt_lock_renew(struct ckpt_lock *lock);

#endif
