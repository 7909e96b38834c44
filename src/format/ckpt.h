/* ckpt — checkpoints: a folder that is either whole and verified, or does not exist for the
 * program.
 *
 * DIR/step-00000100/ holds manifest.json (schema, step, position in the samples, settings, and
 * every file with size and checksum) and safetensors files: model.safetensors (parameters by name),
 * optim_m.safetensors and optim_v.safetensors (moments by parameter name).
 *
 * A checkpoint is written as DIR/.tmp-…, every file and folder is synced, then it is renamed: the
 * rename is the commit. Reading verifies every checksum before any byte is used. No symbolic link
 * below DIR is followed. It must not know devices or training.
 *
 * Versions: in every schema the folder has a manifest.json that begins with {"schema": NUMBER. The
 * number grows if a reader of the old schema would misread new content; optional keys do not change
 * it. A version reads its own schema and the older ones that it lists (manifest.c;
 * tests/golden/ckpt_* has one of each). Any other is ST_SCHEMA, and such a folder is neither
 * replaced nor removed. */
#ifndef CONVOY_FORMAT_CKPT_H
#define CONVOY_FORMAT_CKPT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "format/safetensors.h"

#define CKPT_HISTORY_MAX 8192
#define CKPT_COMMITS_MAX 2048

/* The state besides tensors that a run needs to resume bit for bit. */
struct ckpt_meta {
    int64_t step;    /* updates done */
    int64_t samples; /* number of the next sample */
    int64_t tokens;  /* tokens trained on */
    int64_t trained; /* TASK=chat: tokens that counted in the loss; 0: not recorded */
    uint64_t seed;
    uint64_t data_fingerprint;
    /* factor for 16-bit floats, and steps since it changed; 0: none */
    int64_t loss_scale, loss_scale_steps;
    int64_t outer_steps; /* LOCAL_STEPS: outer steps done so far; 0: none */
    /* if the run changed GLOBAL_BATCH: samples of a step of the learning-rate schedule, and samples
     * of the schedule that are done; else 0 */
    int64_t schedule_step_samples, schedule_samples;
    int64_t skipped; /* steps whose update was left out */
    /* losses and norms of the last steps as hexadecimal digits; "": none */
    char spike_history[CKPT_HISTORY_MAX + 1];
    /* JSON objects; read back without white space. */
    char model_json[1024];    /* the model's dimensions, which must agree */
    char settings_json[2048]; /* settings that shape the losses; a difference is a warning */
    /* commits by names of the Hugging Face hub, such as {"hf://org/name@main":"0123…"}, which a
     * resumed run uses again; "": none */
    char commits_json[CKPT_COMMITS_MAX];
    char version[64]; /* version of the program that wrote the checkpoint */
};

/* One array of the state, in the file "<name>.safetensors". */
struct ckpt_array {
    const char *name; /* "model", "optim_m", "optim_v" */
    const struct safetensors_source *source;
    int sources_n;
};

#define CKPT_ARRAYS_MAX 96

/* ckpt_lock — creates and locks the folder, and removes unfinished files of earlier processes. The
 * lock holds while this process lives. A second trainer gets ST_BAD_SETTING with the holder's pid.
 * ST_BAD_SETTING also: a file is in the folder's place. ST_STORE: the folder cannot be created or
 * written. Readers need no lock. */
struct ckpt_lock;
enum status ckpt_lock(const char *dir, struct ckpt_lock **out);
void ckpt_lock_release(struct ckpt_lock *lock); /* accepts NULL */
/* ckpt_lock_discard — releases it, and removes the folder if nothing but the lock is in it. */
void ckpt_lock_discard(struct ckpt_lock *lock);

/* ckpt_save — writes DIR/step-%08lld.
 * - If a folder of that step exists: a valid folder with the same meta (except the version) stays.
 *   A damaged folder, or a folder of another run, is replaced. A folder of an unknown schema
 *   (ST_SCHEMA), or that cannot be read now (ST_STORE, ST_RETRY), is never replaced.
 * - A DIR that was deleted is created again. Free space is checked first.
 * - Leftovers of crashes are removed, then all but the newest `keep` checkpoints (keep < 1: none).
 * - ST_STORE: nothing of the save is left, and older checkpoints are intact.
 * path_out: FILE_PATH_MAX. heartbeat (may be NULL) gets the bytes written or verified. */
enum status ckpt_save(struct ckpt_lock *lock, const struct ckpt_meta *meta,
                      const struct ckpt_array *array, int arrays_n, int keep,
                      const struct heartbeat *heartbeat, char *path_out, size_t path_cap);

struct ckpt; /* an open checkpoint */
/* ckpt_open_newest — opens the newest valid checkpoint of DIR; damaged ones are skipped with a
 * warning. Only proven damage is skipped. ST_STORE, ST_RETRY: the newest one could not be read in
 * three tries. ST_SCHEMA: it has an unknown schema. *out NULL with ST_OK: there is none, or no DIR.
 * heartbeat (may be NULL) gets the bytes verified, on several threads at once. */
enum status ckpt_open_newest(const char *dir, const struct heartbeat *heartbeat, struct ckpt **out);
/* ckpt_find_newest — does the same among steps below `below`, but verifies only manifest, listing,
 * sizes and headers, not the contents. Call ckpt_fill before any other use of contents (ckpt_tensor
 * returns shapes only). A checkpoint that ckpt_fill cannot read (other dtypes or order than
 * ckpt_save writes) is verified here. */
enum status ckpt_find_newest(const char *dir, int64_t below, const struct heartbeat *heartbeat,
                             struct ckpt **out);
/* ckpt_each — calls `visit` for each checkpoint of DIR by its name, newest first. ckpt is NULL if
 * it is damaged; status_message() then has the reason. is_lazy: contents are not verified. `visit`
 * returns ST_OK to go on; ckpt_each closes ckpt. A checkpoint that a trainer removes meanwhile is
 * left out. Errors that prove no damage (ST_STORE, ST_RETRY, ST_SCHEMA) end it. */
typedef enum status ckpt_visit(void *arg, int64_t step, const struct ckpt *ckpt);
enum status ckpt_each(const char *dir, bool is_lazy, ckpt_visit *visit, void *arg);
bool ckpt_is_verified(const struct ckpt *ckpt);
/* ckpt_fill — reads an unverified checkpoint once and verifies every file. `dest` returns the
 * memory for each tensor (entry->bytes long; NULL: not wanted); it is called on several threads at
 * once. ST_BAD_DATA: the checkpoint is damaged, and the contents of that memory are undefined.
 * ST_STORE, ST_RETRY: it could not be read in three tries. */
struct ckpt_fill {
    void *(*dest)(void *arg, const char *array, const struct safetensors_entry *entry);
    void *arg;
};
enum status ckpt_fill(struct ckpt *ckpt, const struct ckpt_fill *fill,
                      const struct heartbeat *heartbeat);
/* ckpt_count — counts the checkpoints of DIR by their names, valid or not. 0 is a new run; more
 * than 0 with none valid is an error for the caller to report. */
enum status ckpt_count(const char *dir, int *count_out);
/* ckpt_open — opens and verifies one folder; errors as above. */
enum status ckpt_open(const char *path, const struct heartbeat *heartbeat, struct ckpt **out);
/* ckpt_open_lazy — opens one folder unverified, to read its manifest. */
enum status ckpt_open_lazy(const char *path, struct ckpt **out);
void ckpt_close(struct ckpt *ckpt); /* accepts NULL */
const struct ckpt_meta *ckpt_meta(const struct ckpt *ckpt);
const char *ckpt_path(const struct ckpt *ckpt);
bool ckpt_has_array(const struct ckpt *ckpt, const char *array);
/* ckpt_tensor — returns the entry of a tensor after a check of its shape: ST_BAD_DATA with expected
 * and actual shape. Its dtype is F32, F16 or BF16, as safetensors_to_f32 needs. Read tensors in the
 * file's order to keep resident memory low: pages before the tensor are released. */
enum status ckpt_tensor(const struct ckpt *ckpt, const char *array, const char *name, int dims_n,
                        const int64_t *dim, const struct safetensors_entry **out);

/* ckpt_release — removes the pages of a tensor from resident memory, after it was read. */
void ckpt_release(const struct ckpt *ckpt, const struct safetensors_entry *entry);

/* ckpt_range — reads elements [first, first+n) of a tensor as float, rows in order, as a rank of
 * another mesh would need them; so far only for tests. Touches only the pages of the range.
 * ST_BAD_DATA: no such array or tensor, another dtype, or the range exceeds the tensor. */
enum status ckpt_range(const struct ckpt *ckpt, const char *array, const char *name, int64_t first,
                       int64_t n, float *out);

#endif
