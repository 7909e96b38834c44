/* launch_context — see launch_context.h. */
#include "conf/launch_context.h"

#include <stddef.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "conf/launcher.h"

struct launch_context launch_context_here(char **environment)
{
    return (struct launch_context){.environment = environment,
                                   .root = "",
                                   .pid = (int)getpid(),
                                   .parent = (int)getppid(),
                                   .is_terminal = isatty(STDOUT_FILENO) || isatty(STDERR_FILENO)};
}

static bool has_file(const struct launch_context *context, const char *path)
{
    char full[512];
    return text_format(full, sizeof full, "%s%s", context->root, path) && file_exists(full);
}

bool launch_context_is_container(const struct launch_context *context)
{
    return context->pid == 1 ||
           launcher_find(context->environment, "KUBERNETES_SERVICE_HOST") != NULL ||
           /* Podman sets it, as systemd-nspawn does. */
           launcher_find(context->environment, "container") != NULL ||
           has_file(context, "/.dockerenv") || has_file(context, "/run/.containerenv");
}

const char *launch_context_name(const struct launch_context *context)
{
    if (context->is_terminal)
        return NULL;
    if (launcher_find(context->environment, "KUBERNETES_SERVICE_HOST") != NULL)
        return "Kubernetes";
    if (launcher_find(context->environment, "SLURM_JOB_ID") != NULL)
        return "Slurm";
    /* A shell in a container starts this process some levels below process number 1. Then the
     * container does not end with it. */
    return context->parent <= 1 && launch_context_is_container(context) ? "container" : NULL;
}
