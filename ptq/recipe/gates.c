/* Gates of a recipe. */
#include "ptq/recipe/gates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>


/* The kind of result that a figure needs. */
typedef enum figure_of { OF_RESULT, OF_DECODER, OF_ENCODER } figure_of;

static const char *const names[CALM_N_FIGURES] = {"ppl", "ppl_float", "ppl_ratio", "kl", "top1", "bits", "bytes",
                                             "size_ratio", "cosine", "cosine_min", "spearman", "error"};

static const figure_of kinds[CALM_N_FIGURES] = {OF_DECODER, OF_DECODER, OF_DECODER, OF_DECODER, OF_DECODER, OF_RESULT,
                                                OF_RESULT,  OF_RESULT,  OF_ENCODER, OF_ENCODER, OF_ENCODER, OF_ENCODER};

static const char *const ops[] = {"<=", "<", ">=", ">"};

static const char *skip(const char *text)
{
    return text + strspn(text, " \t");
}

static calm_status unknown_figure(calm_ctx *ctx, const char *text, const char *name)
{
    const char *near = calm_nearest(name, names, CALM_N_FIGURES);
    return calm_fail(ctx, CALM_EARG,
                     "gate \"%s\": nothing measured is called \"%s\"%s%s%s; there are ppl, ppl_float, "
                     "ppl_ratio, kl, top1, bits, bytes, size_ratio, cosine, cosine_min, spearman, error",
                     text, name, near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
}

calm_status calm_gate_parse(calm_ctx *ctx, const char *text, calm_gate *out)
{
    const char *begin = skip(text), *at;
    const size_t n_name = strcspn(begin, " \t<>=");
    char *name, *end;
    int op = -1;
    *out = (calm_gate){.figure = CALM_N_FIGURES};
    CALM_TRY(calm_strf(ctx, ctx->out, &name, "%.*s", (int)n_name, begin));
    for (calm_figure i = 0; i < CALM_N_FIGURES; i++)
        out->figure = strcmp(names[i], name) == 0 ? i : out->figure;
    if (out->figure == CALM_N_FIGURES)
        return unknown_figure(ctx, text, name);
    at = skip(begin + n_name);
    for (int i = 3; i >= 0; i--)    /* the longer of two operators wins, because it is tried last */
        op = strncmp(at, ops[i], strlen(ops[i])) == 0 ? i : op;
    if (op >= 0)
        at = skip(at + strlen(ops[op]));
    out->bound = op < 0 ? NAN : strtod(at, &end);
    if (op < 0 || end == at || *skip(end) || !isfinite(out->bound))
        return calm_fail(ctx, CALM_EARG, "gate \"%s\": expected NAME OP NUMBER with one of <= < >= >, as "
                                         "\"ppl_ratio <= 1.05\"", text);
    out->op = (calm_gate_op)op;
    return calm_strf(ctx, ctx->out, &out->text, "%s %s %.*s", name, ops[op], (int)(end - at), at);
}

calm_status calm_gates_parse(calm_ctx *ctx, const calm_words *words, calm_gate **out, size_t *n)
{
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, words->n));
    for (*n = 0; *n < words->n; ++*n)
        CALM_TRY(calm_gate_parse(ctx, words->of[*n], &(*out)[*n]));
    return CALM_OK;
}

calm_status calm_gates_check(calm_ctx *ctx, const calm_gate *gates, size_t n, bool evaluates, int encoder, bool several)
{
    for (size_t i = 0; i < n; i++) {
        const figure_of kind = kinds[gates[i].figure];
        if (several)
            return calm_fail(ctx, CALM_EARG,
                             "gate \"%s\": several budgets give a table, not one result; give one `choice.budget`",
                             gates[i].text);
        if (kind != OF_RESULT && !evaluates)
            return calm_fail(ctx, CALM_EARG, "gate \"%s\": this run does not evaluate its result (see `evaluation`)",
                             gates[i].text);
        if (encoder >= 0 && kind != OF_RESULT && encoder != (kind == OF_ENCODER))
            return calm_fail(ctx, CALM_EARG, "gate \"%s\": the model is %s, of which %s are measured", gates[i].text,
                             encoder ? "an encoder" : "a decoder",
                             encoder ? "cosine, cosine_min, spearman and error"
                                     : "ppl, ppl_float, ppl_ratio, kl and top1");
    }
    return CALM_OK;
}

bool calm_gate_holds(const calm_gate *gate, double value)
{
    const bool holds[] = {[CALM_GATE_LE] = value <= gate->bound, [CALM_GATE_LT] = value < gate->bound,
                          [CALM_GATE_GE] = value >= gate->bound, [CALM_GATE_GT] = value > gate->bound};
    return holds[gate->op];
}
