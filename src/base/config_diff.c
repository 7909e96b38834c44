/* config_diff — see config_diff.h. */
#include "base/config_diff.h"

#include <string.h>

#include "base/json.h"

bool config_diff_is_shape(const char *key) { return strcmp(key, "name") != 0; }
bool config_diff_is_state(const char *key)
{
    return !strcmp(key, "OPTIMIZER") || !strcmp(key, "moments");
}

bool config_diff_is_any(const char *key)
{
    (void)key;
    return true;
}

/* as_text — a value for people; NULL: the key is not there. */
static const char *as_text(const cJSON *value, char *out, size_t cap)
{
    char *printed = value ? cJSON_PrintUnformatted(value) : NULL;
    text_copy(out, cap, printed ? printed : "nothing");
    cJSON_free(printed);
    return out;
}

static int compare(const cJSON *a, const cJSON *b, bool is_reversed, bool (*which)(const char *key),
                   struct text *out)
{
    int n = 0;
    for (const cJSON *item = a ? a->child : NULL; item; item = item->next) {
        const cJSON *other = cJSON_GetObjectItemCaseSensitive(b, item->string);
        char there[80], here[80];
        /* The second round, with the sides changed, only adds what the first could not see. */
        if (!which(item->string) || (other && (is_reversed || cJSON_Compare(item, other, true))))
            continue;
        as_text(is_reversed ? other : item, there, sizeof there);
        as_text(is_reversed ? item : other, here, sizeof here);
        text_add(out, "%s%s there %s, here %s", out->len ? "; " : "", item->string, there, here);
        n++;
    }
    return n;
}

/* parse — an object, or NULL for anything else. */
static cJSON *parse(const char *json)
{
    cJSON *value = NULL;
    if (json_parse(json, strlen(json), "settings of a checkpoint", &value) != ST_OK)
        status_clear();
    if (cJSON_IsObject(value))
        return value;
    cJSON_Delete(value);
    return NULL;
}

int config_diff_add(const char *there, const char *here, bool (*which)(const char *key),
                    struct text *out)
{
    cJSON *a = parse(there), *b = parse(here);
    int n = compare(a, b, false, which, out) + compare(b, a, true, which, out);
    cJSON_Delete(a);
    cJSON_Delete(b);
    return n;
}
