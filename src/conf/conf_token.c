/* conf_token — the secret that admits nodes: reads it, and keeps it out of sight.
 *
 * It comes from one of two variables; one of them names a file. Messages never repeat a secret. It
 * must not know what the secret is used for. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf/conf_row.h"

#define TOKEN_BYTES_MIN 16
#define TOKEN_BYTES_MAX 1024

/* check_file — an open file that only its owner can read. Root owns a secret that is mounted into a
 * container, so the bits of group and others count, not the owner. */
static enum status check_file(int fd, const char *path)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return FAIL(ST_NO_INPUT, "cannot look at JOB_TOKEN_FILE=%s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return FAIL(ST_BAD_SETTING,
                    "JOB_TOKEN_FILE=%s is not a regular file; name the file that holds the token",
                    path);
    if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return FAIL(ST_BAD_SETTING,
                    "JOB_TOKEN_FILE=%s can be read or changed by other users than its owner (mode "
                    "%03o); chmod 600 it, in Kubernetes set defaultMode: 0400",
                    path, (unsigned)info.st_mode & 0777);
    return ST_OK;
}

static enum status read_all(int fd, const char *path, char *out, size_t cap, size_t *n_out)
{
    size_t n = 0;
    ssize_t got = 1;
    while (got > 0 && n + 1 < cap) {
        got = read(fd, out + n, cap - 1 - n);
        n += got > 0 ? (size_t)got : 0;
    }
    if (got < 0)
        return FAIL(ST_NO_INPUT, "cannot read JOB_TOKEN_FILE=%s: %s", path, strerror(errno));
    while (n > 0 && (out[n - 1] == '\n' || out[n - 1] == '\r'))
        n--;
    out[n] = 0;
    *n_out = n;
    return ST_OK;
}

static enum status read_file(const char *path, char *out, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t n = 0;
    if (fd < 0)
        return FAIL(ST_NO_INPUT, "cannot open JOB_TOKEN_FILE=%s: %s", path, strerror(errno));
    enum status st = check_file(fd, path);
    if (st == ST_OK)
        st = read_all(fd, path, out, cap, &n);
    close(fd);
    TRY(st);
    if (n < TOKEN_BYTES_MIN || n > TOKEN_BYTES_MAX || strlen(out) != n)
        return FAIL(ST_BAD_SETTING,
                    "JOB_TOKEN_FILE=%s does not hold a text of %d to %d bytes; write one with: "
                    "openssl rand -hex 32 >%s",
                    path, TOKEN_BYTES_MIN, TOKEN_BYTES_MAX, path);
    return ST_OK;
}

enum status conf_token(const struct conf *conf, char *out, size_t cap)
{
    const char *token = conf_text(conf, CONF_JOB_TOKEN),
               *file = conf_text(conf, CONF_JOB_TOKEN_FILE);
    TRY(conf_rules_check_missing(conf, false));
    if (token[0] != 0 && file[0] != 0)
        return FAIL(
            ST_BAD_SETTING, "JOB_TOKEN (%s) and JOB_TOKEN_FILE=%s (%s) are both set; leave one out",
            conf_source(conf, CONF_JOB_TOKEN), file, conf_source(conf, CONF_JOB_TOKEN_FILE));
    if (file[0] != 0)
        return read_file(file, out, cap);
    text_copy(out, cap, token);
    return ST_OK;
}

/* is_secret — "NAME=value" of a row whose value is secret. */
static bool is_secret(const char *word)
{
    size_t n = strcspn(word, "=");
    for (int key = 0; key < CONF_N; key++)
        if (conf_rows[key].kind == CONF_KIND_SECRET && strncmp(conf_rows[key].name, word, n) == 0 &&
            conf_rows[key].name[n] == 0)
            return true;
    return false;
}

void conf_token_forget(char **environment)
{
    char **kept = environment;
    for (char **at = environment; *at != NULL; at++) {
        if (is_secret(*at))
            explicit_bzero(*at, strlen(*at));
        else
            *kept++ = *at;
    }
    *kept = NULL;
}

void conf_token_wipe(const struct conf *conf)
{
    for (int key = 0; key < CONF_N; key++)
        if (conf_rows[key].kind == CONF_KIND_SECRET && conf->values[key].text != NULL)
            explicit_bzero(conf->values[key].text, strlen(conf->values[key].text));
}
