/* Recipes: schemes, the pool, and the JSON form. */
#include "ptq/arch/kind.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "ptq/recipe/recipe_impl.h"

calm_status calm_recipe_schemes(calm_ctx *ctx, const calm_words *names, calm_recipe *recipe)
{
    recipe->n_schemes = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->out, recipe->schemes, names->n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, recipe->act_range_explicit, names->n));
    for (size_t i = 0; i < names->n; i++) {
        calm_scheme *scheme = &recipe->schemes[recipe->n_schemes];
        CALM_TRY(calm_scheme_parse(ctx, names->of[i], scheme));
        if (scheme->bits == 0 && names->n == 1)
            return calm_fail(ctx, CALM_EARG, "`schemes` float: there is nothing to quantize");
        const char *name = CALM_SCHEME_NAME(scheme);
        for (size_t j = 0; j < recipe->n_schemes; j++) {
            if (strcmp(name, CALM_SCHEME_NAME(&recipe->schemes[j])) == 0)
                return calm_fail(ctx, CALM_EARG, "`schemes` %s is named twice", name);
        }
        recipe->act_range_explicit[recipe->n_schemes++] = calm_scheme_says_range(names->of[i]);
    }
    return recipe->n_schemes ? CALM_OK : calm_fail(ctx, CALM_EARG, "`schemes`: expected a name, as w4a16_g128");
}

/* ---- the pool ---- */

static calm_status parse_algorithms(calm_ctx *ctx, const calm_words *names, calm_algorithm **algorithms)
{
    for (size_t n = 0; n < names->n; n++) {
        CALM_TRY(calm_algorithm_parse(ctx, names->of[n], &algorithms[n]));
        for (size_t i = 0; i < n; i++)
            if (strcmp(calm_algorithm_canonical(algorithms[i]), calm_algorithm_canonical(algorithms[n])) == 0)
                return calm_fail(ctx, CALM_EARG, "`algorithms`: \"%s\" and \"%s\" are the same chain",
                                 calm_algorithm_name(algorithms[i]), names->of[n]);
    }
    return names->n ? CALM_OK
                    : calm_fail(ctx, CALM_EARG, "`algorithms`: expected at least one name; see calm algorithms");
}

/* Adds an algorithm at a scheme to the pool, unless the pair cannot work and others of the algorithm can. */
static calm_status add_entry(calm_ctx *ctx, calm_recipe *recipe, const calm_algorithm *algorithm, size_t of_scheme)
{
    const calm_scheme *scheme = &recipe->schemes[of_scheme];
    calm_entry *entry = &recipe->pool[recipe->n_pool];
    char *text;
    const calm_status status = calm_algorithm_reaches(ctx, algorithm, scheme);
    if (status == CALM_EUNSUPPORTED && recipe->n_schemes > 1) {
        calm_ctx_clear_failure(ctx);
        return CALM_OK;
    }
    CALM_TRY(status);
    CALM_TRY(calm_strf(ctx, ctx->out, &text, "%s%s%s", calm_algorithm_name(algorithm),
                       recipe->n_schemes > 1 ? " " : "", recipe->n_schemes > 1 ? CALM_SCHEME_NAME(scheme) : ""));
    *entry = (calm_entry){algorithm, *scheme, of_scheme, text};
    recipe->n_pool++;
    return CALM_OK;
}

/* Adds float as one entry. */
static calm_status add_float(calm_ctx *ctx, calm_recipe *recipe, size_t of_scheme)
{
    calm_algorithm *algorithm;
    CALM_TRY(calm_algorithm_parse(ctx, CALM_FLOAT, &algorithm));
    recipe->pool[recipe->n_pool++] = (calm_entry){algorithm, recipe->schemes[of_scheme], of_scheme, CALM_FLOAT};
    return CALM_OK;
}

/* Returns true if an algorithm is worth trying by default.  Channel scales that cannot be folded into o and down, as
 * with schemes whose scales do not fold, gain almost nothing (docs/evidence/channel_small_floats.csv). */
static bool is_worth(const calm_algorithm *algorithm, const calm_scheme *scheme)
{
    return !calm_algorithm_smooths(algorithm) || calm_scheme_folds(scheme);
}

calm_status calm_recipe_drop_unusable(calm_ctx *ctx, const calm_recipe *recipe, calm_words *names)
{
    size_t kept = 0;
    for (size_t n = 0; n < names->n; n++) {
        calm_algorithm *algorithm;
        bool reaches = false;
        CALM_TRY(calm_algorithm_parse(ctx, names->of[n], &algorithm));
        for (size_t s = 0; s < recipe->n_schemes && !reaches; s++) {
            const calm_status status = calm_algorithm_reaches(ctx, algorithm, &recipe->schemes[s]);
            reaches = status == CALM_OK && is_worth(algorithm, &recipe->schemes[s]);
            if (status == CALM_EUNSUPPORTED)
                calm_ctx_clear_failure(ctx);
            else
                CALM_TRY(status);
        }
        if (reaches)
            names->of[kept++] = names->of[n];
    }
    names->n = kept ? kept : names->n;
    return CALM_OK;
}

calm_status calm_recipe_algorithms(calm_ctx *ctx, const calm_words *names, calm_recipe *recipe)
{
    calm_algorithm **algorithms;
    const size_t n = names->n;
    size_t room;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, algorithms, n));
    CALM_TRY(parse_algorithms(ctx, names, algorithms));
    recipe->n_pool = 0;
    if (!calm_size_mul(&room, n, recipe->n_schemes))
        return calm_fail(ctx, CALM_ENOMEM, "%zu algorithms at %zu schemes", n, recipe->n_schemes);
    CALM_TRY(CALM_NEW(ctx, ctx->out, recipe->pool, room));
    for (size_t s = 0; s < recipe->n_schemes; s++)
        if (recipe->schemes[s].bits == 0)
            CALM_TRY(add_float(ctx, recipe, s));
        else
            for (size_t a = 0; a < n; a++)
                CALM_TRY(add_entry(ctx, recipe, algorithms[a], s));
    /* Pairs that cannot work are skipped if there are several schemes; an algorithm that works with none is an
     * error. */
    for (size_t a = 0; a < n; a++) {
        bool reaches = false;
        for (size_t i = 0; i < recipe->n_pool; i++)
            reaches |= recipe->pool[i].algorithm == algorithms[a];
        if (!reaches)
            return calm_algorithm_reaches(ctx, algorithms[a], &recipe->schemes[0]);
    }
    return CALM_OK;
}

calm_operands calm_recipe_operands(const calm_recipe *recipe)
{
    return calm_operands_near(recipe->operands);
}

unsigned calm_recipe_caps(const calm_recipe *recipe)
{
    unsigned caps = 0;
    for (size_t i = 0; i < recipe->n_pool; i++)
        caps |= calm_algorithm_caps(recipe->pool[i].algorithm);
    return caps;
}

bool calm_recipe_keeps_rows(const calm_recipe *recipe, bool biased)
{
    bool any = false;
    for (size_t i = 0; i < recipe->n_pool; i++)
        any |= calm_algorithm_needs(recipe->pool[i].algorithm, &recipe->pool[i].scheme, biased) & CALM_NEEDS_SAMPLES;
    return any;
}

bool calm_recipe_has_float(const calm_recipe *recipe)
{
    bool any = false;
    for (size_t i = 0; i < recipe->n_schemes; i++)
        any |= recipe->schemes[i].bits == 0;
    return any;
}

bool calm_recipe_quantizes_activations(const calm_recipe *recipe)
{
    bool any = false;
    for (size_t i = 0; i < recipe->n_schemes; i++)
        any |= recipe->schemes[i].act_bits > 0;
    return any;
}

bool calm_recipe_frees_scale(const calm_recipe *recipe, const calm_job_ref *job)
{
    const bool behind_norm = job->traits->outer;
    return !job->can_absorb && !job->halved && (recipe->input_scales == CALM_SCALES_FREE ||
                                (recipe->input_scales == CALM_SCALES_NORMS && behind_norm));
}

bool calm_recipe_folds_scale(const calm_recipe *recipe, const calm_layout *layout, size_t job)
{
    const calm_job_ref *ref = &layout->jobs[job];
    bool folds = ref->can_absorb;
    if (ref->traits->fold != CALM_FOLD_ROWS)
        return folds;
    /* The job whose rows take the scale is the job before: v, or up. */
    assert(job > 0 && layout->jobs[job - 1].block == ref->block && layout->jobs[job - 1].expert == ref->expert);
    const calm_job_ref *feeder = ref - 1;
    for (size_t i = 0; i < recipe->n_schemes && folds; i++) {
        const calm_scheme there = calm_scheme_at(&recipe->schemes[i], &feeder->place);
        const calm_scheme stored = calm_scheme_for(&there, feeder->in);
        folds = calm_scheme_folds(&stored);
    }
    return folds;
}

bool calm_recipe_scores_linear(const calm_recipe *recipe)
{
    bool floats = false;
    for (size_t i = 0; i < recipe->n_schemes; i++)
        floats |= recipe->schemes[i].act_bits == 0;
    return recipe->want_cka_linear && !recipe->imatrix && floats && recipe->score_windows > 0 && !recipe->unscored &&
           (calm_recipe_caps(recipe) & CALM_NEEDS_GRAM);
}

bool calm_recipe_orders(const calm_recipe *recipe)
{
    bool any = false;
    for (size_t i = 0; i < recipe->n_schemes; i++)
        any |= recipe->schemes[i].act_order;
    return any;
}

bool calm_recipe_needs_rows(const calm_recipe *recipe)
{
    unsigned needs = 0;
    for (size_t i = 0; i < recipe->n_pool; i++)
        needs |= calm_algorithm_needs(recipe->pool[i].algorithm, &recipe->pool[i].scheme, true);
    return (recipe->score_windows > 0 && !recipe->unscored) || needs || recipe->prefix != CALM_PREFIX_FLOAT;
}

const char *calm_recipe_head_choice(const calm_formats *formats, unsigned caps, const char *only)
{
    if (!calm_formats_have_tables(formats))
        return NULL;
    return caps & CALM_NEEDS_GRAM ? "mkq-full" : caps ? NULL : only;
}

/* Returns the name of the pool's only algorithm, perhaps at several schemes; NULL: there are several. */
static const char *only_algorithm(const calm_recipe *recipe)
{
    for (size_t i = 1; i < recipe->n_pool; i++)
        if (recipe->pool[i].algorithm != recipe->pool[0].algorithm)
            return NULL;
    return recipe->n_pool ? calm_algorithm_name(recipe->pool[0].algorithm) : NULL;
}

const char *calm_recipe_head_algorithm(const calm_recipe *recipe)
{
    return calm_recipe_head_choice(&recipe->formats, calm_recipe_caps(recipe), only_algorithm(recipe));
}

bool calm_recipe_fits_head(const calm_recipe *recipe)
{
    return calm_recipe_head_algorithm(recipe) && (calm_recipe_caps(recipe) & CALM_NEEDS_GRAM);
}

size_t calm_recipe_least_tokens(const calm_recipe *recipe)
{
    if (recipe->least_tokens > 0)
        return (size_t)recipe->least_tokens;
    size_t widest = 0;
    for (size_t i = 0; i < recipe->n_schemes; i++) {
        const size_t group = recipe->schemes[i].group ? recipe->schemes[i].group : 128;
        widest = group > widest ? group : widest;
    }
    return 4 * widest;
}

/* Lists each algorithm of the pool once. */
static calm_json *algorithms_json(const calm_recipe *recipe)
{
    calm_json *algorithms = calm_json_new_array();
    for (size_t i = 0; i < recipe->n_pool; i++) {
        const calm_algorithm *algorithm = recipe->pool[i].algorithm;
        bool listed = false;
        for (size_t j = 0; j < i; j++)
            listed |= recipe->pool[j].algorithm == algorithm;
        if (listed)
            continue;
        calm_json_add(algorithms, CALM_OBJECT(CALM_KV("name", calm_algorithm_name(algorithm)),
                                              CALM_KV("chain", calm_algorithm_canonical(algorithm))));
    }
    return algorithms;
}

calm_json *calm_recipe_filled(calm_json *value)
{
    if (calm_json_size(value))
        return value;
    calm_json_free(value);
    return NULL;
}

calm_json *calm_recipe_range(long long first, long long last)
{
    calm_json *list = calm_json_new_array();
    calm_json_add(list, calm_json_of_int(first));
    calm_json_add(list, calm_json_of_int(last));
    return list;
}

/* Adds "scheme", or "schemes" if several compete, and "budget" if there is one. */
static void add_schemes(const calm_recipe *recipe, calm_json *root)
{
    calm_json *schemes = calm_json_new_array(), *budgets = calm_json_new_array();
    for (size_t i = 0; i < recipe->n_schemes; i++) {
        const char *name = CALM_SCHEME_NAME(&recipe->schemes[i]);
        if (recipe->n_schemes == 1)
            calm_json_set_string(root, "scheme", name);
        else
            calm_json_add_string(schemes, name);
    }
    for (size_t i = 0; i < recipe->n_budgets && isfinite(recipe->budgets[i]); i++)
        calm_json_add(budgets, calm_json_of_number(recipe->budgets[i]));
    CALM_EXTEND(root, CALM_KV("schemes", calm_recipe_filled(schemes)), CALM_KV("budget", calm_recipe_filled(budgets)),
                CALM_KV("size", recipe->file_bytes ? calm_json_of_size(recipe->file_bytes) : NULL),
                CALM_KV("file_bits", recipe->file_bits > 0 ? calm_json_of_number(recipe->file_bits) : NULL),
                CALM_KV("act_budget", recipe->act_budget > 0 ? calm_json_of_number(recipe->act_budget) : NULL));
}

/* One text is a string, with the name of a bundled text; several are a list. */
static calm_json *texts_json(const calm_recipe *recipe)
{
    if (!recipe->n_more_texts)
        return calm_json_of_string(recipe->calib_name);
    calm_json *list = calm_json_new_array();
    for (size_t i = 0; i <= recipe->n_more_texts; i++)
        calm_json_add_string(list, calm_recipe_text(recipe, i));
    return list;
}

static calm_json *calibration_json(const calm_recipe *recipe)
{
    static const char *const prefixes[] = {NULL, "quantized", "asymmetric"};
    static const char *const weights[] = {"none", "gradient", "first", NULL};
    static const char *const dtypes[] = {NULL, "bf16", "bf16x2"};
    const char *prefix = prefixes[recipe->prefix], *weight = weights[recipe->weight],
               *dtype = dtypes[recipe->operands];
    return CALM_OBJECT(CALM_KV("text", texts_json(recipe)), CALM_KV("samples", recipe->calib_windows),
                       CALM_KV("seqlen", recipe->seqlen), CALM_KV("seed", recipe->seed),
                       CALM_KV("special", recipe->add_special_tokens),
                       CALM_KV("stream", recipe->encoder_stream ? calm_json_of_bool(true) : NULL),
                       CALM_KV("prefix", prefix ? calm_json_of_string(prefix) : NULL),
                       CALM_KV("weight", weight ? calm_json_of_string(weight) : NULL),
                       CALM_KV("imatrix", recipe->imatrix ? calm_json_of_string(recipe->imatrix) : NULL),
                       CALM_KV("dtype", dtype ? calm_json_of_string(dtype) : NULL));
}

static calm_json *choice_json(const calm_recipe *recipe)
{
    const calm_selection *selection = &recipe->selection;
    const bool probes = recipe->n_budgets || selection->score == CALM_SCORE_PROBE_KL;
    const bool lists = selection->rule == CALM_CHOICE_RULE_TOKEN;
    calm_json *pins = calm_json_new_object(), *forbidden = calm_json_new_array();
    for (size_t i = 0; i < recipe->n_pins; i++)
        calm_json_set_string(pins, recipe->pins[i].unit, recipe->pins[i].candidate.said);
    for (size_t i = 0; i < recipe->n_forbidden; i++)
        calm_json_add_string(forbidden, recipe->forbidden[i].said);
    return CALM_OBJECT(CALM_KV("unit", calm_unit_name(selection->unit)),
                       CALM_KV("rule", calm_choice_rule_name(selection->rule)),
                       CALM_KV("shortlist", lists ? calm_json_of_number(selection->shortlist) : NULL),
                       CALM_KV("metric", calm_score_name(selection->point, selection->score)),
                       CALM_KV("score_windows", recipe->score_windows),
                       CALM_KV("scored", recipe->unscored ? calm_json_of_bool(false) : NULL),
                       CALM_KV("guard_windows", recipe->guard_windows),
                       CALM_KV("keep_hybrid", recipe->keep_hybrid),
                       CALM_KV("expert_tokens", calm_recipe_least_tokens(recipe)),
                       CALM_KV("probe_windows", probes ? calm_json_of_int(recipe->probe_windows) : NULL),
                       CALM_KV("sensitivity", recipe->n_budgets ? calm_json_of_string(
                           recipe->sensitivity == CALM_SENSITIVITY_GRADIENT ? "gradient" : "probe") : NULL),
                       CALM_KV("effort", recipe->skip_smoothing ? calm_json_of_string("light") : NULL),
                       CALM_KV("pins", calm_recipe_filled(pins)), CALM_KV("forbid", calm_recipe_filled(forbidden)));
}

static calm_json *words_json(const calm_words *words)
{
    calm_json *list = calm_json_new_array();
    for (size_t i = 0; i < words->n; i++)
        calm_json_add_string(list, words->of[i]);
    return list;
}

static calm_json *formats_json(const calm_recipe *recipe)
{
    calm_json *names = calm_json_new_array();
    for (size_t i = 0; i < calm_formats_count(&recipe->formats); i++)
        calm_json_add_string(names, calm_formats_at(&recipe->formats, i)->name);
    return names;
}

/* Returns a scheme's name; NULL: not given. */
static calm_json *scheme_json(const calm_scheme *scheme)
{
    if (!scheme)
        return NULL;
    return calm_json_of_string(CALM_SCHEME_NAME(scheme));
}

static calm_json *gates_json(const calm_recipe *recipe)
{
    calm_json *gates = calm_json_new_array();
    for (size_t i = 0; i < recipe->n_gates; i++)
        calm_json_add_string(gates, recipe->gates[i].text);
    return calm_recipe_filled(gates);
}

const char *calm_recipe_learn_name(calm_learn learn)
{
    static const char *const names[CALM_N_LEARN] = {"none", "blocks", "kl", "both"};
    return names[learn];
}

calm_status calm_recipe_how(calm_ctx *ctx, const calm_json *json, calm_model_how *out)
{
    const calm_json *accepted = calm_json_get(json, "accept_keys");
    *out = (calm_model_how){.adapter = calm_json_string(calm_json_get(json, "adapter"), NULL)};
    for (size_t i = 0; i < calm_json_size(accepted); i++)
        CALM_TRY(calm_words_add(ctx, &out->accept_keys, calm_json_string(calm_json_at(accepted, i), "")));
    return CALM_OK;
}

/* The order of members is part of the run's key (run.c hashes this text): a new member must be absent if it has its
 * default. */
calm_json *calm_recipe_json(const calm_recipe *recipe)
{
    const bool all = recipe->last_block < 0, any = calm_engine_is_any(recipe->engine);
    const bool several = calm_formats_count(&recipe->formats) > 1;
    const char *format = calm_formats_at(&recipe->formats, 0)->name;
    calm_json *samples = recipe->eval_windows < 0 ? NULL : calm_json_of_int(recipe->eval_windows);
    calm_json *root = CALM_OBJECT(
        CALM_KV("model", recipe->model.name),
        CALM_KV("adapter", recipe->how.adapter ? calm_json_of_string(recipe->how.adapter) : NULL),
        CALM_KV("accept_keys", recipe->how.accept_keys.n ? words_json(&recipe->how.accept_keys) : NULL));
    if (recipe->rotate)
        CALM_EXTEND(root, CALM_KV("rotate", calm_rotate_name(recipe->rotate)),
                    CALM_KV("rotate_seed", recipe->rotate_seed));
    add_schemes(recipe, root);
    return CALM_EXTEND(
        root, CALM_KV("algorithms", algorithms_json(recipe)), CALM_KV("calibration", calibration_json(recipe)),
        CALM_KV("choice", choice_json(recipe)),
        CALM_KV("learn", recipe->learn ? calm_json_of_string(calm_recipe_learn_name(recipe->learn)) : NULL),
        CALM_KV("learn_steps", recipe->learner ? calm_json_of_int(recipe->learn_steps) : NULL),
        CALM_KV("learn_loss", recipe->learn_loss ? calm_json_of_string("mini") : NULL),
        CALM_KV("blocks", all ? NULL : calm_recipe_range(recipe->first_block, recipe->last_block)),
        CALM_KV("keep_float", recipe->keep_float.n ? words_json(&recipe->keep_float) : NULL),
        CALM_KV("float_pins", recipe->float_pins.n ? words_json(&recipe->float_pins) : NULL),
        CALM_KV("group_fallback", recipe->float_groups ? calm_json_of_string("float") : NULL),
        CALM_KV("format", several ? NULL : calm_json_of_string(format)),
        CALM_KV("formats", several ? formats_json(recipe) : NULL),
        CALM_KV("embed_scheme", scheme_json(recipe->formats.options.embed)),
        CALM_KV("head_scheme", scheme_json(recipe->formats.options.head)),
        CALM_KV("head_algorithm", calm_recipe_head_algorithm(recipe)),
        CALM_KV("target", any ? NULL : calm_json_of_string(calm_engine_name(recipe->engine))),
        CALM_KV("evaluation", CALM_OBJECT(CALM_KV("text", recipe->eval_path ? recipe->eval_name : NULL),
                                          CALM_KV("samples", samples))),
        CALM_KV("gates", gates_json(recipe)),
        CALM_KV("kernels", recipe->kernels ? calm_json_of_string(recipe->kernels) : NULL),
        CALM_KV("split_v", recipe->split_v ? calm_json_of_bool(true) : NULL),
        CALM_KV("exact_float", recipe->exact_float ? calm_json_of_bool(true) : NULL),
        CALM_KV("kv_cache", recipe->kv_cache ? calm_json_of_string("fp8") : NULL),
        CALM_KV("keep_candidates", recipe->keep_candidates ? calm_json_of_bool(true) : NULL));
}
