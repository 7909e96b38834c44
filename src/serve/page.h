/* page — the dashboard at GET /: one HTML file (assets/page.html) inside the binary, without
 * outside resources.
 *
 * It only shows what /status and /history say. Must not know the view. */
#ifndef CONVOY_SERVE_PAGE_H
#define CONVOY_SERVE_PAGE_H

#include <stdbool.h>
#include <stddef.h>

/* page_html — the document; lives as long as the program. */
const char *page_html(size_t *bytes_out);

#define PAGE_POLICY_BYTES 512
/* page_policy — its Content-Security-Policy: only this very script and style (by their SHA-256) and
 * questions to this server, nothing else. false: it could not be made (memory), and the page must
 * not be sent without. */
bool page_policy(char *out, size_t cap);

#endif
