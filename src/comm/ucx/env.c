/* ucx_env — reads /sys and the environment. */
#include "comm/ucx/env.h"

#include <dirent.h>
#include <net/if.h>
#include <string.h>

#include "base/text.h"

const char *ucx_env_get(const char *name)
{
    extern char **environ;
    return text_variable(environ, name);
}

bool ucx_env_has_rdma(void)
{
    DIR *dir = opendir("/sys/class/infiniband");
    bool found = false;
    if (dir == NULL)
        return false;
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL && !found;)
        found = entry->d_name[0] != '.';
    closedir(dir);
    return found;
}

bool ucx_env_has_transports(void)
{
    const char *list = ucx_env_get("UCX_TLS");
    return list != NULL && list[0] != 0;
}

/* Searches a comma-separated list; a list that begins with ^ excludes its words. */
bool ucx_env_names_tcp(void)
{
    const char *at = ucx_env_get("UCX_TLS");
    if (at == NULL || at[0] == '^')
        return false;
    for (size_t n; *at != 0; at += n + (at[n] == ',')) {
        n = strcspn(at, ",");
        if (n == 3 && strncmp(at, "tcp", 3) == 0)
            return true;
    }
    return false;
}

void ucx_env_device(char *out, size_t cap)
{
    const char *list = ucx_env_get("UCX_NET_DEVICES");
    out[0] = 0;
    if (list == NULL)
        return;
    text_format(out, cap, "%.*s", (int)strcspn(list, ","), list);
    if (if_nametoindex(out) == 0)
        out[0] = 0;
}
