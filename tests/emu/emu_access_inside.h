/* emu_access_inside — what the files of emu_access share: the memory that kernels touch, the
 * history of each of its bytes, and the accesses of a warp. */
#ifndef CONVOY_TESTS_EMU_ACCESS_INSIDE_H
#define CONVOY_TESTS_EMU_ACCESS_INSIDE_H

#include "tests/emu/emu.h"
#include "tests/emu/emu_access.h"

enum access_kind { ACCESS_READ, ACCESS_WRITE, ACCESS_ATOMIC, ACCESS_COPY, ACCESS_COPIED };

/* The last accesses to one byte, or to the four bytes of an aligned word that have one history
 * until is_split. Epochs count the intervals between barriers of all blocks, one after the other,
 * so an epoch tells its block and its launch. Phases count __syncwarp of a warp. */
struct access_cell {
    uint32_t w_epoch, w_phase, w_pc;
    uint32_t r_epoch, r_phase, r_pc;
    uint32_t r_lanes;  /* the lanes of r_warp that have read in r_phase */
    uint32_t r_before; /* epoch of a read by an earlier block of the launch */
    uint16_t w_thread;
    uint8_t r_warp, r_other; /* r_other: 1 + another warp that has read in r_epoch; 0: none */
    bool is_split, is_atomic, is_pending;
    bool is_many; /* atomics of several threads that have not met */
};

/* A block of memory. cells: one for each byte. read, written: sectors; seen: bits of them. */
struct access_space {
    const char *name, *at;
    size_t bytes;
    bool is_shared, is_set, is_cached;
    struct access_cell *cells;
    uint64_t read, written;
    uint8_t *read_seen, *written_seen;
};

/* One access: `bytes` at `at` of the space, by a thread of the block that runs, from instruction
 * pc (an offset in the program). */
struct access {
    struct access_space *space;
    const char *at;
    int bytes;
    enum access_kind kind;
    int thread;
    uint32_t pc;
};

/* ---- emu_access_race.cc: order ---- */

void race_launch(void);
void race_block(int threads_n);
void race_barrier(void);
void race_warp(int warp);
void race_touch(const struct access *a);
/* race_block_of — the number, in the order of their run, of the block of this launch with an
 * epoch. */
int race_block_of(uint32_t epoch);

/* ---- emu_access_warp.cc: what lanes do together ---- */

void warp_reset(void);
void warp_kernel(const void *kernel);
/* warp_add — puts an access with those of the other lanes. site: which instruction, through which
 * calls. */
void warp_add(const struct access *a, uint64_t site);
/* warp_flush — the accesses of a warp since the last flush are counted. */
void warp_flush(int warp);
/* warp_rows — the matrices of an ldmatrix, eight rows of 16 bytes each. */
void warp_rows(const void *const *rows, int matrices, uint32_t pc);

/* ---- emu_access_touch.cc: accesses of one operation, without checks (emu_touch.h) ---- */

extern const char *touch_space;
extern size_t touch_bytes; /* 0: accesses are checked */
/* touch_add — notes an access to the space. */
void touch_add(const char *at, size_t bytes, bool is_write);

/* ---- emu_access_report.cc ---- */

void report_reset(void);
void report_kernel(const void *kernel);
/* report_add — a mistake of access a; with: what the other thread did, or NULL. */
void report_add(const struct access *a, const char *what, const char *with, const char *other,
                int other_number, uint32_t other_pc);
/* report_line — "file:line" of an instruction, through the calls that were inlined; static. */
const char *report_line(uint32_t pc);

#endif
