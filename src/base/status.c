/* status — the list of codes as tables, and this thread's sentence about the current failure. No
 * logging and no exit here. */
#include "base/status.h"

#include <stdarg.h>
#include <string.h>

#include "base/text.h"

struct status_row {
    const char *name;
    const char *text;
    enum status_group group;
    int exit_code;
};

static const struct status_row status_rows[STATUS_N] = {
#define STATUS_ROW(name, group, code, text) [ST_##name] = {#name, text, STATUS_GROUP_##group, code},
    STATUS_LIST(STATUS_ROW)
#undef STATUS_ROW
};

static _Thread_local struct status_saved status_now;

/* A value outside the list can only come from a bug; it is reported as one instead of read beyond
 * the table. */
static const struct status_row *row_of(enum status st)
{
    return &status_rows[(unsigned)st < STATUS_N ? st : ST_BUG];
}

const char *status_name(enum status st) { return row_of(st)->name; }
const char *status_text(enum status st) { return row_of(st)->text; }
int status_exit_code(enum status st) { return row_of(st)->exit_code; }
enum status_group status_group(enum status st) { return row_of(st)->group; }

enum status status_from_exit(int code)
{
    for (int st = 0; st < STATUS_N; st++) {
        if (status_rows[st].exit_code == code)
            return (enum status)st;
    }
    return ST_BUG;
}

const char *status_file_name(const char *path)
{
    path += strncmp(path, "src/", 4) == 0 ? 4 : 0;
    const char *slash = strrchr(path, '/'), *name = slash;
    while (name != NULL && name > path && name[-1] != '/')
        name--;
    if (name == NULL)
        return path;
    return strncmp(name, slash + 1, (size_t)(slash - name)) == 0 ? slash + 1 : name;
}

enum status status_fail_at(const char *file, int line, enum status st, const char *fmt, ...)
{
    /* Formatted into a separate buffer first, because an argument may be status_message()
     * itself. */
    char message[sizeof(status_now.message)];
    va_list args;
    va_start(args, fmt);
    text_format_v(message, sizeof(message), fmt, args);
    va_end(args);
    text_copy(status_now.message, sizeof(status_now.message), message);
    text_format(status_now.trace, sizeof(status_now.trace), "%s:%d", status_file_name(file), line);
    return st;
}

enum status status_trace_at(const char *file, int line, enum status st)
{
    size_t used = strlen(status_now.trace);
    text_format(status_now.trace + used, sizeof(status_now.trace) - used, "%s%s:%d",
                used == 0 ? "" : " < ", status_file_name(file), line);
    return st;
}

const char *status_message(void) { return status_now.message; }
const char *status_trace(void) { return status_now.trace; }

void status_clear(void)
{
    status_now.message[0] = 0;
    status_now.trace[0] = 0;
}

void status_save(struct status_saved *out) { *out = status_now; }
void status_restore(const struct status_saved *saved) { status_now = *saved; }
