/* file — see file.h. Must not know the meaning of the bytes. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <dirent.h>

#include <xxhash.h>

#include "base/assert.h"
#include "base/mapped_file.h"
#include "base/memory.h"
#include "base/text.h"

#define FILE_TREE_DEPTH_MAX 64

enum status file_read_fail(const char *path, const char *verb)
{
    int error = errno;
    const char *remedy =
        error == ENOENT                      ? "check the path"
        : error == EACCES || error == EPERM  ? "give this user permission to read it"
        : error == EISDIR                    ? "name a file in it"
        : error == ELOOP                     ? "it must not be a symbolic link"
        : error == EMFILE || error == ENFILE ? "raise the limit of open files (ulimit -n)"
        : error == ENOMEM                    ? "free some memory"
                                             : "check the disk and the path";
    bool is_passing = error == ENOMEM || error == EMFILE || error == ENFILE || error == ETIMEDOUT ||
                      error == ESTALE;
    enum status st = error == EIO ? ST_STORE : is_passing ? ST_RETRY : ST_NO_INPUT;
    return FAIL(st, "cannot %s %s: %s; %s", verb, path, strerror(error), remedy);
}

/* Reports a failed write. bytes: number of bytes to write, reported if the disk is full; 0: the
 * call writes no data. */
static enum status write_fail(const char *path, const char *verb, size_t bytes)
{
    int error = errno;
    if (error == ENOSPC || error == EDQUOT) {
        char need[32], space[32];
        int64_t space_bytes = file_space_bytes(path);
        return FAIL(
            ST_STORE, "cannot %s %s: %s; %s needed, %s free; make room or choose another folder",
            verb, path, strerror(error), text_format_bytes(need, sizeof(need), (double)bytes),
            space_bytes < 0 ? "unknown"
                            : text_format_bytes(space, sizeof(space), (double)space_bytes));
    }
    const char *remedy =
        error == EROFS                       ? "choose a folder that can be written"
        : error == EACCES || error == EPERM  ? "give this user permission to write there"
        : error == ENOENT                    ? "make the folder first"
        : error == ENOTDIR                   ? "a part of the path is a file; choose another path"
        : error == ELOOP                     ? "a symbolic link is in the way; remove it"
        : error == EFBIG                     ? "raise the limit of a file's size (ulimit -f)"
        : error == EMFILE || error == ENFILE ? "raise the limit of open files (ulimit -n)"
                                             : "check the disk";
    return FAIL(ST_STORE, "cannot %s %s: %s; %s", verb, path, strerror(error), remedy);
}

bool file_is_lfs_pointer(const void *head, size_t n)
{
    static const char first[] = "version https://git-lfs.github.com/spec/v";
    return n >= sizeof first - 1 && memcmp(head, first, sizeof first - 1) == 0;
}

/* check_content — fails if the file is a Git LFS pointer. */
static enum status check_content(int fd, const char *path, int64_t bytes)
{
    enum { POINTER_BYTES_MAX = 1024 }; /* by its specification */
    char head[64];
    if (bytes >= POINTER_BYTES_MAX)
        return ST_OK;
    const ssize_t n = pread(fd, head, sizeof head, 0);
    return n > 0 && file_is_lfs_pointer(head, (size_t)n) ? FILE_LFS_FAIL(path) : ST_OK;
}

/* Opens a regular file to read, and returns its size. Non-blocking until its type is checked: a
 * FIFO would hang the open. */
static enum status open_input(const char *path, int *fd_out, size_t *bytes_out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return file_read_fail(path, "open");
    struct stat info;
    enum status st = ST_OK;
    if (fstat(fd, &info) != 0)
        st = file_read_fail(path, "look at");
    else if (S_ISDIR(info.st_mode))
        st = FAIL(ST_NO_INPUT, "cannot read %s: it is a folder; name a file in it", path);
    else if (!S_ISREG(info.st_mode))
        st = FAIL(ST_NO_INPUT,
                  "cannot read %s: not a regular file (a device, pipe or socket); name a file",
                  path);
    else
        st = check_content(fd, path, info.st_size);
    if (st != ST_OK) {
        close(fd);
        return st;
    }
    *fd_out = fd;
    *bytes_out = (size_t)info.st_size;
    return ST_OK;
}

enum status file_map_open(const char *path, struct file_map *out)
{
    int fd;
    size_t bytes;
    TRY(open_input(path, &fd, &bytes));
    *out = (struct file_map){NULL, bytes};
    enum status st = ST_OK;
    if (bytes > 0) {
        void *data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) {
            *out = (struct file_map){NULL, 0};
            st = file_read_fail(path, "map");
        } else {
            out->data = data;
            mapped_file_add(path, data, bytes);
        }
    }
    close(fd);
    return st;
}

void file_map_release(const struct file_map *map, const uint8_t *data, size_t bytes)
{
    if (!map->data || bytes == 0)
        return;
    ASSERTF(data >= map->data && bytes <= map->bytes &&
                (size_t)(data - map->data) <= map->bytes - bytes,
            "%zu bytes of %zu", bytes, map->bytes);
    /* a mapping begins with a page; pages that are shared with a neighbour are read again when
     * needed */
    size_t page = (size_t)sysconf(_SC_PAGESIZE), first = (size_t)(data - map->data) / page * page,
           end = (size_t)(data - map->data) + bytes;
    (void)madvise((void *)(uintptr_t)(map->data + first), end - first, MADV_DONTNEED);
}

void file_map_close(struct file_map *map)
{
    mapped_file_remove(map->data);
    if (map->data != NULL)
        munmap((void *)(uintptr_t)map->data, map->bytes);
    *map = (struct file_map){NULL, 0};
}

/* Reads to the end; if a file has grown or shrunk since its size was read, it is read as it is now,
 * within cap. */
static enum status read_all(int fd, const char *path, char *data, size_t cap, size_t *bytes_out)
{
    size_t done = 0;
    while (done < cap) {
        ssize_t n = read(fd, data + done, cap - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return file_read_fail(path, "read");
        if (n == 0)
            break;
        done += (size_t)n;
    }
    *bytes_out = done;
    return ST_OK;
}

enum status file_read(const char *path, size_t bytes_max, char **data_out, size_t *bytes_out)
{
    int fd;
    size_t bytes;
    TRY(open_input(path, &fd, &bytes));
    enum status st = ST_OK;
    char *data = NULL;
    if (bytes > bytes_max) {
        st = FAIL(ST_BAD_DATA, "%s has %zu bytes, at most %zu are expected; is it the right file?",
                  path, bytes, bytes_max);
    } else if ((data = malloc(bytes + 1)) == NULL) {
        st =
            FAIL(memory_status((int64_t)bytes), "out of memory: %zu bytes to read %s", bytes, path);
    } else if ((st = read_all(fd, path, data, bytes, bytes_out)) == ST_OK) {
        data[*bytes_out] = 0;
        *data_out = data;
    }
    if (st != ST_OK)
        free(data);
    close(fd);
    return st;
}

/* drop_direct — clears O_DIRECT, so that the write continues through the page cache: O_DIRECT needs
 * offsets and lengths in whole blocks, which the rest after a short write may not have. false: the
 * flag was not set, so it is not the cause. */
static bool drop_direct(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_DIRECT) && fcntl(fd, F_SETFL, flags & ~O_DIRECT) == 0;
}

enum status file_write_at(int fd, const char *path, const void *data, size_t bytes, int64_t offset)
{
    const char *at = data;
    size_t left = bytes;
    while (left > 0) {
        ssize_t n = pwrite(fd, at, left, (off_t)offset);
        if (n < 0 && (errno == EINTR || (errno == EINVAL && drop_direct(fd))))
            continue;
        if (n == 0)
            /* does not happen for files; an endless loop would be worse than a wrong error */
            errno = ENOSPC;
        if (n <= 0)
            return write_fail(path, "write", left);
        at += n;
        left -= (size_t)n;
        offset += n;
    }
    return ST_OK;
}

/* Writes the folder of a path: "a/b" → "a", "b" → ".", "/b" → "/". */
static enum status folder_of(const char *path, char *out, size_t cap)
{
    if (!text_copy(out, cap, path))
        return FAIL(ST_BAD_SETTING, "path of %zu bytes is too long, at most %d: %.64s…",
                    strlen(path), FILE_PATH_MAX - 1, path);
    char *slash = strrchr(out, '/');
    if (slash == NULL)
        text_copy(out, cap, ".");
    else if (slash == out)
        slash[1] = 0;
    else
        *slash = 0;
    return ST_OK;
}

enum status file_sync_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return write_fail(path, "open the folder", 0);
    /* Some file systems cannot sync a folder and return EINVAL; there the rename must suffice. */
    enum status st =
        fsync(fd) == 0 || errno == EINVAL ? ST_OK : write_fail(path, "sync the folder", 0);
    close(fd);
    return st;
}

static enum status write_beside(const char *path, const char *beside, const void *data,
                                size_t bytes)
{
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return write_fail(beside, "create", bytes);
    enum status st = file_write_at(fd, path, data, bytes, 0);
    if (st == ST_OK && fsync(fd) != 0)
        st = write_fail(path, "sync", bytes);
    if (close(fd) != 0 && st == ST_OK)
        st = write_fail(path, "close", bytes);
    return st;
}

enum status file_check_target(const char *path)
{
    struct stat info;
    if (lstat(path, &info) != 0 || S_ISREG(info.st_mode) || S_ISLNK(info.st_mode))
        return ST_OK;
    const char *kind = S_ISDIR(info.st_mode) ? "a folder" : "a device, pipe or socket";
    return FAIL(ST_BAD_SETTING,
                "will not replace %s: it is %s, not a regular file; name another file", path, kind);
}

enum status file_check_own(const char *setting, const char *path, const char *what,
                           const void *mark, size_t mark_bytes)
{
    char head[512];
    TRY(file_check_target(path));
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return ST_OK; /* the write reports a missing folder */
    const ssize_t n = fd < 0 ? -1 : read(fd, head, sizeof head);
    const int error = errno;
    if (fd >= 0)
        close(fd);
    if (n < 0)
        return FAIL(ST_BAD_SETTING,
                    "%s=%s exists and cannot be read (%s), so it may not be %s; it was not "
                    "changed: choose another name, or remove it",
                    setting, path, strerror(error), what);
    if (n == 0 || memmem(head, (size_t)n, mark, mark_bytes) != NULL)
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "%s=%s exists and is not %s; it was not changed: choose another name, or remove it",
                setting, path, what);
}

enum status file_replace(const char *path, const void *data, size_t bytes)
{
    static atomic_uint calls; /* two threads may replace the same file at the same time */
    char folder[FILE_PATH_MAX], beside[FILE_PATH_MAX];
    TRY(file_check_target(path));
    TRY(folder_of(path, folder, sizeof(folder)));
    unsigned call = atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    if (!text_format(beside, sizeof(beside), "%s.%ld-%u.tmp", path, (long)getpid(), call))
        return FAIL(ST_BAD_SETTING, "path of %zu bytes is too long, at most %d: %.64s…",
                    strlen(path), FILE_PATH_MAX - 32, path);
    /* left by a killed process with the same process id; O_EXCL still refuses a file that is
     * planted meanwhile */
    unlink(beside);
    enum status st = write_beside(path, beside, data, bytes);
    if (st == ST_OK && rename(beside, path) != 0)
        st = write_fail(path, "rename into", bytes);
    if (st != ST_OK) {
        unlink(beside);
        return st;
    }
    return file_sync_dir(folder);
}

enum status file_commit(int fd, const char *temp, const char *path)
{
    char folder[FILE_PATH_MAX];
    TRY(folder_of(path, folder, sizeof folder));
    if (fsync(fd) != 0 || rename(temp, path) != 0)
        return FAIL(ST_STORE, "cannot finish %s: %s; check the disk", path, strerror(errno));
    return file_sync_dir(folder);
}

enum status file_make_dirs(const char *path)
{
    char prefix[FILE_PATH_MAX];
    if (!text_copy(prefix, sizeof(prefix), path))
        return FAIL(ST_BAD_SETTING, "path of %zu bytes is too long, at most %d: %.64s…",
                    strlen(path), FILE_PATH_MAX - 1, path);
    for (char *at = prefix + 1; prefix[0] != 0; at++) {
        char kept = *at;
        if (kept != '/' && kept != 0)
            continue;
        *at = 0;
        int error = mkdir(prefix, 0777) == 0 ? 0 : errno; /* the check below would overwrite it */
        if (error != 0 && error != EEXIST && !file_is_dir(prefix)) {
            errno = error;
            return write_fail(prefix, "make the folder", 0);
        }
        *at = kept;
        if (kept == 0)
            break;
    }
    if (file_is_dir(path))
        return ST_OK;
    errno = ENOTDIR;
    return write_fail(path, "make the folder", 0);
}

static enum status remove_below(int dir_fd, const char *name, const char *path, int depth);

/* Removes the content of the open folder. Closes fd, also if it fails. */
static enum status remove_children(int fd, const char *path, int depth)
{
    DIR *dir = fdopendir(fd);
    if (dir == NULL) {
        close(fd);
        return write_fail(path, "list", 0);
    }
    enum status st = ST_OK;
    struct dirent *entry;
    while (st == ST_OK && (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            st = remove_below(dirfd(dir), entry->d_name, path, depth);
    }
    closedir(dir);
    return st;
}

/* Removes a folder or a file. path is for messages only; the calls are relative to an open folder,
 * so a link that is swapped in meanwhile leads nowhere. */
static enum status remove_below(int dir_fd, const char *name, const char *path, int depth)
{
    if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
        return ST_OK;
    if (errno != EISDIR && errno != EPERM)
        return write_fail(path, "remove", 0);
    if (depth >= FILE_TREE_DEPTH_MAX)
        return FAIL(ST_STORE,
                    "cannot remove %s: folders nested deeper than %d; not a folder of ours", path,
                    FILE_TREE_DEPTH_MAX);
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? ST_OK : write_fail(path, "open to remove", 0);
    TRY(remove_children(fd, path, depth + 1));
    if (unlinkat(dir_fd, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
        return write_fail(path, "remove", 0);
    return ST_OK;
}

enum status file_remove_tree(const char *path) { return remove_below(AT_FDCWD, path, path, 0); }

bool file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

bool file_is_dir(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

int64_t file_bytes(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) ? (int64_t)info.st_size : -1;
}

int64_t file_space_bytes(const char *path)
{
    char at[FILE_PATH_MAX];
    struct statvfs info;
    if (!text_copy(at, sizeof(at), path))
        return -1;
    /* Finds the nearest folder that exists. */
    while (statvfs(at, &info) != 0) {
        char above[FILE_PATH_MAX];
        if ((errno != ENOENT && errno != ENOTDIR) || folder_of(at, above, sizeof(above)) != ST_OK ||
            strcmp(at, above) == 0)
            return -1;
        text_copy(at, sizeof(at), above);
    }
    uint64_t bytes;
    if (__builtin_mul_overflow((uint64_t)info.f_bavail, (uint64_t)info.f_frsize, &bytes) ||
        bytes > INT64_MAX)
        return INT64_MAX;
    return (int64_t)bytes;
}

uint64_t file_sum_ends(const uint8_t *data, size_t bytes)
{
    enum { END = 512 << 10 };
    if (bytes <= (size_t)2 * END)
        return XXH3_64bits(data, bytes);
    const uint64_t sums[] = {bytes, XXH3_64bits(data, END), XXH3_64bits(data + bytes - END, END)};
    return XXH3_64bits(sums, sizeof sums);
}

enum status file_sum(const char *path, uint64_t *out)
{
    struct file_map map;
    TRY(file_map_open(path, &map));
    *out = file_sum_ends(map.data, map.bytes);
    file_map_close(&map);
    return ST_OK;
}

XXH3_state_t *file_hash_new(void)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        memory_end(__FILE__, __LINE__, 1, 576);
    XXH3_64bits_reset(state);
    return state;
}

enum status file_join(char *out, size_t cap, const char *dir, const char *name)
{
    size_t n = strlen(dir);
    const char *between = n > 0 && dir[n - 1] == '/' ? "" : "/";
    if (!text_format(out, cap, "%s%s%s", dir, between, name))
        return FAIL(ST_BAD_SETTING, "path of %zu bytes is too long, at most %zu: %.64s…",
                    n + strlen(name) + 1, cap - 1, dir);
    return ST_OK;
}
