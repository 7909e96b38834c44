/* damage_list — see damage_list.h. */
#include "node/command/damage_list.h"

#include <inttypes.h>

#include "base/json.h"

void damage_list_add(struct damage_list *list, int64_t step, const char *problem)
{
    char plain[sizeof list->first], quoted[6 * sizeof plain + 3];
    text_copy(plain, sizeof plain, problem);
    text_strip_controls(plain);
    json_quote(quoted, sizeof quoted, plain);
    if (list->n == 0)
        text_copy(list->first, sizeof list->first, plain);
    text_add(&list->lines, "damaged     %s\n", plain);
    text_add(&list->json, "%s{\"step\":%" PRId64 ",\"problem\":%s}", list->n > 0 ? "," : "", step,
             quoted);
    list->n++;
}

void damage_list_free(struct damage_list *list)
{
    text_free(&list->lines);
    text_free(&list->json);
}
