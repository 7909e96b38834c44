/* emu_access_warp — the accesses of a warp's lanes together: conflicts of banks, sectors, bytes
 * (see emu_access.h). */
#include <stdio.h>

#include "tests/emu/emu_access_inside.h"
#include "tests/emu/emu_limits.h"

#define WARPS_MAX 32
#define SITES 256 /* of a warp between two flushes; a power of two */
#define SITES_FULL 192
#define KERNELS_MAX 256
#define INSTRUCTIONS 4096 /* instructions of all kernels; a power of two */

/* One instruction for the n-th time: the addresses of the lanes. */
struct group {
    const char *at[32];
    struct access_space *space;
    uint32_t mask, pc;
    int bytes, next;
    enum access_kind kind;
};
/* The groups of one instruction; at: each lane's last one. */
struct site {
    uint64_t key;
    uint32_t turn;
    int first, last;
    int at[32];
};
struct warp {
    struct site sites[SITES];
    uint32_t turn;
    int sites_n;
    struct group *groups;
    int groups_n, groups_room;
};
struct counts {
    uint64_t transactions, transactions_least, sectors, sectors_least;
};
struct instruction {
    uint32_t pc;
    struct counts counts;
};

static struct warp warps[WARPS_MAX];
static struct emu_access_counts kernels[KERNELS_MAX];
static const void *addresses[KERNELS_MAX];
static int kernels_n, kernel_i;
static struct instruction instructions[INSTRUCTIONS];

void warp_reset(void)
{
    kernels_n = 0;
    memset(kernels, 0, sizeof kernels);
    memset(instructions, 0, sizeof instructions);
    for (int i = 0; i < WARPS_MAX; i++)
        warps[i].turn++, warps[i].groups_n = warps[i].sites_n = 0;
}

void warp_kernel(const void *kernel)
{
    size_t offset;
    for (kernel_i = 0; kernel_i < kernels_n && addresses[kernel_i] != kernel;)
        kernel_i++;
    if (kernel_i == KERNELS_MAX)
        abort();
    if (kernel_i == kernels_n) {
        addresses[kernels_n] = kernel;
        kernels[kernels_n++].name = emu_symbol(kernel, &offset);
    }
    kernels[kernel_i].launches++;
}

bool emu_access_kernel(int i, struct emu_access_counts *out)
{
    if (i >= kernels_n)
        return false;
    *out = kernels[i];
    return true;
}

static void count(uint32_t pc, const struct counts *c)
{
    struct emu_access_counts *k = &kernels[kernel_i];
    uint32_t i = pc * 0x9E3779B1u >> 20;
    for (int tries = 0;
         tries < INSTRUCTIONS && instructions[i].pc != 0 && instructions[i].pc != pc; tries++)
        i = (i + 1) % INSTRUCTIONS;
    k->transactions += c->transactions, k->transactions_least += c->transactions_least;
    k->sectors += c->sectors, k->sectors_least += c->sectors_least;
    struct counts *all = &instructions[i].counts;
    instructions[i].pc = pc;
    all->transactions += c->transactions, all->transactions_least += c->transactions_least;
    all->sectors += c->sectors, all->sectors_least += c->sectors_least;
}

/* ---- shared memory ---- */

/* The most different words in one bank, of accesses of `bytes` that are served together. */
static int busiest_bank(const char *const *at, int n, int bytes)
{
    uintptr_t words[32][32];
    int used[32] = {}, most = 0;
    for (int i = 0; i < n; i++)
        for (int b = 0; b < bytes; b += 4) {
            uintptr_t word = ((uintptr_t)at[i] + (uintptr_t)b) / 4;
            int bank = (int)(word % 32), k = 0;
            while (k < used[bank] && words[bank][k] != word)
                k++;
            if (k == used[bank])
                words[bank][used[bank]++] = word;
            most = used[bank] > most ? used[bank] : most;
        }
    return most;
}

static void count_shared(const struct group *g)
{
    struct counts c = {};
    int lanes = g->bytes <= 4 ? 32 : 128 / g->bytes;
    for (int first = 0; first < 32; first += lanes) {
        const char *at[32];
        int n = 0;
        for (int i = first; i < first + lanes; i++)
            if (g->mask >> i & 1)
                at[n++] = g->at[i];
        int most = busiest_bank(at, n, g->bytes);
        c.transactions += (uint64_t)most, c.transactions_least += most > 0;
    }
    count(g->pc, &c);
}

void warp_rows(const void *const *rows, int matrices, uint32_t pc)
{
    struct counts c = {};
    for (int m = 0; m < matrices; m++) {
        int most = busiest_bank((const char *const *)rows + 8 * m, 8, 16);
        c.transactions += (uint64_t)most, c.transactions_least++;
    }
    count(pc, &c);
}

/* ---- global memory ---- */

/* The accesses are sorted, and equal ones taken together. Returns how many are left. */
static int sort_addresses(const struct group *g, uintptr_t *out)
{
    int n = 0;
    for (int lane = 0; lane < 32; lane++) {
        if (!(g->mask >> lane & 1))
            continue;
        uintptr_t at = (uintptr_t)g->at[lane];
        int i = n;
        while (i > 0 && out[i - 1] > at)
            i--;
        if (i > 0 && out[i - 1] == at)
            continue;
        memmove(out + i + 1, out + i, (size_t)(n - i) * sizeof *out);
        out[i] = at, n++;
    }
    return n;
}

/* One sector of a tensor is moved. */
static void move_sector(struct access_space *space, size_t sector, bool is_read, bool is_written)
{
    uint8_t bit = (uint8_t)(1u << sector % 8);
    bool is_new_read = !(space->read_seen[sector / 8] & bit);
    bool is_new_write = !(space->written_seen[sector / 8] & bit);
    if (is_read && (is_new_read || !space->is_cached))
        space->read++, space->read_seen[sector / 8] |= bit;
    if (is_written && (is_new_write || !space->is_cached))
        space->written++, space->written_seen[sector / 8] |= bit;
}

static void count_global(const struct group *g)
{
    uintptr_t at[33];
    struct counts c = {};
    int n = sort_addresses(g, at);
    size_t base = (size_t)(uintptr_t)g->space->at, next = 0;
    for (int i = 0; i < n; i++) {
        size_t first = (at[i] - base) / 32, last = (at[i] - base + (size_t)g->bytes - 1) / 32;
        for (size_t s = first < next ? next : first; s <= last; s++, next = s, c.sectors++)
            move_sector(g->space, s, g->kind != ACCESS_WRITE, g->kind != ACCESS_READ);
    }
    c.sectors_least = ((uint64_t)n * (uint64_t)g->bytes + 31) / 32;
    count(g->pc, &c);
}

/* ---- groups ---- */

void warp_flush(int i)
{
    struct warp *w = &warps[i];
    for (int k = 0; k < w->groups_n; k++)
        w->groups[k].space->is_shared ? count_shared(&w->groups[k]) : count_global(&w->groups[k]);
    w->groups_n = w->sites_n = 0;
    w->turn++;
}

static struct site *find_site(struct warp *w, uint64_t key)
{
    unsigned i = (unsigned)(key >> 40) % SITES;
    while (w->sites[i].turn == w->turn && w->sites[i].key != key)
        i = (i + 1) % SITES;
    struct site *s = &w->sites[i];
    if (s->turn == w->turn)
        return s;
    s->key = key, s->turn = w->turn, s->first = s->last = -1;
    for (int lane = 0; lane < 32; lane++)
        s->at[lane] = -1;
    w->sites_n++;
    return s;
}

static int new_group(struct warp *w, struct site *s, const struct access *a)
{
    if (w->groups_n == w->groups_room) {
        w->groups_room = w->groups_room ? 2 * w->groups_room : 256;
        w->groups = (struct group *)realloc(w->groups, (size_t)w->groups_room * sizeof *w->groups);
    }
    int i = w->groups_n++;
    struct group *g = &w->groups[i];
    g->space = a->space, g->mask = 0, g->pc = a->pc, g->bytes = a->bytes, g->next = -1;
    g->kind = a->kind;
    if (s->last >= 0)
        w->groups[s->last].next = i;
    else
        s->first = i;
    return s->last = i;
}

void warp_add(const struct access *a, uint64_t site)
{
    int lane = a->thread % 32;
    struct warp *w = &warps[a->thread / 32];
    if (w->turn == 0)
        w->turn = 1;
    if (w->sites_n >= SITES_FULL)
        warp_flush(a->thread / 32);
    uint64_t key =
        (site ^ (uint64_t)(uintptr_t)a->space ^ (uint64_t)a->kind << 60) * 0x9E3779B97F4A7C15u;
    struct site *s = find_site(w, key);
    int i = s->at[lane] < 0 ? s->first : w->groups[s->at[lane]].next;
    if (i < 0)
        i = new_group(w, s, a);
    s->at[lane] = i;
    w->groups[i].at[lane] = a->at;
    w->groups[i].mask |= 1u << lane;
}

static int64_t excess(const struct instruction *p)
{
    return (int64_t)(p->counts.transactions - p->counts.transactions_least) +
           (int64_t)(p->counts.sectors - p->counts.sectors_least);
}

void emu_access_explain(void)
{
    for (int n = 0; n < 8; n++) {
        struct instruction *most = &instructions[0];
        for (int i = 1; i < INSTRUCTIONS; i++)
            if (excess(&instructions[i]) > excess(most))
                most = &instructions[i];
        if (excess(most) == 0)
            return;
        const struct counts *c = &most->counts;
        printf("# %s: %llu transactions of shared memory (least %llu), %llu sectors (least %llu)\n",
               report_line(most->pc), (unsigned long long)c->transactions,
               (unsigned long long)c->transactions_least, (unsigned long long)c->sectors,
               (unsigned long long)c->sectors_least);
        *most = {};
    }
}
