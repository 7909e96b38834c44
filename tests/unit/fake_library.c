/* fake_library — the smallest library that tests/unit/dev/library.c can look for. FAKE_LACKS: it
 * has no version. */
int fake_answer(void);
int fake_version(void);

int fake_answer(void) { return 42; }
#ifndef FAKE_LACKS
int fake_version(void) { return FAKE_VERSION; }
#endif
