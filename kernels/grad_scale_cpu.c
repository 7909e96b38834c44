/* grad_scale_cpu — a few numbers: the plain truth, to the bit. */
#include "kernels/grad_scale.h"

#include "kernels/cpu.h"

void CPU_FN(grad_scale)(const struct cpu *cpu, const struct grad_scale *a)
{
    grad_scale_plain(cpu, a);
}
