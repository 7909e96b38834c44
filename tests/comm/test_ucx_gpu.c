/* test_ucx_gpu — what UCX reports about GPU memory, with a fake ucp_context_query. */
#include "harness.h"

#include <ucp/api/ucp.h>

#include "comm/p2p/p2p.h"

static ucs_status_t answer;
static uint64_t types;

/* In place of UCX's own. */
ucs_status_t ucp_context_query(ucp_context_h context, ucp_context_attr_t *attr)
{
    (void)context;
    if (attr->field_mask & UCP_ATTR_FIELD_MEMORY_TYPES)
        attr->memory_types = types;
    return answer;
}

TEST(only_cuda_counts_as_gpu_support)
{
    struct p2p *p2p = NULL;
    setenv("UCX_TLS", "tcp,self", 0);
    assert_int_equal(p2p_open(&(struct p2p_config){.net = COMM_NET_UCX, .eager_bytes = 4096}, &p2p),
                     ST_OK);
    types = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    assert_false(p2p_supports_gpu(p2p));
    types |= UCS_BIT(UCS_MEMORY_TYPE_ROCM);
    assert_false(p2p_supports_gpu(p2p));
    types |= UCS_BIT(UCS_MEMORY_TYPE_CUDA);
    assert_true(p2p_supports_gpu(p2p));
    answer = UCS_ERR_INVALID_PARAM;
    assert_false(p2p_supports_gpu(p2p));
    answer = UCS_OK;
    p2p_close(p2p);
}

HARNESS_RUN_ALL()
