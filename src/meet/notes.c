/* notes — see notes.h. Must not know who prints. */
#include "meet/notes.h"

#include <string.h>

#include "base/text.h"

void notes_add(struct notes *notes, bool is_warning, const char *fmt, ...)
{
    if (notes->lines_n == NOTES_MAX)
        return;
    struct notes_line *line = &notes->lines[(notes->first_i + notes->lines_n++) % NOTES_MAX];
    struct text whole = {.limit = NOTES_TEXT_MAX};
    va_list args;
    va_start(args, fmt);
    text_add_v(&whole, fmt, args);
    va_end(args);
    line->is_warning = is_warning;
    text_copy(line->text, sizeof(line->text), whole.data != NULL ? whole.data : "");
    text_free(&whole);
}

const char *notes_next(struct notes *notes, bool *is_warning_out)
{
    if (notes->lines_n == 0)
        return NULL;
    const struct notes_line *line = &notes->lines[notes->first_i];
    notes->first_i = (notes->first_i + 1) % NOTES_MAX;
    notes->lines_n--;
    *is_warning_out = line->is_warning;
    return line->text;
}

int notes_list(int n, bool (*is_one)(const void *arg, int i), const void *arg, char *out,
               size_t cap)
{
    int found_n = 0;
    out[0] = 0;
    for (int i = 0; i < n; i++) {
        if (!is_one(arg, i))
            continue;
        int last = i;
        while (last + 1 < n && is_one(arg, last + 1))
            last++;
        size_t used = strlen(out);
        const char *comma = found_n > 0 ? ", " : "";
        if (last > i)
            text_format(out + used, cap - used, "%s%d-%d", comma, i, last);
        else
            text_format(out + used, cap - used, "%s%d", comma, i);
        found_n += last - i + 1;
        i = last;
    }
    return found_n;
}
