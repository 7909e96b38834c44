/* tokenizer_files — see tokenizer_files.h. */
#include "node/choose/tokenizer_files.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "format/gguf/model.h"
#include "format/gguf/vocab.h"
#include "remote/hub.h"

#define BYTES_MAX (64 << 20) /* bytes; the largest tokenizer.json files in use have some 35 MB */

_Static_assert(TOKENIZER_FILES_MAX == HUB_TOKENIZER_FILES + 1,
               "the keys of a GGUF file are one more");

enum status tokenizer_files_read(const char *dir, struct tokenizer_file file[TOKENIZER_FILES_MAX],
                                 int *n_out)
{
    char path[FILE_PATH_MAX];
    enum status st = ST_OK;
    int n = 0;
    for (int i = 0; st == ST_OK && i < TOKENIZER_FILES_MAX; i++) {
        const char *name = i < HUB_TOKENIZER_FILES ? hub_tokenizer_files[i] : TOKENIZER_FILES_GGUF;
        st = file_join(path, sizeof path, dir, name);
        if (st != ST_OK || file_bytes(path) < 0)
            continue;
        file[n].name = name;
        st = file_read(path, BYTES_MAX, &file[n].data, &file[n].bytes);
        n += st == ST_OK;
    }
    if (st != ST_OK)
        tokenizer_files_free(file, n);
    *n_out = st == ST_OK ? n : 0;
    return st;
}

void tokenizer_files_free(struct tokenizer_file *file, int n)
{
    for (int i = 0; i < n; i++) {
        free(file[i].data);
        file[i].data = NULL;
    }
}

/* read_gguf — reads only the keys of a GGUF file: a model of gigabytes has some megabytes of them.
 * *n_out 0: the file has no tokenizer. */
static enum status read_gguf(const char *from, struct tokenizer_file *file, int *n_out)
{
    struct file_map map;
    struct gguf gguf;
    TRY(file_map_open(from, &map));
    enum status st = gguf_parse(map.data, map.bytes, from, &gguf);
    if (st == ST_OK) {
        *n_out = gguf_vocab_is_there(&gguf);
        file->name = TOKENIZER_FILES_GGUF;
        file->data = *n_out ? (char *)gguf_keys(&gguf, map.data, &file->bytes) : NULL;
        if (*n_out && !file->data)
            st = FAIL(ST_RETRY, "out of memory: %zu bytes of the keys of %s", file->bytes, from);
        gguf_free(&gguf);
    }
    file_map_close(&map);
    return st;
}

/* read_single — reads a file that is not in a folder of its own, and the files next to it that
 * belong to it: its end of a text, and its chat template. */
static enum status read_single(const char *from, struct tokenizer_file *file, int *n_out)
{
    static const char *const beside[] = {"tokenizer_config.json", "chat_template.jinja"};
    char folder[FILE_PATH_MAX], path[FILE_PATH_MAX];
    int n = 0;
    enum status st = file_read(from, BYTES_MAX, &file->data, &file->bytes);
    /* The content decides the name: JSON, else one of the formats that are called
     * tokenizer.model. */
    if (st == ST_OK)
        file[n++].name = file->data[0] == '{' ? "tokenizer.json" : "tokenizer.model";
    text_copy(folder, sizeof folder, from);
    char *slash = strrchr(folder, '/');
    text_copy(slash ? slash + (slash == folder) : folder, 2, slash ? "" : ".");
    for (size_t i = 0; st == ST_OK && i < sizeof beside / sizeof *beside; i++) {
        st = file_join(path, sizeof path, folder, beside[i]);
        if (st != ST_OK || strcmp(path, from) == 0 || file_bytes(path) < 0)
            continue;
        file[n].name = beside[i];
        st = file_read(path, BYTES_MAX, &file[n].data, &file[n].bytes);
        n += st == ST_OK;
    }
    *n_out = n;
    return st;
}

enum status tokenizer_files_open(const char *from, struct tokenizer_file file[TOKENIZER_FILES_MAX],
                                 int *n_out)
{
    int n = 0;
    enum status st = file_is_dir(from)          ? tokenizer_files_read(from, file, &n)
                     : gguf_model_is_file(from) ? read_gguf(from, file, &n)
                                                : read_single(from, file, &n);
    if (st != ST_OK)
        tokenizer_files_free(file, n);
    *n_out = st == ST_OK ? n : 0;
    return st;
}

enum status tokenizer_files_keep(const char *from, const char *to)
{
    struct tokenizer_file file[TOKENIZER_FILES_MAX] = {{.data = NULL}};
    char dir[FILE_PATH_MAX], path[FILE_PATH_MAX];
    int n = 0;
    TRY(file_join(dir, sizeof dir, to, TOKENIZER_FILES_DIR));
    if (strcmp(from, dir) == 0 || strcmp(from, to) == 0)
        return ST_OK;
    TRY(tokenizer_files_open(from, file, &n));
    enum status st = n > 0 ? file_make_dirs(dir) : ST_OK;
    for (int i = 0; st == ST_OK && i < n; i++) {
        st = file_join(path, sizeof path, dir, file[i].name);
        if (st == ST_OK)
            st = file_replace(path, file[i].data, file[i].bytes);
    }
    if (n > 0 && st == ST_OK)
        LOG_INFO("%d tokenizer files in %s", n, dir);
    tokenizer_files_free(file, n);
    return st;
}
