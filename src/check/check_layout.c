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

/* What a shell is within: 0, a quote, or '#': a comment. Steps over s[*i]. */
static char state_after(char state, const char *s, int *i)
{
    const char c = s[*i];
    if (c == '\\' && state != '#' && state != '\'' && s[*i + 1])
        ++*i;
    else if (state == 0 && (c == '\'' || c == '"' || (c == '#' && (*i == 0 || s[*i - 1] == ' '))))
        return c;
    else if (c == state && c != '#')
        return 0;
    return state;
}

/* A line of a command. */
struct piece {
    int bytes;    /* of the text, without blanks around it */
    char state;   /* what the next line is within */
    bool is_word; /* it goes on in the middle of a word */
};

/* Up to the last blank outside of quotes that fits; else in the middle of a word. begin: what the
 * line is within. */
static struct piece piece_of(const char *s, int columns, char begin)
{
    const int all = bytes_of(s, columns);
    struct piece blank = {0}, word = {0};
    char state = begin;
    if (!s[all])
        return (struct piece){all, 0, false};
    for (int i = 0; i <= all; i++) {
        if (s[i] == ' ' && i > 0 && (state == 0 || state == '#'))
            blank = (struct piece){i, state, false};
        if ((s[i] & 0xC0) != 0x80)
            word = (struct piece){i, state, true};
        state = state_after(state, s, &i);
    }
    return blank.bytes > 0 ? blank : word;
}

/* A quote that a line ends within is closed at its end, and opened again by the next line. */
static void wrap_command(struct text *out, int indent, const char *at)
{
    const int columns = CHECK_LAYOUT_COLUMNS - indent - 3; /* two quotes, a backslash */
    struct piece last = {0};
    for (bool is_first = true; is_first || *at; is_first = false) {
        const bool is_quoted = last.is_word && last.state != 0 && last.state != '#';
        const struct piece piece = piece_of(at, columns, last.state);
        text_add(out, "%*s%s%.*s%.*s", is_first || last.is_word ? 0 : indent, "",
                 last.state == '#' ? "# " : "", is_quoted, &last.state, piece.bytes, at);
        at += piece.bytes;
        if (piece.is_word && piece.state != 0 && piece.state != '#')
            text_add(out, "%c", piece.state);
        if (*at && piece.state != '#')
            text_add(out, piece.is_word ? "\\" : " \\");
        check_layout_end(out);
        while (*at == ' ' && !piece.is_word)
            at++;
        last = piece;
    }
}

void check_layout_wrap_at(struct text *out, int indent, const char *s, bool is_command)
{
    char clean[1024];
    check_text_printable(clean, sizeof clean, s);
    const char *at = clean;
    if (is_command) {
        wrap_command(out, indent, at);
        return;
    }
    do {
        const int n = line_bytes(at, CHECK_LAYOUT_COLUMNS - indent);
        text_add(out, "%*s%.*s", at == clean ? 0 : indent, "", n, at);
        check_layout_end(out);
        at += n;
        while (*at == ' ')
            at++;
    } while (*at);
}

void check_layout_wrap(struct text *out, const char *first, const char *s, bool is_command)
{
    text_add(out, "%s", first);
    check_layout_wrap_at(out, (int)strlen(first), s, is_command);
}

void check_layout_verdict(struct text *out, enum check_verdict verdict, int columns,
                          bool is_terminal)
{
    static const char *const colours[] = {"\033[32m", "\033[2m", "\033[33m", "\033[1;31m", ""};
    text_add(out, "%s%-*.*s%s", is_terminal ? colours[verdict] : "", columns, columns,
             check_row_verdict(verdict), is_terminal ? "\033[0m" : "");
}
