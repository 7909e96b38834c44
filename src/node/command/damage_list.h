/* damage_list — the checkpoints that an audit found damaged or changed, as lines for people and as
 * JSON. It must not know how damage is found. */
#ifndef CONVOY_NODE_DAMAGE_LIST_H
#define CONVOY_NODE_DAMAGE_LIST_H

#include <stdint.h>

#include "base/file.h"
#include "base/text.h"

/* A zeroed list is empty. */
struct damage_list {
    int n;
    char first[FILE_PATH_MAX + 512]; /* message about the first entry; "": none */
    struct text lines;               /* "damaged     PROBLEM", one line for each entry */
    struct text json; /* objects {"step":…,"problem":…} with commas between them */
};

/* damage_list_add — adds a checkpoint. problem: a message that names the file; terminal control
 * characters in it are replaced. */
void damage_list_add(struct damage_list *list, int64_t step, const char *problem);
void damage_list_free(struct damage_list *list); /* accepts a zeroed list, and a second call */

#endif
