/* check_rows — the rows of a check in one growing array; see check_row.h. */
#include "check/check_row.h"

#include <stdlib.h>

enum status check_rows_add(struct check_rows *rows, const struct check_row *row)
{
    if (rows->n == rows->cap) {
        int cap = rows->cap ? 2 * rows->cap : 64;
        struct check_row *more = realloc(rows->row, sizeof *more * (size_t)cap);
        if (!more)
            return FAIL(ST_RETRY, "out of memory: %d rows of a check; use a machine with more",
                        cap);
        rows->row = more;
        rows->cap = cap;
    }
    rows->row[rows->n++] = *row;
    return ST_OK;
}

void check_rows_free(struct check_rows *rows)
{
    free(rows->row);
    *rows = (struct check_rows){0};
}

enum check_verdict check_rows_worst(const struct check_rows *rows, int node)
{
    enum check_verdict worst = CHECK_VERDICT_PASS;
    for (int i = 0; i < rows->n; i++) {
        const struct check_row *row = &rows->row[i];
        bool counts = row->verdict == CHECK_VERDICT_WARN || row->verdict == CHECK_VERDICT_FAIL;
        if (counts && row->verdict > worst && check_row_is_about(row, node))
            worst = row->verdict;
    }
    return worst;
}
