/* check_text — see check_text.h. */
#include "check/check_text.h"

#include <math.h>
#include <string.h>

#include "base/text.h"

const char *check_text_value(char *out, size_t cap, double value, const char *unit)
{
    const char *blank = unit[0] ? " " : "";
    if (isnan(value))
        text_copy(out, cap, "-");
    else if (isinf(value))
        text_format(out, cap, "%sinfinite%s%s", value < 0 ? "-" : "", blank, unit);
    else if (fabs(value) >= 1000 && fabs(value) < 1e9)
        text_format(out, cap, "%.0f%s%s", value, blank, unit);
    else
        text_format(out, cap, "%.4g%s%s", value, blank, unit);
    return out;
}

const char *check_text_node(char *out, size_t cap, const struct check_hosts *hosts, int node)
{
    const char *name = check_host_name(hosts, node);
    if (node < 0)
        text_copy(out, cap, "all nodes");
    else if (name[0])
        text_format(out, cap, "node %d (%s)", node, name);
    else
        text_format(out, cap, "node %d", node);
    return out;
}

const char *check_text_place(char *out, size_t cap, const struct check_hosts *hosts,
                             const struct check_row *row)
{
    char node[96], peer[96], link[200];
    check_text_node(node, sizeof node, hosts, row->node);
    if (row->peer >= 0)
        text_format(link, sizeof link, "%s %s %s", node, strstr(row->subject, "->") ? "->" : "-",
                    check_text_node(peer, sizeof peer, hosts, row->peer));
    else
        text_copy(link, sizeof link, node);
    /* a stage may have written the ends into the subject, too */
    if (row->subject[0] && strcmp(row->subject, link) && !text_starts(row->subject, "node "))
        text_format(out, cap, "%s, %s", link, row->subject);
    else
        text_copy(out, cap, link);
    return out;
}

/* The bytes of the character at s; 0: not UTF-8, or a control. */
static int printable_bytes(const unsigned char *s)
{
    int n = s[0] < 0x80 ? 1 : s[0] < 0xC2 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    if (n == 1)
        return s[0] >= 0x20 && s[0] != 0x7F;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    if (n == 2 && s[0] == 0xC2 && s[1] < 0xA0)
        return 0; /* C1 */
    if (n == 3 && ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] >= 0xA0) ||
                   (s[0] == 0xEF && s[1] == 0xBF && s[2] >= 0xBE)))
        return 0; /* overlong; surrogates; U+FFFE, U+FFFF, which XML forbids */
    if (n == 4 && (s[0] > 0xF4 || (s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F)))
        return 0;
    return n;
}

const char *check_text_printable(char *out, size_t cap, const char *s)
{
    size_t used = 0;
    while (*s) {
        const int n = printable_bytes((const unsigned char *)s);
        const size_t bytes = n > 0 ? (size_t)n : 1;
        if (used + bytes >= cap)
            break;
        memcpy(out + used, n > 0 ? s : "?", bytes);
        used += bytes;
        s += bytes;
    }
    out[used] = 0;
    return out;
}

int check_text_columns(const char *s)
{
    int n = 0;
    for (; *s; s++)
        n += (*s & 0xC0) != 0x80;
    return n;
}

/* ---- words of a shell ---- */

static const char plain[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/+:,@";

static bool is_printable(const char *s)
{
    int n = 1;
    while (*s && (n = printable_bytes((const unsigned char *)s)) > 0)
        s += n;
    return n > 0;
}

/* quote — false: it does not fit. A quote in it ends the quotes, and stands behind a backslash. */
static bool quote(char *out, size_t cap, const char *word)
{
    static const char inner[] = "'\\''";
    size_t used = 0;
    if (cap < 3)
        return false;
    out[used++] = '\'';
    for (; *word; word++) {
        const size_t bytes = *word == '\'' ? sizeof inner - 1 : 1;
        if (used + bytes + 2 > cap)
            return false;
        memcpy(out + used, *word == '\'' ? inner : word, bytes);
        used += bytes;
    }
    memcpy(out + used, "'", 2);
    return true;
}

const char *check_text_word(char *out, size_t cap, const char *word, const char *instead)
{
    const bool is_plain = word[0] && word[strspn(word, plain)] == 0;
    if (!is_printable(word) ||
        !(is_plain ? text_format(out, cap, "%s", word) : quote(out, cap, word)))
        text_copy(out, cap, instead);
    return out;
}

const char *check_text_folder(char *out, size_t cap, const char *dir)
{
    char path[512];
    const bool fits = text_format(path, sizeof path, "%s%s", dir[0] == '-' ? "./" : "", dir);
    return check_text_word(out, cap, fits ? path : "\n", "\"$CHECKPOINT_DIR\"");
}
