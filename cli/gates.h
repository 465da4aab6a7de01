/* Gates: what a recipe demands of its result, "ppl_ratio <= 1.05". */
#ifndef CALM_CLI_GATES_H
#define CALM_CLI_GATES_H

#include "ptq/base/context.h"

typedef enum calm_gate_op { CALM_GATE_LE, CALM_GATE_LT, CALM_GATE_GE, CALM_GATE_GT } calm_gate_op;

typedef struct calm_gate {
    const char *text;    /* "ppl_ratio <= 1.05" with single blanks */
    int figure;          /* which one (gates.c)                    */
    calm_gate_op op;
    double bound;
} calm_gate;

/* Names of the figures in the order of the manual; *n their number. */
const char *const *calm_gate_figures(size_t *n);

/* Parse "NAME OP NUMBER" (<= < >= >), blanks anywhere between.  In ctx->out.  CALM_EARG: an unknown name, with the nearest;
 * another operator; no number. */
calm_status calm_gate_parse(calm_ctx *ctx, const char *text, calm_gate *out);

/* Parse a comma list into gates [*n], in ctx->out. */
calm_status calm_gates_parse(calm_ctx *ctx, const char *list, calm_gate **out, size_t *n);

/* Refuse a gate about something that a run does not measure.  CALM_EARG, with the gate and what to do.
 *   evaluates   the result is measured on a text
 *   encoder     1: it is one, 0: it is none, -1: nobody knows yet
 *   several     several budgets are compared, so there is no one result */
calm_status calm_gates_check(calm_ctx *ctx, const calm_gate *gates, size_t n, bool evaluates, int encoder, bool several);

/* Does the value hold it?  NaN never does. */
bool calm_gate_holds(const calm_gate *gate, double value);

struct calm_pipeline;

/* p->gate_values from the figures of a result, for gates of p->recipe. */
calm_status calm_gates_measure(calm_ctx *ctx, struct calm_pipeline *p);

/* Measure the gates of a run's recipe after its result is there, into p->gate_values, and put them into the store. */
calm_status calm_pipeline_gates(calm_ctx *ctx, struct calm_pipeline *p);

/* CALM_EMISMATCH when one of them does not hold, with the gate and what was measured. */
calm_status calm_gates_verdict(calm_ctx *ctx, const struct calm_pipeline *p);

#endif
