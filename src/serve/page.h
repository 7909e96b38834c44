/* page — the dashboard at GET /: one HTML file (assets/page.html) inside the binary, without
 * external resources. It shows only the answers of the other paths. It must not know the view. */
#ifndef CONVOY_SERVE_PAGE_H
#define CONVOY_SERVE_PAGE_H

#include <stdbool.h>
#include <stddef.h>

/* page_html — returns the document, in static memory. */
const char *page_html(size_t *bytes_out);

#define PAGE_POLICY_BYTES 512
/* page_policy — writes its Content-Security-Policy: this script and this style only (by their
 * SHA-256), and requests to this server only. false: out of memory; the page must not be sent
 * without it. */
bool page_policy(char *out, size_t cap);

#endif
