/* file — read and write files: whole, durable, and never through a symbolic link that another user
 * could have planted.
 *
 * Every failure names the path, the operation and the system's text. Errors:
 * - Writing: ST_STORE, such as ENOSPC, EDQUOT, EIO, EROFS.
 * - Reading: a Git LFS pointer is ST_BAD_DATA. EIO is ST_STORE. What may pass is ST_RETRY: too
 *   little memory, too many open files, a server that does not answer. The rest is ST_NO_INPUT:
 *   missing, a folder, no permission.
 *
 * Must not know what the bytes mean. */
#ifndef CONVOY_BASE_FILE_H
#define CONVOY_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define FILE_PATH_MAX 4096

/* file_is_lfs_pointer — are these the first bytes of a Git LFS pointer? A folder that was cloned
 * without Git LFS holds such files in place of the large ones. */
bool file_is_lfs_pointer(const void *head, size_t n);
#define FILE_LFS_FAIL(path) \
    FAIL(ST_BAD_DATA,       \
         "%s is a Git LFS pointer, not the file itself; run `git lfs pull` in its folder", path)

/* A whole file, mapped read-only and registered (mapped_file.h), so that a read error is reported
 * with its name. Zero-initialised is valid and empty. An empty file has data NULL and bytes 0. */
struct file_map {
    const uint8_t *data;
    size_t bytes;
};
enum status file_map_open(const char *path, struct file_map *out);
/* file_map_release — takes the pages of map's bytes [data, data+bytes) out of resident memory; they
 * stay in the page cache. */
void file_map_release(const struct file_map *map, const uint8_t *data, size_t bytes);
void file_map_close(struct file_map *map);

/* file_read_fail — "cannot VERB PATH: …" for errno, with the status named above. */
enum status file_read_fail(const char *path, const char *verb);
/* file_read — the whole file in malloc'ed memory, with a closing 0 that is not counted. Refuses
 * more than bytes_max. */
enum status file_read(const char *path, size_t bytes_max, char **data_out, size_t *bytes_out);
/* file_check_target — may a rename replace `path`? Yes: nothing, a regular file, or a link, which
 * is replaced and never followed. No (ST_BAD_SETTING): a folder or a device; root could otherwise
 * replace /dev/full by a file. */
enum status file_check_target(const char *path);
/* file_check_own — may the setting's file be written? Yes: nothing is there, an empty file, or one
 * that has the mark of this program's output in its first 512 bytes. No (ST_BAD_SETTING): any other
 * file, whose content would be lost. what: such an output, for the message. */
enum status file_check_own(const char *setting, const char *path, const char *what,
                           const void *mark, size_t mark_bytes);
/* file_replace — all or nothing: write a file beside it, fsync, rename, fsync the folder. */
enum status file_replace(const char *path, const void *data, size_t bytes);
enum status file_make_dirs(const char *path); /* like mkdir -p, mode 0777 & ~umask */
/* file_commit — Ends the writing of a file under another name: syncs fd, renames temp to path and
 * syncs the folder. Both names are in one file system. ST_STORE: the disk refused one of them. */
enum status file_commit(int fd, const char *temp, const char *path);
enum status file_sync_dir(const char *path);
/* file_remove_tree — remove a folder and all it holds, without following links; a missing one is
 * fine. */
enum status file_remove_tree(const char *path);
/* file_write_at — write all bytes. A descriptor with O_DIRECT loses that flag where the file system
 * does not take these bytes with it. path: for the failure. */
enum status file_write_at(int fd, const char *path, const void *data, size_t bytes, int64_t offset);
bool file_exists(const char *path);
bool file_is_dir(const char *path);
int64_t file_bytes(const char *path); /* -1: not a regular file or missing */
/* file_space_bytes — the space that this user may take on the file system of path, which need not
 * exist yet; -1: unknown. */
int64_t file_space_bytes(const char *path);
/* Returns an XXH3-64 checksum that costs the same for any size: of the first and the last 512 KiB
 * and of the size, or of all bytes up to 1 MiB. */
uint64_t file_sum_ends(const uint8_t *data, size_t bytes);
/* Returns a new XXH3 state, to be freed with XXH3_freeState. Without memory for it the process ends
 * (memory.h). */
struct XXH3_state_s *file_hash_new(void) __attribute__((returns_nonnull));
/* file_join — "dir/name"; ST_BAD_SETTING when too long. */
enum status file_join(char *out, size_t cap, const char *dir, const char *name);

#endif
