/* Gates of a recipe. */
#include "cli/gates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/pipeline.h"
#include "ptq/base/option.h"

/* What a figure needs. */
typedef enum figure_of { OF_RESULT, OF_DECODER, OF_ENCODER } figure_of;

enum { PPL, PPL_FLOAT, PPL_RATIO, KL, TOP1, BITS, BYTES, SIZE_RATIO, COSINE, COSINE_MIN, SPEARMAN, ERROR, N_FIGURES };

static const char *const names[N_FIGURES] = {"ppl", "ppl_float", "ppl_ratio", "kl", "top1", "bits", "bytes",
                                             "size_ratio", "cosine", "cosine_min", "spearman", "error"};

static const figure_of kinds[N_FIGURES] = {OF_DECODER, OF_DECODER, OF_DECODER, OF_DECODER, OF_DECODER, OF_RESULT, OF_RESULT,
                                           OF_RESULT, OF_ENCODER, OF_ENCODER, OF_ENCODER, OF_ENCODER};

static const char *const ops[] = {"<=", "<", ">=", ">"};

const char *const *calm_gate_figures(size_t *n)
{
    *n = N_FIGURES;
    return names;
}

static const char *skip(const char *text)
{
    return text + strspn(text, " \t");
}

static calm_status unknown_figure(calm_ctx *ctx, const char *text, const char *name)
{
    const char *near = calm_nearest(name, names, N_FIGURES);
    return calm_fail(ctx, CALM_EARG, "gate \"%s\": nothing measured is called \"%s\"%s%s%s; there are ppl, ppl_float, "
                                     "ppl_ratio, kl, top1, bits, bytes, size_ratio, cosine, cosine_min, spearman, error",
                     text, name, near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
}

calm_status calm_gate_parse(calm_ctx *ctx, const char *text, calm_gate *out)
{
    const char *begin = skip(text), *at;
    const size_t n_name = strcspn(begin, " \t<>=");
    char *name, *canonical, *end;
    int op = -1;
    *out = (calm_gate){.figure = -1};
    CALM_TRY(calm_strf(ctx, ctx->out, &name, "%.*s", (int)n_name, begin));
    for (int i = 0; i < N_FIGURES; i++)
        out->figure = strcmp(names[i], name) == 0 ? i : out->figure;
    if (out->figure < 0)
        return unknown_figure(ctx, text, name);
    at = skip(begin + n_name);
    for (int i = 3; i >= 0; i--)    /* the longer of two that begin alike counts: < is tried before <= */
        op = strncmp(at, ops[i], strlen(ops[i])) == 0 ? i : op;
    if (op >= 0)
        at = skip(at + strlen(ops[op]));
    out->bound = op < 0 ? NAN : strtod(at, &end);
    if (op < 0 || end == at || *skip(end) || !isfinite(out->bound))
        return calm_fail(ctx, CALM_EARG, "gate \"%s\": expected NAME OP NUMBER with one of <= < >= >, as "
                                         "\"ppl_ratio <= 1.05\"", text);
    out->op = (calm_gate_op)op;
    CALM_TRY(calm_strf(ctx, ctx->out, &canonical, "%s %s %.*s", name, ops[op], (int)(end - at), at));
    out->text = canonical;
    return CALM_OK;
}

calm_status calm_gates_parse(calm_ctx *ctx, const char *list, calm_gate **out, size_t *n)
{
    char *text;
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, strlen(list) + 1));
    for (*n = 0;; ++*n) {
        CALM_TRY(calm_list_next(ctx, &list, &text));
        if (!text)
            return CALM_OK;
        CALM_TRY(calm_gate_parse(ctx, text, &(*out)[*n]));
    }
}

calm_status calm_gates_check(calm_ctx *ctx, const calm_gate *gates, size_t n, bool evaluates, int encoder, bool several)
{
    for (size_t i = 0; i < n; i++) {
        const figure_of kind = kinds[gates[i].figure];
        if (several)
            return calm_fail(ctx, CALM_EARG, "gate \"%s\": several budgets give a table, not one result; give one --budget",
                             gates[i].text);
        if (kind != OF_RESULT && !evaluates)
            return calm_fail(ctx, CALM_EARG, "gate \"%s\": this run does not evaluate its result (--no-eval)",
                             gates[i].text);
        if (encoder >= 0 && kind != OF_RESULT && encoder != (kind == OF_ENCODER))
            return calm_fail(ctx, CALM_EARG, "gate \"%s\": the model is %s, of which %s are measured", gates[i].text,
                             encoder ? "an encoder" : "a decoder",
                             encoder ? "cosine, cosine_min, spearman and error" : "ppl, ppl_float, ppl_ratio, kl and top1");
    }
    return CALM_OK;
}

bool calm_gate_holds(const calm_gate *gate, double value)
{
    switch (gate->op) {
    case CALM_GATE_LE:
        return value <= gate->bound;
    case CALM_GATE_LT:
        return value < gate->bound;
    case CALM_GATE_GE:
        return value >= gate->bound;
    case CALM_GATE_GT:
        return value > gate->bound;
    }
    return false;
}

static double measured(const calm_pipeline *p, int figure)
{
    const calm_embedding_result *e = &p->eval_encoding;
    switch (figure) {
    case PPL:
        return p->eval_result.ppl;
    case PPL_FLOAT:
        return p->eval_float.ppl;
    case PPL_RATIO:
        return p->eval_result.ppl / p->eval_float.ppl;
    case KL:
        return p->eval_result.kl;
    case TOP1:
        return p->eval_result.top1;
    case BITS:
        return p->bits_per_weight;
    case BYTES:
        return (double)p->bytes_after;
    case SIZE_RATIO:
        return (double)p->bytes_after / (double)p->bytes_before;
    case COSINE:
        return e->cosine;
    case COSINE_MIN:
        return e->cosine_min;
    case SPEARMAN:
        return e->spearman;
    case ERROR:
        return e->error;
    }
    return NAN;
}

calm_status calm_gates_measure(calm_ctx *ctx, calm_pipeline *p)
{
    CALM_TRY(CALM_NEW(ctx, ctx->out, p->gate_values, p->recipe->n_gates + 1));
    for (size_t i = 0; i < p->recipe->n_gates; i++)
        p->gate_values[i] = measured(p, p->recipe->gates[i].figure);
    return CALM_OK;
}

calm_status calm_pipeline_gates(calm_ctx *ctx, calm_pipeline *p)
{
    const calm_recipe *recipe = p->recipe;
    CALM_TRY(calm_gates_measure(ctx, p));
    CALM_TRY(calm_store_begin(ctx, p->store));
    for (size_t i = 0; i < recipe->n_gates; i++) {
        const calm_store_gate row = {p->run_id, (int64_t)i, recipe->gates[i].text, p->gate_values[i],
                                     calm_gate_holds(&recipe->gates[i], p->gate_values[i])};
        CALM_TRY(calm_store_gate_put(ctx, p->store, &row));
    }
    return calm_store_commit(ctx, p->store);
}

calm_status calm_gates_verdict(calm_ctx *ctx, const calm_pipeline *p)
{
    const calm_recipe *recipe = p->recipe;
    size_t first = recipe->n_gates, n = 0;
    for (size_t i = 0; p->gate_values && i < recipe->n_gates; i++)
        if (!calm_gate_holds(&recipe->gates[i], p->gate_values[i])) {
            first = n ? first : i;
            n++;
        }
    return n == 0 ? CALM_OK
                  : calm_fail(ctx, CALM_EMISMATCH, "gate \"%s\" does not hold: measured %.6g (%zu of %zu gates fail); the "
                                                   "checkpoint is written: %s", recipe->gates[first].text,
                              p->gate_values[first], n, recipe->n_gates, recipe->output);
}
