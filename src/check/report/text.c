/* check_text — see report/text.h. */
#include "check/report/text.h"

#include <string.h>

#include "base/text.h"

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

const char *check_text_location(char *out, size_t cap, const struct check_hosts *hosts,
                                const struct check_row *row)
{
    char node[96], peer[96], link[200];
    check_text_node(node, sizeof node, hosts, row->node);
    if (row->peer >= 0)
        text_format(link, sizeof link, "%s %s %s", node, strstr(row->subject, "->") ? "->" : "-",
                    check_text_node(peer, sizeof peer, hosts, row->peer));
    else
        text_copy(link, sizeof link, node);
    /* a stage may have written both ends into the subject, too */
    if (row->subject[0] && strcmp(row->subject, link) && !text_starts(row->subject, "node "))
        text_format(out, cap, "%s, %s", link, row->subject);
    else
        text_copy(out, cap, link);
    return out;
}

/* ---- words of a shell ---- */

static const char plain[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/+:,@";

/* quote_word — quotes a word; false: it does not fit. A quote inside the word ends the quotes and
 * follows a backslash. */
static bool quote_word(char *out, size_t cap, const char *word)
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
    if (!text_is_printable(word) ||
        !(is_plain ? text_format(out, cap, "%s", word) : quote_word(out, cap, word)))
        text_copy(out, cap, instead);
    return out;
}

const char *check_text_folder(char *out, size_t cap, const char *dir)
{
    char path[512];
    const bool fits = text_format(path, sizeof path, "%s%s", dir[0] == '-' ? "./" : "", dir);
    return check_text_word(out, cap, fits ? path : "\n", "\"$CHECKPOINT_DIR\"");
}
