/* noscript — the state of the run as plain HTML, for a browser without scripts; made anew for each
 * answer. It must not know HTTP. */
#ifndef CONVOY_SERVE_NOSCRIPT_H
#define CONVOY_SERVE_NOSCRIPT_H

#include "base/text.h"
#include "serve/view.h"

#define NOSCRIPT_MARK "<!-- essentials -->" /* position of the HTML in the page */

/* noscript_write — appends the HTML. */
void noscript_write(const struct view *view, struct text *t);

#endif
