/* test_shm_threads_checked — test_shm_threads with checksums of content. */
#define CHECKS true
#include "comm/test_shm_threads.c"
