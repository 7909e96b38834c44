/* data_folder — a fresh folder of data for each test, and files in it. */
#ifndef CONVOY_TESTS_UNIT_DATA_DATA_FOLDER_H
#define CONVOY_TESTS_UNIT_DATA_DATA_FOLDER_H

#include "harness.h"

#include "data/corpus.h"

static char dir[FILE_PATH_MAX], cache[FILE_PATH_MAX];

/* Makes a fresh folder; warnings are expected in it. */
static inline int data_folder_make(void)
{
    static int number;
    log_init(&(struct log_config){.level = LOG_LEVEL_ERROR, .node_id = -1, .rank = -1});
    text_format(dir, sizeof dir, "%s/%d", harness_tmpdir(), number++);
    text_format(cache, sizeof cache, "%s/cache", dir);
    return file_make_dirs(dir) == ST_OK ? 0 : -1;
}

/* Returns the path of a file in the folder, valid for three more calls. */
static inline const char *in(const char *name)
{
    static char path[4][FILE_PATH_MAX];
    static int turn;
    turn = (turn + 1) % 4;
    text_format(path[turn], FILE_PATH_MAX, "%s/%s", dir, name);
    return path[turn];
}

static inline void put(const char *name, const void *data, size_t n)
{
    char parent[FILE_PATH_MAX];
    text_copy(parent, sizeof parent, in(name));
    *strrchr(parent, '/') = '\0';
    assert_int_equal(file_make_dirs(parent), ST_OK);
    unlink(in(name)); /* a new file: truncating an old one would make some file systems flush it */
    FILE *file = fopen(in(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, n, file), n);
    fclose(file);
}
static inline void put_text(const char *name, const char *text) { put(name, text, strlen(text)); }

#endif
