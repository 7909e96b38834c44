/* comm_nccl_inside — the state of the transport NCCL, for its own files: nccl.c (calls), open.c
 * (open, close, split, memory). Other files use transport.h. */
#ifndef CONVOY_COMM_NCCL_INSIDE_H
#define CONVOY_COMM_NCCL_INSIDE_H

#include "comm/core/transport.h"
#include "comm/nccl/lib.h"

/* Memory of ncclMemAlloc, registered with the root's communicator. */
struct comm_nccl_memory {
    struct comm_nccl_memory *next;
    void *data;
    void *handle; /* NCCL's handle of the registration; NULL: NCCL refused it */
};

/* Shared by a comm and all comms split from it. */
struct comm_nccl_root {
    const struct nccl_lib *nccl;
    struct stream *stream;
    void *scratch;           /* COMM_NCCL_SCRATCH_BYTES of device memory */
    struct comm_nccl *first; /* all communicators */
    struct comm_nccl_memory *memory;
};
#define COMM_NCCL_SCRATCH_BYTES 256 /* a unique id, or the number that a barrier sums */

struct comm_nccl {
    struct comm_nccl_root *root;
    struct comm_nccl *next;
    bool owns_root;
    struct nccl_comm *comm; /* NULL: not open, or aborted */
};

/* comm_nccl_lib — returns the loaded library. */
static inline const struct nccl_lib *comm_nccl_lib(const struct comm_nccl *state)
{
    return state->root->nccl;
}

/* comm_nccl_complete — waits until a call for which NCCL returned `result` is done; if
 * ctx->is_async, until it is on the stream. */
enum status comm_nccl_complete(struct comm_ctx *ctx, int result);
/* comm_nccl_opened — does the same for a new communicator. */
enum status comm_nccl_opened(struct comm_ctx *ctx, int result);
/* comm_nccl_abort — ends all communicators of the root, and their work on the device. */
void comm_nccl_abort(struct comm_ctx *ctx);
/* comm_nccl_stream — returns the root's stream as cudaStream_t. */
void *comm_nccl_stream(const struct comm_nccl *state);

/* ---- entries of struct transport_ops in open.c ---- */

/* comm_nccl_open_begin — loads NCCL and packs this rank's address; rank 0's holds the unique id. */
enum status comm_nccl_open_begin(struct comm_ctx *ctx, void *address, int64_t *address_bytes);
/* comm_nccl_open_end — initializes the communicator of all ranks. ST_DISAGREE: a rank has another
 * version of NCCL, or does not use it. */
enum status comm_nccl_open_end(struct comm_ctx *ctx, const void *addresses, const int64_t *bytes);
/* comm_nccl_open_close — destroys the communicator; a root also frees the stream and all memory. */
void comm_nccl_open_close(struct comm_ctx *ctx);
/* comm_nccl_open_split — initializes a communicator of its own for the split. Waits for its
 * members. */
enum status comm_nccl_open_split(struct comm_ctx *ctx);
/* comm_nccl_open_alloc — allocates memory by NCCL and registers it. *out stays unchanged if NCCL
 * has none. */
enum status comm_nccl_open_alloc(struct comm_ctx *ctx, int64_t bytes, void **out);

#endif
