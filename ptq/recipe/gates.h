/* Gates: conditions that a recipe sets for its result, "ppl_ratio <= 1.05". */
#pragma once

#include "ptq/base/option.h"

typedef enum calm_gate_op { CALM_GATE_LE, CALM_GATE_LT, CALM_GATE_GE, CALM_GATE_GT } calm_gate_op;

/* What a result is measured by, in the order of the manual. */
typedef enum calm_figure {
    CALM_FIGURE_PPL, CALM_FIGURE_PPL_FLOAT, CALM_FIGURE_PPL_RATIO, CALM_FIGURE_KL, CALM_FIGURE_TOP1, CALM_FIGURE_BITS,
    CALM_FIGURE_BYTES, CALM_FIGURE_SIZE_RATIO, CALM_FIGURE_COSINE, CALM_FIGURE_COSINE_MIN, CALM_FIGURE_SPEARMAN,
    CALM_FIGURE_ERROR, CALM_N_FIGURES
} calm_figure;

typedef struct calm_gate {
    const char *text;    /* "ppl_ratio <= 1.05" with single blanks */
    calm_figure figure;
    calm_gate_op op;
    double bound;
} calm_gate;

/* Parse "NAME OP NUMBER" (<= < >= >), blanks anywhere between.  In ctx->out.  CALM_EARG: an unknown name, with the
 * nearest; another operator; no number. */
calm_status calm_gate_parse(calm_ctx *ctx, const char *text, calm_gate *out);

/* Parse words into gates [*n], in ctx->out. */
calm_status calm_gates_parse(calm_ctx *ctx, const calm_words *words, calm_gate **out, size_t *n);

/* Refuse a gate about something that a run does not measure.  CALM_EARG, with the gate and what to do.
 *   evaluates   the result is measured on a text
 *   encoder     1: it is one, 0: it is none, -1: not known yet
 *   several     several budgets are compared, so there is no one result */
calm_status calm_gates_check(calm_ctx *ctx, const calm_gate *gates, size_t n, bool evaluates, int encoder,
                             bool several);

/* Does the value hold it?  NaN never does. */
bool calm_gate_holds(const calm_gate *gate, double value);
