/* bench_level — the ISA level that a benchmark runs at (`level=avx2` on its command line; without
 * it, the best of this machine), and the ceilings of that level: what its own vectors reach. */
#ifndef CONVOY_TESTS_BENCH_LEVEL_H
#define CONVOY_TESTS_BENCH_LEVEL_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "dev/cpu/isa.h"
#include "kernels/peak.h"

struct bench_level {
    enum cpu_isa isa;
    const char *name;
    double (*fma)(const struct cpu *cpu, double seconds);      /* FLOP/s of multiply-adds */
    double (*products)(const struct cpu *cpu, double seconds); /* AMX: of its tiles; else fma */
    double (*update)(const struct cpu *cpu, float *data, int64_t n, int repeats);
    double (*read)(const struct cpu *cpu, float *data, int64_t n, int repeats);
};

/* bench_level_of — asked: an enum cpu_isa, or CPU_ISA_N for the best. Ends the program where this
 * machine does not have it, or where the level has no ceiling of its own (plain). */
static inline struct bench_level bench_level_of(int asked)
{
#if defined(__x86_64__)
    static const struct bench_level levels[CPU_ISA_N] = {
        [CPU_ISA_V2] = {CPU_ISA_V2, NULL, peak_fma_v2, peak_fma_v2, peak_update_v2, peak_read_v2},
        [CPU_ISA_V3] = {CPU_ISA_V3, NULL, peak_fma_v3, peak_fma_v3, peak_update_v3, peak_read_v3},
        [CPU_ISA_V4] = {CPU_ISA_V4, NULL, peak_fma_v4, peak_fma_v4, peak_update_v4, peak_read_v4},
        [CPU_ISA_AMX] = {CPU_ISA_AMX, NULL, peak_fma_v4, peak_amx, peak_update_v4, peak_read_v4},
    };
#elif defined(__aarch64__)
    static const struct bench_level levels[CPU_ISA_N] = {
        [CPU_ISA_NEON] = {CPU_ISA_NEON, NULL, peak_fma_neon, peak_fma_neon, peak_update_neon,
                          peak_read_neon},
    };
#else
    static const struct bench_level levels[CPU_ISA_N];
#endif
    enum cpu_isa isa = CPU_ISA_PLAIN;
    enum status st = dev_cpu_isa_choose(asked, &isa);
    if (st == ST_OK && !levels[isa].fma)
        st = FAIL(ST_NO_DEVICE, "the level %s has no peak to compare with", dev_cpu_isa_name(isa));
    if (st != ST_OK) {
        fprintf(stderr, "%s\n", status_message());
        exit(1);
    }
    struct bench_level level = levels[isa];
    level.name = dev_cpu_isa_name(isa);
    return level;
}

/* bench_level_pop — takes `level=NAME` from anywhere on the command line: an enum cpu_isa, or
 * CPU_ISA_N. A name that does not exist ends the program. */
static inline int bench_level_pop(int *argc, char **argv)
{
    int asked = CPU_ISA_N, kept = 1;
    for (int i = 1; i < *argc; i++) {
        if (strncmp(argv[i], "level=", 6) != 0) {
            argv[kept++] = argv[i];
            continue;
        }
        for (asked = 0; asked < CPU_ISA_N; asked++)
            if (strcmp(argv[i] + 6, dev_cpu_isa_name((enum cpu_isa)asked)) == 0)
                break;
        if (asked == CPU_ISA_N) {
            fprintf(stderr, "%s: no such level; choose sse4, avx2, avx512, amx or neon\n", argv[i]);
            exit(2);
        }
    }
    *argc = kept;
    return asked;
}

/* bench_level_list — the levels of this machine that have a ceiling, without sse4, in one line. */
static inline void bench_level_list(void)
{
    enum cpu_isa isa;
    for (int i = CPU_ISA_V3; i < CPU_ISA_N; i++)
        if (dev_cpu_isa_choose(i, &isa) == ST_OK)
            printf("%s ", dev_cpu_isa_name(isa));
    puts("");
}

/* bench_level_word — takes the bare word `word` from the command line; true: it was there. */
static inline bool bench_level_word(int *argc, char **argv, const char *word)
{
    int kept = 1;
    for (int i = 1; i < *argc; i++)
        if (strcmp(argv[i], word) != 0)
            argv[kept++] = argv[i];
    bool was_there = kept < *argc;
    *argc = kept;
    return was_there;
}

#endif
