/* add_level — add_run at one level of x86-64 (add_cpu.c), for add.c, which picks it. plain: any
 * processor. */
#ifndef CONVOY_COMM_ADD_LEVEL_H
#define CONVOY_COMM_ADD_LEVEL_H

#include "comm/add.h"

void add_level_plain(const struct add *a);
void add_level_v2(const struct add *a);
void add_level_v3(const struct add *a);
void add_level_v4(const struct add *a);

#endif
