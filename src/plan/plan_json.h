/* plan_json — a plan as JSON (docs/plan.md names the members). A pure function. */
#ifndef CONVOY_PLAN_PLAN_JSON_H
#define CONVOY_PLAN_PLAN_JSON_H

#include "plan/plan_report.h"

/* plan_json_write — appends one object and a line end. ST_RETRY: out of memory. */
enum status plan_json_write(const struct plan_report *report, struct text *out);

#endif
