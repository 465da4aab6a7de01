/* Ablation: every way of choosing that calm has, measured side by side on one text.
 *
 *   uniform   one entry of the pool throughout
 *   hybrid    a score, measured at a point, read by a rule, for jobs, sublayers or blocks; the recipe's with other
 *             factors of its shortlist too, and as it was learned where the recipe asks for that
 *   oracle    the entry with the least KL of the model when that unit alone is quantized
 *   random    any entry that did not fail, job by job: the middle of what scores could do
 *   seed      uniform runs, the recipe's hybrid and its other factors again with calibration windows drawn at random:
 *             the noise of calibration
 *
 * An experiment is one scheme and one calibration: one run of the store, whose candidates all its rows share.  Windows
 * of the text are the samples of paired differences, all against the best uniform run of the same experiment. */
#pragma once

#include "ptq/run/run.h"

/* One way of choosing and what it measured.  NaN: unknown, or `failure` says why there is no such plan. */
typedef struct calm_ablation_row {
    const char *kind;                      /* "uniform", "hybrid", "oracle", "random", "seed"                   */
    const char *unit, *metric, *rule;      /* NULL: none; static storage                                        */
    long long seed;                        /* of a random choice, or of calibration windows; < 0: none          */
    const char *name;                      /* "gptq", "job cka_token token", with a factor of the shortlist
                                            * "job cka_token token 2": one in its run                           */
    const char *failure;                   /* NULL: it was measured                                             */
    long long plan;                        /* rows with the same number are the same plan; < 0: there is none   */
    double bits;                           /* per weight                                                        */
    double loss;                           /* mean KL; of an encoder mean 1 - cosine                            */
    double ppl, top1;                      /* of a decoder: perplexity, share of equal first choices            */
    double error, spearman;                /* of an encoder: relative error, rank correlation of pairs' cosines */
    double delta, se;                      /* mean loss minus the best uniform run's, paired standard error     */
    long long units, differs;              /* units that were chosen for; those that differ from that run, < 0: ? */
    double seconds;                        /* that its candidates took to quantize                              */
} calm_ablation_row;

/* How well a score says what a unit costs: its order of entries against that of probe_kl. */
typedef struct calm_ablation_correlation {
    const char *unit, *metric;
    double rho;                            /* mean over units of Spearman's rank correlation                    */
    double hits;                           /* share of units where the least score has the least probe_kl       */
    size_t units;                          /* with at least 2 entries and both orders                           */
} calm_ablation_correlation;

/* Massive tokens at one kind of hook point, all blocks together. */
typedef struct calm_ablation_hooks {
    const char *point;                     /* "block_out"                                                       */
    long long tokens, massive;
    double ratio_max, max_abs;             /* greatest max|x| / median|x| of a token; greatest |x|              */
} calm_ablation_hooks;

/* Mean and standard deviation over seeds of one row's loss, and of its difference to the seed's best uniform run. */
typedef struct calm_ablation_noise {
    const char *name;
    size_t n;
    double mean, sd, delta_mean, delta_sd;    /* sd: NaN for fewer than 2                                       */
} calm_ablation_noise;

/* Everything of one scheme; its arrays and texts belong to the arena that calm_ablate was given. */
typedef struct calm_ablation {
    int64_t run_id;                        /* of the store                                                      */
    const char *scheme;
    bool encoder, probes;                  /* columns of an encoder; probe_kl was measured                      */
    double float_ppl;                      /* NaN for encoders                                                  */
    const char *best;                      /* name of the best uniform run; NULL: none could be measured        */
    size_t windows, window_tokens;         /* of the evaluation's text                                          */
    double pool_seconds;                   /* that all candidates took to quantize: what a hybrid costs         */
    calm_ablation_row *rows;               /* [n_rows] by rising loss, those without at the end, then seeds       */
    size_t n_rows, n_seed_rows;            /* all; those of kind seed among them                                */
    calm_ablation_correlation *correlations;
    size_t n_correlations;
    calm_ablation_hooks *hooks;
    size_t n_hooks;
    long long scored_rows, dropped_rows;   /* rows of all jobs that were scored; that cka_drop left out         */
    calm_ablation_noise *noise;
    size_t n_noise;
} calm_ablation;

/* What to do. */
typedef struct calm_ablation_plan {
    const long long *seeds;                /* [n_seeds] of repetitions                                          */
    size_t n_seeds;
    const double *shortlists;              /* [n_shortlists] factors, all different                             */
    size_t n_shortlists;
    bool probes;                           /* measure probe_kl of every unit and entry                          */
    bool brief;                            /* uniform runs, the recipe's hybrid and `shortlists` alone          */
    calm_words metrics;                    /* hybrids of jobs by these scores of outputs alone, each named once;
                                            * none: all of every unit                                           */
    calm_run_options options;              /* of each run                                                       */
} calm_ablation_plan;

/* Refuse what an experiment would refuse, before any work: the recipe cannot be opened or exported, has no text to
 * evaluate on. */
calm_status calm_ablation_check(calm_ctx *ctx, const calm_recipe *recipe);

/* Run the experiment of a recipe, and its repetitions; results in `keep`, which is not ctx->out, rows also in the
 * store.  The recipe has one scheme, all points, the default selection and a text to evaluate on.  Fails as the
 * pipeline does. */
calm_status calm_ablate(calm_ctx *ctx, const calm_recipe *recipe, const calm_ablation_plan *plan, calm_arena *keep,
                        calm_ablation *out);
