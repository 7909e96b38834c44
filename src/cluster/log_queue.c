/* log_queue — see log_queue.h. Must not know how lines are printed. */
#include "cluster/log_queue.h"

#include <string.h>

#include "base/text.h"

void log_queue_add(struct log_queue *queue, bool is_warning, const char *fmt, ...)
{
    if (queue->lines_n == LOG_QUEUE_MAX)
        return;
    struct log_queue_line *line =
        &queue->lines[(queue->first_i + queue->lines_n++) % LOG_QUEUE_MAX];
    va_list args;
    va_start(args, fmt);
    text_format_v(line->text, sizeof line->text, fmt, args);
    va_end(args);
    line->is_warning = is_warning;
}

const char *log_queue_next(struct log_queue *queue, bool *is_warning_out)
{
    if (queue->lines_n == 0)
        return NULL;
    const struct log_queue_line *line = &queue->lines[queue->first_i];
    queue->first_i = (queue->first_i + 1) % LOG_QUEUE_MAX;
    queue->lines_n--;
    *is_warning_out = line->is_warning;
    return line->text;
}

int log_queue_list(int n, bool (*is_one)(const void *arg, int i), const void *arg, char *out,
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
