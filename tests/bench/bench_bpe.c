/* bench_bpe — megabytes of English a second on one core. Text: the file of the argument, else
 * ../shared/data/tinyshakespeare.txt, else a licence that every Debian has; repeated to 16 MB.
 * Prints the median of five runs, and the time to open. Fails below the gate. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "data/bpe.h"

enum { GATE_MB = 10 };
enum { BYTES = 16000000, RUNS = 5 };

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double open_ms(struct bpe **bpe)
{
    const int64_t began_ns = clock_ns();
    if (bpe_open(bpe) != ST_OK)
        exit(1);
    return (double)(clock_ns() - began_ns) / 1e6;
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
    struct bpe *bpe;
    uint8_t *text = malloc(BYTES);
    uint16_t *ids = malloc(BYTES * sizeof *ids);
    double rate[RUNS], open[RUNS];
    size_t tokens = 0;
    for (int i = 0; i < RUNS; i++) {
        open[i] = open_ms(&bpe);
        if (i < RUNS - 1)
            bpe_close(bpe);
    }
    for (size_t at = 0; at < BYTES; at += sample_bytes)
        memcpy(text + at, sample, sample_bytes < BYTES - at ? sample_bytes : BYTES - at);
    for (int i = 0; i < RUNS; i++) {
        const int64_t began_ns = clock_ns();
        tokens = bpe_encode(bpe, text, BYTES, ids, BYTES);
        rate[i] = BYTES * 1e3 / (double)(clock_ns() - began_ns);
    }
    qsort(rate, RUNS, sizeof rate[0], by_size);
    qsort(open, RUNS, sizeof open[0], by_size);
    printf(
        "bpe  open %.1f ms  encode %.0f MB/s on one core (median of %d, %.2f bytes a token, %s)\n",
        open[RUNS / 2], rate[RUNS / 2], RUNS, (double)BYTES / (double)tokens, path);
    bpe_close(bpe);
    const bool is_good = rate[RUNS / 2] >= GATE_MB;
    if (!is_good)
        printf("bpe  FAILED: the gate is %d MB/s\n", GATE_MB);
    free(ids);
    free(text);
    free(sample);
    return is_good ? 0 : 1;
}
