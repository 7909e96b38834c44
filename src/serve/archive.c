/* archive — see archive.h. */
#include "serve/archive.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"

#define CLOSE_MS 2000
/* the process that holds the lock writes in the folder (format/ckpt_lock.c) */
#define LOCK_NAME ".lock"

struct archive {
    char path[FILE_PATH_MAX];
    struct thread thread; /* its lock guards the fields below; both sides wait on its condition */
    struct text found;    /* the file's bytes */
    struct text due;      /* bytes to write; data NULL: none */
    bool is_guest;        /* the flag of archive_write for `due` */
    bool is_wanted, is_read, is_closing, is_done;
    bool is_left; /* archive_close has ended its wait: the thread frees the archive */
    bool has_warned;
};

static void free_archive(struct archive *archive)
{
    text_free(&archive->found);
    text_free(&archive->due);
    free(archive);
}

/* ---- the thread ---- */

static void read_file(struct archive *archive)
{
    char *data = NULL;
    size_t n = 0;
    struct text found = {.limit = ARCHIVE_BYTES_MAX};
    if (file_bytes(archive->path) > 0 &&
        file_read(archive->path, ARCHIVE_BYTES_MAX, &data, &n) != ST_OK)
        LOG_WARN("the curves of an earlier run are not shown: %s", status_message());
    status_clear();
    if (n > 0)
        text_add_bytes(&found, data, n);
    free(data);
    pthread_mutex_lock(&archive->thread.lock);
    archive->found = found;
    archive->is_read = true;
    pthread_mutex_unlock(&archive->thread.lock);
}

/* Returns true if another process holds the lock of the folder. */
static bool is_locked(const char *dir)
{
    char path[FILE_PATH_MAX];
    int fd = -1;
    if (text_format(path, sizeof(path), "%s/%s", dir, LOCK_NAME))
        fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const bool is_held = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fd >= 0)
        close(fd);
    return is_held;
}

static void *serve_files(void *arg)
{
    struct archive *archive = arg;
    pthread_mutex_lock(&archive->thread.lock);
    while (!archive->is_closing || archive->due.data != NULL) {
        if (archive->is_wanted && !archive->is_read) {
            pthread_mutex_unlock(&archive->thread.lock);
            read_file(archive);
            pthread_mutex_lock(&archive->thread.lock);
            continue;
        }
        if (archive->due.data == NULL) {
            pthread_cond_wait(&archive->thread.wake, &archive->thread.lock);
            continue;
        }
        struct text t = archive->due;
        const bool is_guest = archive->is_guest;
        archive->due = (struct text){0};
        pthread_mutex_unlock(&archive->thread.lock);
        /* Called without the lock, because files may hang. */
        char dir[FILE_PATH_MAX];
        text_format(dir, sizeof(dir), "%.*s", (int)(strrchr(archive->path, '/') - archive->path),
                    archive->path);
        const bool may_write = file_is_dir(dir) && !(is_guest && is_locked(dir));
        if (may_write && file_replace(archive->path, t.data, t.len) != ST_OK &&
            !archive->has_warned) {
            archive->has_warned = true;
            LOG_WARN("the curves of this run are not kept: %s", status_message());
        }
        status_clear();
        text_free(&t);
        pthread_mutex_lock(&archive->thread.lock);
    }
    archive->is_done = true;
    const bool is_left = archive->is_left;
    pthread_cond_broadcast(&archive->thread.wake);
    pthread_mutex_unlock(&archive->thread.lock);
    if (is_left) {
        thread_free(&archive->thread);
        free_archive(archive);
    }
    return NULL;
}

/* ---- the caller's side ---- */

enum status archive_open(const char *path, struct archive **out)
{
    struct archive *archive = memory_new(1, sizeof(*archive));
    text_copy(archive->path, sizeof(archive->path), path);
    enum status st = thread_start(&archive->thread, serve_files, archive, "keeps the curves");
    if (st == ST_OK)
        *out = archive;
    else
        free_archive(archive);
    return st;
}

bool archive_read(struct archive *archive, struct text *out)
{
    pthread_mutex_lock(&archive->thread.lock);
    const bool is_read = archive->is_read;
    if (!archive->is_wanted) {
        archive->is_wanted = true;
        pthread_cond_broadcast(&archive->thread.wake);
    }
    if (is_read) {
        *out = archive->found;
        archive->found = (struct text){0};
    }
    pthread_mutex_unlock(&archive->thread.lock);
    return is_read;
}

void archive_write(struct archive *archive, struct text *t, bool is_guest)
{
    pthread_mutex_lock(&archive->thread.lock);
    text_free(&archive->due);
    archive->due = *t;
    archive->is_guest = is_guest;
    *t = (struct text){0};
    pthread_cond_broadcast(&archive->thread.wake);
    pthread_mutex_unlock(&archive->thread.lock);
}

void archive_close(struct archive *archive)
{
    if (archive == NULL)
        return;
    struct timespec until = thread_deadline(CLOSE_MS);
    pthread_t id = archive->thread.id;
    pthread_mutex_lock(&archive->thread.lock);
    archive->is_closing = true;
    pthread_cond_broadcast(&archive->thread.wake);
    while (!archive->is_done &&
           pthread_cond_timedwait(&archive->thread.wake, &archive->thread.lock, &until) == 0)
        ;
    const bool is_left = archive->is_left = !archive->is_done;
    pthread_mutex_unlock(&archive->thread.lock);
    if (is_left) {
        pthread_detach(id);
        LOG_WARN("the disk has not written the curves of this run for %d s; they are not kept",
                 CLOSE_MS / 1000);
        return;
    }
    pthread_join(id, NULL);
    thread_free(&archive->thread);
    free_archive(archive);
}
