/* nccl_lib — NVIDIA's NCCL, or AMD's RCCL with the same functions, loaded when it is first needed:
 * its functions as a table of pointers, their types, and its errors as messages. Must not know
 * ranks or the calls of comm.
 *
 * The types are declared here as in NCCL's binary interface, from 2.18 on; if nccl.h is installed,
 * tests/comm/test_nccl_header.c compares them. So a program that was built without NCCL's header
 * can use the library if it is installed. */
#ifndef CONVOY_COMM_NCCL_LIB_H
#define CONVOY_COMM_NCCL_LIB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
    NCCL_SUCCESS,
    NCCL_UNHANDLED_CUDA_ERROR,
    NCCL_SYSTEM_ERROR,
    NCCL_INTERNAL_ERROR,
    NCCL_INVALID_ARGUMENT,
    NCCL_INVALID_USAGE,
    NCCL_REMOTE_ERROR,
    NCCL_IN_PROGRESS
};
enum { NCCL_SUM = 0 };
enum { NCCL_UINT8 = 1, NCCL_FLOAT16 = 6, NCCL_FLOAT32 = 7, NCCL_FLOAT64 = 8, NCCL_BFLOAT16 = 9 };

#define NCCL_ID_BYTES 128
#define NCCL_VERSION_LEAST 21800 /* the first version with the fields of nccl_config below */
#define NCCL_CONFIG_MAGIC 0xcafebeefu
#define NCCL_UNDEFINED (-2147483647 - 1)

struct nccl_comm;
struct nccl_id {
    char bytes[NCCL_ID_BYTES];
};
/* The config as of 2.28; each field has the first version with it. nccl_lib_config fills the fields
 * that the running library has. */
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share;   /* 2.18 */
    int traffic_class; /* 2.25 */
    const char *comm_name;
    int collnet_enable, cta_policy, shrink_share, nvls_ctas; /* 2.27 */
    int channels_per_net_peer, nvlink_centric_sched;         /* 2.28 */
};

/* The functions have the library's names. int: one of the results above. */
struct nccl_lib {
    int (*ncclGetVersion)(int *version);
    const char *(*ncclGetErrorString)(int result);
    const char *(*ncclGetLastError)(struct nccl_comm *comm);
    int (*ncclGetUniqueId)(struct nccl_id *id);
    int (*ncclCommInitRankConfig)(struct nccl_comm **out, int ranks, struct nccl_id id, int rank,
                                  struct nccl_config *config);
    int (*ncclCommAbort)(struct nccl_comm *comm);
    int (*ncclCommFinalize)(struct nccl_comm *comm);
    int (*ncclCommDestroy)(struct nccl_comm *comm);
    int (*ncclCommGetAsyncError)(struct nccl_comm *comm, int *result);
    int (*ncclGroupStart)(void);
    int (*ncclGroupEnd)(void);
    int (*ncclAllReduce)(const void *in, void *out, size_t n, int type, int op,
                         struct nccl_comm *comm, void *stream);
    int (*ncclReduce)(const void *in, void *out, size_t n, int type, int op, int root,
                      struct nccl_comm *comm, void *stream);
    int (*ncclReduceScatter)(const void *in, void *out, size_t out_n, int type, int op,
                             struct nccl_comm *comm, void *stream);
    int (*ncclAllGather)(const void *in, void *out, size_t in_n, int type, struct nccl_comm *comm,
                         void *stream);
    int (*ncclBroadcast)(const void *in, void *out, size_t n, int type, int root,
                         struct nccl_comm *comm, void *stream);
    int (*ncclSend)(const void *data, size_t n, int type, int peer, struct nccl_comm *comm,
                    void *stream);
    int (*ncclRecv)(void *data, size_t n, int type, int peer, struct nccl_comm *comm, void *stream);
    /* From 2.19 on; has_memory: the library has all four. */
    bool has_memory;
    int (*ncclMemAlloc)(void **out, size_t bytes);
    int (*ncclMemFree)(void *data);
    int (*ncclCommRegister)(struct nccl_comm *comm, void *data, size_t bytes, void **handle);
    int (*ncclCommDeregister)(struct nccl_comm *comm, void *handle);
};

/* nccl_lib_choose — chooses NCCL or RCCL for all functions below; at first NCCL. Call it before
 * other threads use them. runtime: the address of hipGetDevice in this process's AMD runtime; NULL:
 * RCCL may load any. */
void nccl_lib_choose(bool is_rccl, const void *runtime);
/* nccl_lib_name — returns "NCCL" or "RCCL", as chosen. */
const char *nccl_lib_name(void);
/* nccl_lib_is_rccl — returns true if RCCL is chosen. */
bool nccl_lib_is_rccl(void);
/* nccl_lib_open — returns the table, one for the process. Loads the library at the first call; any
 * thread. Errors:
 *   ST_NO_DEVICE    not installed, too old (the message names both versions), a symbol is missing,
 *                   or RCCL has loaded another AMD runtime than this process
 *   ST_BAD_SETTING  NCCL_COMM_BLOCKING in the environment, which overrides the config */
enum status nccl_lib_open(const struct nccl_lib **out);
/* nccl_lib_version — returns the version of the loaded library, as 22809; 0: not loaded. */
int nccl_lib_version(void);
/* nccl_lib_about — returns "2.28.9 from /usr/lib/…". */
const char *nccl_lib_about(void);

/* nccl_lib_shares_gpus — returns true if NCCL of `version` accepts several ranks of a node on one
 * GPU: from 2.30 on with NCCL_MULTI_RANK_GPU_ENABLE=1 in the environment. RCCL never does. MIG
 * instances of a GPU count as one GPU: before 2.30 NCCL compares PCI addresses, and 2.31.2 still
 * sees the parent GPU (NCCL's issue 1716). */
bool nccl_lib_shares_gpus(int version);

/* nccl_lib_config — returns the config of a communicator that does not block, in the layout of
 * `version`. max_ctas: most SMs that its kernels use; 0: NCCL chooses. */
struct nccl_config nccl_lib_config(int version, int max_ctas);

/* nccl_lib_rounding — returns the most bytes that ncclMemAlloc of `version` adds to a request; 0:
 * that version has no ncclMemAlloc. granularity_bytes: from struct dev_info; 0: unknown. */
int64_t nccl_lib_rounding(int version, int64_t granularity_bytes);

/* nccl_lib_version_text — writes "2.28.9" for 22809 to `out`, and returns it. */
const char *nccl_lib_version_text(int version, char *out, size_t cap);

/* nccl_lib_fail — returns the status of a failed result and sets its message, which contains the
 * call, such as "all_reduce 12".
 *   ST_PEER         a peer or the network failed
 *   ST_FAULT        CUDA failed
 *   ST_BAD_SETTING  NCCL refuses this setup
 *   ST_BUG          anything else */
enum status nccl_lib_fail(const struct nccl_lib *nccl, struct nccl_comm *comm, int result,
                          const char *what) __attribute__((cold));

#endif
