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
    calm_algorithm **algorithms;    /* [n_algorithms] the pool                                        */
    size_t n_algorithms;
    const char *calib_path, *calib_name;    /* text or JSON lines; as shown ("bundled ...")           */
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
} calm_recipe;

/* The recipe as JSON: everything that decides the result, in a fixed order.  Freed by the caller. */
calm_json *calm_recipe_json(const calm_recipe *recipe);

/* Parse "rtn,gptq,smooth(alpha=0.75)+hls+gptq" (commas within parentheses belong to a chain) into ctx->out.
 * CALM_EARG: nothing named, an unknown algorithm, one named twice. */
calm_status calm_recipe_algorithms(calm_ctx *ctx, const char *list, calm_recipe *recipe);

#endif
