/* conf_token — the secrets of a node: the token that admits nodes and the token of the status page.
 * Reads them, refuses secrets that are easily guessed, and hides them.
 *
 * The first token comes from one of two variables; one of them contains the name of a file.
 * Messages never repeat a secret. It must not know the use of a secret. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf/conf_row.h"

#define TOKEN_BYTES_MIN 16
#define TOKEN_BYTES_MAX 1024
/* The estimate for random text of 80 bits is a little lower, because a short text does not have all
 * characters of its alphabet. */
#define TOKEN_BITS_MIN 75

/* ---- strength of a secret ---- */

/* is_continued — returns true if the last of three characters follows from the others: they are
 * consecutive in a row of the alphabet or of a keyboard, in either direction, or the three occur
 * earlier in the secret. at: position of the last one. */
static bool is_continued(const char *secret, size_t at)
{
    static const char rows[] = "0123456789 abcdefghijklmnopqrstuvwxyz qwertyuiop asdfghjkl zxcvbnm";
    const char *three = secret + at - 2;
    char forth[4] = "", back[4] = "";
    for (int i = 0; i < 3; i++)
        forth[i] = back[2 - i] = (char)tolower((unsigned char)three[i]);
    return strstr(rows, forth) != NULL || strstr(rows, back) != NULL ||
           memmem(secret, at, three, 3) != NULL;
}

const char *conf_token_fault(const char *secret)
{
    bool is_seen[256] = {false};
    int distinct_n = 0, fresh_n = 0;
    size_t n = strlen(secret);
    if (n < TOKEN_BYTES_MIN)
        return "is too short to be a secret";
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)secret[i];
        distinct_n += !is_seen[c];
        is_seen[c] = true;
        fresh_n += i < 2 || !is_continued(secret, i);
    }
    return fresh_n * log2(distinct_n) < TOKEN_BITS_MIN
               ? "is too easily guessed: by its length, characters, repetitions and sequences it "
                 "has "
                 "less than about 80 bits"
               : NULL;
}

/* ---- files ---- */

static enum status check_file(int fd, const char *name, const char *path)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return FAIL(ST_NO_INPUT, "cannot look at %s=%s: %s", name, path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return FAIL(ST_BAD_SETTING,
                    "%s=%s is not a regular file; set it to the file with the token", name, path);
    /* Refuse a file that another user than this one and root can read or change. Root may allow a
     * group to read it: Kubernetes mounts a secret like that in a pod with an fsGroup. */
    const uid_t user = geteuid();
    if (info.st_uid != user && info.st_uid != 0)
        return FAIL(ST_BAD_SETTING,
                    "%s=%s belongs to user %u, not to root or the user of this program, "
                    "%u; chown it to user %u",
                    name, path, (unsigned)info.st_uid, (unsigned)user, (unsigned)user);
    const mode_t refused = S_IRWXO | (user != 0 && info.st_uid == 0 ? S_IWGRP | S_IXGRP : S_IRWXG);
    if ((info.st_mode & refused) != 0)
        return FAIL(ST_BAD_SETTING,
                    "%s=%s can be read or changed by other users than its owner (mode %03o); chmod "
                    "600 it, in Kubernetes set defaultMode: 0400",
                    name, path, (unsigned)info.st_mode & 0777);
    return ST_OK;
}

static enum status read_all(int fd, const char *name, const char *path, char *out, size_t *n_out)
{
    size_t n = 0;
    ssize_t got = 1;
    while (got > 0 && n + 1 < CONF_TOKEN_BYTES) {
        got = read(fd, out + n, CONF_TOKEN_BYTES - 1 - n);
        n += got > 0 ? (size_t)got : 0;
    }
    if (got < 0)
        return FAIL(ST_NO_INPUT, "cannot read %s=%s: %s", name, path, strerror(errno));
    while (n > 0 && (out[n - 1] == '\n' || out[n - 1] == '\r'))
        n--;
    out[n] = 0;
    *n_out = n;
    return ST_OK;
}

/* read_file — reads the token in the file of setting `name`. */
static enum status read_file(const char *name, const char *path, char *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t n = 0;
    if (fd < 0)
        return FAIL(ST_NO_INPUT, "cannot open %s=%s: %s", name, path, strerror(errno));
    enum status st = check_file(fd, name, path);
    if (st == ST_OK)
        st = read_all(fd, name, path, out, &n);
    close(fd);
    TRY(st);
    bool is_text = n >= TOKEN_BYTES_MIN && n <= TOKEN_BYTES_MAX && strlen(out) == n;
    for (size_t i = 0; i < n && is_text; i++)
        is_text = !iscntrl((unsigned char)out[i]);
    if (!is_text)
        return FAIL(ST_BAD_SETTING,
                    "%s=%s does not hold one line of text of %d to %d bytes; write one with: "
                    "openssl rand -hex 32 >%s",
                    name, path, TOKEN_BYTES_MIN, TOKEN_BYTES_MAX, path);
    const char *fault = conf_token_fault(out);
    if (fault != NULL)
        return FAIL(ST_BAD_SETTING,
                    "the token in %s=%s %s; write one with: openssl rand -hex 32 >%s", name, path,
                    fault, path);
    return ST_OK;
}

enum status conf_token_page(const struct conf *conf, char out[CONF_TOKEN_BYTES])
{
    const char *path = conf_text(conf, CONF_STATUS_TOKEN_FILE);
    out[0] = 0;
    return path[0] != 0 ? read_file("STATUS_TOKEN_FILE", path, out) : ST_OK;
}

enum status conf_token(const struct conf *conf, char out[CONF_TOKEN_BYTES])
{
    const char *token = conf_text(conf, CONF_JOB_TOKEN),
               *file = conf_text(conf, CONF_JOB_TOKEN_FILE);
    TRY(conf_rules_check_missing(conf, false));
    if (token[0] != 0 && file[0] != 0)
        return FAIL(
            ST_BAD_SETTING, "JOB_TOKEN (%s) and JOB_TOKEN_FILE=%s (%s) are both set; leave one out",
            conf_source(conf, CONF_JOB_TOKEN), file, conf_source(conf, CONF_JOB_TOKEN_FILE));
    if (file[0] != 0)
        return read_file("JOB_TOKEN_FILE", file, out);
    text_copy(out, CONF_TOKEN_BYTES, token);
    return ST_OK;
}

/* is_secret — returns true for "NAME=value" of a row whose value is secret. */
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
