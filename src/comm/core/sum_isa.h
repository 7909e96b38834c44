/* sum_isa — sum_run at one level of x86-64 (sum_cpu.c), for sum.c, which picks it. plain: any
 * processor. */
#ifndef CONVOY_COMM_SUM_ISA_H
#define CONVOY_COMM_SUM_ISA_H

#include "comm/core/sum.h"

void sum_isa_plain(const struct sum_args *a);
void sum_isa_v2(const struct sum_args *a);
void sum_isa_v3(const struct sum_args *a);
void sum_isa_v4(const struct sum_args *a);

#endif
