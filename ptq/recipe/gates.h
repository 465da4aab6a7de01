/* Gates: conditions that a recipe sets for its result, such as "ppl_ratio <= 1.05". */
#pragma once

#include "ptq/base/option.h"

typedef enum calm_gate_op { CALM_GATE_LE, CALM_GATE_LT, CALM_GATE_GE, CALM_GATE_GT } calm_gate_op;

/* The figures that a gate can name, in the order of the manual. */
typedef enum calm_figure {
    CALM_FIGURE_PPL, CALM_FIGURE_PPL_FLOAT, CALM_FIGURE_PPL_RATIO, CALM_FIGURE_KL, CALM_FIGURE_TOP1, CALM_FIGURE_BITS,
    CALM_FIGURE_BYTES, CALM_FIGURE_SIZE_RATIO, CALM_FIGURE_COSINE, CALM_FIGURE_COSINE_MIN, CALM_FIGURE_SPEARMAN,
    CALM_FIGURE_ERROR, CALM_N_FIGURES
} calm_figure;

typedef struct calm_gate {
    const char *text;    /* "ppl_ratio <= 1.05", with single spaces */
    calm_figure figure;
    calm_gate_op op;
    double bound;
} calm_gate;

/* Parses "NAME OP NUMBER" (<= < >= >), with spaces anywhere; texts in ctx->out.  CALM_EARG: an unknown name (the
 * message has the nearest), another operator, or no number. */
calm_status calm_gate_parse(calm_ctx *ctx, const char *text, calm_gate *out);

/* Parses words into gates [*n], in ctx->out. */
calm_status calm_gates_parse(calm_ctx *ctx, const calm_words *words, calm_gate **out, size_t *n);

/* Fails with CALM_EARG if a gate needs a figure that the run does not measure; the message has the gate and a remedy.
 *   evaluates   the result is evaluated on a text
 *   encoder     1: the model is an encoder, 0: it is not, -1: not known yet
 *   several     several budgets are compared, so there is no single result */
calm_status calm_gates_check(calm_ctx *ctx, const calm_gate *gates, size_t n, bool evaluates, int encoder,
                             bool several);

/* Returns true if the value satisfies the gate; false for NaN. */
bool calm_gate_holds(const calm_gate *gate, double value);
