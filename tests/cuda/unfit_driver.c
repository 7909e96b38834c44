/* unfit_driver — a libcuda.so.1 that no program can use, for tests without a GPU. It knows the
 * version FAKE_CUDA of CUDA (12040: 12.4), and its start fails with the error FAKE_ERROR.
 *
 * The CUDA runtime looks up every entry by its name through cuGetProcAddress before it starts the
 * driver, and needs an address for each. It calls only the functions below. They have plain types,
 * so that no header of CUDA's is needed. */
#include <stdlib.h>
#include <string.h>

#define NOT_FOUND 500 /* CUDA_ERROR_NOT_FOUND */

typedef void (*entry)(void);

static int number_of(const char *name, int usual)
{
    const char *text = getenv(name);
    return text ? atoi(text) : usual;
}

int cuInit(unsigned flags);
int cuInit(unsigned flags)
{
    (void)flags;
    return number_of("FAKE_ERROR", 0);
}

int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version)
{
    *version = number_of("FAKE_CUDA", 13000);
    return 0;
}

int cuGetExportTable(const void **table, const void *id);
int cuGetExportTable(const void **table, const void *id)
{
    (void)id;
    *table = NULL;
    return NOT_FOUND;
}

static int any_other(void) { return NOT_FOUND; }

int cuGetProcAddress_v2(const char *name, entry *out, int version, unsigned long flags,
                        void *found);
int cuGetProcAddress_v2(const char *name, entry *out, int version, unsigned long flags, void *found)
{
    (void)version, (void)flags, (void)found;
    static const struct {
        const char *name;
        entry call;
    } known[] = {{"", NULL},
                 {"cuInit", (entry)cuInit},
                 {"cuDriverGetVersion", (entry)cuDriverGetVersion},
                 {"cuGetExportTable", (entry)cuGetExportTable},
                 {"cuGetProcAddress", (entry)cuGetProcAddress_v2}};
    *out = (entry)any_other;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i].name) == 0)
            *out = known[i].call;
    return 0;
}
