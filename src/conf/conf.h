/* conf — every setting, once: conf.def has a row each; parsing, bounds, help, docs, JSON and typo
 * hints come from it.
 *
 * Order: argument NAME=VALUE, then environment, then what a launcher says (launcher.c), then the
 * default. Only this room calls getenv. It must not know what settings are for beyond their rows
 * and the relations in conf_rules.c. */
#ifndef CONVOY_CONF_CONF_H
#define CONVOY_CONF_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "conf/conf_choice.h"

/* CONF_NODE_ID, CONF_BATCH_SIZE …: one per row of conf.def. */
enum conf_key {
#define CONF_ROW(name, ...) CONF_##name,
#include "conf/conf.def"
#undef CONF_ROW
    CONF_N
};

enum conf_origin {
    CONF_ORIGIN_DEFAULT,
    CONF_ORIGIN_LAUNCHER,
    CONF_ORIGIN_ENVIRONMENT,
    CONF_ORIGIN_ARGUMENT
};

struct conf;

/* conf_open — read argv's NAME=VALUE words (argv[0] is the first of them: no program name, no
 * command) and the environment, check every value and every relation. The last of several arguments
 * of one name counts; an empty value in the environment counts as unset, as an argument it is the
 * empty text. Failures: ST_USAGE for an unknown argument (with the nearest name), ST_BAD_SETTING
 * otherwise. The
 * environment is read here only; nothing of it is kept. */
enum status conf_open(int argc, char **argv, char **environment, struct conf **out);
void conf_close(struct conf *conf); /* accepts NULL */
/* conf_set_workers — N_GPU_EACH_NODE where nobody has set it: as many as GPUs were found (its
 * default, so conf_is_set stays false; its source says so). Relations are checked anew. */
enum status conf_set_workers(struct conf *conf, int workers_n, char **environment);
/* conf_hint_warn — tell about settings that will do nothing: mistyped names in the environment
 * (with the right ones), values that another choice makes idle. Apart from conf_open because
 * workers read the same settings and must not say it all again. */
void conf_hint_warn(const struct conf *conf, char **environment);

/* conf_i64 — integers; durations in milliseconds; booleans; for a choice its place in the row's
 * list. */
int64_t conf_i64(const struct conf *conf, enum conf_key key);
double conf_f64(const struct conf *conf, enum conf_key key);
/* conf_text — texts and the name of a choice (numbers: as they were given). Never NULL; until
 * conf_close. */
const char *conf_text(const struct conf *conf, enum conf_key key);
enum conf_origin conf_origin(const struct conf *conf, enum conf_key key);
/* conf_source — "default", "GPUs found", "environment", "argument", or the launcher's variable such
 * as "SLURM_NODEID". */
const char *conf_source(const struct conf *conf, enum conf_key key);
bool conf_is_set(const struct conf *conf, enum conf_key key); /* anything but the default */

/* FAULT, parsed: what to rehearse, before which step (counted from 1; 0 when there is none), on
 * which rank. */
enum conf_FAULT conf_fault(const struct conf *conf);
int64_t conf_fault_step(const struct conf *conf);
int conf_fault_rank(const struct conf *conf);
/* conf_ranks — workers of all nodes. */
int conf_ranks(const struct conf *conf);

/* conf_token — N_NODES > 1: JOB_TOKEN, or what JOB_TOKEN_FILE holds (less the line end); "none"
 * when that was asked for. Also sees to MASTER_ADDR. ST_BAD_SETTING, ST_NO_INPUT: missing, too
 * short, a file that others may read. cap > 1024. */
enum status conf_token(const struct conf *conf, char *out, size_t cap);
/* conf_token_forget — overwrite secrets in the environment and take them out, so that neither
 * children nor /proc show them. conf keeps its own copy. */
void conf_token_forget(char **environment);
/* conf_token_wipe — overwrite the secrets that the settings hold: once what they are for has been
 * derived. */
void conf_token_wipe(const struct conf *conf);
/* conf_is_dumb — TERM says of the terminal that it takes no control characters. */
bool conf_is_dumb(char **environment);
/* conf_threads — the first number of OMP_NUM_THREADS; 0 when unset: the machine decides. */
int conf_threads(const struct conf *conf);

/* The generated forms, appended to *out. */
void conf_write_table(const struct conf *conf, struct text *out); /* `convoy config` */
void conf_write_json(const struct conf *conf, struct text *out);
/* conf_write_settings — one line of JSON for anybody to read:
 * {"settings":[{"name","value","source"} …]}, those that differ from their defaults. Secrets are
 * left out, credentials in addresses masked. */
void conf_write_settings(const struct conf *conf, struct text *out);
/* conf_write_agree — add "NAME" → value as text, in one spelling, of every row that all nodes must
 * agree on: pairs of a JSON object, with a comma behind each. */
void conf_write_agree(const struct conf *conf, struct text *out);
/* the settings part of --help; bold: for a terminal */
void conf_write_help(struct text *out, bool is_bold);
/* conf_write_setting — one row in full; false (nothing written) when no row has this name. */
bool conf_write_setting(const char *name, struct text *out);
/* conf_write_row — as in --help: name, default, meaning. A setting of this name there must be. */
void conf_write_row(const char *name, struct text *out);
void conf_write_markdown(struct text *out); /* the README's table */

/* A row's columns, for what packages carry. heading: of its group, NULL: not
 * built, not to be shown; choices: "a|b|c", what to pick from, "" none. */
const char *conf_row_name(enum conf_key key);
const char *conf_row_heading(enum conf_key key);
const char *conf_row_default(enum conf_key key);
const char *conf_row_help(enum conf_key key);
const char *conf_row_choices(enum conf_key key);
/* for people; returns out or static text */
const char *conf_row_allowed(enum conf_key key, char *out, size_t cap);

/* conf_hint_nearest — the setting that a mistyped name was meant to be; NULL when none is near. */
const char *conf_hint_nearest(const char *name);
/* conf_hint_argument — "MODEL=gpt2" for `--model gpt2`, `--model=gpt2`, `-model gpt2`; next: the
 * word behind, or NULL. false: no setting is near. A secret's value is not repeated. */
bool conf_hint_argument(const char *word, const char *next, char *out, size_t cap);

#endif
