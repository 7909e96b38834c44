/* metrics — GET /metrics: the view as Prometheus text 0.0.4, names convoy_*, base units (seconds,
 * bytes, ratios).
 *
 * A pure function of a view. An unknown value has no sample. Labels are few and their values
 * bounded: rank, node, phase, run, and one info metric. It must not know HTTP. */
#ifndef CONVOY_SERVE_METRICS_H
#define CONVOY_SERVE_METRICS_H

#include "base/text.h"
#include "serve/view.h"

#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* metrics_write — appends the document. Out of memory: sets t->overflow. */
void metrics_write(const struct view *view, struct text *t);
/* metrics_write_markdown — appends a table of all metrics, for docs/status.md. check_metrics: text
 * with the metrics of the check. */
void metrics_write_markdown(const char *check_metrics, struct text *t);

#endif
