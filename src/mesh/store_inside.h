/* store_inside — what the files of the store share. Inside room mesh only. */
#ifndef CONVOY_MESH_STORE_INSIDE_H
#define CONVOY_MESH_STORE_INSIDE_H

#include "mesh/rows.h"
#include "mesh/store.h"

/* What is under way with a piece. */
struct store_piece {
    struct comm_ticket gather, reduce;
    bool is_gathering;  /* `gather` has to be waited for */
    bool is_due;        /* its update waits for `gather`, which brings the gradient */
    bool is_here;       /* window: gathered, or on its way */
    bool is_rounded;    /* its rounded copy is that of the masters */
    bool is_begun;      /* its reduction, in this step */
    bool is_reducing;   /* `reduce` has to be waited for */
    bool is_finished;   /* reduced, and its squares are added up */
};

#define STORE_PIECES_OF_MEMORY 9
#define STORE_EXTRAS_MAX 8

struct store {
    struct store_config c;
    struct layout layout;
    bool is_alone, has_parts;          /* one rank; moments are in parts */
    bool is_late;                      /* gradients are gathered beside the next forward pass, and updates due until then */
    bool params_window, grads_window;  /* else whole */
    struct tensor params, params_own;  /* whole or window; packed, with a window */
    struct tensor rounded;             /* params once more, in the passes' 16-bit dtype; data NULL: passes read params */
    struct tensor grads, grads_own;
    struct tensor moment[2];           /* whole or packed */
    struct tensor norms;               /* (pieces) f64, on the device */
    double *sums;                      /* the same on the host, and extras */
    struct store_piece *piece;
    int grad_in_slot[2];               /* the piece whose gradient lies there; -1 none */
    struct rows *rows;                 /* NULL: token rows are reduced with the rest */
    struct comm_ticket rows_ticket;    /* of their numbers, then of the rows themselves */
    struct param_table embed_table;    /* gradients while the embedding's backward runs */
    struct param *embed_row;
    struct squeeze *squeeze;           /* NULL: not compressed */
    struct {
        void *data;
        size_t bytes;
        bool is_comm;
    } memory[STORE_PIECES_OF_MEMORY];
    int memory_n;
    struct store_memory taken;
    struct comm_ticket newest;         /* of what was begun */
    bool is_under_way;                 /* it is not waited for */
    int64_t wait_ns;
};

/* The rounded copy: bytes for so many elements of it; nothing of it is that of the masters any more; a piece of it, made
 * anew when it is not. */
int64_t store_piece_bytes(const struct store *s, int64_t elems);
void store_piece_forget(struct store *s);
enum status store_piece_round(struct store *s, int piece);
/* store_piece_clear — what lies between the tensors of a piece's gradients, wherever these lie. */
enum status store_piece_clear(struct store *s, int piece, struct tensor grads);

#endif
