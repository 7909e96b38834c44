/* check_pack — rows of a check as bytes, in a short form: for other ranks, and for the supervisor
 * of a node. Between processes of one version on machines of one kind only. */
#ifndef CONVOY_CHECK_CHECK_PACK_H
#define CONVOY_CHECK_CHECK_PACK_H

#include <stddef.h>

#include "base/text.h"
#include "check/check_row.h"

#define CHECK_PACK_MAX ((size_t)1 << 30) /* a limit for the text that takes the bytes */

/* check_pack_row — appends a row. When memory is short, out->overflow is set.
 * check_pack — the same for all of them; ST_RETRY: out of memory. */
void check_pack_row(const struct check_row *row, struct text *out);
enum status check_pack(const struct check_rows *rows, struct text *out);
/* check_pack_read — appends the rows in these bytes. ST_BUG: they are not what check_pack makes;
 * ST_RETRY: out of memory. */
enum status check_pack_read(const void *bytes, size_t n, struct check_rows *rows);

#endif
