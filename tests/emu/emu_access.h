/* emu_access — what instrumented kernels read and write: races, unset memory, bank conflicts,
 * sectors, bytes. For tests in C; kernels and the emulation call it through emu.h.
 *
 * A program that links build/libaccess.a runs kernels that report each load and store. Races do not
 * depend on the order in which threads ran. Two accesses to one byte by different threads, at least
 * one of them a write and not both atomic, race unless the threads met in between:
 *   the whole block at __syncthreads (shuffles and products of a warp order no memory)
 *   the whole warp at __syncwarp; part of a warp orders nothing here
 *   the device at the end of a launch: blocks of one launch are never ordered
 * A cp.async writes from its issue to cp_wait, and no thread may touch the bytes in between.
 *
 * Accesses of a warp's lanes belong together when they come from one instruction, for the n-th time
 * since the warp last met. Must not know kernels. */
#ifndef CONVOY_TESTS_EMU_ACCESS_H
#define CONVOY_TESTS_EMU_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor in device memory. IN has values; OUT is unset until a kernel has written it. CACHED:
 * every block may read it again, and the copies in caches serve it: its traffic counts once. */
enum emu_access_flags { EMU_ACCESS_IN = 1, EMU_ACCESS_OUT = 2, EMU_ACCESS_CACHED = 4 };

/* emu_access_begin — forgets everything and starts to watch; accesses outside of the tensors given
 * after it, of shared memory and of stacks are reported.
 * emu_access_tensor — adds a tensor; name: kept, not copied.
 * emu_access_end — stops. What was found stays until the next begin. */
void emu_access_begin(void);
void emu_access_tensor(const char *name, const void *data, size_t bytes, int flags);
void emu_access_end(void);

/* emu_access_report — the i-th mistake in words, or NULL: i is beyond the last. */
const char *emu_access_report(int i);

/* Of all launches of one kernel. A warp's access to shared memory takes as many transactions as the
 * busiest of 32 banks has words, for 8- and 16-byte accesses in 2 and 4 parts; an access without
 * conflicts takes 1, 2 or 4 (least). Global memory is moved in sectors of 32 bytes; least: as many
 * as the bytes of the access fill. */
struct emu_access_counts {
    const char *name; /* as the linker knows it */
    int launches;
    uint64_t transactions, transactions_least, sectors, sectors_least;
};
/* emu_access_kernel — of the i-th kernel; false: i is beyond the last. */
bool emu_access_kernel(int i, struct emu_access_counts *out);

/* emu_access_bytes — sectors × 32 of all tensors, moved by kernels and the host's fills. A CACHED
 * tensor counts each sector once. */
struct emu_access_moved {
    uint64_t read, written;
};
struct emu_access_moved emu_access_bytes(void);
/* emu_access_bytes_of — the same of one tensor. */
struct emu_access_moved emu_access_bytes_of(const char *name);

/* emu_access_explain — prints the instructions with the most transactions or sectors above the
 * least, as lines of TAP. */
void emu_access_explain(void);

#ifdef __cplusplus
}
#endif
#endif
