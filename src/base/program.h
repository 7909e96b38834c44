/* program — the name by which the user called this program, for hints that can be pasted into a
 * shell. Must not know commands. */
#ifndef CONVOY_BASE_PROGRAM_H
#define CONVOY_BASE_PROGRAM_H

void program_set(const char *argv0); /* keeps a copy; called once, by main */
/* program_name — returns the name as called ("build/convoy"); "convoy" if that is unknown, too
 * long, or needs quotes. */
const char *program_name(void);

#endif
