/* Several ranks of one run: the division of blocks among ranks, and the exchange of hidden states, store rows and
 * messages.
 *
 * If the run has no cluster, a calm_division_* function does only what one rank needs, or nothing. */
#pragma once

#include "ptq/base/text.h"
#include "ptq/layers/batch.h"
#include "ptq/plan/assemble.h"
#include "ptq/state/state.h"

/* State of this rank of a run. */
typedef struct calm_rank_state {
    calm_store_relay relay;        /* sends store rows to rank 0; not on rank 0            */
    double divided;                /* clock in seconds when the blocks were divided        */
    double waited;                 /* seconds of waiting for hidden states                 */
    bool seeding;                  /* the rows being put come from rank 0                  */
    bool output_shared;            /* all ranks see the files that rank 0 writes           */
} calm_rank_state;

/* Candidates and statistics that a run needs and the store does not have. */
typedef struct calm_missing {
    bool *activations;      /* [n_blocks] activation statistics        */
    bool *blocks;           /* [n_blocks] scores at the block's output */
    bool *any;              /* [n_blocks] anything of the block        */
    int *owner;             /* [n_blocks] rank that computes the block; NULL: there is one rank */
    bool outside;           /* statistics of embedding or final norm   */
    size_t n_candidates;    /* candidates to compute, in all blocks    */
    size_t end;             /* number of blocks that have to be run    */
} calm_missing;

/* ---- which rank computes which block (division.c, rank_facts.c) ---- */

/* Checks, after the keys were computed or failed, that all ranks have the same program, kernels, recipe, model and
 * windows, and share the store's folder.  A failure of one rank fails all of them.  CALM_EUNSUPPORTED, CALM_EIO:
 * calm_cluster_agree, calm_cluster_probe. */
calm_status calm_division_check(calm_ctx *ctx, calm_run *run);

/* Opens the run's store: rank 0 opens the recipe's, another rank one in memory whose rows are sent to rank 0. */
calm_status calm_division_open_store(calm_ctx *ctx, calm_run *run);

/* Collective, after rank 0's survey: sends `missing` and the stored candidates to all ranks, and sets
 * missing->owner. */
calm_status calm_division_share(calm_ctx *ctx, calm_run *run, calm_missing *missing);

/* Does this rank compute the block? */
bool calm_division_mine(const calm_run *run, const calm_missing *missing, size_t block);

/* Collective, after the blocks: waits until rank 0 has the rows of all ranks; writes into result.ranks and the log what
 * each rank did. */
calm_status calm_division_collect(calm_ctx *ctx, calm_run *run, const calm_missing *missing);

/* On rank 0, at the end: writes each rank's idle time since the blocks were divided into result.ranks, and into the
 * store as `ranks` of the run's environment. */
calm_status calm_division_account(calm_ctx *ctx, calm_run *run);

typedef struct calm_deal_block {
    bool todo;      /* it has something to compute; else hidden states only pass through it */
    double cost;    /* in any unit                                                 */
} calm_deal_block;

/* Computes owner [n], the rank of each of blocks [n]; every rank computes the same.  Blocks with work go to the ranks
 * in turn, or each to the rank that is free first, if that ends earlier.  A block without work goes to the rank of the
 * next block with work, which needs its hidden states.  CALM_ENOMEM (deal.c). */
calm_status calm_assign_blocks(calm_ctx *ctx, const calm_deal_block *blocks, size_t n, size_t ranks, int *owner);

/* ---- rows of the store between ranks (relay.c) ---- */

/* Returns a relay that sends each put row to rank 0.  `run` must outlive the store. */
calm_store_relay calm_relay_to_rank_0(calm_run *run);

/* Appends a candidate of the store as a message. */
void calm_relay_encode(calm_text *out, size_t job, const calm_store_candidate *row);

/* Puts the rows in the messages bytes [n] of another rank into the run's store.  CALM_EFORMAT: malformed messages. */
calm_status calm_relay_put(calm_ctx *ctx, calm_run *run, const char *bytes, size_t n);

/* ---- hidden states between ranks while blocks are computed (flow.c) ---- */

#define CALM_FLOW_AT_ONCE 4                 /* windows being transferred in each direction     */
#define CALM_FLOW_IDLE_MICROSECONDS 500     /* pause between two tests of unfinished transfers */

/* Transfers of hidden states from the rank of one block to the rank of the next.  A thread moves them, a few windows at
 * a time: the states for the rank's next block arrive while it computes the current one. */
typedef struct calm_flow calm_flow;

/* Begins the transfers of a run with several ranks, with memory for the hidden states of two blocks in `arena`, or in
 * files.  Close with calm_flow_close, also after a failure. */
calm_status calm_flow_open(calm_ctx *ctx, calm_run *run, const calm_missing *missing, calm_arena *arena,
                           calm_flow **out);
void calm_flow_close(calm_flow **flow);

/* Prepares a block of this rank: *batch has the hidden states that enter it (embeddings, the output of this rank's
 * block before it, or received states), valid until the next call; the block's output is being sent to the rank of the
 * next block.  The caller may advance *batch. */
calm_status calm_flow_enter(calm_ctx *ctx, calm_flow *flow, size_t block, calm_batch **batch);

/* Waits until everything is sent. */
calm_status calm_flow_finish(calm_ctx *ctx, calm_flow *flow);

/* ---- hidden states between ranks after the blocks, by the run's own thread (rank_rows.c) ---- */

/* Send windows first .. first + n - 1 of a batch to a rank, which must receive n windows of the same lengths.
 * CALM_EIO. */
calm_status calm_rank_rows_send(calm_ctx *ctx, calm_cluster *cluster, int rank, const calm_batch *batch, size_t first,
                                size_t n);
calm_status calm_rank_rows_receive(calm_ctx *ctx, calm_cluster *cluster, int rank, const calm_batch *batch,
                                   size_t first, size_t n);

/* Returns the peak bytes of ctx->scratch of either function for windows of at most `longest` tokens. */
size_t calm_rank_rows_bytes(size_t longest, size_t width);

/* ---- messages (rank_message.c) ---- */

/* A message that is read from front to back.  All ranks run the same program, so a message holds structs as they are in
 * memory, each followed by what it points to.  `bad`: the message ended too early; all later reads give 0. */
typedef struct calm_rank_message {
    const char *at, *end;
    bool bad;
} calm_rank_message;

/* Copies the next n bytes to `out`. */
void calm_rank_message_read(calm_rank_message *in, void *out, size_t n);

/* Copies the next n elements of `size` bytes to ctx->scratch, and the pointer to *out; NULL if the message ends too
 * early.  CALM_ENOMEM. */
calm_status calm_rank_message_array(calm_ctx *ctx, calm_rank_message *in, uint64_t n, size_t size, void *out);

/* Copies a text that calm_rank_message_put_text wrote to ctx->scratch; NULL for NULL.  CALM_ENOMEM. */
calm_status calm_rank_message_text(calm_ctx *ctx, calm_rank_message *in, const char **out);

/* Can n more elements of at least `least` bytes each follow?  If not, the message becomes bad. */
bool calm_rank_message_fits(calm_rank_message *in, uint64_t n, size_t least);

/* Append n bytes, or a text or NULL. */
void calm_rank_message_put(calm_text *out, const void *bytes, size_t n);
void calm_rank_message_put_text(calm_text *out, const char *text);

/* ---- questions of rank 0 about models and windows (rank_subject.c) ---- */

/* A message begins with its question, as uint64_t.  Rank 0 names blobs of the store and folders that all ranks see;
 * windows are sent as token ids, so that other ranks need no text. */
typedef enum calm_rank_question {
    CALM_RANK_PREDICTIONS = 1,    /* ptq/measure/measure_ranks.c */
    CALM_RANK_EMBEDDINGS,         /* ptq/measure/encode_ranks.c  */
    CALM_RANK_PASS,               /* ptq/learn/learn_ranks.c     */
} calm_rank_question;

/* Logs once, before the first question, that windows are divided among the ranks. */
void calm_rank_note(calm_ctx *ctx, const calm_run *run);

/* Can other ranks measure these subjects [n] on these windows?  They cannot measure a model in this rank's memory (as
 * with a rounded table), windows with their own positions, or more ids than fit into a message. */
bool calm_rank_may_measure(const calm_run *run, const calm_subject *subjects, size_t n, const calm_windows *windows);

/* Reports this rank's progress as that of all ranks, as if the others were as fast. */
typedef struct calm_rank_progress {
    calm_tick_fn *tick;    /* may be NULL */
    void *user;
    size_t own, all;       /* number of windows: of this rank, of all ranks */
} calm_rank_progress;

/* A calm_tick_fn, whose user is a calm_rank_progress. */
void calm_rank_tick(void *user, size_t done, size_t total);

/* Append windows to a message as a separate set; read them back into ctx->scratch.  CALM_ENOMEM; a malformed message
 * becomes bad. */
void calm_rank_put_windows(calm_text *out, const calm_windows *windows);
calm_status calm_rank_read_windows(calm_ctx *ctx, calm_rank_message *in, calm_windows *out);

/* Append a plan's schemes and blobs to a message; read them back.  The read plan has nothing else. */
void calm_rank_put_plan(const calm_run *run, const calm_plan *plan, calm_text *out);
calm_status calm_rank_read_plan(calm_ctx *ctx, const calm_run *run, calm_rank_message *in, calm_plan *out);

/* Append subjects [n] to a message; read them back.  The caller closes *written, the model folder that was opened for
 * them, if any. */
void calm_rank_put_subjects(const calm_run *run, const calm_subject *subjects, size_t n, calm_text *out);
calm_status calm_rank_read_subjects(calm_ctx *ctx, const calm_run *run, calm_rank_message *in, size_t *n,
                                    calm_subject **out, calm_model **written);
