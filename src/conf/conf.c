/* conf — turns words into checked values: the table of rows, a strict parser for each kind, and the
 * order of sources.
 *
 * Every refusal names the setting, the value, its source, the allowed values and the nearest
 * allowed word. It must not know launchers' variables (launcher.c), relations between settings
 * (conf_rules.c) or how settings are printed (conf_write.c). The parser of values is a pure
 * function of their bytes; its fuzz entry is at the foot. */
#include "conf/conf.h"

#include <arpa/inet.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/secure.h"
#include "conf/conf_row.h"
#include "conf/launcher.h"

const struct conf_row conf_rows[CONF_N] = {
#define CONF_ROW(name, kind, initial, min, max, words, group, agree, result, commands, why, help) \
    [CONF_##name] = {#name, CONF_KIND_##kind,     initial,  min, max, words, CONF_GROUP_##group,  \
                     agree, CONF_RESULT_##result, commands, why, help},
#include "conf/conf.def"
#include "conf/conf_hooks.def"
#undef CONF_ROW
};

#define LINGER_TEXT "60s" /* a few intervals of a usual metrics scrape */
#define THREADS_NAME "OMP_NUM_THREADS"
#define THREADS_MAX 4096
#define SHOWN_MAX 96 /* most bytes of a value that a message repeats */

/* ---- clauses of messages ---- */

const char *conf_clean(const char *text, char *out, size_t cap)
{
    size_t n = 0;
    while (text[n] != 0 && n + 4 < cap) {
        unsigned char c = (unsigned char)text[n];
        out[n++] = c < 0x20 || c == 0x7f ? '?' : (char)c;
    }
    out[n] = 0;
    if (text[n] != 0) {
        while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80)
            n--; /* never cut a UTF-8 character before the mark */
        text_copy(out + n, cap - n, "…");
    }
    return out;
}

/* choice_name — writes the i-th word of "a|b|c"; false: there is none. */
static bool choice_name(const char *words, int i, char *out, size_t cap)
{
    for (; i > 0; i--) {
        words = strchr(words, '|');
        if (words == NULL)
            return false;
        words++;
    }
    return text_format(out, cap, "%.*s", (int)strcspn(words, "|"), words);
}

bool conf_word(const struct conf_row *row, int i, char *out, size_t cap)
{
    const bool is_word = choice_name(row->words, i, out, cap);
    if (is_word)
        out[strcspn(out, "[")] = 0;
    return is_word;
}

const char *conf_allowed(const struct conf_row *row, char *out, size_t cap)
{
    char low[32], high[32];
    /* all digits of a whole number; a fraction as the user wrote it */
    int digits = row->kind == CONF_KIND_REAL ? 15 : 16;
    switch (row->kind) {
    case CONF_KIND_INT:
    case CONF_KIND_REAL:
        if (row->min == row->max)
            text_copy(out, cap, text_f64(row->min).text);
        else
            text_format(out, cap, "%.*g to %.*g%s%s", digits, row->min, digits, row->max,
                        row->words[0] != 0 ? " " : "", row->words);
        break;
    case CONF_KIND_DURATION:
        text_format(out, cap, "%s to %s",
                    row->min == 0 ? "0" : text_format_span(low, sizeof low, (int64_t)row->min),
                    text_format_span(high, sizeof high, (int64_t)row->max));
        break;
    case CONF_KIND_BOOL:
        text_copy(out, cap, "1 0 true false yes no on off");
        break;
    case CONF_KIND_PRESENT:
        text_copy(out, cap, "anything");
        break;
    case CONF_KIND_CHOICE: {
        size_t used = 0;
        for (int i = 0; choice_name(row->words, i, low, sizeof low); i++) {
            text_format(out + used, cap - used, "%s%s", i > 0 ? ", " : "", low);
            used += strlen(out + used);
        }
        break;
    }
    case CONF_KIND_HOST:
        text_copy(out, cap,
                  row == &conf_rows[CONF_DATA_ADDR]
                      ? "a name, an address or a network interface, without a port"
                  : row == &conf_rows[CONF_STATUS_ADDR]
                      ? "an IPv4 or an IPv6 address or localhost, without a port"
                      : "a name, an IPv4 or an IPv6 address, without a port");
        break;
    case CONF_KIND_TEXT:
    case CONF_KIND_MULTILINE:
        text_format(out, cap, "%.0f to %.0f bytes of text", row->min, row->max);
        break;
    case CONF_KIND_FAULT:
        text_copy(
            out, cap,
            "kill@step=N, stall@step=N, nan@step=N, slow@step=N, flip@step=N, "
            "gradient@step=N, spike@step=N, enospc@step=N (N from 1) or flip@check, each with "
            "or without :rank=R");
        break;
    case CONF_KIND_SECRET:
        text_format(out, cap, "16 to %.0f bytes of text, or none (openssl rand -hex 32 makes one)",
                    row->max);
        break;
    }
    return out;
}

enum status conf_refuse(const struct conf_row *row, const char *text, const char *source,
                        const char *what)
{
    char shown[SHOWN_MAX], allowed[256];
    const char *hint = text_starts(text, "tcp://") || text_starts(text, "udp://")
                           ? "; Kubernetes sets such a value for a Service of that name: "
                             "enableServiceLinks: false prevents it"
                           : "";
    return FAIL(ST_BAD_SETTING, "%s=%s (%s) %s; allowed: %s%s%s%s", row->name,
                row->kind == CONF_KIND_SECRET ? "…" : conf_clean(text, shown, sizeof shown), source,
                what, conf_allowed(row, allowed, sizeof allowed), row->why[0] != 0 ? "; " : "",
                row->why, hint);
}

const char *conf_removed_remedy(const char *name, size_t name_bytes, const char *value)
{
    static const struct {
        const char *name, *value, *remedy;
    } rows[] = {
#define CONF_REMOVED(name, value, remedy) {#name, value, remedy},
#include "conf/conf_removed.def"
#undef CONF_REMOVED
    };
    char word[64];
    text_format(word, sizeof word, "%.*s", (int)strcspn(value, ":"), value);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strlen(rows[i].name) == name_bytes && strncmp(rows[i].name, name, name_bytes) == 0 &&
            (rows[i].value[0] == 0 || fnmatch(rows[i].value, word, 0) == 0))
            return rows[i].remedy;
    return NULL;
}

/* refuse_removed — refuses NAME=VALUE with its remedy if an earlier version had this setting. */
static enum status refuse_removed(const char *word, size_t name_bytes, const char *source)
{
    char shown[SHOWN_MAX];
    const char *remedy = conf_removed_remedy(word, name_bytes, "");
    if (remedy == NULL)
        return ST_OK;
    return FAIL(ST_BAD_SETTING, "%s (%s): this setting was removed; %s",
                conf_clean(word, shown, sizeof shown), source, remedy);
}

/* refuse_removed_value — refuses a value that the setting had in an earlier version. */
static enum status refuse_removed_value(const struct conf_row *row, const char *text,
                                        const char *source)
{
    char shown[SHOWN_MAX];
    const char *remedy = conf_removed_remedy(row->name, strlen(row->name), text);
    if (remedy == NULL)
        return ST_OK;
    return FAIL(ST_BAD_SETTING, "%s=%s (%s): this value was removed; %s", row->name,
                conf_clean(text, shown, sizeof shown), source, remedy);
}

/* ---- one parser for each kind: from text to value ---- */

/* translate_word — returns the value that a word of another program stands for; NULL: none. */
static const char *translate_word(const char *setting, const char *word)
{
    static const struct {
        const char *setting, *word, *value;
    } rows[] = {
        {"DEVICE", "gpu", "cuda"},         {"DEVICE", "nvidia", "cuda"},
        {"DEVICE", "amd", "hip"},          {"DEVICE", "rocm", "hip"},
        {"PRECISION", "float32", "fp32"},  {"PRECISION", "f32", "fp32"},
        {"PRECISION", "float16", "fp16"},  {"PRECISION", "half", "fp16"},
        {"PRECISION", "bfloat16", "bf16"}, {"SHARD", "ddp", "none"},
        {"SHARD", "zero1", "optimizer"},   {"SHARD", "zero2", "gradients"},
        {"SHARD", "zero3", "full"},        {"SHARD", "fsdp", "full"},
        {"LOG_LEVEL", "warning", "warn"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].setting, setting) == 0 && strcasecmp(rows[i].word, word) == 0)
            return rows[i].value;
    return NULL;
}

/* set_choice — parses a choice. A word with [:N] in the row's list may be followed by a number. */
static enum status set_choice(struct conf_value *value, const struct conf_row *row,
                              const char *given, const char *source)
{
    char text[64], name[32], nearest[32] = "", what[64] = "is not known";
    int best = 3; /* a word at a larger distance is no typo */
    if (!text_copy(text, sizeof text, given))
        return conf_refuse(row, given, source, what);
    char *colon = row->max > 0 ? strchr(text, ':') : NULL;
    value->count = 0;
    if (colon != NULL &&
        text_parse_i64(colon + 1, (int64_t)row->min, (int64_t)row->max, &value->count) != TEXT_OK)
        return conf_refuse(row, given, source, "has no allowed number after the colon");
    if (colon != NULL)
        *colon = 0;
    for (int i = 0; choice_name(row->words, i, name, sizeof name); i++) {
        size_t n = strcspn(name, "[");
        bool fits = name[n] != 0 || value->count == 0;
        name[n] = 0;
        if (strcmp(name, text) == 0) {
            value->f64 = (double)(value->i64 = i);
            return fits ? ST_OK
                        : conf_refuse(row, given, source, "allows no number after the colon");
        }
        int distance = text_distance(name, text);
        if (distance < best && distance < (int)strlen(name)) {
            best = distance;
            text_copy(nearest, sizeof nearest, name);
        }
    }
    TRY(refuse_removed_value(row, given, source));
    const char *value_meant = translate_word(row->name, text);
    if (value_meant != NULL)
        text_copy(nearest, sizeof nearest, value_meant);
    if (nearest[0] != 0)
        text_format(what, sizeof what, "is not known, did you mean %s", nearest);
    return conf_refuse(row, given, source, what);
}

static enum status set_text(const struct conf_row *row, const char *text, const char *source)
{
    size_t n = strnlen(text, (size_t)row->max + 1);
    if (n > (size_t)row->max)
        return conf_refuse(row, text, source, "is too long");
    if (n < (size_t)row->min)
        return conf_refuse(row, text, source, "is empty");
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        bool is_fine = c >= 0x20 && c != 0x7f;
        if (row->kind == CONF_KIND_MULTILINE)
            is_fine = is_fine || c == '\n' || c == '\t' || c == '\r';
        if (!is_fine)
            return conf_refuse(row, text, source, "holds a control character");
    }
    return ST_OK;
}

/* has_port — returns true for "host:1" or "[::1]:1". The name of an interface in DATA_ADDR may have
 * a colon, so there only a colon after an IPv4 address counts. */
static bool has_port(const struct conf_row *row, const char *text)
{
    const char *colon = strchr(text, ':'), *end = strchr(text, ']');
    char before[64];
    struct in_addr four;
    if (text[0] == '[')
        return end != NULL && end[1] == ':';
    if (colon == NULL || strchr(colon + 1, ':') != NULL)
        return false;
    text_format(before, sizeof before, "%.*s", (int)(colon - text), text);
    return row != &conf_rows[CONF_DATA_ADDR] || inet_pton(AF_INET, before, &four) == 1;
}

/* set_host — checks a name or an address; an IPv6 address may be in brackets, as in URLs. DATA_ADDR
 * may also be a network interface. */
static enum status set_host(const struct conf_row *row, const char *text, const char *source)
{
    const bool is_data = row == &conf_rows[CONF_DATA_ADDR], has_brackets = text[0] == '[';
    const size_t n = strlen(text);
    struct in6_addr six;
    char bare[64];
    TRY(set_text(row, text, source));
    if (!is_data && strpbrk(text, " /@?#\"'") != NULL)
        return conf_refuse(row, text, source, "is neither a name nor an address");
    if (has_port(row, text))
        return conf_refuse(row, text, source,
                           is_data ? "has a port, but the system chooses the port"
                           : row == &conf_rows[CONF_MASTER_ADDR]
                               ? "has a port, which belongs in MASTER_PORT"
                               : "has a port, which belongs in STATUS_PORT");
    if (!has_brackets && (is_data || strpbrk(text, ":]") == NULL))
        return ST_OK;
    text_format(bare, sizeof bare, "%.*s",
                (int)strcspn(text + has_brackets, has_brackets ? "%]" : "%"), text + has_brackets);
    if ((has_brackets && strcspn(text, "]") != n - 1) || inet_pton(AF_INET6, bare, &six) != 1)
        return conf_refuse(row, text, source, "is not an IPv6 address");
    return ST_OK;
}

static enum status set_parsed(struct conf *conf, enum conf_key key, const char *text,
                              enum conf_origin origin, const char *source)
{
    const struct conf_row *row = &conf_rows[key];
    struct conf_value *value = &conf->values[key];
    bool is_on = text[0] != 0;
    switch (row->kind) {
    case CONF_KIND_INT:
    case CONF_KIND_REAL:
    case CONF_KIND_DURATION: {
        enum text_result result = TEXT_NOT_A_NUMBER;
        const char *what = "is not a number";
        if (row->kind == CONF_KIND_INT) {
            what = "is not a whole number";
            result = (row == &conf_rows[CONF_TOKENS] ? text_parse_count : text_parse_i64)(
                text, (int64_t)row->min, (int64_t)row->max, &value->i64);
            value->f64 = (double)value->i64;
        } else if (row->kind == CONF_KIND_REAL) {
            result = text_parse_f64(text, row->min, row->max, &value->f64);
        } else {
            what = "is not a time such as 10s, 1.5m or 250ms";
            result = text_parse_duration(text, (int64_t)row->min, (int64_t)row->max, &value->i64);
            value->f64 = (double)value->i64;
        }
        if (result == TEXT_OK)
            return ST_OK;
        TRY(refuse_removed_value(row, text, source));
        return conf_refuse(row, text, source,
                           result == TEXT_OUT_OF_RANGE ? "is out of range" : what);
    }
    case CONF_KIND_CHOICE:
        return set_choice(value, row, text, source);
    case CONF_KIND_HOST:
        return set_host(row, text, source);
    case CONF_KIND_TEXT:
    case CONF_KIND_MULTILINE:
        return set_text(row, text, source);
    case CONF_KIND_FAULT:
        return conf_fault_set(conf, row, text, source);
    case CONF_KIND_SECRET: {
        if (text[0] == 0 || strcmp(text, "none") == 0)
            return ST_OK;
        if (origin == CONF_ORIGIN_ARGUMENT)
            return conf_refuse(row, text, source,
                               "would be visible to all users of this machine (ps); set it in the "
                               "environment or in a file");
        TRY(set_text(row, text, source));
        const char *fault = conf_token_fault(text);
        return fault != NULL ? conf_refuse(row, text, source, fault) : ST_OK;
    }
    case CONF_KIND_BOOL:
        if (!text_parse_bool(text, &is_on))
            return conf_refuse(row, text, source, "is neither yes nor no");
        break;
    case CONF_KIND_PRESENT:
        break;
    }
    value->i64 = is_on;
    value->f64 = is_on;
    return ST_OK;
}

void conf_drop(struct conf_value *value, enum conf_key key)
{
    if (conf_rows[key].kind == CONF_KIND_SECRET)
        secure_free(value->text);
    else
        free(value->text);
    free(value->found);
    free(value->revision);
}

enum status conf_set(struct conf *conf, enum conf_key key, const char *text,
                     enum conf_origin origin, const char *source)
{
    struct conf_value *value = &conf->values[key];
    TRY(set_parsed(conf, key, text, origin, source));
    if (conf_rows[key].kind == CONF_KIND_BOOL)
        text = value->i64 != 0 ? "1" : "0";
    bool is_secret = conf_rows[key].kind == CONF_KIND_SECRET;
    const bool has_brackets = conf_rows[key].kind == CONF_KIND_HOST && text[0] == '[';
    char *copy = is_secret ? secure_strdup(text) : memory_text(text + has_brackets);
    if (copy == NULL)
        return FAIL(ST_RETRY, "out of memory: %zu bytes for %s", strlen(text) + 1,
                    conf_rows[key].name);
    if (has_brackets)
        copy[strlen(copy) - 1] = 0;
    conf_drop(value, key);
    value->text = copy;
    value->origin = origin;
    value->source = source;
    return ST_OK;
}

/* ---- sources: argument, environment, launcher, default ---- */

/* row_of — returns the row whose name is the first n bytes of name; CONF_N: none. */
static enum conf_key row_of(const char *name, size_t n)
{
    for (int key = 0; key < CONF_N; key++)
        if (strncmp(conf_rows[key].name, name, n) == 0 && conf_rows[key].name[n] == 0)
            return (enum conf_key)key;
    return CONF_N;
}

/* refuse_argument — fails with the nearest setting. next: the following word, or NULL. */
static enum status refuse_argument(const char *word, const char *next)
{
    char shown[SHOWN_MAX], name[64], meant[2 * SHOWN_MAX];
    conf_clean(word, shown, sizeof shown);
    size_t n = strcspn(word, "=");
    if ((word[0] == '-' || word[n] == 0) && conf_hint_argument(word, next, meant, sizeof meant))
        return FAIL(ST_USAGE, "argument %.*s: write a setting as %s", (int)(n < 64 ? n : 64), shown,
                    meant);
    if (word[n] == 0)
        return FAIL(
            ST_USAGE,
            "argument %s is not of the form NAME=VALUE; `convoy help` lists commands and topics",
            shown);
    text_format(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), word);
    const char *nearest = n < sizeof name ? conf_hint_nearest(name) : NULL;
    if (nearest != NULL && conf_rows[row_of(nearest, strlen(nearest))].kind == CONF_KIND_SECRET)
        text_copy(shown, sizeof shown, name); /* the value may be a secret */
    if (nearest != NULL)
        return FAIL(ST_USAGE, "argument %s: no setting has this name; did you mean %s?", shown,
                    nearest);
    return FAIL(ST_USAGE,
                "argument %s: no setting has this name; `convoy help settings` lists them", shown);
}

static enum status read_arguments(struct conf *conf, int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        size_t n = strcspn(argv[i], "=");
        enum conf_key key = argv[i][n] == '=' ? row_of(argv[i], n) : CONF_N;
        if (argv[i][n] == '=')
            TRY(refuse_removed(argv[i], n, "argument"));
        if (key == CONF_N)
            return refuse_argument(argv[i], i + 1 < argc ? argv[i + 1] : NULL);
        TRY(conf_set(conf, key, argv[i] + n + 1, CONF_ORIGIN_ARGUMENT, "argument"));
    }
    return ST_OK;
}

static enum status read_environment(struct conf *conf, char **environment)
{
    for (; *environment != NULL; environment++) {
        size_t n = strcspn(*environment, "=");
        enum conf_key key = (*environment)[n] == '=' && (*environment)[n + 1] != 0
                                ? row_of(*environment, n)
                                : CONF_N;
        if ((*environment)[n] == '=' && (*environment)[n + 1] != 0)
            TRY(refuse_removed(*environment, n, "environment"));
        /* If a name has several entries, the first one counts, as for getenv. */
        if (key == CONF_N || conf->values[key].text != NULL)
            continue;
        TRY(conf_set(conf, key, *environment + n + 1, CONF_ORIGIN_ENVIRONMENT, "environment"));
    }
    return ST_OK;
}

/* ---- settings that a command does not use ---- */

/* is_used — returns true if a command uses a setting. NULL: a job's command, which uses all
 * settings. */
static bool is_used(enum conf_key key, const char *command)
{
    return command == NULL || conf_row_is_of(key, "all") || conf_row_is_of(key, command);
}

/* note_unused — adds a value that differs from the default to the text for conf_log_unused. Only
 * arguments are added, and settings of workers and mesh, which users may expect to speed up a
 * command. */
static void note_unused(struct conf *conf, enum conf_key key)
{
    const struct conf_value *value = &conf->values[key];
    const struct conf_row *row = &conf_rows[key];
    char text[64];
    const size_t n = strlen(conf->unused);
    if ((value->origin == CONF_ORIGIN_ARGUMENT || row->result == CONF_RESULT_ROUNDING) &&
        strcmp(value->text, row->initial) != 0)
        text_format(conf->unused + n, sizeof conf->unused - n, "%s%s=%s (%s)", n > 0 ? ", " : "",
                    row->name, conf_clean(value->text, text, sizeof text), value->source);
}

void conf_log_unused(const struct conf *conf, const char *command)
{
    if (conf->unused[0] != 0)
        LOG_INFO("%s does not use %s", command, conf->unused);
}

static enum status read_launcher(struct conf *conf, const char *command, char **environment)
{
    static const enum conf_key keys[LAUNCHER_N] = {
        [LAUNCHER_NODE_ID] = CONF_NODE_ID,         [LAUNCHER_N_NODES] = CONF_N_NODES,
        [LAUNCHER_MASTER_ADDR] = CONF_MASTER_ADDR, [LAUNCHER_MASTER_PORT] = CONF_MASTER_PORT,
        [LAUNCHER_WORKERS] = CONF_N_GPU_EACH_NODE,
    };
    bool is_wanted[LAUNCHER_N];
    struct launcher_value said[LAUNCHER_N];
    for (int i = 0; i < LAUNCHER_N; i++)
        is_wanted[i] = conf->values[keys[i]].text == NULL && is_used(keys[i], command);
    TRY(launcher_read(environment, is_wanted, said));
    for (int i = 0; i < LAUNCHER_N; i++)
        if (said[i].name != NULL)
            TRY(conf_set(conf, keys[i], said[i].text, CONF_ORIGIN_LAUNCHER, said[i].name));
    return ST_OK;
}

/* default_cache_dir — returns $XDG_CACHE_HOME/convoy, else ~/.cache/convoy, else a folder of this
 * user in /tmp. */
static bool default_cache_dir(char **environment, char *out, size_t cap)
{
    const char *base = launcher_find(environment, "XDG_CACHE_HOME");
    if (base != NULL && base[0] == '/') /* XDG rule: a relative path is ignored */
        return text_format(out, cap, "%s/convoy", base);
    base = launcher_find(environment, "HOME");
    if (base != NULL && base[0] == '/' && strcmp(base, "/") != 0)
        return text_format(out, cap, "%s/.cache/convoy", base);
    return text_format(out, cap, "/tmp/convoy-cache-%u", (unsigned)getuid());
}

static enum status read_defaults(struct conf *conf, char **environment)
{
    char cache_dir[4096];
    const struct launcher_context context = launcher_context_here(environment);
    const char *name = launcher_context_name(&context);
    const bool has_nodes = conf->values[CONF_N_NODES].i64 > 1;
    /* LINGER_TEXT if nothing can be inspected after the process has ended, and no user waits for
     * the prompt. */
    if (conf->values[CONF_LINGER].text == NULL && name != NULL)
        TRY(conf_set(conf, CONF_LINGER, LINGER_TEXT, CONF_ORIGIN_DEFAULT, name));
    /* With several nodes and in a container, whose network controls access: all addresses.
     * Otherwise the row's default, 127.0.0.1. */
    if (conf->values[CONF_STATUS_ADDR].text == NULL &&
        (has_nodes || launcher_context_is_container(&context)))
        TRY(conf_set(conf, CONF_STATUS_ADDR, "0.0.0.0", CONF_ORIGIN_DEFAULT,
                     has_nodes ? "several nodes" : "container"));
    for (int key = 0; key < CONF_N; key++)
        if (conf->values[key].text == NULL)
            TRY(conf_set(conf, (enum conf_key)key, conf_rows[key].initial, CONF_ORIGIN_DEFAULT,
                         "default"));
    if (conf->values[CONF_CACHE_DIR].text[0] != 0)
        return ST_OK;
    if (!default_cache_dir(environment, cache_dir, sizeof cache_dir))
        return FAIL(
            ST_BAD_SETTING,
            "the cache folder under XDG_CACHE_HOME or HOME is over %zu bytes long; set CACHE_DIR",
            sizeof cache_dir - 1);
    return conf_set(conf, CONF_CACHE_DIR, cache_dir, CONF_ORIGIN_DEFAULT, "default");
}

/* read_threads — reads OMP_NUM_THREADS as OpenMP defines it: a number, or a list whose first number
 * counts here. */
static enum status read_threads(struct conf *conf, char **environment)
{
    const char *text = launcher_find(environment, THREADS_NAME);
    if (text == NULL)
        return ST_OK;
    char first[16], shown[SHOWN_MAX];
    int64_t n = 0;
    bool is_cut = !text_copy(first, sizeof first, text) && strchr(first, ',') == NULL;
    first[strcspn(first, ",")] = 0;
    if (is_cut || text_parse_i64(first, 1, THREADS_MAX, &n) != TEXT_OK)
        return FAIL(ST_BAD_SETTING,
                    "%s=%s (environment) is not a number of threads; allowed: 1 to %d, or a list "
                    "such as 4,2",
                    THREADS_NAME, conf_clean(text, shown, sizeof shown), THREADS_MAX);
    conf->threads = (int)n;
    return ST_OK;
}

/* check_nccl — refuses NCCL_COMM_ID. With an id from outside, every process that has it, or none,
 * could join the job's communication. */
static enum status check_nccl(const struct conf *conf, char **environment)
{
    int64_t backend = conf_i64(conf, CONF_BACKEND);
    const char *id = launcher_find(environment, "NCCL_COMM_ID");
    if (id == NULL || conf_ranks(conf) == 1 ||
        (backend != CONF_BACKEND_AUTO && backend != CONF_BACKEND_NCCL) ||
        conf_i64(conf, CONF_DEVICE) == CONF_DEVICE_CPU)
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "NCCL_COMM_ID=%.64s (environment) is refused: this job's workers make NCCL's id "
                "themselves and send it only to nodes that JOB_TOKEN has admitted; unset it",
                id);
}

enum status conf_open_for(const char *command, int argc, char **argv, char **environment,
                          struct conf **out)
{
    enum status st = ST_OK;
    struct conf *conf = memory_new(1, sizeof *conf);
    TRY_OR(read_arguments(conf, argc, argv), out_close);
    TRY_OR(read_environment(conf, environment), out_close);
    /* Drop the values of settings that the command does not use: the same environment often holds a
     * job's settings and runs other commands as well. This comes before defaults are filled in. */
    for (int key = 0; key < CONF_N; key++) {
        struct conf_value *value = &conf->values[key];
        if (value->text == NULL || is_used((enum conf_key)key, command))
            continue;
        note_unused(conf, (enum conf_key)key);
        if (key == CONF_FAULT) /* has parsed fields of its own */
            conf->fault = CONF_FAULT_NONE, conf->fault_rank = 0;
        conf_drop(value, (enum conf_key)key);
        *value = (struct conf_value){.text = NULL};
    }
    TRY_OR(read_launcher(conf, command, environment), out_close);
    TRY_OR(read_defaults(conf, environment), out_close);
    TRY_OR(read_threads(conf, environment), out_close);
    TRY_OR(conf_rules_check(conf), out_close);
    TRY_OR(check_nccl(conf, environment), out_close);
    *out = conf;
    return ST_OK;
out_close:
    conf_close(conf);
    return st;
}

enum status conf_set_workers(struct conf *conf, int workers_n, char **environment)
{
    char text[16];
    text_format(text, sizeof text, "%d", workers_n);
    conf->has_workers = true;
    if (workers_n != conf_i64(conf, CONF_N_GPU_EACH_NODE))
        TRY(conf_set(conf, CONF_N_GPU_EACH_NODE, text, CONF_ORIGIN_DEFAULT, "GPUs found"));
    TRY(conf_rules_check(conf));
    return check_nccl(conf, environment);
}

void conf_close(struct conf *conf)
{
    if (conf == NULL)
        return;
    for (int key = 0; key < CONF_N; key++)
        conf_drop(&conf->values[key], (enum conf_key)key);
    free(conf);
}

/* ---- reading ---- */

int64_t conf_i64(const struct conf *conf, enum conf_key key) { return conf->values[key].i64; }

int64_t conf_count(const struct conf *conf, enum conf_key key) { return conf->values[key].count; }

double conf_f64(const struct conf *conf, enum conf_key key) { return conf->values[key].f64; }

const char *conf_text(const struct conf *conf, enum conf_key key)
{
    const struct conf_value *value = &conf->values[key];
    return value->found != NULL ? value->found : value->text;
}

const char *conf_given(const struct conf *conf, enum conf_key key)
{
    return conf->values[key].text;
}

const char *conf_revision(const struct conf *conf, enum conf_key key)
{
    const char *revision = conf->values[key].revision;
    return revision != NULL ? revision : "";
}

void conf_set_found(struct conf *conf, enum conf_key key, const char *path, const char *revision)
{
    struct conf_value *value = &conf->values[key];
    char *found = memory_text(path), *commit = revision[0] != 0 ? memory_text(revision) : NULL;
    free(value->found);
    free(value->revision);
    value->found = found;
    value->revision = commit;
}

enum conf_origin conf_origin(const struct conf *conf, enum conf_key key)
{
    return conf->values[key].origin;
}

const char *conf_source(const struct conf *conf, enum conf_key key)
{
    return conf->values[key].source;
}

bool conf_is_set(const struct conf *conf, enum conf_key key)
{
    return conf->values[key].origin != CONF_ORIGIN_DEFAULT;
}

int conf_ranks(const struct conf *conf)
{
    return (int)(conf_i64(conf, CONF_N_NODES) * conf_i64(conf, CONF_N_GPU_EACH_NODE));
}

int conf_min_nodes(const struct conf *conf)
{
    const int64_t nodes = conf_i64(conf, CONF_N_NODES), set = conf_i64(conf, CONF_MIN_NODES);
    if (conf_i64(conf, CONF_ON_LOSS) == CONF_ON_LOSS_WAIT)
        return (int)nodes;
    return (int)(set > 0 ? set : (nodes + 1) / 2);
}

int conf_data_ranks(const struct conf *conf)
{
    return conf_ranks(conf) /
           (int)(conf_i64(conf, CONF_TP) * conf_i64(conf, CONF_CP) * conf_i64(conf, CONF_PP));
}

bool conf_is_dumb(char **environment)
{
    const char *terminal = launcher_find(environment, "TERM");
    return terminal != NULL && strcmp(terminal, "dumb") == 0;
}

int conf_threads(const struct conf *conf) { return conf->threads; }

#ifdef FUZZ
/* Fuzz entry: one NAME=VALUE, as an argument and in the environment. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct conf *conf = NULL;
    char *word = malloc(bytes + 1);
    if (word == NULL)
        return 0;
    memcpy(word, data, bytes);
    word[bytes] = 0;
    char *with[] = {word, NULL}, *without[] = {NULL};
    if (conf_open(1, with, without, &conf) == ST_OK)
        conf_close(conf);
    if (conf_open(0, NULL, with, &conf) == ST_OK)
        conf_close(conf);
    free(word);
    return 0;
}
#endif
