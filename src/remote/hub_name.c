/* hub_name — see hub_name.h. */
#include "remote/hub_name.h"

#include <string.h>

#include "base/text.h"
#include "remote/remote_path.h"

#define SCHEME "hf://"
#define REPO_WORD_MAX 96 /* bytes of an organisation's or a repository's name */

static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

bool hub_name_is(const char *value) { return text_starts(value, SCHEME); }

bool hub_name_is_commit(const char *revision)
{
    const size_t n = strlen(revision);
    return (n == 40 || n == 64) && strspn(revision, "0123456789abcdef") == n;
}

/* Copies n bytes with %XX decoded. Returns false: a control byte, a bad escape, or too long. */
static bool decode_part(const char *from, size_t n, char *out, size_t cap)
{
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        int c = (unsigned char)from[i];
        if (c == '%') {
            const int high = i + 2 < n ? text_hex_digit(from[i + 1]) : -1,
                      low = i + 2 < n ? text_hex_digit(from[i + 2]) : -1;
            if (high < 0 || low < 0)
                return false;
            c = high * 16 + low;
            i += 2;
        }
        if (c < ' ' || c == 0x7f || used + 1 >= cap)
            return false;
        out[used++] = (char)c;
    }
    out[used] = '\0';
    return true;
}

/* Returns the length of one word of a repository's name at s; 0: the hub accepts no such word. */
static size_t repo_word(const char *s)
{
    const size_t n = strspn(s, plain);
    if (n > REPO_WORD_MAX || s[0] == '-' || s[0] == '.' || memmem(s, n, "--", 2) != NULL ||
        memmem(s, n, "..", 2) != NULL)
        return 0;
    return n;
}

/* Returns the length of the revision at s. */
static size_t revision_length(const char *s)
{
    static const char *const folders[] = {"refs/pr/", "refs/convert/"};
    size_t skip = 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (text_starts(s, folders[i]))
            skip = strlen(folders[i]);
    return skip + strcspn(s + skip, "/");
}

/* Reads [@revision][/path]. */
static bool read_rest(const char *at, struct hub_name *out)
{
    text_copy(out->revision, sizeof out->revision, "main");
    if (*at == '@') {
        const size_t n = revision_length(at + 1);
        if (!decode_part(at + 1, n, out->revision, sizeof out->revision) ||
            out->revision[0] == '\0' || out->revision[0] == '-' ||
            !remote_path_is_safe(out->revision))
            return false;
        at += 1 + n;
    }
    out->rest = at;
    if (*at == '/') {
        size_t n = strlen(at + 1);
        n -= n > 0 && at[n] == '/'; /* "folder/" is a folder */
        return decode_part(at + 1, n, out->path, sizeof out->path) &&
               (n == 0 || remote_path_is_safe(out->path));
    }
    return *at == '\0';
}

enum status hub_name_parse(const char *setting, const char *value, struct hub_name *out)
{
    static const char datasets[] = "datasets/";
    *out = (struct hub_name){.path = ""};
    const char *at = value + (hub_name_is(value) ? strlen(SCHEME) : 0);
    out->is_dataset = text_starts(at, datasets);
    at += out->is_dataset ? strlen(datasets) : 0;
    size_t n = repo_word(at);
    if (n > 0 && at[n] == '/') {
        const size_t name_n = repo_word(at + n + 1);
        n = name_n > 0 ? n + 1 + name_n : 0;
    }
    const bool is_good = hub_name_is(value) && n > 0 && n < sizeof out->repo &&
                         text_format(out->repo, sizeof out->repo, "%.*s", (int)n, at) &&
                         read_rest(at + n, out);
    if (is_good)
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "%s=%.200s is no name of the Hugging Face hub; expected hf://org/name or "
                "hf://org/name@revision for a model, and hf://datasets/org/name/path for data",
                setting, value);
}
