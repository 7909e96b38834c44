/* library_list — release, commit, compiler and the libraries of this program, for `version`. */
#ifndef CONVOY_NODE_LIBRARY_LIST_H
#define CONVOY_NODE_LIBRARY_LIST_H

#include <stdbool.h>

#include "base/text.h"

/* library_list_write — is_gpu: also which of NVIDIA's libraries are found; that starts the
 * driver. */
void library_list_write(bool is_gpu, struct text *out);

#endif
