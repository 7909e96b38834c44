/* emu_numbers — how a launch enters and leaves the arithmetic that flushes subnormal numbers. For
 * emu.cc; tests use emu_control.h. */
#ifndef CONVOY_TESTS_EMU_NUMBERS_H
#define CONVOY_TESTS_EMU_NUMBERS_H

/* Makes subnormal numbers zero in this thread if emu_flush(true) was called. Returns the word that
 * emu_flush_end() needs. */
unsigned emu_flush_begin(void);
/* Restores the arithmetic that emu_flush_begin() found. */
void emu_flush_end(unsigned before);

#endif
