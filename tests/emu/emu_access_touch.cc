/* emu_access_touch — the bytes that one operation reads and writes (see emu_touch.h): two bits for
 * each byte of device memory. */
#include <sys/mman.h>

#include "tests/emu/emu_access_inside.h"
#include "tests/emu/emu_limits.h"
#include "tests/emu/emu_touch.h"

#define WORD 64 /* bytes of one word of bits */
#define GRANULE 4096
#define WORDS (GRANULE / WORD)

struct bits {
    uint64_t read, written;
};

const char *touch_space;
size_t touch_bytes;
static struct bits *bits;
static bool *is_seen;    /* the granule is in the list */
static size_t *granules; /* with accesses */
static int granules_n, granules_room;
static struct emu_touch_range *touches;
static int touches_n, touches_room;
static const char *who_now;
static const void *kernel_now;

template <typename T> static void make_room(T **list, int n, int *room)
{
    if (n < *room)
        return;
    *room = 2 * *room + 256;
    *list = (T *)realloc((void *)*list, (size_t)*room * sizeof **list);
    if (!*list)
        abort();
}

static void add_touch(const char *at, size_t n, bool is_write)
{
    struct emu_touch_range *last = touches_n > 0 ? &touches[touches_n - 1] : NULL;
    if (last && last->is_write == is_write && last->at + last->bytes == at) {
        last->bytes += n;
        return;
    }
    make_room(&touches, touches_n, &touches_room);
    touches[touches_n++] = {at, n, is_write};
}

void touch_add(const char *at, size_t n, bool is_write)
{
    size_t offset = (size_t)(at - touch_space), end = offset + n;
    while (offset < end) {
        size_t word = offset / WORD, from = offset % WORD,
               to = end - word * WORD < WORD ? end - word * WORD : WORD;
        uint64_t mask = (to - from == WORD ? ~0ull : (1ull << (to - from)) - 1) << from;
        if (!is_seen[word / WORDS]) {
            is_seen[word / WORDS] = true;
            make_room(&granules, granules_n, &granules_room);
            granules[granules_n++] = word / WORDS;
        }
        *(is_write ? &bits[word].written : &bits[word].read) |= mask;
        offset = (word + 1) * WORD;
    }
}

/* ---- what the emulation reports ---- */

static void on_launch(const struct emu_launch *launch)
{
    if (!kernel_now)
        kernel_now = launch->kernel;
}
static void on_block(const unsigned char *, size_t) {}
static void on_nothing(void) {}
static void on_warp(int, unsigned, bool) {}
static void on_copy(const void *, const void *from, int, int valid_bytes, const void *)
{
    if ((size_t)((const char *)from - touch_space) < touch_bytes && valid_bytes > 0)
        touch_add((const char *)from, (size_t)valid_bytes, false);
}
static void on_copied(const void *, int, int) {}
static void on_ldmatrix(const void *const *, int, const void *) {}

/* ---- for tests ---- */

static void *map_zeros(size_t n)
{
    void *p =
        mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        abort();
    return p;
}

void emu_touch_begin(const void *space, size_t n)
{
    static const struct emu_watch watch = {on_launch, on_block, on_nothing, on_nothing,
                                           on_warp,   on_copy,  on_copied,  on_ldmatrix};
    bits = (struct bits *)map_zeros(n / WORD * sizeof *bits);
    is_seen = (bool *)map_zeros(n / GRANULE);
    touch_space = (const char *)space;
    touch_bytes = n;
    emu_watch = &watch;
}

void emu_touch(const char *who, const void *at, size_t n, bool is_write)
{
    who_now = who;
    if (n < GRANULE && (size_t)((const char *)at - touch_space) < touch_bytes)
        touch_add((const char *)at, n, is_write); /* rows of a matrix become one block */
    else
        add_touch((const char *)at, n, is_write);
}

static int compare_granules(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

static void add_runs(size_t word, uint64_t set, bool is_write)
{
    for (size_t at = word * WORD; set != 0;) {
        int skip = __builtin_ctzll(set);
        set >>= skip, at += (size_t)skip;
        int run = ~set == 0 ? WORD : __builtin_ctzll(~set);
        add_touch(touch_space + at, (size_t)run, is_write);
        set = run == WORD ? 0 : set >> run;
        at += (size_t)run;
    }
}

struct emu_touch_op emu_touch_take(void)
{
    if (granules_n > 1)
        qsort(granules, (size_t)granules_n, sizeof *granules, compare_granules);
    for (int is_write = 0; is_write < 2; is_write++)
        for (int i = 0; i < granules_n; i++)
            for (size_t word = granules[i] * WORDS; word < (granules[i] + 1) * WORDS; word++)
                add_runs(word, is_write ? bits[word].written : bits[word].read, is_write);
    for (int i = 0; i < granules_n; i++) {
        memset(&bits[granules[i] * WORDS], 0, WORDS * sizeof *bits);
        is_seen[granules[i]] = false;
    }
    struct emu_touch_op all = {who_now, kernel_now, touches, touches_n};
    who_now = NULL, kernel_now = NULL;
    granules_n = touches_n = 0;
    return all;
}

const char *emu_kernel_name(const void *kernel)
{
    size_t offset;
    return emu_symbol(kernel, &offset);
}
