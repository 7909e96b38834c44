/* secure — see secure.h. Each secret has pages of its own; their first bytes hold the count. */
#include "base/secure.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HEAD_BYTES 64

void *secure_alloc(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t mapped = (bytes + HEAD_BYTES + page - 1) / page * page;
    char *data = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
        return NULL;
    (void)mlock(data, mapped); /* optional: without these calls the secret is as safe as before */
    (void)madvise(data, mapped, MADV_DONTDUMP);
    (void)madvise(data, mapped, MADV_WIPEONFORK);
    memcpy(data, &mapped, sizeof mapped);
    return data + HEAD_BYTES;
}

void secure_free(void *secret)
{
    size_t mapped;
    if (secret == NULL)
        return;
    char *data = (char *)secret - HEAD_BYTES;
    memcpy(&mapped, data, sizeof mapped);
    explicit_bzero(data, mapped);
    munmap(data, mapped);
}

char *secure_strdup(const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = secure_alloc(n);
    if (copy != NULL)
        memcpy(copy, text, n);
    return copy;
}
