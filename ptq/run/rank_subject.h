/* Models and windows in messages between ranks: rank 0 names blobs of the store and a folder that was written, which
 * all ranks see; windows travel as ids, so that no other rank needs the text. */
#ifndef CALM_RUN_RANK_SUBJECT_H
#define CALM_RUN_RANK_SUBJECT_H

#include "ptq/plan/assemble.h"
#include "ptq/run/rank_message.h"
#include "ptq/run/run_impl.h"

/* What a question of rank 0 is about; a message begins with it, as uint64_t. */
typedef enum calm_rank_question {
    CALM_RANK_PREDICTIONS = 1,    /* measure_ranks.c */
    CALM_RANK_EMBEDDINGS,         /* encode_ranks.c  */
    CALM_RANK_PASS,               /* learn_ranks.c   */
} calm_rank_question;

/* Answer one kind of question, whose kind has been read: calm_cluster_work_fn. */
calm_status calm_rank_predict(calm_ctx *ctx, calm_run *run, calm_rank_message *in, calm_text *answer);
calm_status calm_rank_encode(calm_ctx *ctx, calm_run *run, calm_rank_message *in, calm_text *answer);
calm_status calm_rank_pass(calm_ctx *ctx, calm_run *run, calm_rank_message *in, calm_text *answer);

/* Before the first question: the log says once that windows are divided. */
void calm_rank_note(calm_ctx *ctx, const calm_run *run);

/* Can other ranks see all subjects [n], and are the windows ids alone, no more than fit into a message?  A model in
 * this rank's memory, as with a rounded table, they cannot see.  Windows with positions of their own come from token
 * files, which are short. */
bool calm_rank_may_measure(const calm_run *run, const calm_subject *subjects, size_t n, const calm_windows *windows);

/* Progress of this rank's part as that of all: the others are taken to be as quick. */
typedef struct calm_rank_progress {
    calm_tick_fn *tick;    /* may be NULL */
    void *user;
    size_t own, all;       /* windows */
} calm_rank_progress;

/* A calm_tick_fn, whose user is a calm_rank_progress. */
void calm_rank_tick(void *user, size_t done, size_t total);

/* Windows, appended, as a set of their own; read back into ctx->scratch.  CALM_ENOMEM; a message that is none of them
 * becomes bad. */
void calm_rank_put_windows(calm_text *out, const calm_windows *windows);
calm_status calm_rank_read_windows(calm_ctx *ctx, calm_rank_message *in, calm_windows *out);

/* The same of a plan: schemes and blobs.  Nothing but those is looked at in what comes back. */
void calm_rank_put_plan(const calm_run *run, const calm_plan *plan, calm_text *out);
calm_status calm_rank_read_plan(calm_ctx *ctx, const calm_run *run, calm_rank_message *in, calm_plan *out);

/* The same of subjects [n]; of the folder that was opened for them, if any, the caller closes *written. */
void calm_rank_put_subjects(const calm_run *run, const calm_subject *subjects, size_t n, calm_text *out);
calm_status calm_rank_read_subjects(calm_ctx *ctx, const calm_run *run, calm_rank_message *in, size_t *n,
                                    calm_subject **out, calm_model **written);

#endif
