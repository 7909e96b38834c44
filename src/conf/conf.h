/* conf — reads the settings of a run. conf.def has one row per setting; parsing, bounds, help,
 * documentation, JSON and hints for typos are derived from it.
 *
 * A value comes from the first of these sources that has one: an argument NAME=VALUE, the
 * environment, a launcher's variable (launcher.h), the default. Only this module calls getenv. It
 * must not know the purpose of a setting, except its row and the relations in conf_rules.c. */
#ifndef CONVOY_CONF_CONF_H
#define CONVOY_CONF_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "conf/conf_choice.h"

/* CONF_NODE_ID, CONF_BATCH_SIZE …: one per row of conf.def, and from CONF_SETTINGS_N on one per row
 * of conf_hooks.def. */
enum conf_key {
#define CONF_ROW(name, ...) CONF_##name,
#include "conf/conf.def"
    CONF_SETTINGS_N,
    CONF_SETTINGS_LAST = CONF_SETTINGS_N - 1,
#include "conf/conf_hooks.def"
#undef CONF_ROW
    CONF_N
};

enum conf_origin {
    CONF_ORIGIN_DEFAULT,
    CONF_ORIGIN_LAUNCHER,
    CONF_ORIGIN_ENVIRONMENT,
    CONF_ORIGIN_ARGUMENT
};

/* The part of a training's result that a setting decides: column RESULT of conf.def. */
enum conf_result {
    CONF_RESULT_NO,
    CONF_RESULT_MODEL,
    CONF_RESULT_DATA,
    CONF_RESULT_LOSSES,
    CONF_RESULT_ROUNDING,
    CONF_RESULT_LENGTH
};

#define CONF_RANKS_MAX 4096 /* most workers of a job; node asserts that it equals COMM_RANKS_MAX */

struct conf;

/* conf_open_for — reads the NAME=VALUE words of argv (without program name and command) and the
 * environment, and checks every value and relation. If a name has several arguments, the last one
 * counts. An empty value is unset in the environment, and an empty text as an argument. Keeps no
 * pointer into the environment.
 *   ST_USAGE        an unknown argument; the message contains the nearest name
 *   ST_BAD_SETTING  any other error
 *
 * command: a word of column COMMANDS in conf.def. The values of settings that it does not use are
 * checked and then replaced by the defaults. NULL: a command that uses all settings, such as
 * train. */
enum status conf_open_for(const char *command, int argc, char **argv, char **environment,
                          struct conf **out);
/* conf_log_unused — logs the replaced values as one line, or logs nothing. */
void conf_log_unused(const struct conf *conf, const char *command);
/* conf_open — reads the settings of a job. */
static inline enum status conf_open(int argc, char **argv, char **environment, struct conf **out)
{
    return conf_open_for(NULL, argc, argv, environment, out);
}
void conf_close(struct conf *conf); /* accepts NULL */
/* conf_set_workers — sets N_GPU_EACH_NODE to the number of GPUs found. Call it only if the setting
 * is not set. The number counts as the default: conf_is_set stays false, and conf_source returns
 * "GPUs found", or "default" if the number is the default. Checks the relations again: until this
 * call, relations with the number of workers are not checked if TP or PP need several workers. */
enum status conf_set_workers(struct conf *conf, int workers_n, char **environment);
/* conf_hint_warn — warns about settings without effect: mistyped names in the environment (with the
 * right name), and values that have no effect because of another setting. Not part of conf_open,
 * because workers read the same settings and must not repeat the warnings. */
void conf_hint_warn(const struct conf *conf, char **environment);

/* conf_i64 — returns an integer: a duration in milliseconds, a boolean, or a choice as enum
 * conf_NAME. */
int64_t conf_i64(const struct conf *conf, enum conf_key key);
/* conf_f64 — returns a number with a fraction. */
double conf_f64(const struct conf *conf, enum conf_key key);
/* conf_count — returns the number that follows a choice: 12 in RECOMPUTE=block:12; 0: none. */
int64_t conf_count(const struct conf *conf, enum conf_key key);
/* conf_text — returns a text, the word of a choice, or a number as the user wrote it; after
 * conf_set_found, the path. Never NULL; valid until conf_close or conf_set_found. */
const char *conf_text(const struct conf *conf, enum conf_key key);
/* conf_given — returns the text as the user wrote it, for messages and records. */
const char *conf_given(const struct conf *conf, enum conf_key key);
/* conf_revision — returns the commits of conf_set_found, as JSON; "": none. */
const char *conf_revision(const struct conf *conf, enum conf_key key);
/* conf_set_found — sets the path on this machine at which the value was found: from now on
 * conf_text returns it. revision: the commits of repositories as a JSON object, or "". The printed
 * settings keep the value that the user wrote. */
void conf_set_found(struct conf *conf, enum conf_key key, const char *path, const char *revision);

/* conf_origin — returns the kind of the source. */
enum conf_origin conf_origin(const struct conf *conf, enum conf_key key);

/* conf_source — returns "default", "GPUs found", "environment", "argument", or a launcher's
 * variable such as "SLURM_NODEID". */
const char *conf_source(const struct conf *conf, enum conf_key key);
bool conf_is_set(const struct conf *conf, enum conf_key key); /* false: it has the default */

/* conf_fault — returns the failure that FAULT injects; CONF_FAULT_NONE: none. */
enum conf_FAULT conf_fault(const struct conf *conf);
/* conf_fault_step — returns the step before which FAULT injects it, counted from 1; 0: none, or in
 * a check. */
int64_t conf_fault_step(const struct conf *conf);
/* conf_fault_rank — returns the rank on which FAULT injects it; by default 0. */
int conf_fault_rank(const struct conf *conf);
/* conf_ranks — returns the number of workers on all nodes. */
int conf_ranks(const struct conf *conf);
/* conf_min_nodes — returns the number of nodes with which the job can go on; N_NODES with
 * ON_LOSS=wait. */
int conf_min_nodes(const struct conf *conf);
/* conf_data_ranks — returns the number of workers, or of groups of workers with the same samples,
 * among which the samples of a step are divided: all workers / (TP x CP x PP). */
int conf_data_ranks(const struct conf *conf);

/* conf_rules_check_missing — checks that all settings without which a job cannot begin are set.
 * ST_BAD_SETTING names every missing one. With N_NODES > 1 they are MASTER_ADDR and a secret.
 * needs_data: also DATA on node 0; a node without it uses node 0's data. */
enum status conf_rules_check_missing(const struct conf *conf, bool needs_data);
/* Bytes for a token and some more, so that a file that is too long is detected. */
#define CONF_TOKEN_BYTES 1200
/* conf_token — reads the token of a job with N_NODES > 1: JOB_TOKEN, or the content of
 * JOB_TOKEN_FILE without the line end; "none" if that is its value. Calls conf_rules_check_missing.
 * ST_BAD_SETTING or ST_NO_INPUT: the token is missing, too short or easily guessed, or other users
 * can read or change its file. */
enum status conf_token(const struct conf *conf, char out[CONF_TOKEN_BYTES]);
/* conf_token_page — reads the token in STATUS_TOKEN_FILE; "" if that is not set. Fails like
 * conf_token. */
enum status conf_token_page(const struct conf *conf, char out[CONF_TOKEN_BYTES]);
/* conf_token_forget — overwrites and removes the secrets in the environment, so that neither child
 * processes nor /proc show them. conf keeps its own copy. */
void conf_token_forget(char **environment);
/* conf_token_wipe — overwrites the secrets in conf. Call it after the keys have been derived from
 * them. */
void conf_token_wipe(const struct conf *conf);
/* conf_is_dumb — returns true if TERM names a terminal without control characters. */
bool conf_is_dumb(char **environment);
/* conf_threads — returns the first number in OMP_NUM_THREADS; 0: unset. */
int conf_threads(const struct conf *conf);

/* These functions append to *out. */

void conf_write_table(const struct conf *conf, struct text *out); /* `convoy config` */
/* conf_write_json — writes one JSON object with value, source, bounds and help of each setting.
 * Includes hooks only if they are set, as conf_write_table does. */
void conf_write_json(const struct conf *conf, struct text *out);
/* conf_write_settings — writes one line of JSON that may be published:
 * {"settings":[{"name","value","source"} …]} of the settings that differ from their defaults.
 * Secrets are left out, credentials in URLs masked. */
void conf_write_settings(const struct conf *conf, struct text *out);
/* conf_write_value — writes the value of a setting as JSON: a number, or a quoted text. */
void conf_write_value(const struct conf *conf, enum conf_key key, struct text *out);
/* conf_write_agree — writes "NAME":"value" for every row on which all nodes must agree, in one
 * spelling, each followed by a comma: the members of a JSON object. */
void conf_write_agree(const struct conf *conf, struct text *out);
/* conf_write_help — writes all settings, as `help settings` shows them. */
void conf_write_help(struct text *out, bool is_bold);
/* conf_row_topic — returns the word for group i of settings, such as "data"; NULL: there are fewer
 * groups. */
const char *conf_row_topic(int i);
/* conf_write_topic — writes the settings of one group. Returns false, and writes nothing, if no
 * group has this word. */
bool conf_write_topic(const char *topic, struct text *out, bool is_bold);
/* conf_write_setting — writes one row in full. Returns false, and writes nothing, if no row has
 * this name. */
bool conf_write_setting(const char *name, struct text *out);
void conf_write_row(enum conf_key key, struct text *out); /* one row as in --help */
void conf_write_markdown(struct text *out);               /* the tables of docs/settings.md */
void conf_write_pairs_markdown(struct text *out); /* table of the pairs that exclude each other */
/* conf_write_hooks_markdown — writes the table of hooks in docs/testing.md. */
void conf_write_hooks_markdown(struct text *out);

/* Columns of a row, for man pages and shell completion; static text. */

/* conf_row_name — returns the name of the setting. */
const char *conf_row_name(enum conf_key key);
/* conf_row_heading — returns the heading of the row's group; NULL: a hook, which is not shown. */
const char *conf_row_heading(enum conf_key key);
/* conf_row_default — returns the default as text. */
const char *conf_row_default(enum conf_key key);
/* conf_row_help — returns the help text. */
const char *conf_row_help(enum conf_key key);
/* conf_row_choices — returns the choices as "a|b|c", for a boolean "1|0"; "": the row is of another
 * kind. */
const char *conf_row_choices(enum conf_key key);
/* conf_row_result — returns the part of the result that the setting decides. */
enum conf_result conf_row_result(enum conf_key key);
/* conf_row_is_of — returns true if column COMMANDS of the row has this word. */
bool conf_row_is_of(enum conf_key key, const char *command);
/* conf_row_allowed — returns the allowed values as text: out or static text. */
const char *conf_row_allowed(enum conf_key key, char *out, size_t cap);

/* conf_hint_nearest — returns the setting that a mistyped name most likely means; NULL: none is
 * near. */
const char *conf_hint_nearest(const char *name);
/* conf_hint_argument — writes "MODEL=gpt2" for `--model gpt2`, `--model=gpt2` and `-model gpt2`.
 * next: the following word, or NULL. Returns false if no setting is near. Does not repeat a
 * secret's value. */
bool conf_hint_argument(const char *word, const char *next, char *out, size_t cap);

#endif
