/* Chains as text: "smooth(alpha=0.75)+hls(signed=true)+gptq(order=none)+mkq(rounds=4)".
 *
 *   chain = step { "+" step }     step = name [ "(" [ option "=" value { "," option "=" value } ] ")" ]
 *
 * The order is transform* grid rounding refit*.  A name may exist in two kinds (`ls` is a grid and a refit); its
 * place in the chain decides. */
#include "algorithms/chain.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "ptq/base/message.h"
#include "ptq/base/scope.h"

/* Larger than the number of parts and presets; names beyond it would only not be suggested. */
#define NAMES_MAX 128

/* A parse in progress. */
typedef struct chain_parse {
    const char *text;           /* as the user wrote it, for messages */
    calm_algorithm *algorithm;
    calm_part_kind reached;     /* kind of the last step; TRANSFORM before the first */
} chain_parse;

/* Returns the text without white space at both ends; cuts it in place. */
static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t length = strlen(text);
    while (length && isspace((unsigned char)text[length - 1]))
        text[--length] = '\0';
    return text;
}

/* Cuts the text at the first `separator` outside parentheses; returns the rest after it, or NULL. */
static char *cut(char *text, char separator)
{
    int depth = 0;
    for (; *text; text++) {
        /* Separators within options, as in "1e+3", are inside parentheses. */
        depth += (*text == '(') - (*text == ')');
        if (*text == separator && depth == 0) {
            *text = '\0';
            return text + 1;
        }
    }
    return NULL;
}

/* May a step of kind `next` follow one of kind `last`?  A grid follows transforms, one rounding follows the grid. */
static bool may_follow(calm_part_kind last, calm_part_kind next)
{
    switch (next) {
    case CALM_KIND_TRANSFORM:
    case CALM_KIND_GRID:
        return last == CALM_KIND_TRANSFORM;
    case CALM_KIND_ROUND:
        return last == CALM_KIND_GRID;
    case CALM_KIND_REFIT:
        return last == CALM_KIND_ROUND || last == CALM_KIND_REFIT;
    case CALM_KIND_BLOCK:
        return false;
    }
    return false;
}

/* Fails with CALM_EARG and the nearest name; presets come first, because they are the usual spelling. */
static calm_status unknown_name(calm_ctx *ctx, const chain_parse *parse, const char *name)
{
    char hint[CALM_HINT_MAX];
    const char *names[NAMES_MAX];
    size_t n_parts, n_presets, n = 0;
    const calm_part *const *parts = calm_parts(&n_parts);
    const calm_preset *presets = calm_presets(&n_presets);
    for (size_t i = 0; i < n_presets && n < NAMES_MAX; i++) {
        if (strcmp(presets[i].name, name) == 0)
            return calm_fail(ctx, CALM_EARG, "algorithm \"%s\": \"%s\" is a whole chain, %s, and no part of one; write "
                             "its parts", parse->text, name, presets[i].chain);
        names[n++] = presets[i].name;
    }
    for (size_t i = 0; i < n_parts && n < NAMES_MAX; i++)
        names[n++] = parts[i]->name;
    calm_did_you_mean(hint, name, names, n);
    return calm_fail(ctx, CALM_EARG, "algorithm \"%s\": nothing is called \"%s\"%s", parse->text, name,
                     *hint ? hint : "; `calm algorithms` lists all names");
}

/* Fails with CALM_EARG: the name is known, but not allowed at this place. */
static calm_status wrong_place(calm_ctx *ctx, const chain_parse *parse, const calm_part *part)
{
    static const char *const expected[] = {"a grid (or a transform)", "a rounding", "a refit", "a refit"};
    /* A single rounding, such as "gptq(damp=0.1)": the user may have meant the preset of this name. */
    if (!strchr(parse->text, '+') && part->kind == CALM_KIND_ROUND)
        return calm_fail(ctx, CALM_EARG, "algorithm \"%s\": a chain has a grid before the rounding \"%s\"; did you "
                                         "mean absmax+%s?", parse->text, part->name, parse->text);
    return calm_fail(ctx, CALM_EARG,
                     "algorithm \"%s\": expected %s, found the %s \"%s\"; a chain is transforms, one grid, one "
                     "rounding, refits, as in smooth+absmax+gptq+ls",
                     parse->text, expected[parse->reached], calm_part_kind_name(part->kind), part->name);
}

/* Refuses a transform after a fit to the quantized input, which the transform would change. */
static calm_status after_fit(calm_ctx *ctx, const chain_parse *parse, const calm_part *part)
{
    if (part->kind != CALM_KIND_TRANSFORM || !(parse->algorithm->caps & CALM_FITS_INPUT))
        return CALM_OK;
    return calm_fail(ctx, CALM_EARG,
                     "algorithm \"%s\": %s comes after %s, which fits the weights to the input as it is and "
                     "must be the last transform",
                     parse->text, part->name, parse->algorithm->steps[parse->algorithm->n_steps - 1].part->name);
}

/* Finds the part that `name` means at this place. */
static calm_status find_part(calm_ctx *ctx, const chain_parse *parse, const char *name, const calm_part **out)
{
    size_t n;
    const calm_part *const *parts = calm_parts(&n), *misplaced = NULL;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(parts[i]->name, name) != 0)
            continue;
        if (may_follow(parse->reached, parts[i]->kind)) {
            *out = parts[i];
            return after_fit(ctx, parse, parts[i]);
        }
        /* A name of two kinds is misplaced only if neither fits; the message names the later one. */
        misplaced = parts[i];
    }
    return misplaced ? wrong_place(ctx, parse, misplaced) : unknown_name(ctx, parse, name);
}

/* Parses "a=1,b=x" (cut in place) into `step`. */
static calm_status parse_options(calm_ctx *ctx, const char *text, const calm_step *step, char *options)
{
    if (*trim(options) == '\0')
        return CALM_OK;
    for (char *rest; options; options = rest) {
        rest = cut(options, ',');
        char *value = strchr(options, '=');
        if (!value)
            return calm_fail(ctx, CALM_EARG, "algorithm \"%s\": expected option=value in %s(...), found \"%s\"", text,
                             step->part->name, trim(options));
        *value++ = '\0';
        CALM_TRY(calm_option_set(ctx, step->part->opts, step->opts, step->part->name, trim(options), trim(value)));
    }
    return CALM_OK;
}

calm_status calm_step_split(calm_ctx *ctx, const char *text, char **step, char **options)
{
    *step = trim(*step);
    const size_t length = strlen(*step);
    *options = strchr(*step, '(');
    if (*options ? (*step)[length - 1] != ')' : strchr(*step, ')') != NULL)
        return calm_fail(ctx, CALM_EARG, "algorithm \"%s\": the parentheses of \"%s\" do not match", text, *step);
    if (*options) {
        (*step)[length - 1] = '\0';
        *(*options)++ = '\0';
    }
    *step = trim(*step);
    return CALM_OK;
}

calm_status calm_step_open(calm_ctx *ctx, const char *text, char *options, calm_step *step)
{
    const calm_part *part = step->part;
    /* Defaults first, so that options in the text change single members. */
    CALM_TRY(calm_alloc(ctx, ctx->out, &step->opts, 1, part->opts_size, "options"));
    CALM_TRY(calm_options_init(ctx, part->opts, step->opts));
    if (options)
        CALM_TRY(parse_options(ctx, text, step, options));
    return part->check ? part->check(ctx, step->opts) : CALM_OK;
}

/* Parses one step (cut in place). */
static calm_status parse_step(calm_ctx *ctx, chain_parse *parse, char *text)
{
    calm_algorithm *algorithm = parse->algorithm;
    char *options;
    CALM_TRY(calm_step_split(ctx, parse->text, &text, &options));
    if (algorithm->n_steps == CALM_CHAIN_MAX)
        return calm_fail(ctx, CALM_EARG, "algorithm \"%s\": more than %d parts", parse->text, CALM_CHAIN_MAX);
    calm_step *step = &algorithm->steps[algorithm->n_steps];
    CALM_TRY(find_part(ctx, parse, text, &step->part));
    CALM_TRY(calm_step_open(ctx, parse->text, options, step));
    parse->reached = step->part->kind;
    algorithm->caps |= step->part->caps & ~CALM_GRAM_INVERSE;    /* a flag of single parts */
    algorithm->n_steps++;
    return CALM_OK;
}

/* Parses all steps; the chain must have a rounding. */
static calm_status parse_chain(calm_ctx *ctx, chain_parse *parse, const char *chain)
{
    char *step, *rest;
    CALM_TRY(calm_strf(ctx, ctx->out, &step, "%s", chain));
    for (; step; step = rest) {
        rest = cut(step, '+');
        CALM_TRY(parse_step(ctx, parse, step));
    }
    if (parse->reached < CALM_KIND_ROUND)
        return calm_fail(ctx, CALM_EARG, "algorithm \"%s\": the chain ends without %s, as in absmax+nearest",
                         parse->text, parse->reached == CALM_KIND_GRID ? "a rounding" : "a grid and a rounding");
    return CALM_OK;
}

void calm_step_print(const calm_step *step, calm_text *out)
{
    calm_text_printf(out, "%s@%d", step->part->name, step->part->revision);
    if (!calm_options_count(step->part->opts))
        return;
    calm_text_append(out, "(", 1);
    calm_options_canonical(step->part->opts, step->opts, out);
    calm_text_append(out, ")", 1);
}

/* Prints every option of every step, with revisions. */
static calm_status print_canonical(calm_ctx *ctx, const calm_algorithm *algorithm, char **out)
{
    CALM_SCOPED_TEXT(text);
    for (size_t i = 0; i < algorithm->n_steps; i++) {
        calm_text_append(&text, "+", i ? 1 : 0);
        calm_step_print(&algorithm->steps[i], &text);
    }
    return calm_text_take(ctx, ctx->out, &text, out, NULL);
}

/* Prints the options of a step that differ from their defaults: "(a=1)" or nothing. */
static calm_status print_changed(calm_ctx *ctx, const calm_step *step, calm_text *out)
{
    void *defaults;
    bool any = false;
    CALM_TRY(calm_alloc(ctx, ctx->scratch, &defaults, 1, step->part->opts_size, "options"));
    CALM_TRY(calm_options_init(ctx, step->part->opts, defaults));
    for (const calm_option *option = step->part->opts; option && option->name; option++) {
        /* Compared as text, which works for all types. */
        const calm_option one[] = {*option, {.name = NULL}};
        CALM_SCOPED_TEXT(now);
        CALM_SCOPED_TEXT(before);
        calm_options_canonical(one, step->opts, &now);
        calm_options_canonical(one, defaults, &before);
        out->failed |= now.failed || before.failed;
        if (!out->failed && strcmp(now.data, before.data) != 0) {
            calm_text_printf(out, "%s%s", any ? "," : "(", now.data);
            any = true;
        }
    }
    if (any)
        calm_text_append(out, ")", 1);
    return CALM_OK;
}

/* Prints the chain with the options that differ from their defaults. */
static calm_status print_name(calm_ctx *ctx, const calm_algorithm *algorithm, char **out)
{
    CALM_SCOPED_TEXT(text);
    for (size_t i = 0; i < algorithm->n_steps; i++) {
        calm_text_printf(&text, "%s%s", i ? "+" : "", algorithm->steps[i].part->name);
        CALM_TRY(print_changed(ctx, &algorithm->steps[i], &text));
    }
    return calm_text_take(ctx, ctx->out, &text, out, NULL);
}

/* Parses one chain and prints its canonical form. */
static calm_status build(calm_ctx *ctx, const char *text, const char *chain, calm_algorithm **out)
{
    chain_parse parse = {text, NULL, CALM_KIND_TRANSFORM};
    char *canonical;
    CALM_TRY(CALM_NEW(ctx, ctx->out, parse.algorithm, 1));
    CALM_TRY(parse_chain(ctx, &parse, chain));
    CALM_TRY(print_canonical(ctx, parse.algorithm, &canonical));
    parse.algorithm->canonical = canonical;
    *out = parse.algorithm;
    return CALM_OK;
}

/* Creates the algorithm `float`, which has no steps and leaves linears unchanged. */
static calm_status make_float(calm_ctx *ctx, calm_algorithm **out)
{
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, 1));
    (*out)->name = (*out)->canonical = CALM_FLOAT;
    return CALM_OK;
}

calm_status calm_algorithm_parse(calm_ctx *ctx, const char *text, calm_algorithm **out)
{
    CALM_ENTER(ctx, text && out);
    size_t n;
    const calm_preset *presets = calm_presets(&n);
    char *name;
    *out = NULL;
    if (strcmp(text, CALM_FLOAT) == 0)
        return make_float(ctx, out);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(presets[i].name, text) == 0) {
            CALM_TRY(build(ctx, text, presets[i].chain, out));
            (*out)->name = presets[i].name;
            return CALM_OK;
        }
    }
    CALM_TRY(build(ctx, text, text, out));
    /* A preset written out by hand is that preset. */
    for (size_t i = 0; i < n; i++) {
        calm_algorithm *preset;
        CALM_TRY(build(ctx, text, presets[i].chain, &preset));
        if (strcmp(preset->canonical, (*out)->canonical) == 0)
            (*out)->name = presets[i].name;
    }
    if ((*out)->name)
        return CALM_OK;
    CALM_TRY(print_name(ctx, *out, &name));
    (*out)->name = name;
    return CALM_OK;
}

const char *calm_algorithm_name(const calm_algorithm *algorithm)
{
    return algorithm->name;
}

const char *calm_algorithm_canonical(const calm_algorithm *algorithm)
{
    return algorithm->canonical;
}

unsigned calm_algorithm_caps(const calm_algorithm *algorithm)
{
    return algorithm->caps;
}

bool calm_algorithm_smooths(const calm_algorithm *algorithm)
{
    bool any = false;
    for (size_t i = 0; i < algorithm->n_steps; i++) {
        const calm_part *part = algorithm->steps[i].part;
        any |= part->kind == CALM_KIND_TRANSFORM && (part->caps & CALM_SETS_IN_SCALE);
    }
    return any;
}

/* Divides a part's work by `gain` if the part uses float products. */
static double work_of(const calm_part *part, double work, double gain)
{
    return part->in_float ? work / gain : work;
}

double calm_algorithm_products(const calm_algorithm *algorithm, double gain)
{
    double products = 0;
    for (size_t i = 0; i < algorithm->n_steps; i++)
        products += work_of(algorithm->steps[i].part, algorithm->steps[i].part->products, gain);
    return products;
}

double calm_algorithm_factors(const calm_algorithm *algorithm, double gain)
{
    double factors = 0;
    for (size_t i = 0; i < algorithm->n_steps; i++)
        factors += work_of(algorithm->steps[i].part, algorithm->steps[i].part->factors, gain);
    return factors;
}

bool calm_algorithm_is_preset(const calm_algorithm *algorithm)
{
    size_t n;
    const calm_preset *presets = calm_presets(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(presets[i].name, algorithm->name) == 0)
            return true;
    return false;
}

unsigned calm_algorithm_needs(const calm_algorithm *algorithm, const calm_scheme *scheme, bool biased)
{
    const bool corrects = algorithm->caps & CALM_SETS_BIAS && biased;
    /* Activation scales that derive from the largest input; a static scale is also fitted to kept rows. */
    const bool largest = scheme->act_rule == CALM_ACT_RULE_NVFP4 || scheme->act_rule == CALM_ACT_RULE_FP8_STATIC;
    const unsigned range = scheme->act_rule == CALM_ACT_RULE_STATIC ? CALM_NEEDS_ABSMAX | CALM_NEEDS_SAMPLES
                           : largest                                ? CALM_NEEDS_ABSMAX : 0u;
    return (algorithm->caps & CALM_NEEDS_DATA) | (corrects && scheme->act_bits ? CALM_NEEDS_SAMPLES : 0u) |
           (scheme->act_order ? CALM_NEEDS_SUMS : 0u) | range;
}

bool calm_algorithm_skips(const calm_step *step, bool absorbs, bool biased)
{
    return (step->part->caps & CALM_SETS_IN_SCALE && !absorbs) || (step->part->caps & CALM_SETS_BIAS && !biased);
}

/* Are both steps the same part with the same options?  Options are compared as text, because structs have padding. */
static bool same_step(const calm_step *a, const calm_step *b)
{
    CALM_SCOPED_TEXT(of_a);
    CALM_SCOPED_TEXT(of_b);
    if (a->part != b->part)
        return false;
    calm_options_canonical(a->part->opts, a->opts, &of_a);
    calm_options_canonical(b->part->opts, b->opts, &of_b);
    /* If a text could not be allocated, the steps count as different; without options the text is NULL. */
    return !of_a.failed && !of_b.failed && strcmp(of_a.data ? of_a.data : "", of_b.data ? of_b.data : "") == 0;
}

bool calm_algorithm_agrees(const calm_algorithm *a, const calm_algorithm *b, bool absorbs, bool biased)
{
    size_t i = 0, j = 0;
    for (bool same = true; same; i++, j++) {
        while (i < a->n_steps && calm_algorithm_skips(&a->steps[i], absorbs, biased))
            i++;
        while (j < b->n_steps && calm_algorithm_skips(&b->steps[j], absorbs, biased))
            j++;
        if (i == a->n_steps || j == b->n_steps)
            return i == a->n_steps && j == b->n_steps;
        same = same_step(&a->steps[i], &b->steps[j]);
    }
    return false;
}
