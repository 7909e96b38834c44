/* measure_table — tables of measured values for people: cells in columns of fixed widths, values
 * with their units. Text of any content is safe to print (text_printable). Must not know the
 * meaning of the values. */
#ifndef CONVOY_MEASURE_TABLE_H
#define CONVOY_MEASURE_TABLE_H

#include "base/text.h"

/* A column; two columns are separated by a blank. */
struct measure_column {
    const char *head;
    int width;  /* negative: cells begin at the left, as in printf; 0: neither padded nor cut */
    int digits; /* digits of a number after the point */
};

/* A cell: a text, or (text NULL) a number; a number that is not finite is "-". */
struct measure_cell {
    const char *text;
    double number;
};

/* Adds the line of the columns' heads. */
void measure_table_head(struct text *out, const struct measure_column *columns, int n);
/* Adds a line of n cells. A text that does not fit its column is cut with "…", a number is not cut.
 */
void measure_table_row(struct text *out, const struct measure_column *columns, int n,
                       const struct measure_cell *cells);
/* Ends a line, without the blanks at its end. */
void measure_table_end(struct text *out);

/* Formats a value of four digits with its unit: "54.63 GB/s", "0.0012 s", "120034 us"; "-" for NAN.
 * Returns out. */
const char *measure_table_value(char *out, size_t cap, double value, const char *unit);

#endif
