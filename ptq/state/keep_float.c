/* Finds the jobs that stay float because the recipe names their modules. */
#include <ctype.h>
#include <string.h>

#include "ptq/arch/kind.h"
#include "ptq/arch/module_words.h"
#include "ptq/base/message.h"
#include "ptq/base/text.h"
#include "ptq/state/inputs.h"

/* ---- modules ---- */

/* Lists the modules: those of the layout in order, then other matrices and vectors, which stay float anyway, and the
 * head. */
static calm_status list_modules(calm_ctx *ctx, const calm_inputs *in, const char ***out, size_t *n)
{
    const calm_layout *layout = calm_model_layout(in->model);
    const calm_safetensors *set = calm_model_tensors(in->model);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, *out, layout->n_linears + calm_safetensors_count(set) + 1));
    *n = 0;
    for (size_t i = 0; i < layout->n_linears; i++)
        (*out)[(*n)++] = layout->linears[i].module;
    if (layout->head)    /* a tied head has no tensor */
        (*out)[(*n)++] = layout->head;
    for (size_t i = 0; i < calm_safetensors_count(set); i++) {
        const char *name = calm_safetensors_at(set, i)->name, *dot = strrchr(name, '.');
        char *module;
        if (!dot || strcmp(dot, ".weight") != 0)
            continue;
        CALM_TRY(calm_strf(ctx, ctx->scratch, &module, "%.*s", (int)(dot - name), name));
        (*out)[(*n)++] = module;
    }
    return CALM_OK;
}

static calm_status refuse(calm_ctx *ctx, const char *word, const char *const *names, size_t n)
{
    char hint[CALM_HINT_MAX];
    if (isupper((unsigned char)word[0]) && !strchr(word, '.'))
        return calm_fail(ctx, CALM_EARG, "`keep_float` %s: a class of modules is no name here; give modules' names as "
                         "%s, or a pattern as re:.*%s", word, names[0], calm_text_last_word(names[0]));
    return calm_fail(ctx, CALM_EARG, "`keep_float` %s: no module of the model has that name%s; they are like %s", word,
                     strncmp(word, "re:", 3) == 0 ? "" : calm_did_you_mean(hint, word, names, n), names[0]);
}

/* Before a name: quantize the module, although its kind of sublayer stays float by default. */
#define NOT '!'

/* Returns true if a named linear belongs to a job that its kind of sublayer leaves float. */
static bool any_left_float(const calm_inputs *in, const bool *named)
{
    const calm_layout *layout = calm_model_layout(in->model);
    bool any = false;
    for (size_t j = 0; j < layout->n_jobs; j++)
        for (size_t i = layout->jobs[j].first; i < layout->jobs[j].first + layout->jobs[j].n; i++)
            any |= named[i] && layout->jobs[j].traits->stays_float;
    return any;
}

/* Sets matched and asked [n_linears]: linears named by a word, and linears named by a word after '!'. */
static calm_status match_words(calm_ctx *ctx, const calm_inputs *in, bool **matched, bool **asked)
{
    const calm_words *words = &in->recipe->keep_float;
    const char **names;
    size_t n;
    CALM_TRY(list_modules(ctx, in, &names, &n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, *matched, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, *asked, n));
    for (size_t i = 0; i < words->n; i++) {
        bool any;
        const bool not = words->of[i][0] == NOT;
        CALM_TRY(calm_model_module_word(ctx, words->of[i] + not, names, n, not ? *asked : *matched, &any));
        if (!any)
            return refuse(ctx, words->of[i] + not, names, n);
        if (not && !any_left_float(in, *asked))
            return calm_fail(ctx, CALM_EARG, "`keep_float` %s: it is quantized without being named; behind ! stand "
                             "linears that calm leaves float by itself", words->of[i]);
    }
    return CALM_OK;
}

/* Matches linears of jobs that their kind of sublayer leaves float, unless one of them was asked for; returns their
 * number, *why: the reason of the first. */
static size_t match_kinds(const calm_inputs *in, const bool *asked, bool *matched, const char **why)
{
    const calm_layout *layout = calm_model_layout(in->model);
    size_t begin, end, n = 0;
    calm_inputs_jobs(in, &begin, &end);
    for (size_t j = begin; j < end; j++) {
        const calm_job_ref *job = &layout->jobs[j];
        bool quantize = !job->traits->stays_float;
        for (size_t i = job->first; i < job->first + job->n; i++)
            quantize |= asked[i];
        for (size_t i = job->first; i < job->first + job->n && !quantize; i++) {
            *why = n ? *why : job->traits->stays_float;
            n += !matched[i];
            matched[i] = true;
        }
    }
    return n;
}

/* Returns true if a kind of sublayer of the model leaves a job float. */
static bool has_kinds(const calm_inputs *in)
{
    const calm_layout *layout = calm_model_layout(in->model);
    bool any = false;
    for (size_t j = 0; j < layout->n_jobs; j++)
        any |= layout->jobs[j].traits->stays_float != NULL;
    return any;
}

/* Matches linears whose columns a scheme's group size does not divide, if the recipe leaves these float; *n: their
 * number. */
static void match_groups(const calm_inputs *in, bool *matched, size_t *n, const char **first)
{
    const calm_layout *layout = calm_model_layout(in->model);
    size_t begin, end;
    *n = 0;
    calm_inputs_jobs(in, &begin, &end);
    for (size_t j = begin; j < end && in->recipe->float_groups; j++) {
        const calm_job_ref *job = &layout->jobs[j];
        bool fits = true;
        for (size_t s = 0; s < in->recipe->n_schemes; s++) {
            const calm_scheme scheme = calm_scheme_at(&in->recipe->schemes[s], &job->place);
            fits &= calm_scheme_divides(&scheme, job->in);
        }
        for (size_t i = job->first; i < job->first + job->n && !fits; i++) {
            *first = *n ? *first : layout->linears[i].module;
            *n += !matched[i];
            matched[i] = true;
        }
    }
}

/* ---- units ---- */

/* Returns true if a pin of the recipe leaves a unit float; a pin by name wins over a pattern. */
static bool pinned_float(const calm_recipe *recipe, const char *unit, bool *named)
{
    calm_pin_fit best = CALM_FITS_NOT, other = CALM_FITS_NOT;
    for (size_t i = 0; i < recipe->float_pins.n; i++) {
        const calm_pin_fit how = calm_pin_fits(recipe->float_pins.of[i], unit);
        named[i] |= how != CALM_FITS_NOT;
        best = how > best ? how : best;
    }
    for (size_t i = 0; i < recipe->n_pins; i++) {
        const calm_pin_fit how = calm_pin_fits(recipe->pins[i].unit, unit);
        other = how > other ? how : other;
    }
    return best != CALM_FITS_NOT && best >= other;
}

/* Matches linears of units that pins leave float. */
static calm_status match_pins(calm_ctx *ctx, const calm_inputs *in, bool *matched)
{
    const calm_layout *layout = calm_model_layout(in->model);
    const calm_recipe *recipe = in->recipe;
    bool *named;
    size_t first, end, begin, next;
    char *unit = NULL;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, named, recipe->float_pins.n));
    calm_inputs_jobs(in, &first, &end);
    for (size_t j = first; j < end && recipe->float_pins.n; j = next) {
        calm_layout_unit(layout, recipe->selection.unit, j, &begin, &next);
        CALM_TRY(calm_layout_unit_name(ctx, layout, recipe->selection.unit, j, &unit));
        if (!pinned_float(recipe, unit, named))
            continue;
        const calm_job_ref *last = &layout->jobs[next - 1];
        for (size_t i = layout->jobs[begin].first; i < last->first + last->n; i++)
            matched[i] = true;
    }
    for (size_t i = 0; i < recipe->float_pins.n; i++)
        if (!named[i])
            return calm_fail(ctx, CALM_EARG, "`choice.pins` %s=float: this run has no %s of that name; they are like "
                             "%s", recipe->float_pins.of[i], calm_unit_name(recipe->selection.unit),
                             calm_unit_short_name(unit));
    return CALM_OK;
}

/* ---- jobs ---- */

/* Returns the number of the layer in which engines join a job with others (experts of a block, or of one projection);
 * 0: none.  Readers with one scheme for all blocks still accept float layers. */
static size_t layer_of(const calm_inputs *in, const calm_job_ref *job)
{
    const calm_tie tie = calm_formats_tie(&in->recipe->formats);
    return calm_tie_number(tie > CALM_TIE_BLOCK ? CALM_TIE_BLOCK : tie, job->block, job->expert >= 0,
                           job->traits->place == CALM_PLACE_DOWN);
}

/* Marks jobs with a matched linear, and all jobs of a layer with such a job; *n_more: linears of the latter. */
static calm_status extend(calm_ctx *ctx, const calm_inputs *in, const bool *matched, bool *kept, size_t *n_more)
{
    const calm_layout *layout = calm_model_layout(in->model);
    bool *layers;
    *n_more = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, layers, 2 * calm_model_config(in->model)->n_blocks + 2));
    for (size_t j = 0; j < layout->n_jobs; j++)
        for (size_t i = layout->jobs[j].first; i < layout->jobs[j].first + layout->jobs[j].n; i++)
            if (matched[i])
                kept[j] = layers[layer_of(in, &layout->jobs[j])] = true;
    layers[0] = false;    /* jobs that share no layer */
    for (size_t j = 0; j < layout->n_jobs; j++) {
        kept[j] |= layers[layer_of(in, &layout->jobs[j])];
        for (size_t i = layout->jobs[j].first; kept[j] && i < layout->jobs[j].first + layout->jobs[j].n; i++)
            *n_more += !matched[i];
    }
    return CALM_OK;
}

static calm_status list_rest(calm_ctx *ctx, calm_inputs *in, const bool *kept)
{
    const size_t n_jobs = calm_model_layout(in->model)->n_jobs;
    size_t first, end;
    calm_inputs_jobs(in, &first, &end);
    CALM_TRY(CALM_NEW(ctx, ctx->out, in->number, n_jobs));
    CALM_TRY(CALM_NEW(ctx, ctx->out, in->listed, n_jobs));
    in->n_listed = 0;
    for (size_t j = 0; j < n_jobs; j++) {
        const bool stays = j < first || j >= end || kept[j];
        in->number[j] = stays ? CALM_STAYS_FLOAT : in->n_listed;
        if (!stays)
            in->listed[in->n_listed++] = j;
    }
    return CALM_OK;
}

/* Fails because no job is left; names an option that keeps linears float, if possible one that the user gave. */
static calm_status refuse_all(calm_ctx *ctx, const calm_inputs *in, const char *odd, const char *why)
{
    const calm_recipe *recipe = in->recipe;
    if (recipe->keep_float.n || recipe->float_pins.n)
        return calm_fail(ctx, CALM_EARG, "`%s`: no linear is left to be quantized",
                         recipe->keep_float.n ? "keep_float" : "choice.pins");
    if (odd)
        return calm_fail(ctx, CALM_EARG, "`group_fallback` float: no linear is left to be quantized; the first whose "
                         "columns groups do not divide is %s; take a scheme of smaller groups", odd);
    return calm_fail(ctx, CALM_EARG, "no linear is left to be quantized: %s; `keep_float` !NAME quantizes them", why);
}

/* Logs which linears stay float although the user did not name them. */
static void note_more(calm_ctx *ctx, const calm_inputs *in, size_t n_odd, const char *odd, size_t n_fused)
{
    if (n_odd)
        calm_log(ctx, CALM_LOG_INFO, "`group_fallback`: %zu linears stay float, whose columns groups do not divide, "
                 "the first %s", n_odd, odd);
    if (n_fused)
        calm_log(ctx, CALM_LOG_INFO, "`%s`: %zu more linears stay float, which engines fuse with those that are named: "
                 "q, k and v; gate and up; the experts of a block", in->recipe->keep_float.n ? "keep_float"
                 : in->recipe->float_pins.n ? "choice.pins" : "group_fallback", n_fused);
}

calm_status calm_inputs_keep_float(calm_ctx *ctx, calm_inputs *in)
{
    bool *matched, *asked, *kept;
    size_t n_odd, n_fused;
    const char *odd = NULL, *why = NULL;
    const bool kinds = has_kinds(in);
    if (!in->recipe->keep_float.n && !in->recipe->float_pins.n && !in->recipe->float_groups && !kinds)
        return CALM_OK;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(match_words(ctx, in, &matched, &asked));
    CALM_TRY(match_pins(ctx, in, matched));
    match_groups(in, matched, &n_odd, &odd);
    const size_t n_kinds = match_kinds(in, asked, matched, &why);
    if (!in->recipe->keep_float.n && !in->recipe->float_pins.n && !n_odd && !n_kinds)
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, kept, calm_model_layout(in->model)->n_jobs));
    CALM_TRY(extend(ctx, in, matched, kept, &n_fused));
    CALM_TRY(list_rest(ctx, in, kept));
    if (!in->n_listed)
        return refuse_all(ctx, in, odd, why);
    note_more(ctx, in, n_odd, odd, n_fused);
    if (n_kinds)
        calm_log(ctx, CALM_LOG_INFO, "%zu linears stay float: %s; `keep_float` !NAME quantizes them", n_kinds, why);
    return CALM_OK;
}
