/* check_data — a fingerprint of DATA that takes milliseconds: names are not compared, contents are
 * by their ends. Downloads nothing. */
#ifndef CONVOY_NODE_CHECK_DATA_H
#define CONVOY_NODE_CHECK_DATA_H

#include <stddef.h>

/* check_data_print — data: a value of DATA or VAL_DATA. Writes "3 files, 1048576 bytes, 8f3a…",
 * "synthetic", "not readable here: …", or "" for none or for addresses. */
void check_data_print(const char *data, char *out, size_t cap);

#endif
