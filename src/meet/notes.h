/* notes — lines for the log that a pure machine leaves for its driver to print; and lists of nodes
 * for people. Must not know who prints. */
#ifndef CONVOY_MEET_NOTES_H
#define CONVOY_MEET_NOTES_H

#include <stdbool.h>
#include <stddef.h>

#define NOTES_MAX 64 /* more between two looks are dropped */
#define NOTES_TEXT_MAX 1152

struct notes {
    struct notes_line {
        bool is_warning;
        char text[NOTES_TEXT_MAX];
    } lines[NOTES_MAX];
    int first_i, lines_n;
};

void notes_add(struct notes *notes, bool is_warning, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* notes_next — the oldest, once; NULL: none. */
const char *notes_next(struct notes *notes, bool *is_warning_out);
/* notes_list — "1, 3-7, 9": those of 0 … n−1 that is_one picks. Returns how many. */
int notes_list(int n, bool (*is_one)(const void *arg, int i), const void *arg, char *out,
               size_t cap);

#endif
