/* conf — every setting, once: conf.def has a row each; parsing, bounds, help, docs, JSON and typo hints come from it.
 *
 * Order: argument NAME=VALUE, then environment, then what a launcher says (launcher.c), then the default. Only this room
 * calls getenv. It must not know what settings are for beyond their rows and the relations in conf_rules.c. */
#ifndef CONVOY_CONF_CONF_H
#define CONVOY_CONF_CONF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

/* CONF_NODE_ID, CONF_BATCH_SIZE …: one per row of conf.def. */
enum conf_key {
#define CONF_ROW(name, ...) CONF_##name,
#include "conf/conf.def"
#undef CONF_ROW
    CONF_N
};

enum conf_origin { CONF_ORIGIN_DEFAULT, CONF_ORIGIN_LAUNCHER, CONF_ORIGIN_ENVIRONMENT, CONF_ORIGIN_ARGUMENT };

struct conf;

/* conf_open — read argv's NAME=VALUE words and the environment, check every value and every relation. Failures: ST_USAGE for
 * an unknown argument (with the nearest name), ST_BAD_SETTING otherwise. Near-miss names in the environment are warned about. */
enum status conf_open(int argc, char **argv, char **environment, struct conf **out);
void conf_close(struct conf *conf);

int64_t conf_i64(const struct conf *conf, enum conf_key key);     /* integers, byte counts, milliseconds, booleans, index of a choice */
double conf_f64(const struct conf *conf, enum conf_key key);
const char *conf_text(const struct conf *conf, enum conf_key key); /* strings and the name of a choice; never NULL */
enum conf_origin conf_origin(const struct conf *conf, enum conf_key key);
const char *conf_source(const struct conf *conf, enum conf_key key); /* "default", "environment", "argument", "SLURM_NODEID" */
bool conf_is_set(const struct conf *conf, enum conf_key key);         /* anything but the default */

/* The generated forms, appended to *out. */
void conf_write_table(const struct conf *conf, struct text *out); /* `convoy config` */
void conf_write_json(const struct conf *conf, struct text *out);
void conf_write_help(struct text *out);     /* the settings part of --help */
void conf_write_markdown(struct text *out); /* the README's table */

#endif
