/* emu_touch — the bytes of device memory that one operation reads and writes, for tests in C. An
 * operation is what a stream runs as a whole: a launch, a copy, a call of a library. Instrumented
 * kernels (build/libaccess.a) report their loads and stores byte by byte; other operations report
 * their ranges. In place of emu_access_begin: nothing is checked here. */
#ifndef CONVOY_TESTS_EMU_TOUCH_H
#define CONVOY_TESTS_EMU_TOUCH_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct emu_touch_range {
    const char *at;
    size_t bytes;
    bool is_write;
};

/* Begins to note the accesses of kernels to this memory. Call it once. */
void emu_touch_begin(const void *space, size_t bytes);

/* Notes bytes that the operation `who` reads or writes, in any memory. */
void emu_touch(const char *who, const void *at, size_t bytes, bool is_write);

/* All accesses of an operation. The string is not copied. */
struct emu_touch_op {
    const char *who;    /* NULL: a kernel */
    const void *kernel; /* the address of its function; NULL: none was launched */
    const struct emu_touch_range *touch;
    int n;
};

/* Returns the accesses since the last call, valid until the next one. */
struct emu_touch_op emu_touch_take(void);

/* Returns the name of a kernel as the linker knows it. */
const char *emu_kernel_name(const void *kernel);

#ifdef __cplusplus
}
#endif
#endif
