/* json_walk — iterates over the members of a JSON object or the elements of an array, as spans of
 * its text. The caller parses each span (json.h), or walks it too. So documents of any size need
 * only constant memory.
 *
 * The text between spans is checked; within a span only its end is searched. Must not know the
 * meaning of the documents. */
#ifndef CONVOY_BASE_JSON_WALK_H
#define CONVOY_BASE_JSON_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct json_walk {
    const char *what; /* for failures */
    const char *begin, *at, *end;
    char open; /* '{' or '[' */
    int64_t n; /* number of items so far */
};

/* Borrowed from the text. */
struct json_item {
    const char *key; /* with its quotes; NULL in an array */
    size_t key_n;
    const char *value;
    size_t value_n;
};

/* json_walk_begin — begins to walk a text. open: '{' or '['; ST_BAD_DATA if the text is not such a
 * value. */
enum status json_walk_begin(struct json_walk *walk, const char *bytes, size_t n, char open,
                            const char *what);
/* json_walk_next — finds the next item. *is_end: there are no more, and only white space follows.
 * ST_BAD_DATA: the message contains the byte. */
enum status json_walk_next(struct json_walk *walk, struct json_item *item, bool *is_end);
/* json_walk_is — returns true if the key is this one, also if it is written with escapes. */
bool json_walk_is(const struct json_item *item, const char *key);

#endif
