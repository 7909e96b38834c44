/* bench_bpe — megabytes of English a second on one core. Text: the file of the argument, else
 * ../shared/data/tinyshakespeare.txt, else a licence that every Debian has; repeated to 16 MB.
 * Prints the median of five runs, and the time to open. Fails below the gate. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "data/tokenizer_gpt2.h"

enum { GATE_MB = 10 };
enum { BYTES = 16000000, RUNS = 5 };

/* of this thread: others share the machine */
static int64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double open_ms(struct tokenizer **gpt2)
{
    const int64_t began_ns = cpu_ns();
    if (tokenizer_gpt2_open(gpt2) != ST_OK)
        exit(1);
    return (double)(cpu_ns() - began_ns) / 1e6;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "../shared/data/tinyshakespeare.txt";
    char *sample;
    size_t sample_bytes;
    if (argc < 2 && !file_exists(path))
        path = "/usr/share/common-licenses/GPL-3";
    if (file_read(path, BYTES, &sample, &sample_bytes) != ST_OK || sample_bytes == 0) {
        fprintf(stderr, "%s\n", status_message());
        return 1;
    }
    struct tokenizer *gpt2;
    uint8_t *text = malloc(BYTES);
    uint32_t *ids = malloc(BYTES * sizeof *ids);
    double rate[RUNS], open[RUNS];
    size_t tokens = 0;
    for (int i = 0; i < RUNS; i++) {
        open[i] = open_ms(&gpt2);
        if (i < RUNS - 1)
            tokenizer_close(gpt2);
    }
    for (size_t at = 0; at < BYTES; at += sample_bytes)
        memcpy(text + at, sample, sample_bytes < BYTES - at ? sample_bytes : BYTES - at);
    for (int i = 0; i < RUNS; i++) {
        const int64_t began_ns = cpu_ns();
        if (tokenizer_encode(gpt2, text, BYTES, true, ids, &tokens) != ST_OK)
            return 1;
        rate[i] = BYTES * 1e3 / (double)(cpu_ns() - began_ns);
    }
    qsort(rate, RUNS, sizeof rate[0], by_size);
    qsort(open, RUNS, sizeof open[0], by_size);
    printf(
        "bpe  open %.1f ms  encode %.0f MB/s on one core (median of %d, %.2f bytes a token, %s)\n",
        open[RUNS / 2], rate[RUNS / 2], RUNS, (double)BYTES / (double)tokens, path);
    tokenizer_close(gpt2);
    const bool is_good = rate[RUNS / 2] >= GATE_MB;
    if (!is_good)
        printf("bpe  FAILED: the gate is %d MB/s\n", GATE_MB);
    free(ids);
    free(text);
    free(sample);
    return is_good ? 0 : 1;
}
