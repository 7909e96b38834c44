/* dev_cuda_peak — the table of chips. Figures "with sparsity" are halved: this program's products
 * are dense. */
#include "dev/cuda/peak.h"

#include <stddef.h>
#include <string.h>

#define TERA 1e12

/* The first matching row counts. Chips with the same number of multiprocessors differ in their
 * clock, so if NVIDIA sells several, a row also has a word of the name. Figures are from NVIDIA's
 * papers, as other tables quote them:
 *   A100           data sheet; Ampere whitepaper: 108 multiprocessors in every form
 *   H100           data sheet and Hopper whitepaper: 132 in SXM5 (one more digit there), 114 in
 *                  PCIe; the data sheets of H200 and GH200 have the figures of SXM5
 *   B200           HGX B200 in the Blackwell data sheet; tf32 there is 2.2 PFLOP/s with sparsity,
 *                  to two digits: here half of bf16's, as on every chip
 *   L40S, L4, A10  data sheets; RTX 4090: Ada whitepaper, with f32 accumulation
 * Unknown here: H100 NVL and H200 NVL (132 too, lower clock), others of 148 (B100, GB200) or
 * 142. */
static const struct chip {
    const char *word; /* in its name; "": any name */
    int major, minor, sm_count;
    struct dev_cuda_peak tera;
} chips[] = {
    {"", 8, 0, 108, {312, 156, 19.5}},       {" NVL", 9, 0, 132, {0, 0, 0}},
    {"", 9, 0, 132, {989.4, 494.7, 66.9}},   {"H100", 9, 0, 114, {756, 378, 51.2}},
    {" B200", 10, 0, 148, {2250, 1125, 75}}, {" L40S", 8, 9, 142, {362.05, 183, 91.6}},
    {" L4", 8, 9, 58, {121, 60, 30.3}},      {" RTX 4090", 8, 9, 128, {165.2, 82.6, 82.6}},
    {" A10", 8, 6, 72, {125, 62.5, 31.2}},
};

struct dev_cuda_peak dev_cuda_peak(const char *name, int major, int minor, int sm_count)
{
    const struct dev_cuda_peak none = {0};
    if (strstr(name, " MIG "))
        return none;
    for (size_t i = 0; i < sizeof chips / sizeof *chips; i++) {
        const struct chip *c = &chips[i];
        if (c->major == major && c->minor == minor && c->sm_count == sm_count &&
            strstr(name, c->word))
            return (struct dev_cuda_peak){c->tera.f16 * TERA, c->tera.tf32 * TERA,
                                          c->tera.f32 * TERA};
    }
    return none;
}
