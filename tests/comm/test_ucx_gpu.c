/* test_ucx_gpu — what UCX reports about GPU memory, with a fake ucp_context_query. */
#include "harness.h"

#include <ucp/api/ucp.h>

#include "comm/message/messenger.h"

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
    struct messenger *m = NULL;
    setenv("UCX_TLS", "tcp,self", 0);
    assert_int_equal(
        messenger_open(&(struct message_config){.net = COMM_NET_UCX, .eager_bytes = 4096}, &m),
        ST_OK);
    types = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    assert_false(messenger_supports_gpu(m));
    types |= UCS_BIT(UCS_MEMORY_TYPE_ROCM);
    assert_false(messenger_supports_gpu(m));
    types |= UCS_BIT(UCS_MEMORY_TYPE_CUDA);
    assert_true(messenger_supports_gpu(m));
    answer = UCS_ERR_INVALID_PARAM;
    assert_false(messenger_supports_gpu(m));
    answer = UCS_OK;
    messenger_close(m);
}

HARNESS_RUN_ALL()
