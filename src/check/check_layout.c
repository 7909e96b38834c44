/* check_layout — see check_layout.h. */
#include "check/check_layout.h"

#include <string.h>

#include "check/check_text.h"

/* The bytes of the first `columns` characters of s. */
static int bytes_of(const char *s, int columns)
{
    int i = 0;
    for (; s[i]; i++)
        if ((s[i] & 0xC0) != 0x80 && columns-- == 0)
            break;
    return i;
}

static void fit(char *out, size_t cap, const char *s, int columns)
{
    char clean[1024];
    check_text_printable(clean, sizeof clean, s);
    if (check_text_columns(clean) <= columns)
        text_copy(out, cap, clean);
    else
        text_format(out, cap, "%.*s…", bytes_of(clean, columns - 1), clean);
}

void check_layout_pad(struct text *out, const char *s, int columns)
{
    char line[512];
    fit(line, sizeof line, s, columns);
    text_add(out, "%s%*s", line, columns - check_text_columns(line), "");
}

void check_layout_pad_left(struct text *out, const char *s, int columns)
{
    char line[512];
    fit(line, sizeof line, s, columns);
    text_add(out, "%*s%s", columns - check_text_columns(line), "", line);
}

void check_layout_end(struct text *out)
{
    while (out->len > 0 && out->data[out->len - 1] == ' ')
        out->data[--out->len] = 0;
    text_add(out, "\n");
}

/* How many bytes of s go into a line: up to the last blank that fits, or all that fits. */
static int line_bytes(const char *s, int columns)
{
    const int all = bytes_of(s, columns);
    if (!s[all])
        return all;
    int n = all;
    while (n > 0 && s[n] != ' ')
        n--;
    return n > 0 ? n : all;
}

void check_layout_wrap_at(struct text *out, int indent, const char *s, bool continued)
{
    char clean[1024];
    check_text_printable(clean, sizeof clean, s);
    const int columns = CHECK_LAYOUT_COLUMNS - indent - (continued ? 2 : 0);
    const char *at = clean;
    do {
        const int n = line_bytes(at, columns);
        const bool is_last = !at[n];
        text_add(out, "%*s%.*s", at == clean ? 0 : indent, "", n, at);
        if (continued && !is_last)
            text_add(out, " \\");
        check_layout_end(out);
        at += n;
        while (*at == ' ')
            at++;
    } while (*at);
}

void check_layout_wrap(struct text *out, const char *first, const char *s, bool continued)
{
    text_add(out, "%s", first);
    check_layout_wrap_at(out, (int)strlen(first), s, continued);
}

void check_layout_verdict(struct text *out, enum check_verdict verdict, int columns,
                          bool is_terminal)
{
    static const char *const colours[] = {"\033[32m", "\033[2m", "\033[33m", "\033[1;31m", ""};
    text_add(out, "%s%-*.*s%s", is_terminal ? colours[verdict] : "", columns, columns,
             check_row_verdict(verdict), is_terminal ? "\033[0m" : "");
}
