/* arc4random — random bytes for libevent's archive in the release binary. That archive is compiled
 * for glibc 2.36, which has these functions; the binary also starts with 2.34, so it brings its
 * own. This program itself does not call them and uses rand.h. Must not know its callers. */
#include "base/arc4random.h"

#include <errno.h>
#include <sys/random.h>

#include "base/assert.h"

void arc4random_buf(void *out, size_t out_bytes)
{
    for (size_t done = 0; done < out_bytes;) {
        ssize_t got = getrandom((char *)out + done, out_bytes - done, 0);
        ASSERTF(got > 0 || errno == EINTR, "getrandom returned no bytes, errno %d", errno);
        done += got > 0 ? (size_t)got : 0;
    }
}

uint32_t arc4random(void)
{
    uint32_t value;
    arc4random_buf(&value, sizeof(value));
    return value;
}
