/* json_walk — iterate over the members of a JSON object or the elements of an array, as spans of
 * its text. The caller parses each span (json.h), or walks it too. So documents of any size need
 * only constant memory.
 *
 * The text between spans is checked; a span itself only for where it ends. Must not know what the
 * documents mean. */
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
    int64_t n; /* items so far */
};

/* Borrowed from the text. */
struct json_item {
    const char *key; /* with its quotes; NULL in an array */
    size_t key_n;
    const char *value;
    size_t value_n;
};

/* json_walk_begin — open: '{' or '['; ST_BAD_DATA when the text is not such a value. */
enum status json_walk_begin(struct json_walk *walk, const char *bytes, size_t n, char open,
                            const char *what);
/* json_walk_next — *is_end: there are no more, and only white space follows. ST_BAD_DATA names the
 * byte. */
enum status json_walk_next(struct json_walk *walk, struct json_item *item, bool *is_end);
/* json_walk_is — is the key this one? It may be written with escapes. */
bool json_walk_is(const struct json_item *item, const char *key);

#endif
