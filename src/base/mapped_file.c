/* mapped_file — see mapped_file.h. Blocks of slots in a list that only grows: the handler walks it
 * without a lock, because the interrupted thread may hold the lock. */
#include "base/mapped_file.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"

#define BLOCK_SLOTS 64
#define NAME_BYTES 1024 /* the end of a longer path */

#define CUT                                                                                        \
    "%s was cut short while it was in use: it had %zu bytes, now it has %lld; bring it back, and " \
    "replace files by "                                                                            \
    "a rename, never in place"

struct slot {
    atomic_uintptr_t begin; /* 0: free */
    size_t bytes;
    dev_t device; /* device and inode of the file at the path */
    ino_t inode;
    char path[NAME_BYTES];
};

struct block {
    struct slot slot[BLOCK_SLOTS];
    struct block *next; /* set before the block is in the list */
};

static _Atomic(struct block *) blocks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* find_slot — returns the slot of the memory that begins there; 0: a free one. NULL: none. */
static struct slot *find_slot(uintptr_t begin)
{
    for (struct block *b = atomic_load(&blocks); b; b = b->next)
        for (int i = 0; i < BLOCK_SLOTS; i++)
            if (atomic_load(&b->slot[i].begin) == begin)
                return &b->slot[i];
    return NULL;
}

void mapped_file_add(const char *path, const void *data, size_t bytes)
{
    size_t n = strlen(path);
    struct stat info = {.st_ino = 0};
    if (!data)
        return;
    (void)stat(path, &info); /* a file that is gone already cannot be checked later, either */
    pthread_mutex_lock(&lock);
    struct slot *slot = find_slot(0);
    if (!slot) {
        struct block *b = memory_new(1, sizeof(*b));
        b->next = atomic_load(&blocks);
        atomic_store(&blocks, b);
        slot = &b->slot[0];
    }
    slot->bytes = bytes;
    slot->device = info.st_dev;
    slot->inode = info.st_ino;
    text_copy(slot->path, sizeof(slot->path), n < NAME_BYTES ? path : path + n - (NAME_BYTES - 1));
    atomic_store(&slot->begin, (uintptr_t)data);
    pthread_mutex_unlock(&lock);
}

void mapped_file_remove(const void *data)
{
    if (!data)
        return;
    pthread_mutex_lock(&lock);
    struct slot *slot = find_slot((uintptr_t)data);
    if (slot)
        atomic_store(&slot->begin, 0);
    pthread_mutex_unlock(&lock);
}

/* is_cut — returns true if this same file, not another file under its name, is shorter than the
 * mapping. */
static bool is_cut(const struct slot *slot, long long *bytes_out)
{
    struct stat info;
    if (!atomic_load(&slot->begin) || stat(slot->path, &info) != 0 || info.st_dev != slot->device ||
        info.st_ino != slot->inode)
        return false;
    *bytes_out = (long long)info.st_size;
    return (size_t)info.st_size < slot->bytes;
}

enum status mapped_file_check(void)
{
    enum status st = ST_OK;
    long long bytes;
    pthread_mutex_lock(&lock);
    for (struct block *b = atomic_load(&blocks); b && st == ST_OK; b = b->next)
        for (int i = 0; i < BLOCK_SLOTS && st == ST_OK; i++)
            if (is_cut(&b->slot[i], &bytes))
                st = FAIL(ST_BAD_DATA, CUT, b->slot[i].path, b->slot[i].bytes, bytes);
    pthread_mutex_unlock(&lock);
    return st;
}

static const struct slot *slot_of(uintptr_t address, uintptr_t *begin_out)
{
    for (struct block *b = atomic_load(&blocks); b; b = b->next)
        for (int i = 0; i < BLOCK_SLOTS; i++) {
            *begin_out = atomic_load(&b->slot[i].begin);
            if (*begin_out && address >= *begin_out && address - *begin_out < b->slot[i].bytes)
                return &b->slot[i];
        }
    return NULL;
}

enum status mapped_file_fault(const void *address, char *out, size_t cap)
{
    struct stat info;
    uintptr_t begin;
    const struct slot *slot = slot_of((uintptr_t)address, &begin);
    if (!slot)
        return ST_OK;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), at = ((uintptr_t)address - begin) / page * page;
    if (stat(slot->path, &info) == 0 && (size_t)info.st_size <= at) {
        text_format(out, cap, CUT, slot->path, slot->bytes, (long long)info.st_size);
        return ST_BAD_DATA;
    }
    text_format(out, cap, "cannot read %s at byte %zu: input/output error (SIGBUS); check the disk",
                slot->path, at);
    return ST_STORE;
}
