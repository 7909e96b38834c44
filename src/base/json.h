/* json — cJSON with limits for bytes from outside. Limits: length, nesting ≤ 64, at most 262,144
 * values, no duplicate keys, numbers exact to 2^53. A getter's failure names the key and the
 * expected value. Numbers that are not finite are written as null. Must not know the meaning of the
 * documents. */
#ifndef CONVOY_BASE_JSON_H
#define CONVOY_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include "base/status.h"
#include "base/text.h"

/* json_parse — the caller frees *out with cJSON_Delete. what: the document's name for the failure.
 * ST_BAD_DATA: not JSON, or bytes other than white space follow it; ST_RETRY: out of memory. */
enum status json_parse(const char *bytes, size_t n, const char *what, cJSON **out);
/* json_get_i64 — reads a whole number from min to max. Every getter fails with ST_BAD_DATA and
 * leaves *out unchanged. */
enum status json_get_i64(const cJSON *object, const char *key, int64_t min, int64_t max,
                         int64_t *out);
/* json_item_i64 — reads a value itself, such as an element of a list; key: for the failure. */
enum status json_item_i64(const cJSON *item, const char *key, int64_t min, int64_t max,
                          int64_t *out);
/* json_get_f64 — reads a finite number. */
enum status json_get_f64(const cJSON *object, const char *key, double *out);
/* json_get_string — reads a string; *out is borrowed until the document is deleted. */
enum status json_get_string(const cJSON *object, const char *key, const char **out);
/* json_get_hex — reads a string of exactly 16 lower-case hexadecimal digits. */
enum status json_get_hex(const cJSON *object, const char *key, uint64_t *out);
/* json_get_array — reads an array; *out is borrowed until the document is deleted. */
enum status json_get_array(const cJSON *object, const char *key, const cJSON **out);
/* json_get_object — reads an object; *out is borrowed likewise. */
enum status json_get_object(const cJSON *object, const char *key, const cJSON **out);
/* json_text — returns a text, or "" if there is none: for documents that another version may have
 * written. */
const char *json_text(const cJSON *object, const char *key);
/* json_number — returns a number, or NAN if there is none: for such documents. */
double json_number(const cJSON *object, const char *key);
/* json_add_number — adds a number in the shortest digits that read back, or null if it is not
 * finite. */
void json_add_number(cJSON *object, const char *key, double value);
/* json_add_i64 — adds a whole number; numbers beyond 2^53 are written exactly (as raw digits). */
void json_add_i64(cJSON *object, const char *key, int64_t value);
/* json_quote — writes s as a JSON string with quotes (invalid UTF-8 becomes U+FFFD); false: it was
 * cut. */
bool json_quote(char *out, size_t cap, const char *s);
/* json_quote_text — appends s as json_quote writes it, of any length. */
void json_quote_text(struct text *out, const char *s);

#endif
