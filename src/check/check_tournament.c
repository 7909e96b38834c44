/* check_tournament — see check_tournament.h. */
#include "check/check_tournament.h"

#include <stdint.h>

#include "base/assert.h"

/* The circle method: with an odd number m of places, i and j meet in round (i + j) mod m. The node
 * that would meet itself rests, or meets the node that stands outside the circle. */
static int places(int nodes) { return nodes % 2 == 0 ? nodes - 1 : nodes; }

int check_tournament_rounds(int nodes) { return nodes < 2 ? 0 : places(nodes); }

int check_tournament_peer(int nodes, int round, int node)
{
    const int m = places(nodes);
    ASSERTF(round >= 0 && round < m && node >= 0 && node < nodes, "round %d, node %d of %d", round,
            node, nodes);
    if (node == m) /* outside the circle: meets the i with 2 i = round (mod m) */
        return (int)((int64_t)round * ((m + 1) / 2) % m);
    const int peer = (round - node + m) % m;
    if (peer != node)
        return peer;
    return nodes % 2 == 0 ? m : -1;
}
