/* Converts a spec to a recipe, step by step. */
#include "ptq/recipe/resolve.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/arch/module_words.h"
#include "ptq/base/file.h"
#include "ptq/base/message.h"
#include "ptq/base/sha256.h"
#include "ptq/export/outer.h"
#include "ptq/io/folder.h"
#include "ptq/quant/act_levels.h"
#include "ptq/recipe/preset.h"
#include "ptq/recipe/recipe_impl.h"
#include "ptq/recipe/words.h"
#include "ptq/tensor/bf16_product.h"

/* The default pools: docs/method.md section 4. */
#define POOL_WEIGHTS "rtn,gptq,smoothquant,mkq,gptq-hls,mkq-full"
#define POOL_ACTIVATIONS "rtn,gptq,smoothquant,mkq,gptq-hls,mkq-full,smoothquant-gptq"
#define POOL_ACTIVATIONS_4 POOL_ACTIVATIONS ",actfit,smoothquant-actfit"

/* ---- faults ---- */

calm_status calm_fault_note(calm_ctx *ctx, calm_status status, const char *key, calm_faults *faults)
{
    char said[CALM_MESSAGE_MAX], *pointer;
    const char *message;
    if (status == CALM_OK || status == CALM_ENOMEM)
        return status;
    memcpy(said, ctx->message, sizeof said);
    calm_ctx_clear_failure(ctx);
    if (faults->n == CALM_DOCUMENT_FAULTS)
        return CALM_OK;
    CALM_TRY(calm_strf(ctx, ctx->out, &message, "%s", said));
    CALM_TRY(calm_strf(ctx, ctx->out, &pointer, "%s%s", key ? "/" : "", key ? key : ""));
    for (char *at = pointer; *at; at++)
        *at = *at == '.' ? '/' : *at;
    faults->of[faults->n++] = (calm_document_fault){pointer, message};
    return CALM_OK;
}

/* ---- schemes and the pool ---- */

/* Sets for each scheme what replaces groups that do not divide the columns; the scheme's name then contains it. */
static calm_status resolve_fallback(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    const char *asked = spec->group_fallback;
    const bool row = asked && strcmp(asked, "row") == 0;
    char *end = NULL;
    bool any = false;
    recipe->float_groups = asked && strcmp(asked, "float") == 0;
    if (!asked || recipe->float_groups)
        return CALM_OK;
    const long columns = row ? 1 : strtol(asked, &end, 10);
    if (!row && (*end || columns < 1 || columns > INT32_MAX))
        return calm_fail(ctx, CALM_EARG, "`group_fallback` %s: expected float, row or a number of columns, as 32",
                         asked);
    for (size_t i = 0; i < recipe->n_schemes; i++) {
        calm_scheme *scheme = &recipe->schemes[i];
        if (scheme->family || scheme->mix || scheme->group <= (size_t)columns)
            continue;
        scheme->group_else = row ? -1 : (int)columns;
        any = true;
    }
    return any ? CALM_OK : calm_fail(ctx, CALM_EARG, "`group_fallback` %s: no scheme has %s", asked,
                                     row ? "groups that could be rows" : "larger groups; expected fewer columns");
}

/* Checks `bits` against `schemes`: it has no effect if a scheme has as many bits, and contradicts them if none has.
 * Without `schemes` it means one format, but a budget or a size needs several. */
static calm_status check_bits(calm_ctx *ctx, const calm_recipe_spec *spec, const calm_recipe *recipe)
{
    if (calm_spec_given(spec, "bits") && !spec->schemes.n && (spec->budgets.n || calm_spec_sized(spec)))
        return calm_fail(ctx, CALM_EARG, "`bits` is one format, but under `%s` several compete; leave `bits` out",
                         spec->budgets.n ? "choice.budget" : "choice.size");
    bool same = !spec->schemes.n || !calm_spec_given(spec, "bits");
    for (size_t i = 0; i < recipe->n_schemes && !same; i++)
        same = recipe->schemes[i].bits == spec->bits;
    return same ? CALM_OK
                : calm_fail(ctx, CALM_EARG, "`bits` %lld and `schemes` %s are different formats; leave one out",
                            spec->bits, spec->schemes.of[0]);
}

/* Returns true if two names have the same letters and digits: "Q4KM" is Q4_K_M. */
static bool sounds_alike(const char *a, const char *b)
{
    for (;; a++, b++) {
        a += *a == '_' || *a == '-';
        b += *b == '_' || *b == '-';
        if (toupper((unsigned char)*a) != toupper((unsigned char)*b))
            return false;
        if (!*a)
            return true;
    }
}

static calm_status refuse_type(calm_ctx *ctx, const char *type)
{
    char list[CALM_MESSAGE_MAX], hint[CALM_HINT_MAX];
    calm_words names = {0};
    snprintf(list, sizeof list, "%s", calm_mix_names());
    for (char *at = list; (at = strchr(at, '|'));)
        *at = ',';
    CALM_TRY(calm_words_split(ctx, list, &names));
    calm_did_you_mean(hint, type, names.of, names.n);
    for (size_t i = 0; i < names.n; i++)
        if (sounds_alike(names.of[i], type))
            snprintf(hint, sizeof hint, "; did you mean \"%s\"?", names.of[i]);
    return calm_fail(ctx, CALM_EARG, "`gguf-type` %s: expected one of %s%s", type, calm_mix_names(), hint);
}

static calm_status resolve_schemes(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    const char *fallback = calm_spec_default_schemes(spec);
    calm_words names = spec->schemes;
    if (spec->gguf_type && (names.n || calm_spec_given(spec, "bits")))
        return calm_fail(ctx, CALM_EARG, "`gguf-type` says the type of every matrix; leave `schemes` and `bits` out");
    if (spec->gguf_type && !fallback)
        return refuse_type(ctx, spec->gguf_type);
    if (!names.n && !fallback)
        return calm_fail(ctx, CALM_EARG, "`bits` %lld: expected 2, 3, 4 or 8 (see `schemes` for other formats)",
                         spec->bits);
    if (!names.n)
        CALM_TRY(calm_words_split(ctx, fallback, &names));
    CALM_TRY(calm_recipe_schemes(ctx, &names, recipe));
    CALM_TRY(check_bits(ctx, spec, recipe));
    /* The peers' name differs from it in case alone. */
    if (spec->schemes.n == 1 && strcmp(spec->schemes.of[0], "w4a16") == 0)
        recipe->scheme_note = "`schemes` w4a16 has one scale per row; W4A16, which is w4a16_g128, has groups of 128 "
                              "columns";
    for (size_t i = 0; i < recipe->n_schemes; i++) {
        calm_scheme *scheme = &recipe->schemes[i];
        if (spec->scale_dtype == 1 && calm_scheme_takes_f16_scales(scheme))
            scheme->scale_dtype = CALM_F16;
        /* Only if the scheme's name leaves the rule open; small floats and static scales have a separate rule. */
        if (scheme->act_bits && calm_act_rule_is_open(scheme->act_rule) && spec->act_rule == CALM_ACT_RULE_VLLM)
            scheme->act_rule = CALM_ACT_RULE_VLLM;
    }
    for (size_t i = 0; i < recipe->n_schemes; i++)
        if (recipe->schemes[i].mix &&
            (recipe->n_schemes > 1 || spec->budgets.n || calm_spec_sized(spec) || spec->act_budget > 0))
            return calm_fail(ctx, CALM_EARG,
                             "`schemes` %s says the type of every matrix; no other scheme competes with it, and there "
                             "is no `choice.budget` or `choice.size`", calm_mix_at((size_t)recipe->schemes[i].mix - 1));
    if (spec->act_rule == CALM_ACT_RULE_VLLM && !calm_recipe_quantizes_activations(recipe))
        return calm_fail(ctx, CALM_EARG,
                         "`act_rule` vllm is for quantized activations, but the scheme leaves activations float; "
                         "try: `schemes` w8a8");
    return CALM_OK;
}

/* Returns the algorithms that compete at the recipe's schemes if none are named. */
static const char *default_pool(const calm_recipe *recipe)
{
    bool any4 = false;
    for (size_t i = 0; i < recipe->n_schemes; i++)
        any4 |= recipe->schemes[i].act_bits == 4;
    return any4 ? POOL_ACTIVATIONS_4 : calm_recipe_quantizes_activations(recipe) ? POOL_ACTIVATIONS : POOL_WEIGHTS;
}

/* Returns true if a scheme has zero points and so few bits that rounding zero points costs more than the format's own
 * rounding.  At 4 bits and more rtn is at least as good (docs/evidence/rate.csv). */
static bool has_coarse_zeros(const calm_recipe *recipe)
{
    bool any = false;
    for (size_t i = 0; i < recipe->n_schemes; i++)
        any |= !recipe->schemes[i].family && !recipe->schemes[i].symmetric && recipe->schemes[i].bits <= 3;
    return any;
}

/* With one format, "rtn" means the rounding of that format's tools; both can be named to compete. */
static calm_status replace_rtn(calm_ctx *ctx, calm_recipe *recipe, calm_words *names)
{
    const char *own = calm_formats_at(&recipe->formats, 0)->rtn;
    calm_words replaced = {0};
    bool named = false, plain = false;
    for (size_t i = 0; own && i < names->n; i++) {
        named |= strcmp(names->of[i], own) == 0;
        plain |= strcmp(names->of[i], "rtn") == 0;
    }
    if (!plain || named || calm_formats_count(&recipe->formats) != 1 || !has_coarse_zeros(recipe))
        return CALM_OK;
    for (size_t i = 0; i < names->n; i++)
        CALM_TRY(calm_words_add(ctx, &replaced, strcmp(names->of[i], "rtn") == 0 ? own : names->of[i]));
    *names = replaced;
    return calm_strf(ctx, ctx->out, &recipe->pool_note, "`algorithms` rtn is %s here, the rounding of the format's own "
                     "tools; absmax+nearest is the other", own);
}

static calm_status resolve_algorithms(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    const char *preset = calm_recipe_preset_pool(spec, recipe), *budget = calm_spec_default_algorithms(spec);
    const char *fallback = preset ? preset : budget;
    calm_words names = spec->algorithms;
    if (!names.n) {
        CALM_TRY(calm_words_split(ctx, fallback ? fallback : default_pool(recipe), &names));
        CALM_TRY(calm_recipe_drop_unusable(ctx, recipe, &names));
    }
    CALM_TRY(replace_rtn(ctx, recipe, &names));
    return calm_recipe_algorithms(ctx, &names, recipe);
}

/* Sets the range of integer activations that schemes leave open.  Inputs of an encoder's linears follow LayerNorms and
 * GELUs and are far from symmetric, so encoders get asymmetric activations (docs/method.md section 1).  Floats have no
 * zero point. */
static calm_status resolve_range(calm_ctx *ctx, calm_recipe *recipe)
{
    calm_model_kind kind;
    if (!calm_recipe_quantizes_activations(recipe))
        return CALM_OK;
    CALM_TRY(calm_recipe_find_kind(ctx, recipe, &kind));
    if (!kind.encoder)
        return CALM_OK;
    for (size_t i = 0; i < recipe->n_schemes; i++) {
        if (!recipe->schemes[i].act_bits || !calm_act_rule_is_open(recipe->schemes[i].act_rule)
            || recipe->act_range_explicit[i])
            continue;
        const char *asked = CALM_SCHEME_NAME(&recipe->schemes[i]);
        recipe->schemes[i].act_asymmetric = true;
        CALM_TRY(calm_strf(ctx, ctx->out, &recipe->scheme_note,
                           "an encoder: `schemes` %s means %s, activations with a zero point; %s_symact is the "
                           "one without", asked, CALM_SCHEME_NAME(&recipe->schemes[i]), asked));
    }
    return CALM_OK;
}

/* ---- formats, target, gates ---- */

static calm_status resolve_formats(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    calm_formats *formats = &recipe->formats;
    calm_scheme mix;
    const bool mixed = spec->gguf_type != NULL || (spec->schemes.n && calm_mix_find(spec->schemes.of[0], &mix));
    /* resolve_target refuses an unknown engine. */
    CALM_TRY(spec->formats.n ? calm_formats_parse(ctx, &spec->formats, formats)
                             : calm_formats_default(ctx, mixed, spec->target ? calm_engine_find(spec->target) : NULL,
                                                    formats));
    formats->options.asymmetric = true;    /* the scheme's name contains it */
    formats->options.gguf_pre = spec->gguf_pre;
    formats->options.gguf_float = (calm_export_float)spec->gguf_float;
    CALM_TRY(calm_formats_parse_outer(ctx, spec->embed_scheme, spec->head_scheme, &formats->options));
    return spec->max_shard_size ? calm_size_parse(ctx, "export.max_shard_size", spec->max_shard_size,
                                                  &formats->options.max_shard_bytes)
                                : CALM_OK;
}

/* A separate job v: useless with one scheme, and impossible with engines that fuse q, k and v. */
static calm_status resolve_split(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    if (!spec->split_v)
        return CALM_OK;
    for (size_t i = 0; i < calm_formats_count(&recipe->formats); i++) {
        const calm_exporter *exporter = calm_formats_at(&recipe->formats, i);
        if (!exporter->parts_apart && (exporter->form || exporter->parts))
            return calm_fail(ctx, CALM_EARG, "`choice.split_v`: readers of %s fuse q, k and v, which share a scheme "
                             "there; `formats` gguf and mlx have them apart", exporter->name);
    }
    return CALM_OK;
}

/* Fails for schemes, tables and rotations that a format cannot store, whatever the model. */
static calm_status check_formats(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    return calm_formats_check_asked(ctx, &recipe->formats, recipe->schemes, recipe->n_schemes,
                                    calm_rotate_is_online((calm_rotate_kind)spec->rotate));
}

/* Resolves an 8-bit KV cache, which needs a decoder and a format that can store its scales. */
static calm_status resolve_cache(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    bool says = false;
    calm_model_kind kind;
    recipe->kv_cache = spec->kv_cache != 0;
    if (!recipe->kv_cache)
        return CALM_OK;
    for (size_t i = 0; i < calm_formats_count(&recipe->formats); i++)
        says |= calm_formats_at(&recipe->formats, i)->caches;
    if (!says)
        return calm_fail(ctx, CALM_EARG, "only compressed-tensors holds `kv_cache` fp8; found `formats` %s",
                         calm_formats_at(&recipe->formats, 0)->name);
    CALM_TRY(calm_recipe_find_kind(ctx, recipe, &kind));
    return kind.caches ? CALM_OK : calm_fail(ctx, CALM_EARG, "`kv_cache` fp8: the model keeps no keys and values, "
                                             "since it %s; leave it out",
                                             kind.encoder ? "is an encoder" : "has no attention of queries over keys");
}

static calm_status resolve_target(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    char *format = NULL;
    if (spec->target) {
        CALM_TRY(calm_engine_parse(ctx, spec->target, &recipe->engine));
        CALM_TRY(calm_formats_read_by(ctx, &recipe->formats, recipe->engine, &format));
    }
    recipe->engine_format = format;
    recipe->engine_tie = calm_tie_stronger(calm_engine_tie(recipe->engine, format), calm_formats_tie(&recipe->formats));
    return CALM_OK;
}

static calm_status resolve_gates(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    CALM_TRY(calm_gates_parse(ctx, &spec->gates, &recipe->gates, &recipe->n_gates));
    return calm_gates_check(ctx, recipe->gates, recipe->n_gates, !spec->no_eval, -1, spec->budgets.n > 1);
}

/* ---- the model, files, paths ---- */

static calm_status need_model(calm_ctx *ctx, const calm_recipe_spec *spec)
{
    return spec->model ? CALM_OK : calm_fail(ctx, CALM_EARG, "`model` is missing; try: `model` qwen `bits` 4");
}

static calm_status resolve_blocks(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    const calm_range *blocks = &spec->blocks;
    if (!blocks->given)
        return CALM_OK;
    if (blocks->first > blocks->last)
        return calm_fail(ctx, CALM_EARG, "`blocks`: expected the first before the last, found %lld, %lld",
                         blocks->first, blocks->last);
    recipe->first_block = blocks->first;
    recipe->last_block = blocks->last;
    return CALM_OK;
}

static calm_status resolve_keep_float(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    static const char *const tables[CALM_N_OUTERS] = {"model.embed_tokens", "lm_head"};
    const char *asked[CALM_N_OUTERS] = {spec->embed_scheme, spec->head_scheme};
    bool kept[CALM_N_OUTERS] = {false}, any;
    CALM_TRY(calm_spec_keep_float(ctx, spec, &recipe->keep_float));
    for (size_t i = 0; i < recipe->keep_float.n; i++)
        CALM_TRY(calm_model_module_word(ctx, recipe->keep_float.of[i], tables, CALM_N_OUTERS, kept, &any));
    for (calm_outer t = 0; t < CALM_N_OUTERS; t++)
        if (kept[t] && asked[t] && strcmp(asked[t], "float") != 0)
            return calm_fail(ctx, CALM_EARG, "`keep_float` names %s, and `export.%s_scheme` is %s; leave one of "
                             "the two out", tables[t],
                             t == CALM_OUTER_HEAD ? "head" : "embed", asked[t]);
        else if (kept[t])
            asked[t] = "float";
    return calm_formats_parse_outer(ctx, asked[0], asked[1], &recipe->formats.options);
}

static calm_status check_memory(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    size_t limit;
    recipe->memory = spec->memory;
    return spec->memory ? calm_size_parse(ctx, "memory", spec->memory, &limit) : CALM_OK;
}

static calm_status compare_digest(calm_ctx *ctx, const char *path, const char *expected, const char *found)
{
    if (strcmp(found, expected) != 0)
        return calm_fail(ctx, CALM_EMISMATCH,
                         "%s: the recipe expects SHA-256 %s, found %s; it is another file than the "
                         "recipe was made with",
                         path, expected, found);
    return CALM_OK;
}

/* Fails unless a file has the SHA-256 in the recipe. */
static calm_status check_digest(calm_ctx *ctx, const char *path, const char *expected)
{
    char found[CALM_SHA256_HEX];
    if (!expected)
        return CALM_OK;
    CALM_TRY(calm_sha256_file(ctx, path, found));
    return compare_digest(ctx, path, expected, found);
}

/* Does the same for the calibration text, or for all of them. */
static calm_status check_texts_digest(calm_ctx *ctx, const calm_recipe *recipe, const char *expected)
{
    char found[CALM_SHA256_HEX];
    if (!expected)
        return CALM_OK;
    CALM_TRY(calm_recipe_text_digest(ctx, recipe, found));
    return compare_digest(ctx, recipe->n_more_texts ? recipe->calib_name : recipe->calib_path, expected, found);
}

static calm_status check_demanded(calm_ctx *ctx, const calm_demanded *demanded, const calm_recipe *recipe)
{
    char *path;
    for (size_t i = 0; i < demanded->n_files; i++) {
        CALM_TRY(calm_path_beside(ctx, ctx->scratch, &path, recipe->model.dir, demanded->files[i]));
        CALM_TRY(check_digest(ctx, path, demanded->sha256[i]));
    }
    CALM_TRY(check_texts_digest(ctx, recipe, demanded->calib_sha256));
    return recipe->eval_path ? check_digest(ctx, recipe->eval_path, demanded->eval_sha256) : CALM_OK;
}

/* Returns the last part of the model's name, for the output's name. */
static const char *base_name(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash && slash[1] ? slash + 1 : name;
}

static calm_status resolve_output(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    char scheme[CALM_SCHEME_NAME_MAX];
    recipe->output = spec->output;
    if (recipe->output)
        return CALM_OK;
    calm_scheme_name(&recipe->schemes[0], scheme);
    if (recipe->n_budgets && isfinite(recipe->budgets[0]))
        snprintf(scheme, sizeof scheme, "%g-bits", recipe->budgets[0]);
    else if (spec->size)
        snprintf(scheme, sizeof scheme, "%s", spec->size);
    else if (recipe->file_bits > 0)
        snprintf(scheme, sizeof scheme, "%g-bits-per-weight", recipe->file_bits);
    else if (recipe->n_budgets)
        snprintf(scheme, sizeof scheme, "%g-activation-bits", recipe->act_budget);
    return calm_strf(ctx, ctx->out, &recipe->output, "calm-out/%s-%s", base_name(spec->model), scheme);
}

/* ---- the whole recipe ---- */

/* Scoring a row costs at least as much as its forward pass; this many rows in this many windows are enough to
 * distinguish candidates. */
#define SCORE_ROWS 4096
#define SCORE_WINDOWS 8

calm_recipe_spec calm_spec_with_dtype(const calm_recipe_spec *spec)
{
    calm_recipe_spec settled = *spec;
    /* `kernels` asks for the same bytes on every CPU that has these kernels, and not all of these have AMX. */
    if (spec->calib_dtype == CALM_SPEC_OPERANDS_AUTO)
        settled.calib_dtype = spec->kernels ? CALM_OPERANDS_F32 : calm_bf16_auto();
    return settled;
}

/* Copies the values of a spec that need no resolving. */
static calm_recipe start(const calm_recipe_spec *spec)
{
    const bool asked = spec->score_samples >= 0;
    return (calm_recipe){.how = {spec->accept_keys, spec->adapter},
                         .score_windows = asked ? spec->score_samples : SCORE_WINDOWS,
                         .score_rows = asked ? 0 : SCORE_ROWS,
                         .probe_windows = spec->probe_samples,
                         .prefix = (calm_prefix)spec->prefix,
                         .weight = (calm_row_weight)spec->weight,
                         .imatrix = spec->imatrix,
                         .operands = (calm_operands)calm_spec_with_dtype(spec).calib_dtype,
                         .score_points = 1u << CALM_POINT_JOB,
                         .rotate = (calm_rotate_kind)spec->rotate,
                         .rotate_seed = spec->rotate_seed,
                         .eval_windows = spec->eval_samples,
                         .store = spec->store,
                         .least_tokens = spec->expert_tokens,
                         .skip_smoothing = spec->effort == CALM_EFFORT_LIGHT,
                         .split_v = spec->split_v,
                         .exact_float = spec->exact_float,
                         .keep_hybrid = spec->keep_hybrid,
                         /* With several budgets none is chosen: a later run may need any candidate. */
                         .keep_candidates = spec->keep_candidates || spec->budgets.n > 1,
                         .force = spec->force,
                         .kernels = spec->kernels,
                         .overrides = spec->overrides,
                         .last_block = -1};
}

/* A step of resolving; `key`: the option that its failure concerns. */
typedef struct step {
    const char *key;
    calm_status (*resolve)(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe);
} step;

/* Steps before the model is searched, and perhaps downloaded: checks that need no model.  Gates come first, because
 * calm_recipe_check lists them one by one and skips that row. */
static const step early[] = {{"gates", resolve_gates},
                             {"preset", calm_recipe_check_preset},
                             {"formats", resolve_formats},
                             {"choice.split_v", resolve_split},
                             {"memory", check_memory},
                             {"blocks", resolve_blocks},
                             {"keep_float", resolve_keep_float},
                             {"schemes", resolve_schemes},
                             {"group_fallback", resolve_fallback},
                             {"formats", check_formats},
                             {"choice.budget", calm_recipe_resolve_budgets},
                             {"calibration.tokens", calm_recipe_calibration}};

/* Steps that need the pool, in this order: algorithms make the pool, the target needs the formats, the metric needs the
 * algorithms' statistics, and forbidden entries and pins need the names of entries. */
static const step late[] = {{"algorithms", resolve_algorithms}, {"target", resolve_target},
                            {"kv_cache", resolve_cache},
                            {"calibration.weight", calm_recipe_check_weight},
                            {"calibration.imatrix", calm_recipe_check_imatrix},
                            {"choice.metric", calm_recipe_resolve_selection},
                            {"choice.sensitivity", calm_recipe_resolve_sensitivity},
                            {"choice", calm_recipe_check_choice},
                            {"learn", calm_recipe_resolve_learn}, {"preset", calm_recipe_resolve_preset},
                            {"choice.forbid", calm_recipe_forbid},
                            {"choice.pins", calm_recipe_pins}};

#define N_STEPS(steps) (sizeof(steps) / sizeof *(steps))

/* Runs the late steps without a model, as calm_recipe_check does for a name on the hub, so that impossible options are
 * refused before a model is searched, read or downloaded.  Logs nothing: the steps with the model do. */
static calm_status rehearse(calm_ctx *ctx, const calm_recipe_spec *spec, const calm_recipe *recipe)
{
    calm_recipe trial = *recipe;
    CALM_SCOPED_SILENCE(ctx);
    for (size_t i = 0; i < N_STEPS(late); i++)
        CALM_TRY(late[i].resolve(ctx, spec, &trial));
    return CALM_OK;
}

calm_status calm_recipe_resolve(calm_ctx *ctx, const calm_recipe_spec *spec, const calm_events *events,
                                calm_recipe *out)
{
    calm_stage_events pull = {events, CALM_STAGE_PULL};
    *out = start(spec);
    CALM_TRY(need_model(ctx, spec));
    for (size_t i = 0; i < N_STEPS(early); i++)
        CALM_TRY(early[i].resolve(ctx, spec, out));
    CALM_TRY(rehearse(ctx, spec, out));
    CALM_TRY(calm_model_find(ctx, spec->model, calm_stage_tick, &pull, &out->model));
    CALM_TRY(resolve_range(ctx, out));
    for (size_t i = 0; i < N_STEPS(late); i++)
        CALM_TRY(late[i].resolve(ctx, spec, out));
    if (!spec->no_eval)
        CALM_TRY(calm_recipe_find_text(ctx, spec->eval_text, "wikitext2-test.txt", &out->eval_path, &out->eval_name));
    /* Last, because digests read whole files. */
    CALM_TRY(check_demanded(ctx, &spec->demanded, out));
    const calm_recipe_spec settled = calm_spec_with_dtype(spec);
    CALM_TRY(calm_spec_text(ctx, &settled, &out->document));
    return resolve_output(ctx, spec, out);
}

/* ---- faults of a spec ---- */

/* Checks the name of the model without asking the hub; dir stays NULL for a name on the hub. */
static calm_status check_model(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    const char *hub;
    CALM_TRY(need_model(ctx, spec));
    CALM_TRY(calm_model_hub_name(ctx, spec->model, &hub));
    if (hub && !calm_is_path(spec->model))
        return CALM_OK;
    CALM_TRY(calm_model_find(ctx, spec->model, NULL, NULL, &recipe->model));
    return calm_folder_require_model(ctx, recipe->model.dir);
}

static calm_status check_text(calm_ctx *ctx, const char *path)
{
    return !path || calm_path_exists(path) ? CALM_OK : calm_fail(ctx, CALM_ENOTFOUND, "%s: no such file", path);
}

/* Checks that texts exist without reading them, so that the check is quick. */
static calm_status check_texts(calm_ctx *ctx, const calm_recipe_spec *spec, calm_faults *faults)
{
    for (size_t i = 0; i < spec->calib.n; i++)
        CALM_TRY(calm_fault_note(ctx, check_text(ctx, spec->calib.of[i]), "calibration.text", faults));
    CALM_TRY(calm_fault_note(ctx, check_text(ctx, spec->tokens), "calibration.tokens", faults));
    CALM_TRY(calm_fault_note(ctx, check_text(ctx, spec->imatrix), "calibration.imatrix", faults));
    return calm_fault_note(ctx, check_text(ctx, spec->no_eval ? NULL : spec->eval_text), "evaluation.text", faults);
}

/* Checks gates one by one, so that each fault has its place. */
static calm_status check_gates(calm_ctx *ctx, const calm_recipe_spec *spec, calm_faults *faults)
{
    for (size_t i = 0; i < spec->gates.n; i++) {
        calm_gate gate;
        char *key;
        CALM_TRY(calm_strf(ctx, ctx->out, &key, "gates.%zu", i));
        calm_status status = calm_gate_parse(ctx, spec->gates.of[i], &gate);
        if (status == CALM_OK)
            status = calm_gates_check(ctx, &gate, 1, !spec->no_eval, -1, spec->budgets.n > 1);
        CALM_TRY(calm_fault_note(ctx, status, key, faults));
    }
    return CALM_OK;
}

calm_status calm_recipe_check(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *out, calm_faults *faults)
{
    *out = start(spec);
    CALM_TRY(calm_fault_note(ctx, check_model(ctx, spec, out), "model", faults));
    CALM_TRY(check_gates(ctx, spec, faults));
    CALM_TRY(check_texts(ctx, spec, faults));
    for (size_t i = 1; i < N_STEPS(early); i++)    /* without the gates */
        CALM_TRY(calm_fault_note(ctx, early[i].resolve(ctx, spec, out), early[i].key, faults));
    /* Without schemes there is no pool, and every further fault would repeat that. */
    if (!out->n_schemes)
        return CALM_OK;
    for (size_t i = 0; i < N_STEPS(late) && (i == 0 || out->n_pool); i++)
        CALM_TRY(calm_fault_note(ctx, late[i].resolve(ctx, spec, out), late[i].key, faults));
    if (!faults->n)    /* all gates are valid */
        CALM_TRY(resolve_gates(ctx, spec, out));
    return CALM_OK;
}
