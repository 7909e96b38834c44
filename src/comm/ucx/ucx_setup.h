/* ucx_setup — opens UCX in this process: its settings, a context and a worker, and what it must
 * leave alone. Must not know peers. Only ucx.c and ucx_setup.c include it. */
#ifndef CONVOY_COMM_UCX_SETUP_H
#define CONVOY_COMM_UCX_SETUP_H

#include <stdbool.h>
#include <ucp/api/ucp.h>

#include "base/status.h"

/* ucx_setup — opens a context and one worker for one thread at a time. eager_bytes: as in
 * p2p_config. Outputs are set also when a later step fails. Errors: ST_NO_DEVICE with UCX's
 * text. */
enum status ucx_setup(int64_t eager_bytes, ucp_context_h *context, ucp_worker_h *worker,
                      int *event_fd);
/* ucx_setup_has_cuda — this UCX reports that it moves the memory of NVIDIA GPUs. Debian's is built
 * without. */
bool ucx_setup_has_cuda(ucp_context_h context);
/* ucx_setup_fail — "UCX cannot WHAT: its text; ADVICE". */
enum status ucx_setup_fail(enum status st, const char *what, ucs_status_t status,
                           const char *advice);

#endif
