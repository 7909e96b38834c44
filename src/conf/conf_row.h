/* conf_row — a row of conf.def as data, a value, and the settings of a run, for the files of conf.
 * Other modules use conf.h. It must not know the purpose of a setting. */
#ifndef CONVOY_CONF_CONF_ROW_H
#define CONVOY_CONF_CONF_ROW_H

#include "conf/conf.h"

enum conf_kind {
    CONF_KIND_INT,
    CONF_KIND_REAL,
    CONF_KIND_DURATION,
    CONF_KIND_BOOL,
    CONF_KIND_PRESENT,
    CONF_KIND_CHOICE,
    CONF_KIND_TEXT,
    CONF_KIND_HOST,
    CONF_KIND_MULTILINE,
    CONF_KIND_FAULT,
    CONF_KIND_SECRET,
};

enum conf_group {
    CONF_GROUP_MODEL,
    CONF_GROUP_DATA,
    CONF_GROUP_OPTIM,
    CONF_GROUP_CHECKPOINT,
    CONF_GROUP_NODE,
    CONF_GROUP_STATUS,
    CONF_GROUP_COMMAND,
    CONF_GROUP_HOOK,
    CONF_GROUP_N = CONF_GROUP_HOOK, /* number of the groups of settings */
};

/* The columns of conf.def, which describes them. */
struct conf_row {
    const char *name;
    enum conf_kind kind;
    const char *initial;
    double min, max;
    const char *words;
    enum conf_group group;
    bool is_agreed;
    enum conf_result result;
    const char *commands;
    const char *why;
    const char *help;
};

extern const struct conf_row conf_rows[CONF_N];
extern const char *const conf_row_headings[CONF_GROUP_N + 1]; /* NULL: the heading of hooks */
extern const char *const conf_row_topics[CONF_GROUP_N]; /* the words of `help` for the groups */
extern const char *const conf_row_results[CONF_RESULT_LENGTH + 1]; /* the results as words */
/* conf_row_shown — returns the text of conf_allowed in a shorter form, for tables. */
const char *conf_row_shown(const struct conf_row *row, char *out, size_t cap);

/* Pairs of settings that exclude each other: conf_pairs.def. */
struct conf_condition {
    enum conf_key key;
    enum {
        CONF_CONDITION_NONE, /* ends a list */
        CONF_CONDITION_IS,
        CONF_CONDITION_NOT,
        CONF_CONDITION_OVER,
        CONF_CONDITION_UNSET
    } kind;
    int64_t value;
};
struct conf_pair {
    struct conf_condition a;
    const char *remedy;
    struct conf_condition b[12]; /* ends with CONF_CONDITION_NONE */
};
extern const struct conf_pair conf_rules_pairs[];
extern const int conf_rules_pairs_n;

struct conf_value {
    char *text;     /* owned; as the user wrote it, a BOOL as 1 or 0 */
    char *found;    /* owned; the path at which the value was found (conf_set_found); NULL: none */
    char *revision; /* owned; commits of its repositories; NULL: none */
    int64_t i64;
    int64_t count; /* number that follows the word of a choice; 0: none */
    double f64;
    enum conf_origin origin;
    const char *source; /* static text */
};

struct conf {
    struct conf_value values[CONF_N];
    enum conf_FAULT fault;
    int64_t fault_step;
    int fault_rank;
    int threads;
    bool has_workers; /* conf_set_workers was called */
    char unused[512]; /* settings that the command does not use, for the log; "": none */
};

/* conf_set — parses text as a value of this row and keeps it. ST_BAD_SETTING: the message has the
 * row, the value, its source and the allowed values. */
enum status conf_set(struct conf *conf, enum conf_key key, const char *text,
                     enum conf_origin origin, const char *source);
/* conf_refuse — fails with ST_BAD_SETTING for a value that is not allowed. */
enum status conf_refuse(const struct conf_row *row, const char *text, const char *source,
                        const char *what);
/* conf_removed_remedy — returns the remedy in conf_removed.def for a setting's name, or for a value
 * that a setting no longer has; NULL if no earlier version had it. Only the part of a value before
 * its colon is compared. */
const char *conf_removed_remedy(const char *name, size_t name_bytes, const char *value);
/* conf_fault_set — parses a value of FAULT. ST_BAD_SETTING as for conf_set. */
enum status conf_fault_set(struct conf *conf, const struct conf_row *row, const char *text,
                           const char *source);
void conf_drop(struct conf_value *value, enum conf_key key); /* frees its text; wipes a secret */
/* conf_allowed — writes the values that a row accepts as text: "1 to 65536 samples", "lm, qa".
 * Returns out. */
const char *conf_allowed(const struct conf_row *row, char *out, size_t cap);
/* conf_word — writes word i of a choice, without [:N]. Returns false if there are fewer words. */
bool conf_word(const struct conf_row *row, int i, char *out, size_t cap);
/* conf_clean — copies a text into a form for messages: '?' for control characters, "…" where it was
 * cut. Returns out. */
const char *conf_clean(const char *text, char *out, size_t cap);

/* conf_token_fault — returns the reason why a text is no secret, as the end of a sentence: too
 * short, or easily guessed by a rough estimate. NULL: it is a secret. */
const char *conf_token_fault(const char *secret);

enum status conf_rules_check(const struct conf *conf); /* checks the relations between settings */

#endif
