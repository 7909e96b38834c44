/* config_diff — see config_diff.h. */
#include "base/config_diff.h"

#include <string.h>

#include "base/json.h"
#include "base/text.h"

/* as_text — writes a value to out (CONFIG_DIFF_VALUE_BYTES); returns out, or NULL for no value. */
static const char *as_text(const cJSON *value, char *out)
{
    char *printed = value ? cJSON_PrintUnformatted(value) : NULL;
    size_t n = printed ? strlen(printed) : 0;
    if (cJSON_IsString(value) && n >= 2) {
        printed[n - 1] = 0;
        text_copy(out, CONFIG_DIFF_VALUE_BYTES, printed + 1);
    } else {
        text_copy(out, CONFIG_DIFF_VALUE_BYTES, printed ? printed : "(out of memory)");
    }
    cJSON_free(printed);
    return value ? out : NULL;
}

static void diff_objects(const cJSON *left, const cJSON *right, config_diff_found *found, void *arg)
{
    char a[CONFIG_DIFF_VALUE_BYTES], b[CONFIG_DIFF_VALUE_BYTES];
    const cJSON *item;
    cJSON_ArrayForEach(item, left)
    {
        const cJSON *other = cJSON_GetObjectItemCaseSensitive(right, item->string);
        if (!cJSON_Compare(item, other, true))
            found(arg, item->string, as_text(item, a), as_text(other, b));
    }
    cJSON_ArrayForEach(item, right)
    {
        if (!cJSON_GetObjectItemCaseSensitive(left, item->string))
            found(arg, item->string, NULL, as_text(item, b));
    }
}

/* parse_object — returns an object, or NULL for any other text. */
static cJSON *parse_object(const char *json)
{
    cJSON *value = NULL;
    if (json_parse(json, strlen(json), "settings", &value) != ST_OK)
        status_clear();
    if (!cJSON_IsObject(value)) {
        cJSON_Delete(value);
        return NULL;
    }
    cJSON *older = cJSON_GetObjectItemCaseSensitive(value, "VIRTUAL_TP");
    if (older)
        text_copy(older->string, strlen(older->string) + 1, "TP");
    return value;
}

bool config_diff_each(const char *left, const char *right, config_diff_found *found, void *arg)
{
    cJSON *a = parse_object(left), *b = parse_object(right);
    bool is_comparable = a && b;
    if (is_comparable)
        diff_objects(a, b, found, arg);
    cJSON_Delete(a);
    cJSON_Delete(b);
    return is_comparable;
}
