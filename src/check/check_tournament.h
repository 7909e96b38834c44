/* check_tournament — which nodes measure each other in which round: a round-robin tournament by the
 * circle method. In each round every node is in one pair at most, so all pairs of a round measure
 * at the same time. Over all rounds every pair meets exactly once. Pure. */
#ifndef CONVOY_CHECK_CHECK_TOURNAMENT_H
#define CONVOY_CHECK_CHECK_TOURNAMENT_H

/* check_tournament_rounds — nodes - 1; with an odd number of nodes, nodes, because one rests in
 * each round; 0 for fewer than two nodes. */
int check_tournament_rounds(int nodes);
/* check_tournament_peer — the other node of `node` in this round; -1: it rests. 0 <= round <
 * check_tournament_rounds(nodes), 0 <= node < nodes. */
int check_tournament_peer(int nodes, int round, int node);

#endif
