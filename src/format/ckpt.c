/* ckpt — opens and verifies checkpoints (ckpt.h); ckpt_lock.c locks, ckpt_save.c writes. Everything
 * below the caller's folder is opened relative to an open folder, and never through a symbolic
 * link. Files are verified by reading, because a bad sector or a truncated file is then an error
 * that can be reported; they are mapped only for use. */
#include "format/ckpt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mapped_file.h"
#include "base/memory.h"
#include "format/ckpt_dir.h"
#include "format/ckpt_inside.h"
#include "format/ckpt_read.h"

#define CHUNK_BYTES (1 << 20)       /* read and hashed while it is in the second-level cache */
#define HEADER_BYTES_MAX (16 << 20) /* limit of the parser */
#define APART_BYTES (8 << 20)       /* files of this size are verified on threads of their own */
/* read ahead on request: the kernel itself reads some 100 KiB ahead */
#define AHEAD_BYTES (8 << 20)

static enum status read_manifest(int dir_fd, const char *path, struct manifest *out)
{
    const size_t cap = MANIFEST_BYTES_MAX + 1;
    char what[FILE_PATH_MAX];
    int64_t file_bytes_n;
    size_t n = 0;
    int fd;
    TRY(file_join(what, sizeof(what), path, CKPT_DIR_MANIFEST));
    TRY(ckpt_read_open_file(dir_fd, path, CKPT_DIR_MANIFEST, &fd, &file_bytes_n));
    char *bytes = memory_new(1, cap);
    enum status st = ckpt_read_chunk(fd, path, CKPT_DIR_MANIFEST, bytes, cap, 0, &n);
    close(fd);
    if (st == ST_OK)
        st = manifest_parse(bytes, n, what, out);
    free(bytes);
    return st;
}

/* check_listing — checks that the manifest lists every file of the folder. (A missing file fails to
 * open.) */
static enum status check_listing(int dir_fd, const char *path, const struct manifest *manifest)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        int error = errno;
        if (fd >= 0)
            close(fd);
        return ckpt_read_error("list checkpoint", path, error);
    }
    enum status st = ST_OK;
    for (struct dirent *entry; st == ST_OK && (entry = ckpt_dir_next(dir, path, &st)) != NULL;) {
        bool is_known = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
                        strcmp(entry->d_name, CKPT_DIR_MANIFEST) == 0;
        for (int i = 0; i < manifest->files_n; i++)
            is_known = is_known || strcmp(entry->d_name, manifest->file[i].name) == 0;
        if (!is_known)
            st = FAIL(
                ST_BAD_DATA,
                "%s holds %.64s, which its manifest does not list; remove it if you do not need it",
                path, entry->d_name);
    }
    closedir(dir);
    return st;
}

enum status ckpt_check_sum(const char *path, const struct manifest_file *file, uint64_t sum)
{
    if (sum == file->hash)
        return ST_OK;
    return FAIL(ST_BAD_DATA,
                "%s/%s has checksum %016" PRIx64 ", its manifest says %016" PRIx64
                "; its content is damaged",
                path, file->name, sum, file->hash);
}

static enum status check_bytes(const char *path, const struct manifest_file *file, int64_t bytes)
{
    if (bytes == file->bytes)
        return ST_OK;
    return FAIL(ST_BAD_DATA,
                "%s/%s has %" PRId64 " bytes, its manifest says %" PRId64
                "; it is cut short or not the file that was written",
                path, file->name, bytes, file->bytes);
}

enum status ckpt_verify_file(int fd, const char *path, const struct manifest_file *file,
                             ckpt_go_on *go_on, void *arg)
{
    XXH3_state_t *hash = file_hash_new();
    char *chunk = memory_resize(NULL, 1, CHUNK_BYTES);
    enum status st = ST_OK;
    posix_fadvise(fd, 0, AHEAD_BYTES, POSIX_FADV_WILLNEED);
    for (int64_t at = 0; st == ST_OK && at < file->bytes;) {
        const int64_t left = file->bytes - at;
        const size_t want = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
        size_t got = 0;
        /* the disk works while this chunk is hashed */
        posix_fadvise(fd, at + AHEAD_BYTES, CHUNK_BYTES, POSIX_FADV_WILLNEED);
        st = ckpt_read_chunk(fd, path, file->name, chunk, want, at, &got);
        if (st == ST_OK && got < want)
            st = FAIL(ST_BAD_DATA, "%s/%s was cut short while it was read", path, file->name);
        if (st != ST_OK)
            break;
        XXH3_64bits_update(hash, chunk, got);
        at += (int64_t)got;
        if (!go_on(arg, (int64_t)got))
            st = FAIL(ST_RETRY, "the verification of %s/%s was stopped", path, file->name);
    }
    if (st == ST_OK)
        st = ckpt_check_sum(path, file, XXH3_64bits_digest(hash));
    XXH3_freeState(hash);
    free(chunk);
    return st;
}

/* One file being verified. Large files have their own threads, which keeps disk and cores busy. */
struct check {
    const char *path;
    const struct manifest_file *file;
    const struct heartbeat *heartbeat;
    int fd;
    bool is_apart;
    pthread_t thread;
    enum status st;
    struct status_saved why;
};

static bool beat(void *arg, int64_t bytes)
{
    const struct heartbeat *heartbeat = ((const struct check *)arg)->heartbeat;
    if (heartbeat && heartbeat->fn)
        heartbeat->fn(heartbeat->arg, bytes);
    return true;
}

static void *check_main(void *arg)
{
    struct check *c = arg;
    c->st = ckpt_verify_file(c->fd, c->path, c->file, beat, c);
    status_save(&c->why);
    return NULL;
}

static enum status check_start(struct check *c, int dir_fd)
{
    int64_t bytes;
    TRY(ckpt_read_open_file(dir_fd, c->path, c->file->name, &c->fd, &bytes));
    TRY(check_bytes(c->path, c->file, bytes));
    c->is_apart = bytes >= APART_BYTES && pthread_create(&c->thread, NULL, check_main, c) == 0;
    if (c->is_apart)
        return ST_OK; /* the thread owns its status until it ends */
    check_main(c);
    return c->st;
}

static enum status check_end(struct check *c)
{
    if (!c->is_apart)
        return c->st; /* was reported when it started */
    pthread_join(c->thread, NULL);
    if (c->st != ST_OK)
        status_restore(&c->why);
    return c->st;
}

static void name_file(struct ckpt_file *opened, const struct manifest_file *file)
{
    text_copy(opened->name, sizeof(opened->name), file->name);
    opened->name[strcspn(opened->name, ".")] = 0;
}

static enum status map_file(struct ckpt *ckpt, const struct check *c)
{
    struct ckpt_file *opened = &ckpt->file[ckpt->files_n];
    char what[FILE_PATH_MAX];
    TRY(file_join(what, sizeof(what), ckpt->path, c->file->name));
    if (c->file->bytes > 0) {
        void *map = mmap(NULL, (size_t)c->file->bytes, PROT_READ, MAP_PRIVATE, c->fd, 0);
        if (map == MAP_FAILED)
            return ckpt_read_error("map", what, errno);
        opened->map = map;
        opened->bytes = (size_t)c->file->bytes;
        mapped_file_add(what, map, opened->bytes);
    }
    opened->fd = -1;
    name_file(opened, c->file);
    ckpt->files_n++; /* ckpt_close undoes all steps from here on */
    return safetensors_parse(opened->map, opened->bytes, what, &opened->tensors);
}

/* open_files — opens and verifies all files; returns the first failure, after all threads have
 * ended. */
static enum status open_files(struct ckpt *ckpt, int dir_fd, const struct heartbeat *heartbeat)
{
    struct status_saved why;
    enum status st = ST_OK;
    int n = 0, files_n = ckpt->manifest.files_n;
    struct check *check = memory_new((size_t)files_n, sizeof *check);
    while (n < files_n && st == ST_OK) {
        check[n] = (struct check){
            .path = ckpt->path, .file = &ckpt->manifest.file[n], .heartbeat = heartbeat, .fd = -1};
        st = check_start(&check[n++], dir_fd);
    }
    status_save(&why);
    for (int i = 0; i < n; i++) {
        enum status ended = check_end(&check[i]);
        if (st == ST_OK && ended != ST_OK) {
            st = ended;
            status_save(&why);
        }
    }
    status_restore(&why);
    for (int i = 0; i < n && st == ST_OK; i++)
        st = map_file(ckpt, &check[i]);
    for (int i = 0; i < n; i++)
        if (check[i].fd >= 0)
            close(check[i].fd);
    free(check);
    return st;
}

/* look_at_file — opens the file, checks its size and header, and leaves its content to
 * ckpt_fill. */
static enum status look_at_file(struct ckpt *ckpt, int dir_fd, const struct manifest_file *file)
{
    struct ckpt_file *opened = &ckpt->file[ckpt->files_n];
    char what[FILE_PATH_MAX];
    int64_t bytes;
    TRY(file_join(what, sizeof(what), ckpt->path, file->name));
    TRY(ckpt_read_open_file(dir_fd, ckpt->path, file->name, &opened->fd, &bytes));
    name_file(opened, file);
    ckpt->files_n++; /* ckpt_close undoes all steps from here on */
    TRY(check_bytes(ckpt->path, file, bytes));
    size_t n = bytes > 0 ? (size_t)bytes : 1;
    void *map =
        mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return ckpt_read_error("map", what, errno);
    opened->map = map;
    opened->bytes = n;
    /* Reads the header of safetensors into the map. The parser refuses a length that is too
     * large. */
    uint8_t length[8];
    size_t got = 0;
    uint64_t header_n = 0;
    TRY(ckpt_read_chunk(opened->fd, ckpt->path, file->name, length, sizeof(length), 0, &got));
    for (int i = 7; i >= 0; i--)
        header_n = header_n << 8 | length[i];
    header_n = header_n > HEADER_BYTES_MAX ? sizeof(length) : header_n + sizeof(length);
    TRY(ckpt_read_chunk(opened->fd, ckpt->path, file->name, opened->map,
                        header_n < opened->bytes ? header_n : opened->bytes, 0, &got));
    return safetensors_parse(opened->map, (size_t)bytes, what, &opened->tensors);
}

/* is_plain — returns true if the files are in the form of ckpt_save, so that ckpt_fill can read
 * them. */
static bool is_plain(const struct ckpt *ckpt)
{
    for (int p = 0; p < ckpt->files_n; p++) {
        const struct safetensors *tensors = &ckpt->file[p].tensors;
        if (tensors->others_n > 0)
            return false;
        for (int i = 0; i < tensors->entries_n; i++)
            if (tensors->entry[i].dtype != DTYPE_F32 ||
                (i > 0 && tensors->entry[i].data < tensors->entry[i - 1].data))
                return false;
    }
    return true;
}

static enum status look_at_files(struct ckpt *ckpt, int dir_fd)
{
    for (int i = 0; i < ckpt->manifest.files_n; i++)
        TRY(look_at_file(ckpt, dir_fd, &ckpt->manifest.file[i]));
    return ST_OK;
}

/* open_one — opens one folder. is_lazy: contents are not verified. */
static enum status open_one(const char *path, bool is_lazy, const struct heartbeat *heartbeat,
                            struct ckpt **out)
{
    struct ckpt *ckpt = memory_new(1, sizeof(*ckpt));
    int dir_fd = -1;
    enum status st;
    TRY_OR(ckpt_read_open_folder(path, ckpt->path, sizeof(ckpt->path), &dir_fd), free_ckpt);
    TRY_OR(read_manifest(dir_fd, ckpt->path, &ckpt->manifest), close_dir);
    TRY_OR(check_listing(dir_fd, ckpt->path, &ckpt->manifest), close_dir);
    TRY_OR(is_lazy ? look_at_files(ckpt, dir_fd) : open_files(ckpt, dir_fd, heartbeat), close_dir);
    *out = ckpt;
    ckpt = NULL;
close_dir:
    close(dir_fd);
free_ckpt:
    ckpt_close(ckpt);
    return st;
}

static enum status open_patiently(const char *path, bool is_lazy, const struct heartbeat *heartbeat,
                                  struct ckpt **out)
{
    int tries = 0;
    enum status st;
    do
        st = open_one(path, is_lazy, heartbeat, out);
    while (ckpt_read_retry(st, &tries));
    return st;
}

enum status ckpt_open(const char *path, const struct heartbeat *heartbeat, struct ckpt **out)
{
    return open_patiently(path, false, heartbeat, out);
}

enum status ckpt_open_lazy(const char *path, struct ckpt **out)
{
    return open_patiently(path, true, NULL, out);
}

void ckpt_close(struct ckpt *ckpt)
{
    if (!ckpt)
        return;
    for (int i = 0; i < ckpt->files_n; i++) {
        safetensors_free(&ckpt->file[i].tensors);
        mapped_file_remove(ckpt->file[i].map);
        if (ckpt->file[i].map)
            munmap(ckpt->file[i].map, ckpt->file[i].bytes);
        if (ckpt->file[i].fd >= 0)
            close(ckpt->file[i].fd);
    }
    free(ckpt);
}

const struct ckpt_meta *ckpt_meta(const struct ckpt *ckpt) { return &ckpt->manifest.meta; }
const char *ckpt_path(const struct ckpt *ckpt) { return ckpt->path; }

/* open_step — opens DIR/step-…; its manifest must have the step of its name. */
static enum status open_step(const char *dir, int64_t step, bool is_lazy,
                             const struct heartbeat *heartbeat, struct ckpt **out)
{
    char path[FILE_PATH_MAX];
    struct ckpt *ckpt = NULL;
    TRY(ckpt_dir_step_path(path, sizeof(path), dir, step));
    TRY(open_patiently(path, is_lazy, heartbeat, &ckpt));
    if (is_lazy && !is_plain(ckpt)) {
        ckpt_close(ckpt);
        TRY(open_patiently(path, false, heartbeat, &ckpt));
    }
    if (ckpt->manifest.meta.step != step) {
        int64_t written = ckpt->manifest.meta.step;
        ckpt_close(ckpt);
        return FAIL(ST_BAD_DATA,
                    "%s has step %" PRId64
                    " in its manifest: the folder was renamed; rename it back",
                    path, written);
    }
    *out = ckpt;
    return ST_OK;
}

/* list_patiently — lists the steps of DIR, newest first; out->step is allocated with malloc. */
static enum status list_patiently(const char *dir, struct ckpt_dir_steps *out)
{
    int tries = 0;
    enum status st;
    do
        st = ckpt_dir_list(dir, out);
    while (ckpt_read_retry(st, &tries));
    return st;
}

/* open_newest — opens the newest step below `below`. Only proven damage leads to an older one: a
 * newest checkpoint that cannot be read now, or that another version wrote, is still the newest. */
static enum status open_newest(const char *dir, int64_t below, bool is_lazy,
                               const struct heartbeat *heartbeat, struct ckpt **out)
{
    struct ckpt_dir_steps steps;
    struct ckpt *ckpt = NULL;
    enum status st = ST_OK;
    TRY(list_patiently(dir, &steps));
    for (int i = 0; i < steps.steps_n && !ckpt; i++) {
        if (steps.step[i] >= below)
            continue;
        st = open_step(dir, steps.step[i], is_lazy, heartbeat, &ckpt);
        if (st != ST_OK && st != ST_BAD_DATA && st != ST_NO_INPUT)
            break;
        if (st != ST_OK)
            LOG_WARN("skipping a damaged checkpoint: %s", status_message());
        st = ST_OK;
    }
    free(steps.step);
    if (st == ST_OK)
        *out = ckpt;
    return st;
}

enum status ckpt_open_newest(const char *dir, const struct heartbeat *heartbeat, struct ckpt **out)
{
    return open_newest(dir, INT64_MAX, false, heartbeat, out);
}

enum status ckpt_find_newest(const char *dir, int64_t below, const struct heartbeat *heartbeat,
                             struct ckpt **out)
{
    return open_newest(dir, below, true, heartbeat, out);
}

/* visit_step — visits a checkpoint. If its folder is gone, it was removed since the steps were
 * listed. */
static enum status visit_step(const char *dir, int64_t step, bool is_lazy, ckpt_visit *visit,
                              void *arg)
{
    char path[FILE_PATH_MAX];
    struct stat info;
    struct ckpt *ckpt = NULL;
    TRY(ckpt_dir_step_path(path, sizeof path, dir, step));
    enum status st = open_step(dir, step, is_lazy, NULL, &ckpt);
    const bool is_damaged = st == ST_BAD_DATA || st == ST_NO_INPUT;
    if (is_damaged && lstat(path, &info) != 0 && errno == ENOENT) {
        status_clear();
        return ST_OK;
    }
    if (st != ST_OK && !is_damaged)
        return st;
    st = visit(arg, step, ckpt);
    ckpt_close(ckpt);
    return st;
}

enum status ckpt_each(const char *dir, bool is_lazy, ckpt_visit *visit, void *arg)
{
    struct ckpt_dir_steps steps;
    enum status st = ST_OK;
    TRY(list_patiently(dir, &steps));
    for (int i = 0; i < steps.steps_n && st == ST_OK; i++)
        st = visit_step(dir, steps.step[i], is_lazy, visit, arg);
    free(steps.step);
    return st;
}

bool ckpt_is_verified(const struct ckpt *ckpt)
{
    for (int i = 0; i < ckpt->files_n; i++)
        if (ckpt->file[i].fd >= 0)
            return false;
    return true;
}

enum status ckpt_count(const char *dir, int *count_out)
{
    struct ckpt_dir_steps steps;
    TRY(ckpt_dir_list(dir, &steps));
    free(steps.step);
    *count_out = steps.steps_n;
    return ST_OK;
}

enum status ckpt_peek(const char *path, struct manifest *out)
{
    char clean[FILE_PATH_MAX];
    int dir_fd;
    TRY(ckpt_read_open_folder(path, clean, sizeof(clean), &dir_fd));
    enum status st = read_manifest(dir_fd, clean, out);
    for (int i = 0; st == ST_OK && i < out->files_n; i++) {
        int64_t bytes;
        int fd;
        st = ckpt_read_open_file(dir_fd, clean, out->file[i].name, &fd, &bytes);
        if (st == ST_OK) {
            st = check_bytes(clean, &out->file[i], bytes);
            close(fd);
        }
    }
    close(dir_fd);
    return st;
}

static enum status find_tensor(const struct ckpt *ckpt, const char *array, const char *name,
                               const struct ckpt_file **file_out,
                               const struct safetensors_entry **out)
{
    for (int i = 0; i < ckpt->files_n; i++) {
        if (strcmp(ckpt->file[i].name, array) != 0)
            continue;
        *file_out = &ckpt->file[i];
        *out = safetensors_find(&ckpt->file[i].tensors, name);
        if (!*out)
            return FAIL(ST_BAD_DATA, "%s: its %s has no tensor %s; it belongs to another model",
                        ckpt->path, array, name);
        return ST_OK;
    }
    return FAIL(ST_BAD_DATA, "%s has no %s.safetensors; another kind of run wrote it", ckpt->path,
                array);
}

bool ckpt_has_array(const struct ckpt *ckpt, const char *array)
{
    for (int i = 0; i < ckpt->files_n; i++)
        if (strcmp(ckpt->file[i].name, array) == 0)
            return true;
    return false;
}

enum status ckpt_tensor(const struct ckpt *ckpt, const char *array, const char *name, int dims_n,
                        const int64_t *dim, const struct safetensors_entry **out)
{
    const struct ckpt_file *where;
    const struct safetensors_entry *entry;
    TRY(find_tensor(ckpt, array, name, &where, &entry));
    TRY(safetensors_check(entry, ckpt->path, dims_n, dim));
    /* Releases the file's pages before this tensor: they stay in the page cache, but not in
     * resident memory. */
    size_t page = (size_t)sysconf(_SC_PAGESIZE),
           before = (size_t)(entry->data - (const uint8_t *)where->map) / page * page;
    if (before > 0 && where->fd < 0)
        madvise(where->map, before, MADV_DONTNEED);
    *out = entry;
    return ST_OK;
}

void ckpt_release(const struct ckpt *ckpt, const struct safetensors_entry *entry)
{
    for (int i = 0; i < ckpt->files_n; i++) {
        const struct ckpt_file *opened = &ckpt->file[i];
        const struct safetensors *t = &opened->tensors;
        const struct file_map map = {opened->map, opened->bytes};
        if (opened->fd < 0 && entry >= t->entry && entry < t->entry + t->entries_n)
            file_map_release(&map, entry->data, entry->bytes);
    }
}

enum status ckpt_range(const struct ckpt *ckpt, const char *array, const char *name, int64_t first,
                       int64_t n, float *out)
{
    const struct ckpt_file *where;
    const struct safetensors_entry *entry;
    TRY(find_tensor(ckpt, array, name, &where, &entry));
    TRY(safetensors_check(entry, ckpt->path, entry->dims_n, entry->dim));
    if (first < 0 || n < 0 || first > entry->elems || n > entry->elems - first)
        return FAIL(ST_BAD_DATA,
                    "%s: the elements from %" PRId64 " on (%" PRId64
                    " of them) do not all lie in tensor %s of %" PRId64 " elements",
                    ckpt->path, first, n, name, entry->elems);
    safetensors_to_f32(entry, first, n, out);
    return ST_OK;
}
