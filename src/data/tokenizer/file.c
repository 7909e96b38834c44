/* tokenizer_file — see tokenizer/file.h. */
#include "data/tokenizer/file.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "data/tokenizer/gpt2.h"

#define CONFIG_BYTES_MAX ((size_t)8 << 20)

static bool is_file(const char *folder, const char *name, char out[FILE_PATH_MAX])
{
    if (file_join(out, FILE_PATH_MAX, folder, name) != ST_OK) {
        status_clear();
        return false;
    }
    return file_exists(out);
}

bool tokenizer_file_is_at(const char *folder)
{
    char path[FILE_PATH_MAX];
    return is_file(folder, "tokenizer.json", path) || is_file(folder, "tokenizer.model", path);
}

/* Reads the eos_token of the file next to the path; "": there is none. */
static enum status read_end(const char *path, char *out, size_t cap)
{
    char folder[FILE_PATH_MAX], config[FILE_PATH_MAX], *bytes;
    size_t n;
    out[0] = 0;
    text_copy(folder, FILE_PATH_MAX, path);
    char *slash = strrchr(folder, '/');
    if (slash == NULL)
        text_copy(folder, FILE_PATH_MAX, ".");
    else
        slash[slash == folder] = 0;
    if (!is_file(folder, "tokenizer_config.json", config))
        return ST_OK;
    TRY(file_read(config, CONFIG_BYTES_MAX, &bytes, &n));
    const enum status st = tokenizer_json_end(bytes, n, config, out, cap);
    free(bytes);
    return st;
}

/* Replaces a tokenizer with GPT-2's tables by the built-in one, whose ids and caches are the
 * same. */
static enum status prefer_built_in(struct tokenizer **tokenizer)
{
    struct tokenizer *gpt2;
    if (tokenizer_vocab(*tokenizer) != TOKENIZER_GPT2_VOCAB)
        return ST_OK;
    TRY(tokenizer_gpt2_open(&gpt2));
    const bool is_same = tokenizer_is_same(*tokenizer, gpt2);
    tokenizer_close(is_same ? *tokenizer : gpt2);
    if (is_same)
        *tokenizer = gpt2;
    return ST_OK;
}

static enum status open_json(const char *path, const char *bytes, size_t n, struct tokenizer **out)
{
    char end[256];
    struct tokenizer *made = NULL;
    TRY(read_end(path, end, sizeof end));
    TRY(tokenizer_json_open(bytes, n, path, end, &made));
    const enum status st = prefer_built_in(&made);
    if (st == ST_OK)
        *out = made;
    else
        tokenizer_close(made);
    return st;
}

static enum status open_path(const char *path, struct tokenizer **out)
{
    char *bytes;
    size_t n;
    enum status st;
    TRY(file_read(path, TOKENIZER_JSON_BYTES_MAX, &bytes, &n));
    size_t i = n >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (i < n && (bytes[i] == ' ' || bytes[i] == '\n' || bytes[i] == '\r' || bytes[i] == '\t'))
        i++;
    if (i < n && bytes[i] == '{')
        st = open_json(path, bytes, n, out);
    else if (tokenizer_tiktoken_is(bytes, n))
        st = n <= TOKENIZER_TIKTOKEN_BYTES_MAX ? tokenizer_tiktoken_open(bytes, n, path, out)
                                               : FAIL(ST_BAD_DATA, "%s has %zu bytes", path, n);
    else
        st = n <= TOKENIZER_SPM_BYTES_MAX
                 ? tokenizer_spm_open((const uint8_t *)bytes, n, path, out)
                 : FAIL(ST_BAD_DATA, "%s has %zu bytes, too many for a tokenizer", path, n);
    free(bytes);
    return st;
}

enum status tokenizer_file_open(const char *path, struct tokenizer **out)
{
    char inner[FILE_PATH_MAX];
    if (strcmp(path, TOKENIZER_GPT2_NAME) == 0 && !file_exists(path))
        return tokenizer_gpt2_open(out);
    if (!file_is_dir(path))
        return open_path(path, out);
    if (is_file(path, "tokenizer.json", inner) || is_file(path, "tokenizer.model", inner))
        return open_path(inner, out);
    return FAIL(ST_NO_INPUT,
                "%s has neither tokenizer.json nor tokenizer.model; set TOKENIZER to one, or to "
                "gpt2",
                path);
}
