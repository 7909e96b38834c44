/* conf_hint — finds the setting that a mistyped name means, and decides when to warn.
 *
 * Unknown arguments are refused, so a distant guess does no harm there. The environment is full of
 * other programs' names: a warning is logged only for names that hardly mean anything else. It must
 * not know values. */
#include <string.h>

#include "base/log.h"
#include "conf/conf_row.h"
#include "conf/launcher.h"

#define NAME_MAX_BYTES 63
#define WARNINGS_MAX 8

/* Names of the same setting in other trainers. */
static const struct alias {
    const char *name, *ours;
} aliases[] = {
    {"LEARNING_RATE", "LR"},
    {"MIN_LEARNING_RATE", "MIN_LR"},
    {"SCHEDULE", "LR_SCHEDULE"},
    {"LR_SCHEDULER", "LR_SCHEDULE"},
    {"WARMUP", "WARMUP_STEPS"},
    {"WARMUP_ITERS", "WARMUP_STEPS"},
    {"COOLDOWN_STEPS", "DECAY_STEPS"},
    {"LR_WSD_DECAY_ITERS", "DECAY_STEPS"},
    {"RAMPUP_BATCH_SIZE", "BATCH_START"},
    {"PACKING", "PACK_DOCUMENTS"},
    {"BATCH", "BATCH_SIZE"},
    {"MICRO_BATCH", "BATCH_SIZE"},
    {"MICRO_BATCH_SIZE", "BATCH_SIZE"},
    {"GLOBAL_BATCH_SIZE", "GLOBAL_BATCH"},
    {"MAX_STEPS", "STEPS"},
    {"ITERS", "STEPS"},
    {"MAX_ITERS", "STEPS"},
    {"N_STEPS", "STEPS"},
    {"NUM_EPOCHS", "EPOCHS"},
    {"N_EPOCHS", "EPOCHS"},
    {"N_LAYER", "LAYERS"},
    {"NUM_LAYERS", "LAYERS"},
    {"N_HEAD", "HEADS"},
    {"NUM_HEADS", "HEADS"},
    {"NUM_KEY_VALUE_HEADS", "KV_HEADS"},
    {"N_KV_HEADS", "KV_HEADS"},
    {"INTERMEDIATE_SIZE", "FFN"},
    {"N_EMBD", "EMBED"},
    {"HIDDEN_SIZE", "EMBED"},
    {"BLOCK_SIZE", "SEQ_LEN"},
    {"SEQ_LENGTH", "SEQ_LEN"},
    {"SEQUENCE_LENGTH", "SEQ_LEN"},
    {"VOCAB_SIZE", "VOCAB"},
    {"CONTEXT_LENGTH", "CONTEXT"},
    {"DTYPE", "PRECISION"},
    {"CLIP", "GRAD_CLIP"},
    {"MAX_GRAD_NORM", "GRAD_CLIP"},
    {"WD", "WEIGHT_DECAY"},
    {"OUTPUT", "OUT"},
    {"OUTPUT_DIR", "CHECKPOINT_DIR"},
    {"CKPT_DIR", "CHECKPOINT_DIR"},
    {"SAVE_EVERY", "CHECKPOINT_EVERY"},
    {"INPUT", "DATA"},
    {"TRAIN_DATA", "DATA"},
    {"DATA_DIR", "DATA"},
    {"NUM_NODES", "N_NODES"},
    {"NODES", "N_NODES"},
    {"PORT", "STATUS_PORT"},
    {"TEMP", "TEMPERATURE"},
    {"MAX_TOKENS", "TOKENS"},
    {"VERBOSE", "LOG_LEVEL"},
};

/* letters_of — returns the number of letters that count (text_distance ignores '_'), and their set
 * as bits. Each edit adds or removes at most one letter, so names whose sets differ by more than
 * the distance are not compared: 100,000 variables need little time. */
static int letters_of(const char *name, size_t n, uint32_t *set)
{
    int letters = 0;
    *set = 0;
    for (size_t i = 0; i < n; i++)
        if (name[i] != '_') {
            letters++;
            *set |= UINT32_C(1) << (name[i] & 31);
        }
    return letters;
}

const char *conf_hint_nearest(const char *name)
{
    char plain[NAME_MAX_BYTES + 1];
    while (*name == '-') /* other programs use the form --batch-size */
        name++;
    if (!text_copy(plain, sizeof plain, name))
        return NULL;
    for (char *p = plain; *p != 0; p++)
        if (*p == '-')
            *p = '_';
    const char *best = NULL;
    int best_distance = 3;
    for (int key = 0; key < CONF_SETTINGS_N; key++) {
        int distance = text_distance(plain, conf_rows[key].name);
        int longest = (int)strlen(conf_rows[key].name);
        if (distance < best_distance && distance < longest && distance < (int)strlen(plain)) {
            best_distance = distance;
            best = conf_rows[key].name;
        }
    }
    for (size_t i = 0; best_distance > 0 && i < sizeof aliases / sizeof aliases[0]; i++)
        if (text_distance(plain, aliases[i].name) == 0)
            return aliases[i].ours;
    return best;
}

/* value_meant — returns the value of a word in another program's form; "VALUE": it has none. */
static const char *value_meant(const struct conf_row *row, const char *word, const char *next)
{
    const char *equals = strchr(word, '=');
    if (row->kind == CONF_KIND_SECRET)
        return "…";
    if (equals != NULL)
        return equals + 1;
    if (next != NULL && next[0] != '-' && strchr(next, '=') == NULL)
        return next;
    return row->kind == CONF_KIND_BOOL ? "1" : "VALUE";
}

bool conf_hint_argument(const char *word, const char *next, char *out, size_t cap)
{
    char name[NAME_MAX_BYTES + 1], shown[96];
    size_t n = strcspn(word, "=");
    if (n >= sizeof name || !text_format(name, sizeof name, "%.*s", (int)n, word))
        return false;
    const char *nearest = conf_hint_nearest(name);
    if (nearest == NULL)
        return false;
    int key = 0;
    while (strcmp(conf_rows[key].name, nearest) != 0)
        key++;
    conf_clean(value_meant(&conf_rows[key], word, next), shown, sizeof shown);
    bool is_quoted = strpbrk(shown, " \"$&;|<>()*?#`\\") != NULL && strchr(shown, '\'') == NULL;
    text_format(out, cap, is_quoted ? "%s='%s'" : "%s=%s", nearest, shown);
    return true;
}

/* limit_for — returns the largest distance at which a variable counts as a typo of a row with
 * row_letters letters: short names mean too many other things. */
static int limit_for(int row_letters, bool is_composed)
{
    if (row_letters >= 9)
        return 2;
    if (row_letters >= 6 || (row_letters >= 5 && is_composed))
        return 1;
    return row_letters >= 4 ? 0 : -1;
}

/* meant_by — returns the row that a name in the environment probably means; NULL: none, or it is
 * the name of a row. */
static const char *meant_by(const char *name, size_t n)
{
    char plain[NAME_MAX_BYTES + 1];
    if (n >= sizeof plain || !text_format(plain, sizeof plain, "%.*s", (int)n, name) ||
        launcher_is_known(plain))
        return NULL;
    /* Well-known variables of other programs that only resemble a setting. */
    if (strcmp(plain, "CCACHE_DIR") == 0 || strcmp(plain, "SCCACHE_DIR") == 0)
        return NULL;
    uint32_t set = 0, row_set = 0;
    int letters = letters_of(name, n, &set);
    const char *best = NULL;
    int best_distance = 3;
    for (int key = 0; key < CONF_N; key++) {
        const char *row = conf_rows[key].name;
        int row_letters = letters_of(row, strlen(row), &row_set);
        if (strcmp(row, plain) == 0)
            return NULL;
        if (key >= CONF_SETTINGS_N || row_letters > letters + 2 || letters > row_letters + 2 ||
            __builtin_popcount(set & ~row_set) > 2 || __builtin_popcount(row_set & ~set) > 2)
            continue;
        int distance = text_distance(plain, row);
        if (distance < best_distance &&
            distance <= limit_for(row_letters, memchr(name, '_', n) != NULL)) {
            best_distance = distance;
            best = row;
        }
    }
    return best;
}

static void warn_environment(char **environment)
{
    int warned = 0;
    for (; *environment != NULL && warned < WARNINGS_MAX; environment++) {
        size_t n = strcspn(*environment, "=");
        const char *value = *environment + n;
        /* A variable without a value is ignored; Kubernetes sets tcp://… for a Service. */
        if (value[0] == 0 || value[1] == 0 || text_starts(value + 1, "tcp://") ||
            text_starts(value + 1, "udp://"))
            continue;
        const char *row = meant_by(*environment, n);
        if (row == NULL)
            continue;
        LOG_WARN("%.*s is set in the environment but no setting has this name; did you mean %s?",
                 (int)n, *environment, row);
        warned++;
    }
}

/* Settings that have no effect when another setting has this value. */
static const struct idle {
    enum conf_key key, chooser;
    int choice;
} idles[] = {
    {CONF_MOMENTUM, CONF_OPTIMIZER, CONF_OPTIMIZER_ADAMW},
    {CONF_BETA1, CONF_OPTIMIZER, CONF_OPTIMIZER_SGD},
    {CONF_BETA2, CONF_OPTIMIZER, CONF_OPTIMIZER_SGD},
    {CONF_EPS, CONF_OPTIMIZER, CONF_OPTIMIZER_SGD},
    {CONF_WEIGHT_DECAY, CONF_OPTIMIZER, CONF_OPTIMIZER_SGD},
    {CONF_MIN_LR, CONF_LR_SCHEDULE, CONF_LR_SCHEDULE_CONSTANT},
    {CONF_DECAY_STEPS, CONF_LR_SCHEDULE, CONF_LR_SCHEDULE_CONSTANT},
    {CONF_DECAY_STEPS, CONF_LR_SCHEDULE, CONF_LR_SCHEDULE_COSINE},
    {CONF_DECAY_STEPS, CONF_LR_SCHEDULE, CONF_LR_SCHEDULE_LINEAR},
    {CONF_SPIKE_SIGMA, CONF_SPIKE, CONF_SPIKE_OFF},
};

void conf_hint_warn(const struct conf *conf, char **environment)
{
    warn_environment(environment);
    for (size_t i = 0; i < sizeof idles / sizeof idles[0]; i++) {
        const struct idle *idle = &idles[i];
        if (conf_is_set(conf, idle->key) && conf_i64(conf, idle->chooser) == idle->choice &&
            strcmp(conf_text(conf, idle->key), conf_rows[idle->key].initial) != 0)
            LOG_WARN("%s=%s (%s) has no effect with %s=%s", conf_rows[idle->key].name,
                     conf_text(conf, idle->key), conf_source(conf, idle->key),
                     conf_rows[idle->chooser].name, conf_text(conf, idle->chooser));
    }
}
