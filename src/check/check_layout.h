/* check_layout — lines of at most CHECK_LAYOUT_COLUMNS columns: padding, wrapping, colours. */
#ifndef CONVOY_CHECK_CHECK_LAYOUT_H
#define CONVOY_CHECK_CHECK_LAYOUT_H

#include "base/text.h"
#include "check/check_row.h"

#define CHECK_LAYOUT_COLUMNS 100

/* check_layout_pad — s in exactly `columns` columns: cut with "…", or filled with blanks on the
 * right, or on the left. Only printable characters. */
void check_layout_pad(struct text *out, const char *s, int columns);
void check_layout_pad_left(struct text *out, const char *s, int columns);
/* check_layout_end — ends a line, without the blanks at its end. */
void check_layout_end(struct text *out);
/* check_layout_wrap — s as lines, broken at blanks; the first begins with `first` (ASCII), the
 * others with as many blanks. is_command: of a shell, which means the same when it is pasted: a
 * broken line ends in a backslash, a quote is closed there and opened again, and each line of a
 * comment begins with '#'. Ends with a newline. */
void check_layout_wrap(struct text *out, const char *first, const char *s, bool is_command);
/* check_layout_wrap_at — the same after `indent` columns that the line has already. */
void check_layout_wrap_at(struct text *out, int indent, const char *s, bool is_command);
/* check_layout_verdict — the word in `columns` columns, in its colour on a terminal. */
void check_layout_verdict(struct text *out, enum check_verdict verdict, int columns,
                          bool is_terminal);

#endif
