/* shard_checker — see shard_checker.h. */
#include "data/shard_checker.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "base/thread.h"
#include "data/cache.h"

struct shard_checker {
    struct thread thread;
    char cache_dir[FILE_PATH_MAX];
    struct shard_checker_file *files;
    int64_t files_n;
    atomic_bool is_stopped;
    _Atomic enum status found; /* set after the message */
    char message[1024];
};

static void *check_files(void *arg)
{
    struct shard_checker *checker = arg;
    const int64_t n = checker->files_n, first = getpid() % n;
    setpriority(PRIO_PROCESS, (id_t)gettid(), 19);
    for (int64_t i = 0; i < n && !atomic_load(&checker->is_stopped); i++) {
        const struct shard_checker_file *file = checker->files + (first + i) % n;
        const enum status st =
            cache_check(checker->cache_dir, file->shard, file->path, &checker->is_stopped);
        if (st != ST_OK && !atomic_load(&checker->is_stopped)) {
            text_copy(checker->message, sizeof checker->message, status_message());
            atomic_store(&checker->found, st);
            break;
        }
    }
    status_clear();
    return NULL;
}

enum status shard_checker_start(const char *cache_dir, const struct shard_checker_file *files,
                                int64_t n, struct shard_checker **out)
{
    struct shard_checker *checker = calloc(1, sizeof *checker);
    struct shard_checker_file *copy = calloc((size_t)n, sizeof *copy);
    if (checker == NULL || copy == NULL) {
        free(checker);
        free(copy);
        return FAIL(ST_RETRY, "out of memory: a list of %lld token files", (long long)n);
    }
    memcpy(copy, files, (size_t)n * sizeof *copy);
    checker->files = copy;
    checker->files_n = n;
    text_copy(checker->cache_dir, sizeof checker->cache_dir, cache_dir != NULL ? cache_dir : "");
    const enum status st =
        thread_start(&checker->thread, check_files, checker, "checks the token files");
    if (st != ST_OK) {
        free(copy);
        free(checker);
        return st;
    }
    *out = checker;
    return ST_OK;
}

enum status shard_checker_found(const struct shard_checker *checker)
{
    const enum status st = checker != NULL ? atomic_load(&checker->found) : ST_OK;
    return st == ST_OK ? ST_OK : FAIL(st, "%s", checker->message);
}

void shard_checker_stop(struct shard_checker *checker)
{
    if (checker == NULL)
        return;
    atomic_store(&checker->is_stopped, true);
    pthread_join(checker->thread.id, NULL);
    thread_free(&checker->thread);
    free(checker->files);
    free(checker);
}
