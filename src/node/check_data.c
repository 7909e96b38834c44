/* check_data — see check_data.h. */
#include "node/check_data.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/text.h"
#include "data/data_file.h"
#include "data/mix.h"

#define END_BYTES (64 * 1024)
#define FILES_READ 64 /* of more, only the sizes */

struct print {
    int64_t files, bytes;
    uint64_t hash;
};

/* add_end — the bytes of a file from offset on, at most END_BYTES. */
static void add_end(struct print *p, int fd, int64_t offset)
{
    char bytes[END_BYTES / 8];
    ssize_t n = 1;
    for (int64_t at = 0; at < END_BYTES && n > 0; at += n) {
        n = pread(fd, bytes, sizeof bytes, offset + at);
        p->hash = XXH3_64bits_withSeed(bytes, n > 0 ? (size_t)n : 0, p->hash);
    }
}

static void add_file(struct print *p, const struct data_file *file)
{
    int fd = p->files < FILES_READ ? open(file->path, O_RDONLY | O_CLOEXEC) : -1;
    int64_t size = data_file_bytes(file);
    p->files++;
    p->bytes += size;
    p->hash = XXH3_64bits_withSeed(&size, sizeof size, p->hash);
    if (fd < 0)
        return;
    add_end(p, fd, 0);
    if (file->bytes > END_BYTES)
        add_end(p, fd, file->bytes - END_BYTES);
    close(fd);
}

static enum status add_part(struct print *p, const char *data)
{
    const struct data_file_config config = {.data = data, .cache_dir = ""};
    struct data_file_list list = {0};
    TRY(data_file_find(&config, &list));
    for (int64_t i = 0; i < list.n; i++)
        add_file(p, &list.item[i]);
    data_file_free(&list);
    return ST_OK;
}

static enum status add_all(struct print *p, const char *data)
{
    struct mix mix;
    enum status st = mix_parse(data, &mix);
    for (int i = 0; st == ST_OK && i < mix.n; i++)
        st = add_part(p, mix.item[i].data);
    if (st == ST_OK)
        mix_free(&mix);
    return st;
}

void check_data_print(const char *data, char *out, size_t cap)
{
    struct print p = {0};
    text_copy(out, cap, strcmp(data, "synthetic") == 0 ? data : "");
    if (!data[0] || out[0] || strstr(data, "://"))
        return;
    if (add_all(&p, data) == ST_OK)
        text_format(out, cap, "%lld file%s, %lld bytes, %016llx", (long long)p.files,
                    p.files == 1 ? "" : "s", (long long)p.bytes, (unsigned long long)p.hash);
    else
        text_format(out, cap, "not readable here: %s", status_message());
    status_clear();
}
