/* base64 — bytes as text (RFC 4648, with padding). Pure functions. */
#ifndef CONVOY_NET_BASE64_H
#define CONVOY_NET_BASE64_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BASE64_SIZE(bytes) (((bytes) + 2) / 3 * 4 + 1) /* with the closing 0 */

/* base64_write — encodes n bytes. out has BASE64_SIZE(n) bytes. */
void base64_write(char *out, const uint8_t *bytes, size_t n);
/* base64_read — decodes the whole string. false: not canonical base64, or more than cap bytes. */
bool base64_read(const char *text, uint8_t *out, size_t cap, size_t *n_out);

#endif
