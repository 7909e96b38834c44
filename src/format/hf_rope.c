/* hf_rope — see hf_config.h. */
#include "format/hf_config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define THETA_USUAL 1e4
#define NEOX_FRACTION_USUAL 0.25
#define BETA_FAST_USUAL 32.0
#define BETA_SLOW_USUAL 1.0
#define NUMBER_MAX 1e12 /* far above any theta or factor */

/* Returns a key's value; NULL: it is missing or null. */
static const cJSON *get_item(const cJSON *object, const char *key)
{
    const cJSON *item = object ? cJSON_GetObjectItemCaseSensitive(object, key) : NULL;
    return item && !cJSON_IsNull(item) ? item : NULL;
}

/* read_positive — reads a number in (0, NUMBER_MAX]; `usual` replaces a missing one, 0: it must not
 * be missing. */
static enum status read_positive(const cJSON *object, const char *key, double usual, double *out)
{
    const cJSON *item = get_item(object, key);
    if (!item && usual > 0) {
        *out = usual;
        return ST_OK;
    }
    if (!item || !cJSON_IsNumber(item) ||
        !(item->valuedouble > 0 && item->valuedouble <= NUMBER_MAX))
        return FAIL(ST_BAD_DATA, "\"%s\" of the rotary positions is %s, expected a number above 0",
                    key, item ? "invalid" : "missing");
    *out = item->valuedouble;
    return ST_OK;
}

/* ---- contradictions ---- */

#define SOURCES_MAX 5

/* One spelling of a number or name, and its object. */
struct source {
    const cJSON *object;
    const char *key;
};

/* Writes a value for messages. */
static const char *format_value(const cJSON *item, char *out, size_t cap)
{
    if (cJSON_IsNumber(item))
        text_copy(out, cap, text_f64(item->valuedouble).text);
    else
        text_format(out, cap, "\"%.40s\"", cJSON_IsString(item) ? item->valuestring : "?");
    return out;
}

/* check_same — checks that all spellings in the file agree: one version of transformers reads one
 * of them, another version another. */
static enum status check_same(const cJSON *root, const struct source *source, int n)
{
    char first_value[64], value[64];
    const struct source *first = NULL;
    for (int i = 0; i < n; i++) {
        const cJSON *item = get_item(source[i].object, source[i].key), *was;
        if (!item || item == (was = first ? get_item(first->object, first->key) : NULL))
            continue;
        if (!first) {
            first = &source[i];
            continue;
        }
        if (cJSON_Compare(item, was, true))
            continue;
        return FAIL(ST_BAD_DATA, "\"%s\"%s%s is %s, but \"%s\"%s%s is %s; correct the wrong one",
                    first->key, first->object == root ? "" : " in ",
                    first->object == root ? "" : first->object->string,
                    format_value(was, first_value, sizeof first_value), source[i].key,
                    source[i].object == root ? "" : " in ",
                    source[i].object == root ? "" : source[i].object->string,
                    format_value(item, value, sizeof value));
    }
    return ST_OK;
}

/* check_contradictions — compares rope_parameters, the older rope_scaling, and the keys at the top
 * that were used before both. */
static enum status check_contradictions(const cJSON *root, const struct hf_config *config)
{
    const bool is_neox = config->arch == HF_ARCH_NEOX;
    const cJSON *now = get_item(root, "rope_parameters"), *old = get_item(root, "rope_scaling");
    now = cJSON_IsObject(now) ? now : NULL;
    old = cJSON_IsObject(old) ? old : NULL;
    const cJSON *neox = is_neox ? root : NULL;
    const struct source same[][SOURCES_MAX] = {
        {{root, "rope_theta"}, {neox, "rotary_emb_base"}, {now, "rope_theta"}, {old, "rope_theta"}},
        {{root, "partial_rotary_factor"},
         {neox, "rotary_pct"},
         {now, "partial_rotary_factor"},
         {old, "partial_rotary_factor"}},
        {{root, "original_max_position_embeddings"},
         {now, "original_max_position_embeddings"},
         {old, "original_max_position_embeddings"}},
        {{now, "rope_type"}, {now, "type"}, {old, "rope_type"}, {old, "type"}},
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        TRY(check_same(root, same[i], SOURCES_MAX));
    for (const cJSON *item = now ? now->child : NULL; item; item = item->next)
        if (!cJSON_IsObject(item))
            TRY(check_same(root, (const struct source[]){{now, item->string}, {old, item->string}},
                           2));
    return ST_OK;
}

/* ---- reading ---- */

/* first_of — returns the item in the object, else the item at the top under its older name. */
static const cJSON *first_of(const cJSON *inside, const char *key, const cJSON *root,
                             const char *top_key)
{
    return get_item(inside, key) ? inside : get_item(root, top_key) ? root : NULL;
}

/* read_fraction — reads the share of a head that rotates. Only GPT-NeoX rotates a fraction of a
 * head; the code of the others in transformers expects all of it. */
static enum status read_fraction(const cJSON *root, const cJSON *inside, struct hf_config *config)
{
    bool is_neox = config->arch == HF_ARCH_NEOX;
    const char *top_key = is_neox ? "rotary_pct" : "partial_rotary_factor";
    const cJSON *from = first_of(inside, "partial_rotary_factor", root, top_key);
    TRY(read_positive(from, from == root ? top_key : "partial_rotary_factor",
                      is_neox ? NEOX_FRACTION_USUAL : 1, &config->rope.fraction));
    if (config->rope.fraction > 1 || (!is_neox && config->rope.fraction < 1))
        return FAIL(ST_BAD_DATA, "\"%s\" is %g, expected %s; use another model", top_key,
                    config->rope.fraction, is_neox ? "at most 1" : "1");
    int64_t rotated = (int64_t)(config->rope.fraction * (double)config->head_dim);
    if (rotated < 2 || rotated % 2 != 0)
        return FAIL(ST_BAD_DATA,
                    "%" PRId64 " of a head's %" PRId64
                    " elements rotate (\"%s\" %g), expected an even number from 2; use another "
                    "model",
                    rotated, config->head_dim, top_key, config->rope.fraction);
    return ST_OK;
}

/* read_original — reads the positions before scaling. */
static enum status read_original(const cJSON *root, const cJSON *inside, struct hf_config *config)
{
    static const char key[] = "original_max_position_embeddings";
    /* the outer one first, as in transformers */
    const cJSON *from = first_of(root, key, inside, key);
    config->rope.original_context = config->context;
    return from ? json_get_i64(from, key, 1, INT32_MAX, &config->rope.original_context) : ST_OK;
}

static enum status read_linear(const cJSON *root, const cJSON *inside, struct hf_config *config)
{
    (void)root;
    return read_positive(inside, "factor", 0, &config->rope.factor);
}

static enum status read_llama3(const cJSON *root, const cJSON *inside, struct hf_config *config)
{
    struct hf_rope *rope = &config->rope;
    TRY(read_positive(inside, "factor", 0, &rope->factor));
    TRY(read_positive(inside, "low_freq_factor", 0, &rope->low_freq_factor));
    TRY(read_positive(inside, "high_freq_factor", 0, &rope->high_freq_factor));
    if (rope->low_freq_factor >= rope->high_freq_factor)
        return FAIL(ST_BAD_DATA,
                    "\"low_freq_factor\" %g is not below \"high_freq_factor\" %g; the file is "
                    "damaged",
                    rope->low_freq_factor, rope->high_freq_factor);
    return read_original(root, inside, config);
}

static double yarn_scale(double factor, double m)
{
    return factor <= 1 ? 1 : 0.1 * m * log(factor) + 1;
}

static enum status read_yarn(const cJSON *root, const cJSON *inside, struct hf_config *config)
{
    struct hf_rope *rope = &config->rope;
    const cJSON *truncate = get_item(inside, "truncate");
    if (truncate && !cJSON_IsTrue(truncate))
        return FAIL(ST_BAD_DATA, "\"truncate\" of the YaRN scaling is not true, which is not "
                                 "supported; use another model");
    TRY(read_original(root, inside, config));
    TRY(read_positive(inside, "factor", (double)config->context / (double)rope->original_context,
                      &rope->factor));
    TRY(read_positive(inside, "beta_fast", BETA_FAST_USUAL, &rope->beta_fast));
    TRY(read_positive(inside, "beta_slow", BETA_SLOW_USUAL, &rope->beta_slow));
    /* The file's factor, or computed from DeepSeek's pair of scales; 0: computed from `factor`
     * only. */
    double m = 0, all = 0;
    if (get_item(inside, "attention_factor"))
        return read_positive(inside, "attention_factor", 0, &rope->attention_factor);
    if (get_item(inside, "mscale"))
        TRY(json_get_f64(inside, "mscale", &m));
    if (get_item(inside, "mscale_all_dim"))
        TRY(json_get_f64(inside, "mscale_all_dim", &all));
    if (m == 0 || all == 0)
        return ST_OK;
    rope->attention_factor = yarn_scale(rope->factor, m) / yarn_scale(rope->factor, all);
    if (!(rope->attention_factor > 0 && rope->attention_factor <= NUMBER_MAX))
        return FAIL(ST_BAD_DATA,
                    "\"mscale\" %g and \"mscale_all_dim\" %g give no attention factor above 0", m,
                    all);
    return ST_OK;
}

static const struct {
    const char *name;
    enum hf_rope_kind kind;
    enum status (*read)(const cJSON *root, const cJSON *inside, struct hf_config *config);
} kind_list[] = {
    {"default", HF_ROPE_NONE, NULL},
    {"linear", HF_ROPE_LINEAR, read_linear},
    {"llama3", HF_ROPE_LLAMA3, read_llama3},
    {"yarn", HF_ROPE_YARN, read_yarn},
};

enum status hf_rope_read(const cJSON *root, struct hf_config *config)
{
    const cJSON *type;
    config->rope = (struct hf_rope){.kind = HF_ROPE_NONE};
    /* The object with the scaling; NULL: there is none. An old "rope_scaling" hides
     * "rope_parameters", as in transformers 5. */
    const cJSON *scaling = get_item(root, "rope_scaling"), *inside = scaling;
    if (!scaling || (cJSON_IsObject(scaling) && !scaling->child))
        inside = get_item(root, "rope_parameters");
    if (inside && !cJSON_IsObject(inside))
        return FAIL(ST_BAD_DATA, "\"%s\" is not an object; the file is damaged", inside->string);
    for (const cJSON *item = inside ? inside->child : NULL; item; item = item->next)
        if (cJSON_IsObject(item))
            return FAIL(ST_BAD_DATA,
                        "\"%s\" holds \"%.40s\" for some layers only, which is not supported; use "
                        "a model with the same positions in all layers",
                        inside->string, item->string);
    TRY(check_contradictions(root, config));
    const char *top_key = config->arch == HF_ARCH_NEOX ? "rotary_emb_base" : "rope_theta";
    const cJSON *from = first_of(inside, "rope_theta", root, top_key);
    TRY(read_positive(from, from == root ? top_key : "rope_theta", THETA_USUAL,
                      &config->rope.theta));
    if (config->rope.theta <= 1)
        return FAIL(ST_BAD_DATA, "the base of the rotary positions (%s) is %g, expected above 1",
                    top_key, config->rope.theta);
    TRY(read_fraction(root, inside, config));
    type = get_item(inside, "rope_type") ? get_item(inside, "rope_type") : get_item(inside, "type");
    if (!type)
        return ST_OK;
    for (size_t i = 0; cJSON_IsString(type) && i < sizeof(kind_list) / sizeof(kind_list[0]); i++)
        if (strcmp(type->valuestring, kind_list[i].name) == 0) {
            config->rope.kind = kind_list[i].kind;
            return kind_list[i].read ? kind_list[i].read(root, inside, config) : ST_OK;
        }
    return FAIL(ST_BAD_DATA,
                "\"rope_type\" is \"%.40s\", expected default, linear, llama3 or yarn; use another "
                "model",
                cJSON_IsString(type) ? type->valuestring : "not a string");
}

/* ---- writing ---- */

void hf_rope_add_number(struct text *out, const char *key, double value)
{
    const struct text_digits digits = text_f64(value);
    text_add(out, "\"%s\": %s%s", key, digits.text, strpbrk(digits.text, ".e") ? "" : ".0");
}

static void add_inside(struct text *out, const char *key, double value)
{
    text_add(out, ",\n    ");
    hf_rope_add_number(out, key, value);
}

/* add_scaling — adds the kind and its numbers. */
static void add_scaling(const struct hf_rope *rope, struct text *out)
{
    text_add(out, "    \"rope_type\": \"%s\"", kind_list[rope->kind].name);
    if (rope->kind == HF_ROPE_NONE)
        return;
    add_inside(out, "factor", rope->factor);
    if (rope->kind == HF_ROPE_LINEAR)
        return;
    text_add(out, ",\n    \"original_max_position_embeddings\": %" PRId64, rope->original_context);
    if (rope->kind == HF_ROPE_LLAMA3) {
        add_inside(out, "low_freq_factor", rope->low_freq_factor);
        add_inside(out, "high_freq_factor", rope->high_freq_factor);
        return;
    }
    add_inside(out, "beta_fast", rope->beta_fast);
    add_inside(out, "beta_slow", rope->beta_slow);
    if (rope->attention_factor > 0)
        add_inside(out, "attention_factor", rope->attention_factor);
}

void hf_rope_write(const struct hf_config *config, struct text *out)
{
    const struct hf_rope *rope = &config->rope;
    bool is_neox = config->arch == HF_ARCH_NEOX;
    text_add(out, "  \"rope_parameters\": {\n");
    add_scaling(rope, out);
    add_inside(out, "rope_theta", rope->theta);
    if (is_neox)
        add_inside(out, "partial_rotary_factor", rope->fraction);
    text_add(out, "\n  },\n  \"rope_scaling\": ");
    if (rope->kind == HF_ROPE_NONE) {
        text_add(out, "null");
    } else {
        text_add(out, "{\n");
        add_scaling(rope, out);
        text_add(out, "\n  }");
    }
    text_add(out, ",\n  ");
    hf_rope_add_number(out, is_neox ? "rotary_emb_base" : "rope_theta", rope->theta);
    if (is_neox) {
        text_add(out, ",\n  ");
        hf_rope_add_number(out, "rotary_pct", rope->fraction);
    }
    text_add(out, ",\n");
}
