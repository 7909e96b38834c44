/* ckpt_fill — loads a checkpoint directly into the memory of its tensors. Each file is read once,
 * by its own thread, past the page cache if the file system allows it. Each chunk is hashed and
 * copied while it is in the processor's cache. So a load is as fast as the disk, and needs memory
 * for the chunks only. It must not know devices or training. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/assert.h"
#include "base/memory.h"
#include "format/ckpt_inside.h"
#include "format/ckpt_read.h"

#define CHUNK_BYTES (2 << 20) /* read at once; fits the second-level cache */

/* One file being read. */
struct reader {
    struct ckpt *ckpt;
    struct ckpt_file *opened;
    const struct manifest_file *file;
    const struct ckpt_fill *fill;
    const struct heartbeat *heartbeat;
    XXH3_state_t *hash;
    char *chunk;
    int entry_i; /* the first entry that may be in the next chunk */
    bool is_apart;
    pthread_t thread;
    enum status st;
    struct status_saved why;
};

/* check_header — checks that the header in the hashed bytes equals the parsed header. */
static enum status check_header(const struct reader *r, int64_t at, int64_t n)
{
    const struct safetensors *tensors = &r->opened->tensors;
    int64_t header =
        tensors->entries_n ? tensors->entry[0].data - (const uint8_t *)r->opened->map : 0;
    if (at >= header)
        return ST_OK;
    if (memcmp(r->chunk, (const char *)r->opened->map + at,
               (size_t)(header - at < n ? header - at : n)) == 0)
        return ST_OK;
    return FAIL(ST_BAD_DATA, "%s/%s changed while it was read; stop the process that writes there",
                r->ckpt->path, r->file->name);
}

/* next_chunk — reads the next chunk. O_DIRECT needs whole blocks, also after a short read; chunks
 * that it refuses are read through the page cache. */
static enum status next_chunk(const struct reader *r, int64_t at, size_t *got_out)
{
    int flags = fcntl(r->opened->fd, F_GETFL);
    if (flags >= 0 && (flags & O_DIRECT)) {
        ssize_t n = pread(r->opened->fd, r->chunk, CHUNK_BYTES, (off_t)at);
        if (n == CHUNK_BYTES || (n > 0 && at + n == r->file->bytes)) {
            *got_out = (size_t)n;
            return ST_OK;
        }
        (void)fcntl(r->opened->fd, F_SETFL, flags & ~O_DIRECT);
    }
    return ckpt_read_chunk(r->opened->fd, r->ckpt->path, r->file->name, r->chunk, CHUNK_BYTES, at,
                           got_out);
}

static enum status read_file(struct reader *r)
{
    size_t got;
    for (int64_t at = 0; at < r->file->bytes; at += (int64_t)got) {
        int64_t want = r->file->bytes - at < CHUNK_BYTES ? r->file->bytes - at : CHUNK_BYTES;
        TRY(next_chunk(r, at, &got));
        if ((int64_t)got != want)
            return FAIL(ST_BAD_DATA, "%s/%s was cut short or grew while it was read", r->ckpt->path,
                        r->file->name);
        XXH3_64bits_update(r->hash, r->chunk, got);
        TRY(check_header(r, at, want));
        /* Copies the bytes of wanted tensors from the chunk. Entries are in the file's order. */
        const struct safetensors *tensors = &r->opened->tensors;
        for (int i = r->entry_i; i < tensors->entries_n; i++) {
            const struct safetensors_entry *entry = &tensors->entry[i];
            int64_t begin = entry->data - (const uint8_t *)r->opened->map,
                    end = begin + (int64_t)entry->bytes;
            if (begin >= at + want)
                break;
            if (end <= at + want)
                r->entry_i = i + 1;
            int64_t from = begin > at ? begin : at, to = end < at + want ? end : at + want;
            char *dest = from < to ? r->fill->dest(r->fill->arg, r->opened->name, entry) : NULL;
            if (dest)
                memcpy(dest + (from - begin), r->chunk + (from - at), (size_t)(to - from));
        }
        if (r->heartbeat && r->heartbeat->fn)
            r->heartbeat->fn(r->heartbeat->arg, want);
    }
    return ckpt_check_sum(r->ckpt->path, r->file, XXH3_64bits_digest(r->hash));
}

static void *reader_main(void *arg)
{
    struct reader *r = arg;
    int flags = fcntl(r->opened->fd, F_GETFL);
    if (flags >= 0)
        (void)fcntl(r->opened->fd, F_SETFL, flags | O_DIRECT); /* not all file systems can */
    r->hash = file_hash_new();
    r->chunk = aligned_alloc(4096, CHUNK_BYTES);
    r->st = r->chunk ? read_file(r)
                     : FAIL(ST_RETRY, "out of memory: reading %s/%s", r->ckpt->path, r->file->name);
    XXH3_freeState(r->hash);
    free(r->chunk);
    status_save(&r->why);
    return NULL;
}

static const struct manifest_file *file_of(const struct ckpt *ckpt, const struct ckpt_file *opened)
{
    const struct manifest_file *file = &ckpt->manifest.file[opened - ckpt->file];
    ASSERTF(strncmp(file->name, opened->name, strlen(opened->name)) == 0, "%s is not of %s",
            file->name, opened->name);
    return file;
}

static enum status fill_once(struct ckpt *ckpt, const struct ckpt_fill *fill,
                             const struct heartbeat *heartbeat)
{
    enum status st = ST_OK;
    struct reader *reader = memory_new((size_t)ckpt->files_n, sizeof *reader);
    for (int i = 0; i < ckpt->files_n; i++) {
        struct reader *r = &reader[i];
        *r = (struct reader){.ckpt = ckpt,
                             .opened = &ckpt->file[i],
                             .file = file_of(ckpt, &ckpt->file[i]),
                             .fill = fill,
                             .heartbeat = heartbeat};
        ASSERT(r->opened->fd >= 0);
        r->is_apart = pthread_create(&r->thread, NULL, reader_main, r) == 0;
        if (!r->is_apart)
            reader_main(r);
    }
    for (int i = 0; i < ckpt->files_n; i++) {
        if (reader[i].is_apart)
            pthread_join(reader[i].thread, NULL);
        if (st == ST_OK && reader[i].st != ST_OK) {
            st = reader[i].st;
            status_restore(&reader[i].why);
        }
    }
    free(reader);
    return st;
}

enum status ckpt_fill(struct ckpt *ckpt, const struct ckpt_fill *fill,
                      const struct heartbeat *heartbeat)
{
    int tries = 0;
    enum status st;
    do
        st = fill_once(ckpt, fill, heartbeat);
    while (ckpt_read_retry(st, &tries));
    return st;
}
