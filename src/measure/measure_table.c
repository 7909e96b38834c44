/* measure_table — see measure_table.h. */
#include "measure/measure_table.h"

#include <math.h>
#include <stdlib.h>

#define CELL_BYTES 512

/* Adds s, cut to the column's width and padded to it. */
static void add_text(struct text *out, int width, const char *s)
{
    char clean[CELL_BYTES];
    text_printable(clean, sizeof clean, s);
    const int columns = text_columns(clean), most = abs(width);
    if (width != 0 && columns > most)
        text_add(out, "%.*s…", text_prefix(clean, most - 1), clean);
    else
        text_add(out, "%*s%s%*s", width > 0 ? width - columns : 0, "", clean,
                 width < 0 ? most - columns : 0, "");
}

void measure_table_row(struct text *out, const struct measure_column *columns, int n,
                       const struct measure_cell *cells)
{
    for (int i = 0; i < n; i++) {
        if (i > 0)
            text_add(out, " ");
        if (cells[i].text != NULL)
            add_text(out, columns[i].width, cells[i].text);
        else if (isfinite(cells[i].number))
            text_add(out, "%*.*f", columns[i].width, columns[i].digits, cells[i].number);
        else
            add_text(out, columns[i].width, "-");
    }
    measure_table_end(out);
}

void measure_table_head(struct text *out, const struct measure_column *columns, int n)
{
    for (int i = 0; i < n; i++) {
        if (i > 0)
            text_add(out, " ");
        add_text(out, columns[i].width, columns[i].head);
    }
    measure_table_end(out);
}

void measure_table_end(struct text *out)
{
    while (out->len > 0 && out->data[out->len - 1] == ' ')
        out->data[--out->len] = 0;
    text_add(out, "\n");
}

const char *measure_table_value(char *out, size_t cap, double value, const char *unit)
{
    const char *blank = unit[0] ? " " : "";
    if (isnan(value))
        text_copy(out, cap, "-");
    else if (isinf(value))
        text_format(out, cap, "%sinfinite%s%s", value < 0 ? "-" : "", blank, unit);
    else if (fabs(value) >= 1000 && fabs(value) < 1e9)
        text_format(out, cap, "%.0f%s%s", value, blank, unit);
    else
        text_format(out, cap, "%.4g%s%s", value, blank, unit);
    return out;
}
