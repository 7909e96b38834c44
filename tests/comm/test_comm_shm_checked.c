/* test_comm_shm_checked — test_comm_shm with checksums of content. */
#define CHECKS true
#include "comm/test_comm_shm.c"
