/* byte_map — numbers strings of bytes: 0 for the first that was added, 1 for the next other one …
 *
 * Not for several threads. It must not know what the strings are. */
#ifndef CONVOY_DATA_BYTE_MAP_H
#define CONVOY_DATA_BYTE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define BYTE_MAP_NONE UINT32_MAX
#define BYTE_MAP_STRING_MAX 1024 /* bytes of one string */

struct byte_map;
enum status byte_map_new(struct byte_map **out); /* ST_RETRY: out of memory */
void byte_map_free(struct byte_map *map);        /* accepts NULL */
/* byte_map_add — the number of the string, which is copied. 1 ≤ n ≤ BYTE_MAP_STRING_MAX. Fails
 * ST_RETRY: out of memory. */
enum status byte_map_add(struct byte_map *map, const uint8_t *bytes, size_t n, uint32_t *number);
/* byte_map_find — its number, or BYTE_MAP_NONE. */
uint32_t byte_map_find(const struct byte_map *map, const uint8_t *bytes, size_t n);
uint32_t byte_map_count(const struct byte_map *map);
/* byte_map_bytes — valid until the next byte_map_add. number < byte_map_count. */
const uint8_t *byte_map_bytes(const struct byte_map *map, uint32_t number, size_t *n_out);

#endif
