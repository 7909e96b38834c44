/* byte_map — see byte_map.h. Open addressing, at most half full. All bytes lie in one block. */
#include "data/byte_map.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/assert.h"

#define FIRST_SLOTS 1024

struct item {
    uint64_t hash;
    size_t at;
    uint32_t n;
};

struct byte_map {
    uint32_t *slot; /* a number + 1; 0: free */
    size_t slots_n; /* a power of two */
    struct item *item;
    size_t items_n, items_cap;
    uint8_t *bytes;
    size_t bytes_n, bytes_cap;
};

enum status byte_map_new(struct byte_map **out)
{
    struct byte_map *map = calloc(1, sizeof *map);
    if (map != NULL)
        map->slot = calloc(FIRST_SLOTS, sizeof *map->slot);
    if (map == NULL || map->slot == NULL) {
        free(map);
        return FAIL(ST_RETRY, "out of memory: a table of strings");
    }
    map->slots_n = FIRST_SLOTS;
    *out = map;
    return ST_OK;
}

void byte_map_free(struct byte_map *map)
{
    if (map == NULL)
        return;
    free(map->slot);
    free(map->item);
    free(map->bytes);
    free(map);
}

/* The slot that holds the string, or the free one where it belongs. */
static size_t slot_of(const struct byte_map *map, uint64_t hash, const uint8_t *bytes, size_t n)
{
    size_t at = hash & (map->slots_n - 1);
    for (; map->slot[at] != 0; at = (at + 1) & (map->slots_n - 1)) {
        const struct item *item = map->item + map->slot[at] - 1;
        if (item->hash == hash && item->n == n && memcmp(map->bytes + item->at, bytes, n) == 0)
            break;
    }
    return at;
}

static bool grow_slots(struct byte_map *map)
{
    const size_t slots_n = 2 * map->slots_n;
    uint32_t *slot = calloc(slots_n, sizeof *slot);
    if (slot == NULL)
        return false;
    for (size_t i = 0; i < map->items_n; i++) {
        size_t at = map->item[i].hash & (slots_n - 1);
        while (slot[at] != 0)
            at = (at + 1) & (slots_n - 1);
        slot[at] = (uint32_t)i + 1;
    }
    free(map->slot);
    map->slot = slot;
    map->slots_n = slots_n;
    return true;
}

static bool grow_items(struct byte_map *map)
{
    const size_t cap = 2 * map->items_cap + 512;
    struct item *item = realloc(map->item, cap * sizeof *item);
    if (item == NULL)
        return false;
    map->item = item;
    map->items_cap = cap;
    return true;
}

static bool grow_bytes(struct byte_map *map)
{
    const size_t cap = 2 * map->bytes_cap + 16 * BYTE_MAP_STRING_MAX;
    uint8_t *bytes = realloc(map->bytes, cap);
    if (bytes == NULL)
        return false;
    map->bytes = bytes;
    map->bytes_cap = cap;
    return true;
}

enum status byte_map_add(struct byte_map *map, const uint8_t *bytes, size_t n, uint32_t *number)
{
    const uint64_t hash = XXH3_64bits(bytes, n);
    ASSERTF(n >= 1 && n <= BYTE_MAP_STRING_MAX, "%zu bytes", n);
    if (!((map->items_n < map->items_cap || grow_items(map)) &&
          (map->bytes_cap - map->bytes_n >= BYTE_MAP_STRING_MAX || grow_bytes(map)) &&
          (2 * map->items_n < map->slots_n || grow_slots(map))) ||
        map->items_n == BYTE_MAP_NONE - 1)
        return FAIL(ST_RETRY, "out of memory: a table of %zu strings", map->items_n);
    const size_t at = slot_of(map, hash, bytes, n);
    if (map->slot[at] == 0) {
        map->item[map->items_n] = (struct item){hash, map->bytes_n, (uint32_t)n};
        memcpy(map->bytes + map->bytes_n, bytes, n);
        map->bytes_n += n;
        map->slot[at] = (uint32_t)++map->items_n;
    }
    *number = map->slot[at] - 1;
    return ST_OK;
}

uint32_t byte_map_find(const struct byte_map *map, const uint8_t *bytes, size_t n)
{
    const uint32_t found = map->slot[slot_of(map, XXH3_64bits(bytes, n), bytes, n)];
    return found != 0 ? found - 1 : BYTE_MAP_NONE;
}

uint32_t byte_map_count(const struct byte_map *map) { return (uint32_t)map->items_n; }

const uint8_t *byte_map_bytes(const struct byte_map *map, uint32_t number, size_t *n_out)
{
    *n_out = map->item[number].n;
    return map->bytes + map->item[number].at;
}
