/* Several ranks of one run: which rank computes which block, and how rows and messages travel between them.
 *
 * Every calm_division_* function does nothing, or what one rank needs, when the run has no cluster. */
#pragma once

#include "ptq/base/text.h"
#include "ptq/model/batch.h"
#include "ptq/plan/assemble.h"
#include "ptq/state/state.h"

/* What the ranks of a run keep for themselves. */
typedef struct calm_rank_state {
    calm_store_relay relay;        /* another rank than 0: its rows go to rank 0           */
    double divided, waited;        /* seconds: when the blocks were divided; spent waiting for rows */
    bool seeding;                  /* rows are being put that come from rank 0             */
    bool output_shared;            /* all ranks see what rank 0 writes                     */
} calm_rank_state;

/* Candidates and statistics that a run needs and the store does not have. */
typedef struct calm_missing {
    bool *activations;      /* [n_blocks]                              */
    bool *blocks;           /* [n_blocks] scores at the block's output */
    bool *any;              /* [n_blocks] anything at all              */
    int *owner;             /* [n_blocks] rank that computes the block; NULL: there is one rank */
    bool outside;           /* statistics of embedding or final norm   */
    size_t n_candidates;    /* to be computed, all blocks              */
    size_t end;             /* number of blocks that have to be run    */
} calm_missing;

/* ---- which rank computes which block (division.c, rank_facts.c) ---- */

/* Once the keys are known, or failed to be: check that all ranks have the same program, kernels, recipe, model and
 * windows, and share the store's folder.  A failure of one rank fails all of them.  CALM_EUNSUPPORTED, CALM_EIO:
 * calm_cluster_agree, calm_cluster_probe. */
calm_status calm_division_check(calm_ctx *ctx, calm_run *run);

/* Open the run's store: rank 0 the recipe's, the others one in memory whose rows are sent to rank 0. */
calm_status calm_division_open_store(calm_ctx *ctx, calm_run *run);

/* Collective, after rank 0's survey: send what is missing, and the candidates that are there, to all ranks; set
 * missing->owner. */
calm_status calm_division_share(calm_ctx *ctx, calm_run *run, calm_missing *missing);

/* Does this rank compute the block? */
bool calm_division_mine(const calm_run *run, const calm_missing *missing, size_t block);

/* Collective, after the blocks: rank 0 has the rows of all ranks; result.ranks and the log say what each rank did. */
calm_status calm_division_collect(calm_ctx *ctx, calm_run *run, const calm_missing *missing);

/* Rank 0, at the end: how long each rank was idle since the blocks were divided, into result.ranks, and as `ranks` of
 * the run's environment into the store. */
calm_status calm_division_account(calm_ctx *ctx, calm_run *run);

typedef struct calm_deal_block {
    bool todo;      /* it has something to compute; else rows only pass through it */
    double cost;    /* in any unit                                                 */
} calm_deal_block;

/* owner [n] = the rank of each of blocks [n]: the same wherever it is computed.  Blocks with work go round the ranks,
 * or each to the rank that is free first, if that ends earlier.  A block without work goes to the rank of the next
 * block with work, which needs its rows.  CALM_ENOMEM (deal.c). */
calm_status calm_deal_blocks(calm_ctx *ctx, const calm_deal_block *blocks, size_t n, size_t ranks, int *owner);

/* ---- rows of the store between ranks (relay.c) ---- */

/* Relay that sends each row put here to rank 0.  `run` outlives the store. */
calm_store_relay calm_relay_to_rank_0(calm_run *run);

/* Append a candidate of the store as a message. */
void calm_relay_encode(calm_text *out, size_t job, const calm_store_candidate *row);

/* Put the rows of messages [n] of another rank into the run's store.  CALM_EFORMAT: malformed messages. */
calm_status calm_relay_put(calm_ctx *ctx, calm_run *run, const char *bytes, size_t n);

/* ---- hidden rows between ranks while blocks are computed (flow.c) ---- */

#define CALM_FLOW_AT_ONCE 4                 /* windows under way in each direction             */
#define CALM_FLOW_IDLE_MICROSECONDS 500     /* between two looks while something is under way  */

/* The rows that enter a block come from the rank that has the block before.  A thread moves them, a few windows at a
 * time: rows of the rank's next block arrive during the work on the current one. */
typedef struct calm_flow calm_flow;

/* Begin, for a run with several ranks whose rows move: room for the rows of two blocks in `arena`, or in files.  Close
 * with calm_flow_close, also after a failure. */
calm_status calm_flow_open(calm_ctx *ctx, calm_run *run, const calm_missing *missing, calm_arena *arena,
                           calm_flow **out);
void calm_flow_close(calm_flow **flow);

/* Prepare a block of this rank: *batch has the rows that enter it (embedded, left by this rank's block before it, or
 * received), valid until the next call; the rows that leave the block are on their way to the rank of the next one.
 * The caller may advance *batch. */
calm_status calm_flow_enter(calm_ctx *ctx, calm_flow *flow, size_t block, calm_batch **batch);

/* Wait until everything is sent. */
calm_status calm_flow_finish(calm_ctx *ctx, calm_flow *flow);

/* ---- hidden rows between ranks after the blocks, by the run's own thread (rank_rows.c) ---- */

/* Send windows first .. first + n - 1 of a batch to a rank that receives as many, of the same lengths.  CALM_EIO. */
calm_status calm_rank_rows_send(calm_ctx *ctx, calm_cluster *cluster, int rank, const calm_batch *batch, size_t first,
                                size_t n);
calm_status calm_rank_rows_receive(calm_ctx *ctx, calm_cluster *cluster, int rank, const calm_batch *batch,
                                   size_t first, size_t n);

/* Bytes of ctx->scratch that either holds for windows of at most `longest` tokens. */
size_t calm_rank_rows_bytes(size_t longest, size_t width);

/* ---- messages (rank_message.c) ---- */

/* A message that is read front to back.  All ranks run the same program, so structs travel as they are and are followed
 * by what they point to.  `bad`: the message ended too early; everything read from there on is 0. */
typedef struct calm_rank_message {
    const char *at, *end;
    bool bad;
} calm_rank_message;

/* The next bytes [n] into `out`. */
void calm_rank_message_read(calm_rank_message *in, void *out, size_t n);

/* The same into ctx->scratch: elements [n] of `size` bytes.  NULL when the message ends too early.  CALM_ENOMEM. */
calm_status calm_rank_message_array(calm_ctx *ctx, calm_rank_message *in, uint64_t n, size_t size, void *out);

/* A text that calm_rank_message_put_text wrote, into ctx->scratch; NULL for NULL.  CALM_ENOMEM. */
calm_status calm_rank_message_text(calm_ctx *ctx, calm_rank_message *in, const char **out);

/* Can n rows of at least `least` bytes each still follow?  If not the message is bad. */
bool calm_rank_message_fits(calm_rank_message *in, uint64_t n, size_t least);

/* Append bytes [n], or a text or NULL. */
void calm_rank_message_put(calm_text *out, const void *bytes, size_t n);
void calm_rank_message_put_text(calm_text *out, const char *text);

/* ---- questions of rank 0 about models and windows (rank_subject.c) ---- */

/* A message begins with its question, as uint64_t.  Rank 0 names blobs of the store and folders that all ranks see;
 * windows travel as token ids, so that other ranks need no text. */
typedef enum calm_rank_question {
    CALM_RANK_PREDICTIONS = 1,    /* ptq/measure/measure_ranks.c */
    CALM_RANK_EMBEDDINGS,         /* ptq/measure/encode_ranks.c  */
    CALM_RANK_PASS,               /* ptq/learn/learn_ranks.c     */
} calm_rank_question;

/* Before the first question: log once that windows are divided among the ranks. */
void calm_rank_note(calm_ctx *ctx, const calm_run *run);

/* Can other ranks measure these subjects [n] on these windows?  Not a model in this rank's memory (as with a rounded
 * table), windows with their own positions, or more ids than fit into a message. */
bool calm_rank_may_measure(const calm_run *run, const calm_subject *subjects, size_t n, const calm_windows *windows);

/* Progress of this rank's part as that of all: the others are taken to be as fast. */
typedef struct calm_rank_progress {
    calm_tick_fn *tick;    /* may be NULL */
    void *user;
    size_t own, all;       /* windows */
} calm_rank_progress;

/* A calm_tick_fn, whose user is a calm_rank_progress. */
void calm_rank_tick(void *user, size_t done, size_t total);

/* Append windows as a separate set; read them back into ctx->scratch.  CALM_ENOMEM; a malformed message becomes
 * bad. */
void calm_rank_put_windows(calm_text *out, const calm_windows *windows);
calm_status calm_rank_read_windows(calm_ctx *ctx, calm_rank_message *in, calm_windows *out);

/* The same for a plan: its schemes and blobs.  A plan that was read has nothing else. */
void calm_rank_put_plan(const calm_run *run, const calm_plan *plan, calm_text *out);
calm_status calm_rank_read_plan(calm_ctx *ctx, const calm_run *run, calm_rank_message *in, calm_plan *out);

/* The same for subjects [n].  The caller closes *written, the folder that was opened for them, if any. */
void calm_rank_put_subjects(const calm_run *run, const calm_subject *subjects, size_t n, calm_text *out);
calm_status calm_rank_read_subjects(calm_ctx *ctx, const calm_run *run, calm_rank_message *in, size_t *n,
                                    calm_subject **out, calm_model **written);
