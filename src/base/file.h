/* file — reads and writes files: whole, durable, and never through a symbolic link that another
 * user could have planted.
 *
 * Every failure names the path, the operation and the system's text. Errors:
 * - Writing: ST_STORE, such as ENOSPC, EDQUOT, EIO, EROFS. A path that is too long is
 *   ST_BAD_SETTING.
 * - Reading: a Git LFS pointer is ST_BAD_DATA. EIO is ST_STORE. A cause that may pass is ST_RETRY:
 *   too little memory, too many open files, a server that does not answer. The rest is ST_NO_INPUT:
 *   missing, a folder, no permission.
 *
 * Must not know the meaning of the bytes. */
#ifndef CONVOY_BASE_FILE_H
#define CONVOY_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define FILE_PATH_MAX 4096

/* file_is_lfs_pointer — returns true if these are the first bytes of a Git LFS pointer. A
 * repository that was cloned without Git LFS has such files in place of the large ones. */
bool file_is_lfs_pointer(const void *head, size_t n);
#define FILE_LFS_FAIL(path) \
    FAIL(ST_BAD_DATA,       \
         "%s is a Git LFS pointer, not the file itself; run `git lfs pull` in its folder", path)

/* A whole file, mapped read-only. It is registered (mapped_file.h), so that a read error is
 * reported with the file's name. Zero-initialised is valid and empty. An empty file has data NULL
 * and bytes 0. */
struct file_map {
    const uint8_t *data;
    size_t bytes;
};
/* file_map_open — maps a whole file for reading, until file_map_close. It may be an empty file. */
enum status file_map_open(const char *path, struct file_map *out);
/* file_map_release — removes the pages of map's bytes [data, data+bytes) from resident memory; they
 * stay in the page cache. */
void file_map_release(const struct file_map *map, const uint8_t *data, size_t bytes);
/* file_map_close — unmaps the file and empties the struct. Accepts an empty one. */
void file_map_close(struct file_map *map);

/* file_read_fail — fails with "cannot VERB PATH: …" for errno, and the status listed above. */
enum status file_read_fail(const char *path, const char *verb);
/* file_read — reads the whole file into malloc'ed memory, with a closing 0 that is not counted.
 * ST_BAD_DATA: it has more than bytes_max bytes. */
enum status file_read(const char *path, size_t bytes_max, char **data_out, size_t *bytes_out);
/* file_check_target — checks whether a rename may replace `path`. Yes: nothing is there, a regular
 * file, or a link, which is replaced and never followed. No (ST_BAD_SETTING): a folder, device,
 * pipe or socket; root could otherwise replace /dev/full by a file. */
enum status file_check_target(const char *path);
/* file_check_own — checks whether the setting's file may be written. Yes: nothing is there, an
 * empty file, or a file that has the mark of this program's output in its first 512 bytes. No
 * (ST_BAD_SETTING): any other file, whose content would be lost, and a file that cannot be read.
 * what: a name for such an output, for the message. */
enum status file_check_own(const char *setting, const char *path, const char *what,
                           const void *mark, size_t mark_bytes);
/* file_replace — replaces a file, all or nothing: writes a temporary file in the same folder, syncs
 * it, renames it, and syncs the folder. */
enum status file_replace(const char *path, const void *data, size_t bytes);
enum status file_make_dirs(const char *path); /* like mkdir -p, mode 0777 & ~umask */
/* file_commit — ends the writing of a file under another name: syncs fd, renames temp to path and
 * syncs the folder. Both names are in one file system. ST_STORE: the disk refused one of these
 * calls. */
enum status file_commit(int fd, const char *temp, const char *path);
/* file_sync_dir — syncs a folder, so that new names in it are durable. Succeeds on file systems
 * that cannot sync a folder. */
enum status file_sync_dir(const char *path);
/* file_remove_tree — removes a file, or a folder with its content, without following links.
 * Succeeds if nothing is there. */
enum status file_remove_tree(const char *path);
/* file_write_at — writes all bytes. A descriptor with O_DIRECT loses that flag if the file system
 * cannot write these bytes with it. path: for the failure. */
enum status file_write_at(int fd, const char *path, const void *data, size_t bytes, int64_t offset);
/* file_exists — returns true if there is a file of any kind. Follows links: false for a broken
 * one. */
bool file_exists(const char *path);
/* file_is_dir — returns true for a folder, and for a link to one. */
bool file_is_dir(const char *path);
int64_t file_bytes(const char *path); /* -1: not a regular file or missing */
/* file_space_bytes — returns the free space for this user on the file system of path, which need
 * not exist yet; -1: unknown. */
int64_t file_space_bytes(const char *path);
/* file_sum_ends — returns an XXH3-64 checksum whose cost is bounded: up to 1 MiB it covers all
 * bytes, beyond that the first and the last 512 KiB and the size. */
uint64_t file_sum_ends(const uint8_t *data, size_t bytes);
/* file_sum — returns file_sum_ends of a file. ST_NO_INPUT: there is none. */
enum status file_sum(const char *path, uint64_t *out);
/* file_hash_new — returns a new XXH3 state, to be freed with XXH3_freeState. Ends the process if
 * memory is missing (memory.h). */
struct XXH3_state_s *file_hash_new(void) __attribute__((returns_nonnull));
/* file_join — writes "dir/name"; ST_BAD_SETTING if it is too long. */
enum status file_join(char *out, size_t cap, const char *dir, const char *name);

#endif
