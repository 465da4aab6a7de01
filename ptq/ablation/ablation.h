/* Ablation: measures every way of choosing that calm has on one text.
 *
 *   uniform   one entry of the pool in all units
 *   hybrid    a score, measured at a point and read by a rule, for jobs, sublayers or blocks; also the recipe's hybrid
 *             with other factors of its shortlist, and learned if the recipe asks for that
 *   oracle    in each unit the entry with the least KL of the model when only that unit is quantized
 *   random    in each job any entry that did not fail: what a choice without scores gives
 *   seed      uniform runs, the recipe's hybrid and its other factors again, with calibration windows drawn at random:
 *             the noise of calibration
 *
 * An experiment has one scheme and one calibration; it is one run of the store, whose candidates all its rows share.
 * Differences are paired by windows of the text, and taken to the best uniform run of the same experiment. */
#pragma once

#include "ptq/run/run.h"

/* One way of choosing and its measurements.  NaN: unknown; `failure` says why there is no such plan. */
typedef struct calm_ablation_row {
    const char *kind;                      /* "uniform", "hybrid", "oracle", "random", "seed"                   */
    const char *unit, *metric, *rule;      /* NULL: none; static storage                                        */
    long long seed;                        /* of a random choice, or of calibration windows; < 0: none */
    const char *name;                      /* unique in its run: "gptq", "job cka_token token", with a factor of the
                                            * shortlist "job cka_token token 2" */
    const char *failure;                   /* NULL: it was measured */
    long long plan;                        /* rows with the same number have the same plan; < 0: there is none */
    double bits;                           /* bits per weight */
    double loss;                           /* mean KL; of an encoder mean 1 - cosine */
    double ppl, top1;                      /* decoder: perplexity; share of equal most probable tokens */
    double error, spearman;                /* encoder: relative error; rank correlation of pairs' cosines */
    double delta, se;                      /* mean loss minus that of the best uniform run; paired standard error */
    long long units, differs;              /* number of units; of units that differ from that run, < 0: unknown */
    double seconds;                        /* time to quantize its candidates */
} calm_ablation_row;

/* How well a score predicts the cost of a unit: its order of entries compared with the order of probe_kl. */
typedef struct calm_ablation_correlation {
    const char *unit, *metric;
    double rho;                            /* mean over units of Spearman's rank correlation */
    double hits;                           /* share of units in which the entry of least score has the least probe_kl */
    size_t units;                          /* number of units with at least 2 entries and both scores */
} calm_ablation_correlation;

/* Massive tokens (calm_actstat_acc.n_massive) at one kind of hook point, over all blocks. */
typedef struct calm_ablation_hooks {
    const char *point;                     /* "block_out"                                                       */
    long long tokens, massive;
    double ratio_max, max_abs;             /* largest max|x| / median|x| of a token; largest |x| */
} calm_ablation_hooks;

/* Mean and standard deviation over seeds of a row's loss, and of its difference from the seed's best uniform run. */
typedef struct calm_ablation_noise {
    const char *name;
    size_t n;
    double mean, sd, delta_mean, delta_sd;    /* sd: NaN for fewer than 2                                       */
} calm_ablation_noise;

/* The results of one scheme; arrays and texts belong to the arena of calm_ablate. */
typedef struct calm_ablation {
    int64_t run_id;                        /* run of the store */
    const char *scheme;
    bool encoder, probes;                  /* the model is an encoder; probe_kl was measured */
    double float_ppl;                      /* NaN for encoders                                                  */
    const char *best;                      /* name of the best uniform run; NULL: none could be measured */
    size_t windows, window_tokens;         /* of the evaluation's text */
    double pool_seconds;                   /* time to quantize all candidates, which a hybrid needs */
    calm_ablation_row *rows;               /* [n_rows] by rising loss, then rows without loss, then seeds */
    size_t n_rows, n_seed_rows;            /* number of all rows; of rows of kind seed */
    calm_ablation_correlation *correlations;
    size_t n_correlations;
    calm_ablation_hooks *hooks;
    size_t n_hooks;
    long long scored_rows, dropped_rows;   /* rows that scored any job; rows that cka_drop left out */
    calm_ablation_noise *noise;
    size_t n_noise;
} calm_ablation;

/* The options of an ablation. */
typedef struct calm_ablation_plan {
    const long long *seeds;                /* [n_seeds] seeds of the repetitions */
    size_t n_seeds;
    const double *shortlists;              /* [n_shortlists] different factors */
    size_t n_shortlists;
    bool probes;                           /* measure probe_kl of every unit and entry                          */
    bool brief;                            /* only uniform runs, the recipe's hybrid and `shortlists` */
    calm_words metrics;                    /* only hybrids of jobs by these different scores of outputs; empty: all
                                            * scores of all units */
    calm_run_options options;              /* options of each run */
} calm_ablation_plan;

/* Fails, before any work, if the experiment would: the recipe cannot be opened or exported, or has no text to evaluate
 * on. */
calm_status calm_ablation_check(calm_ctx *ctx, const calm_recipe *recipe);

/* Runs the experiment of a recipe and its repetitions; stores rows in the store too.  Results are in `keep`, which is
 * not ctx->out.  The recipe must have one scheme, all points, the default selection and a text to evaluate on.  Fails
 * as the stages of a run do. */
calm_status calm_ablate(calm_ctx *ctx, const calm_recipe *recipe, const calm_ablation_plan *plan, calm_arena *keep,
                        calm_ablation *out);
