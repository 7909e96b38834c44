/* arc4random — two functions that the C library has since glibc 2.36, only for the release binary;
 * see arc4random.c. Must not know its callers. */
#ifndef CONVOY_BASE_ARC4RANDOM_H
#define CONVOY_BASE_ARC4RANDOM_H

#include <stddef.h>
#include <stdint.h>

void arc4random_buf(void *out, size_t out_bytes); /* bytes of the kernel's generator; cannot fail */
/* arc4random — returns 32 bits of the same generator. */
uint32_t arc4random(void);

#endif
