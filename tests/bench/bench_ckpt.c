/* bench_ckpt — a checkpoint of GPT-2 124M (parameters and two moments, 1.5 GB): the speed of
 * writing it, and of loading it from a cold disk, against plain reading of the same files in the
 * same run, alternating.
 *
 *   bench_ckpt [rounds]     default 5; medians; needs 3 GiB of disk under TMPDIR and 3 GiB of
 *                           memory
 *
 * Cold: the files' pages are dropped before each reading (posix_fadvise after a sync). Fails when
 * loading is slower than 70 % of the disk. */
#include "harness.h"

#include "base/assert.h"
#include "base/quantile.h"
#include "base/rand.h"
#include "kernels/cpu.h"
#include "train/weights/load.h"

#define ARRAYS 3
#define ROUNDS_MAX 32
#define READ_BYTES (4 << 20)
#define GATE 0.70

static const char *const array_name[ARRAYS] = {"model", "optim_m", "optim_v"};

struct bench {
    struct dev *dev;
    struct stream *stream;
    struct param_table table;
    struct tensor data[ARRAYS];
    struct safetensors_source *source;
    char dir[FILE_PATH_MAX], step_dir[FILE_PATH_MAX];
    int64_t bytes; /* of the checkpoint */
};

static void need(enum status st)
{
    if (st == ST_OK)
        return;
    fprintf(stderr, "%s: %s\n", status_name(st), status_message());
    exit(1);
}

static double seconds_since(int64_t start_ns) { return (double)(clock_ns() - start_ns) * 1e-9; }

static void drop(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ASSERTF(fd >= 0, "%s", path);
    int rc = fsync(fd);
    ASSERT(rc == 0);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

static void drop_checkpoint(const struct bench *b)
{
    char path[FILE_PATH_MAX];
    for (int i = 0; i < ARRAYS; i++) {
        text_format(path, sizeof path, "%s/%s.safetensors", b->step_dir, array_name[i]);
        drop(path);
    }
}

/* open_state — parameters as a run begins with, moments that no compression of the disk could
 * profit from. */
static void open_state(struct bench *b)
{
    struct model_dims dims;
    model_preset("gpt2", &dims);
    need(dev_cpu_open(0, CPU_ISA_N, &b->dev));
    need(dev_stream_open(b->dev, &b->stream));
    need(model_ops(&dims)->describe(&dims, &b->table));
    for (int p = 0; p < ARRAYS; p++) {
        void *data;
        need(dev_alloc(b->dev, (size_t)b->table.total_elems * sizeof(float), &data));
        b->data[p] = (struct tensor){data, DTYPE_F32};
        uint64_t x = (uint64_t)p + 1;
        for (int64_t i = 0; i < b->table.total_elems; i++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            ((float *)data)[i] = (float)(int32_t)(x >> 32) * 0x1p-40f;
        }
    }
}

static void list_sources(struct bench *b, struct ckpt_array array[ARRAYS])
{
    size_t rows = (size_t)b->table.params_n;
    b->source = calloc(ARRAYS * rows, sizeof *b->source);
    ASSERT(b->source);
    for (int p = 0; p < ARRAYS; p++) {
        struct safetensors_source *source = b->source + (size_t)p * rows;
        for (size_t i = 0; i < rows; i++) {
            const struct param *row = &b->table.param[i];
            source[i] =
                (struct safetensors_source){row->name,
                                            DTYPE_F32,
                                            row->dims_n,
                                            {row->dim[0], row->dim[1]},
                                            .data = (const float *)b->data[p].data + row->offset};
        }
        array[p] = (struct ckpt_array){array_name[p], source, b->table.params_n};
    }
}

/* save — one checkpoint, replaced by the next; how long it takes. */
static double save(struct bench *b, struct ckpt_lock *lock, int64_t step)
{
    struct ckpt_array array[ARRAYS];
    struct ckpt_meta meta = {
        .step = step, .model_json = "{}", .settings_json = "{}", .version = "bench"};
    list_sources(b, array);
    int64_t start = clock_ns();
    need(ckpt_save(lock, &meta, array, ARRAYS, 1, NULL, b->step_dir, sizeof b->step_dir));
    double seconds = seconds_since(start);
    free(b->source);
    b->bytes = 0;
    for (int i = 0; i < ARRAYS; i++) {
        char path[FILE_PATH_MAX];
        text_format(path, sizeof path, "%s/%s.safetensors", b->step_dir, array_name[i]);
        b->bytes += file_bytes(path);
    }
    return seconds;
}

/* read_plain — the disk's sequential rate: the same bytes in the same places. With flags O_DIRECT
 * the disk alone; with 0 as a plain program sees it, the page cache's memory included (in a virtual
 * machine that gets its memory page by page, the greater share). */
static double read_plain(const struct bench *b, char *buffer, int flags)
{
    int64_t all = 0, start;
    drop_checkpoint(b);
    start = clock_ns();
    for (int i = 0; i < ARRAYS; i++) {
        char path[FILE_PATH_MAX];
        text_format(path, sizeof path, "%s/%s.safetensors", b->step_dir, array_name[i]);
        int fd = open(path, O_RDONLY | O_CLOEXEC | flags);
        ASSERTF(fd >= 0, "%s", path);
        for (ssize_t n; (n = read(fd, buffer, READ_BYTES)) > 0;)
            all += n;
        close(fd);
    }
    ASSERTF(all == b->bytes, "%lld bytes", (long long)all);
    return seconds_since(start);
}

/* find_target — where a tensor belongs. */
static void *find_target(void *arg, const char *array, const struct safetensors_entry *entry)
{
    const struct bench *b = arg;
    for (int p = 0; p < ARRAYS; p++)
        for (int i = 0; strcmp(array, array_name[p]) == 0 && i < b->table.params_n; i++)
            if (strcmp(entry->name, b->table.param[i].name) == 0)
                return (float *)b->data[p].data + b->table.param[i].offset;
    return NULL;
}

/* load — verified and in place, as a run that goes on does it. */
static double load(struct bench *b)
{
    struct ckpt *ckpt = NULL;
    drop_checkpoint(b);
    int64_t start = clock_ns();
    struct ckpt_fill to = {find_target, b};
    need(ckpt_find_newest(b->dir, INT64_MAX, NULL, &ckpt));
    need(ckpt_fill(ckpt, &to, NULL));
    ckpt_close(ckpt);
    return seconds_since(start);
}

static bool measure(struct bench *b, int rounds)
{
    double saved[ROUNDS_MAX], disk[ROUNDS_MAX], read_s[ROUNDS_MAX], loaded[ROUNDS_MAX];
    struct ckpt_lock *lock;
    char *buffer = aligned_alloc(4096, READ_BYTES);
    ASSERT(buffer);
    need(ckpt_lock(b->dir, &lock));
    for (int i = 0; i < rounds; i++)
        saved[i] = save(b, lock, i + 1);
    /* what lies below this machine's disk may keep what was read last: the same for all */
    read_plain(b, buffer, O_DIRECT);
    for (int i = 0; i < rounds; i++) {
        disk[i] = read_plain(b, buffer, O_DIRECT);
        read_s[i] = i % 2 ? 0 : read_plain(b, buffer, 0);
        loaded[i] = load(b);
        read_s[i] = i % 2 ? read_plain(b, buffer, 0) : read_s[i];
        printf("  round %d: disk %.2f s, plain %.2f s, loaded %.2f s\n", i + 1, disk[i], read_s[i],
               loaded[i]);
    }
    ckpt_lock_release(lock);
    free(buffer);
    double gb = (double)b->bytes * 1e-9, plain = quantile_median(read_s, rounds),
           filled = quantile_median(loaded, rounds);
    double direct = quantile_median(disk, rounds), s = quantile_median(saved, rounds);
    bool is_good = direct / filled >= GATE;
    printf("GPT-2 124M, a checkpoint of %.3f GB, medians of %d\n", gb, rounds);
    printf("  saved       %6.2f s  %5.2f GB/s, synced\n", s, gb / s);
    printf("  disk read   %6.2f s  %5.2f GB/s, past the page cache\n", direct, gb / direct);
    printf("  plain read  %6.2f s  %5.2f GB/s, cold\n", plain, gb / plain);
    printf("  loaded      %6.2f s  %5.2f GB/s, cold, verified and in place\n", filled, gb / filled);
    printf("  %s: loads at %.0f %% of the disk (gate %.0f %%), %.0f %% of plain reading\n",
           is_good ? "ok" : "NOT OK", direct / filled * 100, GATE * 100, plain / filled * 100);
    return is_good;
}

int main(int argc, char **argv)
{
    struct bench b = {.dev = NULL};
    int64_t rounds = 5;
    if (argc > 1 && text_parse_i64(argv[1], 1, ROUNDS_MAX, &rounds) != TEXT_OK)
        return fprintf(stderr, "bench_ckpt [rounds]\n"), 2;
    need(file_join(b.dir, sizeof b.dir, harness_tmpdir(), "run"));
    open_state(&b);
    bool is_good = measure(&b, (int)rounds);
    for (int p = 0; p < ARRAYS; p++)
        dev_free(b.dev, b.data[p].data, (size_t)b.table.total_elems * sizeof(float));
    param_table_free(&b.table);
    dev_stream_close(b.stream);
    dev_close(b.dev);
    return is_good ? 0 : 1;
}
