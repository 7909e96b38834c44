/* test_ucx_gpu — what is asked of UCX about GPUs' memory: its answer is this test's. */
#include "harness.h"

#include <ucp/api/ucp.h>

#include "comm/ucx.h"

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

static void it_tells_what_it_reaches(void **state)
{
    (void)state;
    struct ucx *ucx = NULL;
    setenv("UCX_TLS", "tcp,self", 0);
    assert_int_equal(ucx_open(&(struct ucx_config){.net = UCX_NET_UCX, .at_once = 4096}, &ucx),
                     ST_OK);
    types = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    assert_false(ucx_reaches_gpu(ucx));
    types |= UCS_BIT(UCS_MEMORY_TYPE_ROCM);
    assert_false(ucx_reaches_gpu(ucx));
    types |= UCS_BIT(UCS_MEMORY_TYPE_CUDA);
    assert_true(ucx_reaches_gpu(ucx));
    answer = UCS_ERR_INVALID_PARAM;
    assert_false(ucx_reaches_gpu(ucx));
    answer = UCS_OK;
    ucx_close(ucx);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(it_tells_what_it_reaches)};
HARNESS_MAIN(tests)
