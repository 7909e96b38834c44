/* check_text — writes the locations of a check's rows as text for people. */
#ifndef CONVOY_CHECK_CHECK_TEXT_H
#define CONVOY_CHECK_CHECK_TEXT_H

#include <stddef.h>

#include "check/report/host.h"
#include "check/check_row.h"

#define CHECK_TEXT_WORD 112 /* bytes of a word that leave room for its command in a remedy */

/* check_text_node — writes "node 3 (gpu-17)"; without a name "node 3"; "all nodes" for -1. Returns
 * out. */
const char *check_text_node(char *out, size_t cap, const struct check_hosts *hosts, int node);
/* check_text_location — writes the location that was measured: "node 3 (gpu-17), GPU 5", "node 2 -
 * node 5, tcp", or "->" if the subject has it. Returns out. */
const char *check_text_location(char *out, size_t cap, const struct check_hosts *hosts,
                                const struct check_row *row);
/* check_text_word — writes one word of a shell, in single quotes if they are needed; `instead` if
 * it does not fit or cannot be printed. Returns out. */
const char *check_text_word(char *out, size_t cap, const char *word, const char *instead);
/* check_text_folder — writes a path, which may begin with '-', as a word; instead:
 * "$CHECKPOINT_DIR". Returns out. */
const char *check_text_folder(char *out, size_t cap, const char *dir);

#endif
