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

enum status conf_check_missing(const struct conf *conf, bool needs_data)
{
    const bool is_split = conf_i64(conf, CONF_N_NODES) > 1;
    const bool has_token = conf_text(conf, CONF_JOB_TOKEN)[0] != 0 ||
                           conf_text(conf, CONF_JOB_TOKEN_FILE)[0] != 0,
               has_data = conf_text(conf, CONF_DATA)[0] != 0 || conf_i64(conf, CONF_NODE_ID) > 0;
    const struct {
        bool is_missing;
        const char *name, *what;
    } rows[] = {
        {is_split && !conf_is_set(conf, CONF_MASTER_ADDR), "MASTER_ADDR",
         "the address of node 0, the same on every node"},
        {is_split && !has_token, "JOB_TOKEN or JOB_TOKEN_FILE",
         "a secret of at least 16 bytes, the same on every node (openssl rand -hex 32 makes one); "
         "JOB_TOKEN=none lets every machine join that reaches MASTER_PORT"},
        {needs_data && !has_data, "DATA",
         "name what to train on, such as DATA=book.txt (text, .jsonl, token files, a folder, an "
         "address; `convoy help DATA`); DATA=synthetic trains on random tokens, to try a machine"},
        {is_split && !conf_is_set(conf, CONF_NODE_ID), "NODE_ID",
         "the number of this node, 0 if it is not set"},
    };
    struct text list = {.limit = 900};
    int n = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].is_missing ||
            (i == 3 && n == 0)) /* NODE_ID has a default, which may be meant */
            continue;
        text_add(&list, "%s%s is not set: %s", n > 0 ? "; " : "", rows[i].name, rows[i].what);
        n++;
    }
    enum status st = n == 0 ? ST_OK
                     : is_split
                         ? FAIL(ST_BAD_SETTING, "N_NODES=%s (%s) needs more settings. %s",
                                conf_text(conf, CONF_N_NODES), conf_source(conf, CONF_N_NODES),
                                list.data != NULL ? list.data : "")
                         : FAIL(ST_BAD_SETTING, "%s", list.data != NULL ? list.data : "");
    text_free(&list);
    return st;
}

enum status conf_token(const struct conf *conf, char *out, size_t cap)
{
    const char *token = conf_text(conf, CONF_JOB_TOKEN),
               *file = conf_text(conf, CONF_JOB_TOKEN_FILE);
    TRY(conf_check_missing(conf, false));
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
