/* ckpt — checkpoints: a folder that either is whole and checked, or does not exist for the program.
 *
 * DIR/step-00000100/ holds manifest.json (schema, step, sampler position, settings that must agree,
 * every file with its size and checksum) and safetensors files: model.safetensors (parameters by
 * name), optim_m.safetensors, optim_v.safetensors (moments by parameter name). Written as
 * DIR/.tmp-…, every file and folder synced, then renamed: the rename is the commit. Reading
 * verifies every checksum before any byte is used. No symbolic link below DIR is followed. Must not
 * know devices or training.
 *
 * Versions: every schema, whatever else changes, keeps a folder with a manifest.json that begins
 * with {"schema": NUMBER. The number grows when a reader of the old one would take new content for
 * something else; keys that may be left out do not change it. A version reads its own schema and
 * those it lists (manifest.c; tests/golden/ckpt_* holds one of each); any other is ST_SCHEMA, and
 * such a folder is neither replaced nor removed. */
#ifndef CONVOY_FORMAT_CKPT_H
#define CONVOY_FORMAT_CKPT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "format/safetensors.h"

/* What a run needs besides tensors, to go on bit for bit. */
struct ckpt_meta {
    int64_t step;    /* updates done */
    int64_t samples; /* sample number the next step starts with */
    int64_t tokens;  /* seen so far */
    uint64_t seed;
    uint64_t data_fingerprint;
    /* of 16-bit floats, and steps since it changed; 0: none */
    int64_t loss_scale, loss_scale_steps;
    /* JSON objects; read back without white space. */
    char model_json[1024];    /* the model's dimensions: must agree */
    char settings_json[2048]; /* settings that change the sequence: told when they differ */
    char version[64];         /* of the convoy that wrote it */
};

/* One kind of state: its file is "<name>.safetensors". */
struct ckpt_part {
    const char *name; /* "model", "optim_m", "optim_v" */
    const struct safetensors_source *source;
    int sources_n;
};

/* ckpt_lock — make the folder if need be and keep every other trainer out of it while this process
 * lives: a second one is refused with ST_BAD_SETTING and the pid of the holder. What an earlier
 * process left half-written is removed. ST_STORE when the folder cannot be
 * made or written, ST_BAD_SETTING when a file is in its place. Readers need no lock. */
struct ckpt_lock;
enum status ckpt_lock(const char *dir, struct ckpt_lock **out);
void ckpt_lock_release(struct ckpt_lock *lock); /* accepts NULL */

/* ckpt_save — write DIR/step-%08lld. A valid folder of the same step with the same meta (but for
 * the version) is left as it is; one that is damaged, or of another run, is replaced. One of a
 * schema that we do not read (ST_SCHEMA), or that cannot be read now (ST_STORE, ST_RETRY), never
 * is. A folder that was deleted is made again. Space is checked before. Removes leftovers of
 * earlier crashes, then all but the newest `keep` checkpoints (keep < 1: all stay). path_out:
 * FILE_PATH_MAX. ST_STORE: nothing is left behind, older ones are intact. heartbeat (may be NULL)
 * is called with bytes written or checked. */
enum status ckpt_save(struct ckpt_lock *lock, const struct ckpt_meta *meta,
                      const struct ckpt_part *part, int parts_n, int keep,
                      const struct safetensors_heartbeat *heartbeat, char *path_out,
                      size_t path_cap);

struct ckpt; /* an open, verified checkpoint: mapped files */
/* ckpt_open_newest — the newest valid one of DIR; damaged ones are named in a warning and skipped.
 * Only proven damage is: a newest that cannot be read, after three tries, is ST_STORE or ST_RETRY,
 * one of a schema that we do not read is ST_SCHEMA. *out NULL and ST_OK: none, or no such folder.
 * heartbeat (may be NULL) is called with bytes checked, by several threads at once. */
enum status ckpt_open_newest(const char *dir, const struct safetensors_heartbeat *heartbeat,
                             struct ckpt **out);
/* ckpt_find_newest — the same among steps below `below`, but as a rule not verified: manifest,
 * listing, sizes and headers are right, and ckpt_fill must come before any other use of contents
 * (ckpt_tensor tells shapes only). One that ckpt_fill could not follow (other dtypes or order than
 * ckpt_save's) is verified. */
enum status ckpt_find_newest(const char *dir, int64_t below,
                             const struct safetensors_heartbeat *heartbeat, struct ckpt **out);
bool ckpt_is_verified(const struct ckpt *ckpt);
/* ckpt_fill — reads an unverified one once: every tensor's bytes to the memory that `dest` returns
 * for it (entry->bytes of it; NULL: not wanted; called by several threads at once), every file
 * verified. ST_BAD_DATA: it is damaged, and the places hold rubbish; ST_STORE, ST_RETRY: it could
 * not be read, three times. */
struct ckpt_fill {
    void *(*dest)(void *arg, const char *part, const struct safetensors_entry *entry);
    void *arg;
};
enum status ckpt_fill(struct ckpt *ckpt, const struct ckpt_fill *fill,
                      const struct safetensors_heartbeat *heartbeat);
/* ckpt_count — checkpoints of DIR by their names alone, whole or not: 0 and none found is a new
 * run, more and none valid is a loss that a person must hear of. */
enum status ckpt_count(const char *dir, int *count_out);
/* ckpt_open — one folder; ST_BAD_DATA says what is wrong with it; the others as above. */
enum status ckpt_open(const char *path, const struct safetensors_heartbeat *heartbeat,
                      struct ckpt **out);
/* ckpt_open_lazy — one folder, not verified, as ckpt_find_newest's: for what the manifest says. */
enum status ckpt_open_lazy(const char *path, struct ckpt **out);
void ckpt_close(struct ckpt *ckpt); /* accepts NULL */
const struct ckpt_meta *ckpt_meta(const struct ckpt *ckpt);
const char *ckpt_path(const struct ckpt *ckpt);
/* ckpt_tensor — the entry of one part, its shape checked: ST_BAD_DATA with expected and actual
 * shape. F32, F16 or BF16, so that safetensors_to_f32 takes it. Reading in the file's order keeps
 * resident memory low: pages before the tensor are given back. */
enum status ckpt_tensor(const struct ckpt *ckpt, const char *part, const char *name, int dims_n,
                        const int64_t *dim, const struct safetensors_entry **out);
/* ckpt_range — elements [first, first+n) of a tensor, rows in order, as float: what another mesh's
 * rank needs of it. Only the pages of the range are touched. ST_BAD_DATA: no such part or tensor,
 * another dtype, or not all of the range is in the tensor. */
enum status ckpt_range(const struct ckpt *ckpt, const char *part, const char *name, int64_t first,
                       int64_t n, float *out);

#endif
