/* check_file — see host/file.h. */
#include "check/host/file.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"

#define LINE_BYTES 1024
/* most bytes of a record in /dev/kmsg: the kernel refuses to read less of one */
#define RECORD_BYTES 8192

static bool path_of(char *out, const char *root, const char *path, va_list args)
{
    size_t n = strlen(root);
    if (n >= FILE_PATH_MAX)
        return false;
    memcpy(out, root, n);
    int more = vsnprintf(out + n, FILE_PATH_MAX - n, path, args);
    return more >= 0 && (size_t)more < FILE_PATH_MAX - n;
}

static int open_file(const char *path, bool accepts_device)
{
    struct stat about;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return -1;
    if (fstat(fd, &about) == 0 &&
        (S_ISREG(about.st_mode) || (accepts_device && S_ISCHR(about.st_mode))))
        return fd;
    close(fd);
    errno = EINVAL;
    return -1;
}

static void sanitize_text(char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((text[i] < ' ' && text[i] != '\n' && text[i] != '\t') || text[i] > '~')
            text[i] = '?';
}

static size_t read_some(int fd, char *out, size_t cap)
{
    size_t used = 0;
    ssize_t n;
    while (used < cap && (n = read(fd, out + used, cap - used)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        used += (size_t)n;
    }
    return used;
}

bool check_file_read(const char *root, char *out, size_t cap, const char *path, ...)
{
    char full[FILE_PATH_MAX];
    va_list args;
    out[0] = 0;
    va_start(args, path);
    bool fits = path_of(full, root, path, args);
    va_end(args);
    int fd = fits ? open_file(full, false) : -1;
    if (fd < 0)
        return false;
    errno = 0;
    size_t n = read_some(fd, out, cap - 1);
    bool is_read = n > 0 || errno == 0; /* "carrier" of an interface that is down returns EINVAL */
    close(fd);
    sanitize_text(out, n);
    while (n > 0 && strchr(" \t\n", out[n - 1]))
        n--;
    out[n] = 0;
    return is_read;
}

int64_t check_file_number(const char *root, const char *path, ...)
{
    char full[FILE_PATH_MAX], text[64], *rest = text;
    int64_t value;
    va_list args;
    va_start(args, path);
    bool fits = path_of(full, "", path, args);
    va_end(args);
    if (!fits || !check_file_read(root, text, sizeof text, "%s", full))
        return CHECK_FILE_NONE;
    char *word = check_file_word(&rest);
    return word && text_parse_i64(word, INT64_MIN + 1, INT64_MAX, &value) == TEXT_OK
               ? value
               : CHECK_FILE_NONE;
}

bool check_file_is(const char *root, const char *path, ...)
{
    char full[FILE_PATH_MAX];
    struct stat about;
    va_list args;
    va_start(args, path);
    bool fits = path_of(full, root, path, args);
    va_end(args);
    return fits && lstat(full, &about) == 0;
}

static int by_number(const void *a, const void *b) { return strverscmp(a, b); }

/* Names are put into commands that a person copies. */
static bool is_safe(char c) { return isalnum((unsigned char)c) || (c && strchr("._:-@", c)); }

bool check_file_is_name(const char *name)
{
    const char *at = name;
    while (is_safe(*at))
        at++;
    return at > name && *at == 0;
}

static void list_names(const char *full, const char *prefix, struct check_file_names *out)
{
    struct dirent *entry;
    DIR *dir = opendir(full);
    out->n = 0;
    while (dir && out->n < CHECK_FILE_NAMES_MAX && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.' || strlen(entry->d_name) >= sizeof out->name[0] ||
            !text_starts(entry->d_name, prefix))
            continue;
        text_copy(out->name[out->n], sizeof out->name[0], entry->d_name);
        char *name = out->name[out->n];
        for (; *name; name++)
            if (!is_safe(*name))
                *name = '?';
        out->n++;
    }
    if (dir)
        closedir(dir);
    qsort(out->name, (size_t)out->n, sizeof out->name[0], by_number);
}

void check_file_list(const char *root, struct check_file_names *out, const char *path, ...)
{
    char full[FILE_PATH_MAX];
    va_list args;
    va_start(args, path);
    bool fits = path_of(full, root, path, args);
    va_end(args);
    list_names(fits ? full : "", "", out);
}

void check_file_list_with(const char *root, const char *prefix, struct check_file_names *out,
                          const char *path, ...)
{
    char full[FILE_PATH_MAX];
    va_list args;
    va_start(args, path);
    bool fits = path_of(full, root, path, args);
    va_end(args);
    list_names(fits ? full : "", prefix, out);
}

/* ---- lines ---- */

struct lines {
    void (*line)(void *arg, char *text);
    void *arg;
    char text[LINE_BYTES];
    size_t used;
};

static void end_line(struct lines *l)
{
    l->text[l->used] = 0;
    sanitize_text(l->text, l->used);
    l->used = 0;
    l->line(l->arg, l->text);
}

static void split_lines(struct lines *l, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] != '\n')
            l->text[l->used++] = bytes[i];
        if (bytes[i] == '\n' || l->used == LINE_BYTES - 1)
            end_line(l);
    }
}

bool check_file_lines(const char *root, const char *path, int64_t bytes_max,
                      void (*line)(void *arg, char *text), void *arg)
{
    char full[FILE_PATH_MAX], record[RECORD_BYTES];
    struct lines l = {.line = line, .arg = arg};
    int fd = text_format(full, sizeof full, "%s%s", root, path)
                 ? open_file(full, root[0] == 0 && strcmp(path, "/dev/kmsg") == 0)
                 : -1;
    if (fd < 0)
        return false;
    while (bytes_max > 0) {
        ssize_t n = read(fd, record, sizeof record);
        if (n < 0 && (errno == EPIPE || errno == EINTR)) /* records were overwritten meanwhile */
            continue;
        if (n <= 0)
            break;
        split_lines(&l, record, (size_t)n);
        bytes_max -= n;
    }
    close(fd);
    if (l.used > 0)
        end_line(&l);
    return true;
}

char *check_file_word(char **rest)
{
    char *word;
    while ((word = strsep(rest, " \t\n")) != NULL)
        if (word[0] != 0)
            return word;
    return NULL;
}
