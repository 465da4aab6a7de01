/* Recipe: what a quantization run is asked to do, resolved - every value filled in, every name found. */
#ifndef CALM_CLI_RECIPE_H
#define CALM_CLI_RECIPE_H

#include "algorithms/algorithm.h"
#include "cka/cka.h"
#include "cli/resolve.h"
#include "ptq/hybrid/select.h"
#include "ptq/io/json.h"

typedef struct calm_recipe {
    calm_named_model model;
    calm_scheme scheme;
    const char *scheme_note;                /* how it was completed; NULL: it is as typed             */
    calm_algorithm **algorithms;    /* [n_algorithms] the pool                                        */
    size_t n_algorithms;
    const char *calib_path, *calib_name;    /* text or JSON lines; as shown ("bundled ...")           */
    bool tokens;                            /* calib_path is a token file                                     */
    long long samples, seqlen, seed;        /* windows, tokens per window, < 0: the first windows     */
    long long score_windows;                /* of the calibration windows, the first ones             */
    long long guard_windows;                /* outside calibration; 0: no guard                       */
    bool special;                           /* special tokens around the text                         */
    calm_rule rule;
    calm_metric metric;
    bool keep_hybrid;                       /* even when a uniform run is better                      */
    const char *eval_path, *eval_name;      /* NULL: no evaluation                                    */
    long long eval_windows;                 /* 0: all                                                 */
    const char *output;                     /* checkpoint directory                                   */
    const char *store;                      /* SQLite file                                            */
    bool force;
    long long first_block, last_block;      /* blocks to quantize, both included; last < 0: to the end        */
    long long least_tokens;                 /* an expert that saw fewer is rounded without data; 0: 4 groups  */
    const struct calm_knobs *knobs;         /* instead of those that fit (cli/budget.h); NULL: chosen by memory  */
    const char *memory;                     /* bytes this process may have resident: "2GB"; NULL: 70 % of free */
} calm_recipe;

/* least_tokens, or its default: 4 times the scheme's group (of 128, for a scheme without groups). */
size_t calm_recipe_least_tokens(const calm_recipe *recipe);

/* CALM_NEEDS_* and CALM_SETS_* bits of the pool: what at least one algorithm needs or sets. */
unsigned calm_recipe_caps(const calm_recipe *recipe);

/* The recipe as JSON: everything that decides the result, in a fixed order.  Freed by the caller. */
calm_json *calm_recipe_json(const calm_recipe *recipe);

/* Parse "rtn,gptq,smooth(alpha=0.75)+hls+gptq" (commas within parentheses belong to a chain) into ctx->out.
 * CALM_EARG: nothing named, an unknown algorithm, one named twice. */
calm_status calm_recipe_algorithms(calm_ctx *ctx, const char *list, calm_recipe *recipe);

#endif
