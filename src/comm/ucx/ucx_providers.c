/* ucx_providers — the InfiniBand and RoCE drivers of the release binary. libibverbs as a shared
 * library finds its drivers in folders; as an archive it has those it is told of before the first
 * question. In this file's object alone, which nothing calls: the release links it, other builds
 * leave it in the archive. Must not know UCX. */
#include <stddef.h>

/* Of infiniband/verbs.h, which a build without the release need not have. */
struct verbs_device_ops;
extern const struct verbs_device_ops verbs_provider_mlx5;
extern const struct verbs_device_ops verbs_provider_rxe;
void ibv_static_providers(void *unused, ...);

static __attribute__((constructor)) void register_drivers(void)
{
    ibv_static_providers(NULL, &verbs_provider_mlx5, &verbs_provider_rxe, NULL);
}
