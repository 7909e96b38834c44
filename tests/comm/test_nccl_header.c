/* test_nccl_header — what src/comm/nccl/lib.h declares, against NVIDIA's own nccl.h where it
 * is installed, and against the library beside it: the numbers, the layout of the config, and what
 * the library answers without a GPU. */
#include "harness.h"

#include "comm/nccl/lib.h"

#ifndef HAS_NCCL_HEADER
TEST(header) { HARNESS_SKIP("nccl.h, or CUDA's headers that it includes, are not installed"); }
#else
#include <nccl.h>

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
SAME(NCCL_SUCCESS, ncclSuccess);
SAME(NCCL_UNHANDLED_CUDA_ERROR, ncclUnhandledCudaError);
SAME(NCCL_SYSTEM_ERROR, ncclSystemError);
SAME(NCCL_INTERNAL_ERROR, ncclInternalError);
SAME(NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
SAME(NCCL_INVALID_USAGE, ncclInvalidUsage);
SAME(NCCL_REMOTE_ERROR, ncclRemoteError);
SAME(NCCL_IN_PROGRESS, ncclInProgress);
SAME(NCCL_SUM, ncclSum);
SAME(NCCL_UINT8, ncclUint8);
SAME(NCCL_FLOAT16, ncclFloat16);
SAME(NCCL_FLOAT32, ncclFloat32);
SAME(NCCL_FLOAT64, ncclFloat64);
SAME(NCCL_BFLOAT16, ncclBfloat16);
SAME(NCCL_ID_BYTES, NCCL_UNIQUE_ID_BYTES);
SAME(sizeof(struct nccl_id), sizeof(ncclUniqueId));
SAME(NCCL_UNDEFINED, NCCL_CONFIG_UNDEF_INT);

#define FIELD(ours, theirs) SAME(offsetof(struct nccl_config, ours), offsetof(ncclConfig_t, theirs))
FIELD(size, size);
FIELD(magic, magic);
FIELD(version, version);
FIELD(blocking, blocking);
FIELD(cga_cluster_size, cgaClusterSize);
FIELD(min_ctas, minCTAs);
FIELD(max_ctas, maxCTAs);
FIELD(net_name, netName);
FIELD(split_share, splitShare);
#if NCCL_VERSION_CODE >= 22500
FIELD(traffic_class, trafficClass);
#endif
#if NCCL_VERSION_CODE >= 22700
FIELD(comm_name, commName);
FIELD(collnet_enable, collnetEnable);
FIELD(cta_policy, CTAPolicy);
FIELD(shrink_share, shrinkShare);
FIELD(nvls_ctas, nvlsCTAs);
#endif
#if NCCL_VERSION_CODE >= 22800
FIELD(channels_per_net_peer, nChannelsPerNetPeer);
FIELD(nvlink_centric_sched, nvlinkCentricSched);
#endif

TEST(header)
{
    ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
    struct nccl_config ours = nccl_lib_config(NCCL_VERSION_CODE, 0);
    theirs.blocking = 0;
    print_message("# nccl.h %d.%d.%d\n", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
    assert_int_equal(ours.size, sizeof theirs);
    assert_memory_equal(&ours, &theirs, sizeof theirs);
}

/* The config has the layout of the version that it names. */
TEST(older_versions)
{
    static const struct {
        int version;
        size_t size;
    } cases[] = {{21805, 48}, {22403, 48}, {22605, 48}, {22703, 72}, {22809, 80}, {23000, 80}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct nccl_config config = nccl_lib_config(cases[i].version, 12);
        assert_int_equal(config.size, cases[i].size);
        assert_int_equal(config.version, cases[i].version);
        assert_int_equal(config.max_ctas, 12);
        assert_int_equal(config.min_ctas, NCCL_CONFIG_UNDEF_INT);
    }
}

/* The library that the header belongs to: our table opens it, and it answers without a GPU. */
TEST(library)
{
    const struct nccl_lib *nccl;
    int version = 0;
    if (nccl_lib_open(&nccl) == ST_NO_DEVICE)
        HARNESS_SKIP("nccl.h has no library: %s", status_message());
    assert_int_equal(nccl->ncclGetVersion(&version), NCCL_SUCCESS);
    print_message("# NCCL %s\n", nccl_lib_about());
    assert_int_equal(version, NCCL_VERSION_CODE);
    assert_true(nccl->has_memory);
    assert_non_null(strstr(nccl->ncclGetErrorString(NCCL_REMOTE_ERROR), "remote"));
    assert_non_null(strstr(nccl->ncclGetErrorString(NCCL_IN_PROGRESS), "progress"));
    /* a config that it refuses leaves no communicator */
    struct nccl_comm *comm = NULL;
    struct nccl_config config = nccl_lib_config(version, 0);
    struct nccl_id id = {{0}};
    config.magic = 1;
    assert_true(nccl->ncclCommInitRankConfig(&comm, 1, id, 0, &config) != NCCL_SUCCESS);
}
#endif

HARNESS_RUN_ALL()
