/* conf_token — where the secret comes from, what is refused, and that it is visible nowhere
 * else; what nodes must agree on. */
#include "harness.h"

#include <grp.h>

#include "base/json.h"
#include "conf/conf.h"
#include "conf/conf_row.h"

#define SECRET "correct horse battery staple"

/* a user without any rights */
#define OTHER_USER 65534
#define OTHER_GROUP 4242

static struct conf *opened(char **words, char **environment)
{
    struct conf *conf = NULL;
    int argc = 0;
    while (words[argc] != NULL)
        argc++;
    assert_int_equal(conf_open(argc, words, environment, &conf), ST_OK);
    return conf;
}

/* token_of — conf_token with N_NODES=2 and these words; the status, and the token. */
static enum status token_of(char *const *more, char **environment, char token[CONF_TOKEN_BYTES])
{
    char *words[8] = {"N_NODES=2"};
    for (int i = 0; more[i] != NULL; i++)
        words[i + 1] = more[i];
    struct conf *conf = opened(words, environment);
    enum status st = conf_token(conf, token);
    conf_close(conf);
    return st;
}

TEST(where_it_comes_from)
{
    char token[CONF_TOKEN_BYTES], *with[] = {"JOB_TOKEN=" SECRET, NULL}, *without[] = {NULL};
    assert_int_equal(token_of((char *[]){"MASTER_ADDR=n0", NULL}, with, token), ST_OK);
    assert_string_equal(token, SECRET);
    assert_int_equal(token_of((char *[]){"MASTER_ADDR=n0", "JOB_TOKEN=none", NULL}, with, token),
                     ST_OK);
    assert_string_equal(token, "none");
    assert_int_equal(token_of((char *[]){NULL}, with, token), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(),
                           "N_NODES=2 (argument) needs more settings. MASTER_ADDR is not set: "));
    assert_int_equal(token_of((char *[]){"MASTER_ADDR=n0", NULL}, without, token), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "JOB_TOKEN or JOB_TOKEN_FILE is not set: a secret"));
    assert_null(strstr(status_message(), "MASTER_ADDR is"));
    assert_int_equal(token_of((char *[]){"MASTER_ADDR=n0", "JOB_TOKEN_FILE=x", NULL}, with, token),
                     ST_BAD_SETTING);
    assert_null(strstr(status_message(), SECRET));
}

/* missing_of — the names of what conf_rules_check_missing reports, in its order. */
static const char *missing_of(char **words, char **environment, bool needs_data)
{
    static const char *const names[] = {"MASTER_ADDR", "JOB_TOKEN or JOB_TOKEN_FILE", "DATA",
                                        "NODE_ID"};
    static char out[128];
    char sentence[80];
    struct conf *conf = opened(words, environment);
    enum status st = conf_rules_check_missing(conf, needs_data);
    conf_close(conf);
    out[0] = 0;
    for (size_t i = 0; st != ST_OK && i < 4; i++) {
        snprintf(sentence, sizeof sentence, "%s is not set: ", names[i]);
        if (strstr(status_message(), sentence) != NULL)
            snprintf(out + strlen(out), sizeof out - strlen(out), " %s", names[i]);
    }
    assert_true(st == ST_OK || st == ST_BAD_SETTING);
    assert_int_equal(out[0] != 0, st != ST_OK);
    return out;
}

TEST(all_that_is_missing_is_named_at_once)
{
    char *none[] = {NULL}, *with[] = {"JOB_TOKEN=" SECRET, NULL}, *two[] = {"N_NODES=2", NULL},
         *first[] = {"N_NODES=2", "NODE_ID=0", "MASTER_ADDR=n0", NULL},
         *second[] = {"N_NODES=2", "NODE_ID=1", "MASTER_ADDR=n0", NULL},
         *whole[] = {"N_NODES=2", "MASTER_ADDR=n0", "DATA=x", NULL};
    assert_string_equal(missing_of(two, none, true),
                        " MASTER_ADDR JOB_TOKEN or JOB_TOKEN_FILE DATA NODE_ID");
    assert_string_equal(missing_of(two, none, false),
                        " MASTER_ADDR JOB_TOKEN or JOB_TOKEN_FILE NODE_ID");
    assert_string_equal(missing_of(first, none, true), " JOB_TOKEN or JOB_TOKEN_FILE DATA");
    assert_string_equal(missing_of(second, none, true), " JOB_TOKEN or JOB_TOKEN_FILE");
    assert_string_equal(missing_of(second, with, true), ""); /* it takes node 0's data */
    assert_string_equal(missing_of(whole, with, true), "");  /* NODE_ID 0 may be meant */
    assert_string_equal(missing_of(none, none, true), " DATA");
    assert_string_equal(missing_of(none, none, false), "");
}

TEST(too_short_is_refused_without_showing_it)
{
    struct conf *conf = NULL;
    char *with[] = {"JOB_TOKEN=fifteen-bytes-.", NULL};
    assert_int_equal(conf_open(0, NULL, with, &conf), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "is too short to be a secret"));
    assert_null(strstr(status_message(), "fifteen"));
}

/* What a person types, and what a program draws. */
TEST(what_is_easily_guessed_is_refused)
{
    static const char *const weak[] = {
        "aaaaaaaaaaaaaaaa",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "0123456789abcdef",
        "fedcba9876543210fedcba9876543210",
        "abcdefghijklmnopqrstuvwxyz0123456789",
        "qwertyuiopasdfghjklzxcvbnm",
        "passwordpassword",
        "passwordpasswordpasswordpassword",
        "administratorpassword",
        "correcthorse1234",
        "convoy-job-token",
        "12345678901234567890",
        "2026-11-28-2026-11-28",
        "abababababababababababababababab",
        "this is a secret",
        "Password1Password1",
    };
    static const char *const strong[] = {
        "a-secret-for-this-case",
        "a-secret-for-these-tests-only",
        SECRET,
        "6f1ed002ab5595859014ebf0951522d9",
        "123e4567-e89b-42d3-a456-426614174000",
        "fX3mQ0vKpZ7tLw2sYb9RcA",
        "ZG9ub3R1c2V0aGlza2V5IQ==x9",
    };
    for (size_t i = 0; i < sizeof weak / sizeof weak[0]; i++) {
        char word[128], *with[] = {word, NULL};
        struct conf *conf = NULL;
        snprintf(word, sizeof word, "JOB_TOKEN=%s", weak[i]);
        if (conf_open(0, NULL, with, &conf) != ST_BAD_SETTING)
            fail_msg("%s is accepted", weak[i]);
        assert_non_null(
            strstr(status_message(), "JOB_TOKEN=… (environment) is too easily guessed"));
        assert_non_null(strstr(status_message(), "openssl rand -hex 32"));
        assert_null(strstr(status_message(), weak[i]));
    }
    for (size_t i = 0; i < sizeof strong / sizeof strong[0]; i++)
        if (conf_token_fault(strong[i]) != NULL)
            fail_msg("%s is refused: %s", strong[i], conf_token_fault(strong[i]));
    /* openssl rand -hex 16, many times */
    uint64_t seed = 1;
    for (int i = 0; i < 20000; i++) {
        char hex[33];
        for (int k = 0; k < 32; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            hex[k] = "0123456789abcdef"[seed >> 60];
        }
        hex[32] = 0;
        if (conf_token_fault(hex) != NULL)
            fail_msg("%s is refused: %s", hex, conf_token_fault(hex));
    }
}

static enum status token_of_file(const char *bytes, size_t n, mode_t mode,
                                 char token[CONF_TOKEN_BYTES])
{
    char path[600], word[700];
    snprintf(path, sizeof path, "%s/token", harness_tmpdir());
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, bytes, n), n);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
    snprintf(word, sizeof word, "JOB_TOKEN_FILE=%s", path);
    return token_of((char *[]){"MASTER_ADDR=n0", word, NULL}, (char *[]){NULL}, token);
}

TEST(files)
{
    char token[CONF_TOKEN_BYTES], large[2000];
    for (size_t i = 0; i < sizeof large; i++)
        large[i] = (char)('!' + i * i % 89);
    assert_int_equal(token_of_file(SECRET "\n", strlen(SECRET) + 1, 0600, token), ST_OK);
    assert_string_equal(token, SECRET);
    assert_int_equal(token_of_file(SECRET, strlen(SECRET), 0400, token), ST_OK);
    static const mode_t modes[] = {0640, 0604, 0620, 0602, 0610, 0644};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        assert_int_equal(token_of_file(SECRET, strlen(SECRET), modes[i], token), ST_BAD_SETTING);
        assert_non_null(strstr(status_message(), "can be read or changed by other users"));
    }
    assert_int_equal(token_of_file("short", 5, 0600, token), ST_BAD_SETTING);
    assert_null(strstr(status_message(), "short"));
    assert_int_equal(token_of_file("", 0, 0600, token), ST_BAD_SETTING);
    assert_int_equal(token_of_file("passwordpassword", 16, 0600, token), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "is too easily guessed"));
    assert_null(strstr(status_message(), "passwordpassword"));
    assert_int_equal(token_of_file(SECRET "\n" SECRET, 57, 0600, token), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "one line of text"));
    assert_int_equal(token_of_file("0123456789abcdef\0hidden", 23, 0600, token), ST_BAD_SETTING);
    assert_int_equal(token_of_file(large, 1024, 0600, token), ST_OK);
    assert_int_equal(token_of_file(large, 1025, 0600, token), ST_BAD_SETTING);
    char *folder[] = {"MASTER_ADDR=n0", "JOB_TOKEN_FILE=/tmp", NULL},
         *nothing[] = {"MASTER_ADDR=n0", "JOB_TOKEN_FILE=/no", NULL};
    assert_int_equal(token_of(folder, (char *[]){NULL}, token), ST_BAD_SETTING);
    assert_int_equal(token_of(nothing, (char *[]){NULL}, token), ST_NO_INPUT);
}

/* status_as — token_of_file in a process of another user, of this group; the file is owned by
 * `owner`. -1: another message than `text`. */
static int status_as(uid_t owner, mode_t mode, const char *text)
{
    char token[CONF_TOKEN_BYTES], path[600], word[700];
    assert_int_equal(token_of_file(SECRET, strlen(SECRET), 0600, token), ST_OK);
    snprintf(path, sizeof path, "%s/token", harness_tmpdir());
    snprintf(word, sizeof word, "JOB_TOKEN_FILE=%s", path);
    assert_int_equal(chown(path, owner, OTHER_GROUP), 0);
    assert_int_equal(chmod(path, mode), 0);
    assert_int_equal(chmod(harness_tmpdir(), 0755), 0);
    pid_t pid = fork();
    if (pid == 0) {
        const gid_t groups[] = {OTHER_GROUP};
        if (setgroups(1, groups) != 0 || setgid(OTHER_USER) != 0 || setuid(OTHER_USER) != 0)
            _exit(99);
        enum status st =
            token_of((char *[]){"MASTER_ADDR=n0", word, NULL}, (char *[]){NULL}, token);
        _exit(st == ST_OK || strstr(status_message(), text) != NULL ? status_exit_code(st) : 98);
    }
    int ended;
    assert_int_equal(waitpid(pid, &ended, 0), pid);
    return WEXITSTATUS(ended);
}

/* Root may hand a secret to a group, as Kubernetes does with fsGroup; another user may not. */
TEST(owners)
{
    if (geteuid() != 0)
        HARNESS_SKIP("only root can give a file to another user");
    char token[CONF_TOKEN_BYTES], path[600], word[700];
    assert_int_equal(status_as(0, 0440, ""), 0);
    assert_int_equal(status_as(OTHER_USER, 0400, ""), 0);
    assert_int_equal(status_as(0, 0460, "can be read or changed by other users"), 78);
    assert_int_equal(status_as(0, 0444, "can be read or changed by other users"), 78);
    assert_int_equal(status_as(OTHER_USER, 0440, "can be read or changed by other users"), 78);
    assert_int_equal(status_as(1, 0440, "belongs to user 1, not to root or"), 78);
    assert_int_equal(status_as(0, 0400, "Permission denied"), 66);
    /* for root, too */
    snprintf(path, sizeof path, "%s/token", harness_tmpdir());
    snprintf(word, sizeof word, "JOB_TOKEN_FILE=%s", path);
    assert_int_equal(chown(path, 1, 1), 0);
    assert_int_equal(token_of((char *[]){"MASTER_ADDR=n0", word, NULL}, (char *[]){NULL}, token),
                     ST_BAD_SETTING);
    assert_non_null(strstr(
        status_message(),
        "belongs to user 1, not to root or the user of this program, 0; chown it to user 0"));
}

/* STATUS_TOKEN_FILE is read as JOB_TOKEN_FILE is, with one node, too. */
TEST(token_of_the_page)
{
    char token[CONF_TOKEN_BYTES], path[600], word[700], *none[] = {NULL}, *words[] = {word, NULL};
    struct conf *conf = opened(none, none);
    assert_int_equal(conf_token_page(conf, token), ST_OK);
    assert_string_equal(token, "");
    conf_close(conf);
    assert_int_equal(token_of_file(SECRET, strlen(SECRET), 0600, token), ST_OK);
    snprintf(path, sizeof path, "%s/token", harness_tmpdir());
    snprintf(word, sizeof word, "STATUS_TOKEN_FILE=%s", path);
    conf = opened(words, none);
    assert_int_equal(conf_token_page(conf, token), ST_OK);
    assert_string_equal(token, SECRET);
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(conf_token_page(conf, token), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "STATUS_TOKEN_FILE="));
    conf_close(conf);
}

TEST(nobody_sees_it)
{
    char word[] = "JOB_TOKEN=" SECRET, *environment[] = {"A=1", word, "JOB_TOKEN_FILES=2", NULL},
         *none[] = {NULL};
    struct conf *conf = opened(none, environment);
    struct text out = {0};
    conf_write_table(conf, &out);
    conf_write_json(conf, &out);
    conf_write_agree(conf, &out);
    assert_null(strstr(out.data, SECRET));
    assert_non_null(strstr(out.data, "(set, not shown)"));
    conf_token_forget(environment);
    assert_string_equal(environment[0], "A=1");
    assert_string_equal(environment[1], "JOB_TOKEN_FILES=2");
    assert_null(environment[2]);
    for (size_t i = 0; i < sizeof word; i++)
        assert_int_equal(word[i], 0);
    assert_string_equal(conf_text(conf, CONF_JOB_TOKEN), SECRET); /* the program's own */
    conf_close(conf);
    text_free(&out);
}

/* Nodes compare values, not spellings; settings that may differ are left out. */
TEST(agreed)
{
    char *a_words[] = {"LR=0.001",  "BACKEND=ucc",  "PEER_TIMEOUT=6000ms",
                       "NODE_ID=0", "CACHE_DIR=/a", NULL};
    char *b_words[] = {"LR=1e-3",      "BACKEND=ucx",   "PEER_TIMEOUT=6s",
                       "CACHE_DIR=/b", "STATUS_PORT=1", NULL};
    char *c_words[] = {"LR=1.1e-3", NULL};
    struct text out[3] = {{0}};
    char **words[] = {a_words, b_words, c_words};
    for (int i = 0; i < 3; i++) {
        struct conf *conf = opened(words[i], (char *[]){NULL});
        text_add(&out[i], "{");
        conf_write_agree(conf, &out[i]);
        text_add(&out[i], "\"end\":1}");
        conf_close(conf);
    }
    assert_string_equal(out[0].data, out[1].data);
    assert_string_not_equal(out[0].data, out[2].data);
    cJSON *root = NULL;
    assert_int_equal(json_parse(out[0].data, out[0].len, "agreed", &root), ST_OK);
    assert_non_null(cJSON_GetObjectItemCaseSensitive(root, "GLOBAL_BATCH"));
    assert_null(cJSON_GetObjectItemCaseSensitive(root, "CACHE_DIR"));
    assert_null(cJSON_GetObjectItemCaseSensitive(root, "JOB_TOKEN"));
    cJSON_Delete(root);
    for (int i = 0; i < 3; i++)
        text_free(&out[i]);
}

HARNESS_RUN_ALL()
