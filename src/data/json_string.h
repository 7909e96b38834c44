/* json_string — the text of one JSON string. It must not know documents. */
#ifndef CONVOY_DATA_JSON_STRING_H
#define CONVOY_DATA_JSON_STRING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* json_string_read — decodes the string at text, with its quotes, n_bytes long; out has space for
 * n_bytes. It may hold 0; half a surrogate pair becomes U+FFFD. false: it is not a JSON string. */
bool json_string_read(const char *text, size_t n_bytes, uint8_t *out, size_t *n_out);

/* json_string_code — decodes a character written with \u, once or as a pair; p is behind the first
 * u. Adds its bytes at out + *n, half a pair as U+FFFD, and returns the place behind it; NULL: no
 * four hexadecimal digits. */
const char *json_string_code(const char *p, const char *end, uint8_t *out, size_t *n);

#endif
