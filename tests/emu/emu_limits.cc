/* emu_limits — the limits of a launch (see emu_limits.h). Threads submit launches at the same time,
 * and each launch looks up its kernel, so what is known of kernels is under a lock. */
#include "tests/emu/emu_limits.h"

#include <cxxabi.h>
#include <pthread.h>
#include <stdio.h>

#define KERNELS_MAX 1024
#define OPT_IN_BYTES ((size_t)48 << 10)
#define PARAM_BYTES_MAX 4096
#ifdef EMU_HIP
#define TABLE "tests/hip/isa.tsv"
#else
#define TABLE "tests/cuda/sass.tsv"
#endif

/* What is known of a kernel: the dynamic shared memory that it was allowed; of the table: registers
 * of a thread, static shared memory. */
struct known {
    const void *kernel;
    size_t allowed, registers, static_bytes;
};
static struct known known[KERNELS_MAX];
static int known_n;

/* A row: a kernel as machine code of one chip. */
struct row {
    char kernel[160];
    unsigned registers, static_bytes;
};
static struct row *rows;
static int rows_n, rows_room;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of all of these */
/* In a block of code: no other thread is in one with this. */
struct alone {
    alone() { pthread_mutex_lock(&mutex); }
    ~alone() { pthread_mutex_unlock(&mutex); }
};

static void add_row(const struct row *row)
{
    if (rows_n == rows_room) {
        rows_room = rows_room ? 2 * rows_room : 256;
        rows = (struct row *)realloc(rows, (size_t)rows_room * sizeof *rows);
    }
    rows[rows_n++] = *row;
}

/* Columns: object, kernel, arch, registers, stack, spill, static, … */
static int read_table(const char *path)
{
    char line[1024];
    struct row row;
    FILE *f = fopen(path ? path : TABLE, "r");
    rows_n = known_n = 0;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "%*[^\t]\t%159[^\t]\t%*[^\t]\t%u\t%*[^\t]\t%*[^\t]\t%u", row.kernel,
                   &row.registers, &row.static_bytes) == 3)
            add_row(&row);
    if (f)
        fclose(f);
    return rows_n;
}

int emu_limits_table(const char *path)
{
    alone here;
    return read_table(path);
}

/* "void name<arguments>(parameters)" without the first word and the parameters. */
static void short_name(char *name)
{
    int depth = 0;
    if (strncmp(name, "void ", 5) == 0)
        memmove(name, name + 5, strlen(name + 5) + 1);
    for (; *name; name++) {
        depth += *name == '<' ? 1 : *name == '>' ? -1 : 0;
        if (depth == 0 && *name == '(')
            *name = 0, name--;
    }
}

static void look_up(struct known *k)
{
    size_t offset;
    int status;
    char *name = abi::__cxa_demangle(emu_symbol(k->kernel, &offset), NULL, NULL, &status);
    if (!name)
        return;
    short_name(name);
    for (int i = 0; i < rows_n; i++)
        if (strcmp(rows[i].kernel, name) == 0) {
            k->registers = rows[i].registers > k->registers ? rows[i].registers : k->registers;
            k->static_bytes =
                rows[i].static_bytes > k->static_bytes ? rows[i].static_bytes : k->static_bytes;
        }
    free(name);
}

static struct known *find(const void *kernel)
{
    static bool has_table;
    if (!has_table && rows_n == 0)
        read_table(NULL);
    has_table = true;
    for (int i = 0; i < known_n; i++)
        if (known[i].kernel == kernel)
            return &known[i];
    if (known_n == KERNELS_MAX)
        abort();
    known[known_n] = {kernel, 0, 0, 0};
    look_up(&known[known_n]);
    return &known[known_n++];
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *out, const void *kernel)
{
    alone here;
    const struct known *k = find(kernel);
    out->sharedSizeBytes = k->static_bytes;
    out->maxDynamicSharedSizeBytes = (int)(k->allowed ? k->allowed : OPT_IN_BYTES);
    return cudaSuccess;
}

static int opt_ins_n;

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute, int value)
{
    alone here;
    struct known *k = find(kernel);
    size_t bytes = (size_t)value;
    opt_ins_n++;
    if (bytes < k->allowed || bytes + k->static_bytes > emu_shared_most())
        return cudaErrorInvalidValue;
    k->allowed = bytes;
    return cudaSuccess;
}

int emu_opt_ins(void)
{
    alone here;
    int n = opt_ins_n;
    opt_ins_n = 0;
    return n;
}

/* Each returns false when its limit is broken, with the reason. */

static bool block_holds(const struct emu_launch *l, char *why, size_t bytes)
{
    size_t threads_n = (size_t)l->block.x * l->block.y * l->block.z;
    if (threads_n > 0 && threads_n <= 1024 && threads_n % 32 == 0 && l->block.z <= 64)
        return true;
    snprintf(why, bytes, "a block of %zu threads", threads_n);
    return false;
}

static bool grid_holds(const struct emu_launch *l, char *why, size_t bytes)
{
    uint64_t threads_x = (uint64_t)l->grid.x * l->block.x;
    if (l->grid.x > 0 && l->grid.y > 0 && l->grid.z > 0 && l->grid.x <= INT32_MAX &&
        l->grid.y <= 65535 && l->grid.z <= 65535 && (!emu_is_hip() || threads_x <= UINT32_MAX))
        return true;
    snprintf(why, bytes, "a grid of %u %u %u blocks", l->grid.x, l->grid.y, l->grid.z);
    return false;
}

static bool params_hold(const struct emu_launch *l, char *why, size_t bytes)
{
    if (l->param_bytes <= PARAM_BYTES_MAX)
        return true;
    snprintf(why, bytes, "%zu bytes of parameters, at most %d", l->param_bytes, PARAM_BYTES_MAX);
    return false;
}

static bool shared_holds(const struct emu_launch *l, const struct known *k, size_t most, char *why,
                         size_t bytes)
{
    size_t all = l->shared_bytes + k->static_bytes;
    if (all > most)
        snprintf(why, bytes, "%zu bytes of shared memory and %zu static ones, at most %zu",
                 l->shared_bytes, k->static_bytes, most);
    else if (!emu_is_hip() && all >= OPT_IN_BYTES && k->allowed < l->shared_bytes)
        snprintf(why, bytes,
                 "%zu bytes of shared memory and %zu static ones, and cudaFuncSetAttribute allowed "
                 "%zu: a launch needs it from 48 KiB on",
                 l->shared_bytes, k->static_bytes, k->allowed);
    else
        return true;
    return false;
}

static bool registers_hold(const struct emu_launch *l, const struct known *k, char *why,
                           size_t bytes)
{
    size_t threads_n = (size_t)l->block.x * l->block.y * l->block.z,
           each = (k->registers + 7) / 8 * 8;
    /* AMD: each of four SIMDs has 512 registers for each of 64 lanes, for a quarter of the
     * wavefronts. */
    size_t all = emu_is_hip() ? (threads_n + 255) / 256 * each : each * threads_n,
           most = emu_is_hip() ? 512 : 65536;
    if (all <= most)
        return true;
    snprintf(why, bytes, "%zu threads of %zu registers: %zu, at most %zu", threads_n, k->registers,
             all, most);
    return false;
}

bool emu_limits_hold(const struct emu_launch *l, size_t shared_most, char *why, size_t bytes)
{
    alone here;
    const struct known *k = find(l->kernel);
    return block_holds(l, why, bytes) && grid_holds(l, why, bytes) && params_hold(l, why, bytes) &&
           shared_holds(l, k, shared_most, why, bytes) && registers_hold(l, k, why, bytes);
}
