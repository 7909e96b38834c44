/* noscript — what the page says in a browser that runs no scripts: the state of the run as plain
 * HTML, made for each answer.
 *
 * Must not know HTTP. */
#ifndef CONVOY_SERVE_NOSCRIPT_H
#define CONVOY_SERVE_NOSCRIPT_H

#include "base/text.h"
#include "serve/view.h"

#define NOSCRIPT_MARK "<!-- essentials -->" /* where it belongs in the page */

void noscript_write(const struct view *view, struct text *t);

#endif
