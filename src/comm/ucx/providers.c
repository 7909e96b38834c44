/* ucx_providers — the InfiniBand and RoCE drivers of the release binary.
 *
 * libibverbs as a shared library finds its drivers in folders. As an archive it has only the
 * drivers that are registered before its first use. This object registers them, and nothing calls
 * it: the release links it, other builds leave it in the archive. Must not know UCX. */
#include <stddef.h>

/* From infiniband/verbs.h, which other builds need not have. */
struct verbs_device_ops;
extern const struct verbs_device_ops verbs_provider_mlx5;
extern const struct verbs_device_ops verbs_provider_rxe;
void ibv_static_providers(void *unused, ...);

static __attribute__((constructor)) void register_drivers(void)
{
    ibv_static_providers(NULL, &verbs_provider_mlx5, &verbs_provider_rxe, NULL);
}
