/* fake_hub — runs the fake hub (tests/remote/fake_hub.h) for tests in shell: fake_hub ROOT writes
 * the port of the hub to ROOT/port, and serves until it is killed. */
#include "remote/fake_hub.h"

int main(int argc, char **argv)
{
    struct fake_hub hub = {.hub = 0};
    char port[16];
    if (argc != 2)
        return 2;
    fake_hub_start(&hub, argv[1]);
    snprintf(port, sizeof port, "%d", hub.hub_port);
    fake_set(&hub, "port", port);
    pause();
    return 0;
}
