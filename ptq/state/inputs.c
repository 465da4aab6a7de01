/* Inputs of a run: model, texts and windows. */
#include "ptq/state/inputs.h"

#include "ptq/arch/kind.h"
#include "ptq/base/file.h"
#include "ptq/data/sentences.h"
#include "ptq/data/token_file.h"
#include "ptq/model/pooling.h"
#include "ptq/state/eval_text.h"
#include "ptq/tokenizer/gguf_vocab.h"

/* The number of windows for sensitivities by gradients if none are held out. */
#define GRADIENT_WINDOWS ((size_t)16)

calm_candidate *calm_candidate_at(const calm_inputs *in, size_t job, size_t entry)
{
    return &in->candidates[job * in->recipe->n_pool + entry];
}

void calm_inputs_jobs(const calm_inputs *in, size_t *first, size_t *end)
{
    const calm_layout *layout = calm_model_layout(in->model);
    /* Jobs are numbered block by block. */
    *first = layout->block_begin[in->first_block];
    *end = layout->block_begin[in->end_block];
}

bool calm_inputs_keeps(const calm_inputs *in, size_t job)
{
    size_t first, end;
    if (!in->listed)
        return false;
    calm_inputs_jobs(in, &first, &end);
    return job >= first && job < end && in->number[job] == CALM_STAYS_FLOAT;
}

size_t calm_inputs_count(const calm_inputs *in)
{
    size_t first, end;
    calm_inputs_jobs(in, &first, &end);
    return in->listed ? in->n_listed : end - first;
}

size_t calm_inputs_job(const calm_inputs *in, size_t index)
{
    size_t first, end;
    calm_inputs_jobs(in, &first, &end);
    return in->listed ? in->listed[index] : first + index;
}

size_t calm_inputs_index(const calm_inputs *in, size_t job)
{
    size_t first, end;
    calm_inputs_jobs(in, &first, &end);
    return in->listed ? in->number[job] : job - first;
}

bool calm_inputs_read_rows(const calm_inputs *in)
{
    return calm_recipe_needs_rows(in->recipe) || calm_config_is_mixture(calm_model_config(in->model));
}

bool calm_inputs_encode(const calm_inputs *in)
{
    return calm_model_config(in->model)->arch->encoder;
}

/* Returns true for the pool's first entry of its algorithm, which has one entry per scheme. */
static bool is_first(const calm_recipe *recipe, size_t entry)
{
    for (size_t i = 0; i < entry; i++)
        if (recipe->pool[i].algorithm == recipe->pool[entry].algorithm)
            return false;
    return true;
}

void calm_inputs_note_biases(calm_ctx *ctx, const calm_inputs *in)
{
    const calm_layout *layout = calm_model_layout(in->model);
    for (size_t j = 0; j < layout->n_jobs; j++)
        if (calm_layout_biased(layout, &layout->jobs[j]))
            return;
    for (size_t i = 0; i < in->recipe->n_pool; i++) {
        const calm_algorithm *algorithm = in->recipe->pool[i].algorithm;
        if (calm_algorithm_caps(algorithm) & CALM_SETS_BIAS && !calm_algorithm_is_preset(algorithm) &&
            is_first(in->recipe, i))
            calm_log(ctx, CALM_LOG_INFO, "%s: no linear has a bias; the refit bias of `algorithms` %s is skipped",
                     in->recipe->model.name, calm_algorithm_name(algorithm));
    }
}

calm_status calm_inputs_check_prefix(calm_ctx *ctx, const calm_inputs *in)
{
    const calm_layout *layout = calm_model_layout(in->model);
    const size_t rows = in->calib.n ? in->calib.begin[in->calib.n] - in->calib.begin[calm_inputs_held_windows(in)] : 0;
    size_t first, end;
    if (in->recipe->prefix != CALM_PREFIX_ASYMMETRIC)
        return CALM_OK;
    if (calm_model_config(in->model)->moe.n_experts)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: a mixture of experts has no `calibration.prefix` asymmetric: a "
                         "token may go to another expert behind quantized blocks", in->recipe->model.name);
    calm_inputs_jobs(in, &first, &end);
    for (size_t j = first; in->calib.n && calm_recipe_caps(in->recipe) & CALM_NEEDS_CROSS && j < end; j++)
        if (!calm_inputs_keeps(in, j) && rows / CALM_CROSS_ROWS_PER_INPUT < layout->jobs[j].in)
            return calm_fail(ctx, CALM_EARG, "%s: `calibration.prefix` asymmetric has %zu calibration rows for %zu "
                             "inputs, needs %zu (%zu windows are held out for scores): raise `calibration.samples`",
                             layout->jobs[j].name, rows, layout->jobs[j].in,
                             CALM_CROSS_ROWS_PER_INPUT * layout->jobs[j].in, calm_inputs_held_windows(in));
    return CALM_OK;
}

calm_status calm_inputs_check_weight(calm_ctx *ctx, const calm_inputs *in)
{
    if (in->recipe->weight != CALM_WEIGHT_GRADIENT)
        return CALM_OK;
    if (!calm_inputs_encode(in))
        return calm_kinds_need_back(ctx, calm_model_config(in->model), "`calibration.weight` gradient");
    return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: `calibration.weight` gradient is of predictions, which an encoder "
                     "has not; take none", in->recipe->model.name);
}

/* Returns true if all windows begin with the same token, to which every later token attends. */
static bool begin_alike(const calm_windows *windows)
{
    for (size_t w = 1; w < windows->n; w++)
        if (windows->ids[windows->begin[w]] != windows->ids[windows->begin[0]])
            return false;
    return windows->n > 1;
}

/* Returns true if the higher weight of first tokens was measured to help: weight-only schemes, decoders, float prefix
 * (docs/evidence/first_token.csv). */
static bool first_weighs(const calm_inputs *in)
{
    const calm_recipe *recipe = in->recipe;
    for (size_t i = 0; i < recipe->n_pool; i++)
        if (recipe->pool[i].scheme.act_bits)
            return false;
    return !calm_inputs_encode(in) && !recipe->imatrix && recipe->prefix == CALM_PREFIX_FLOAT &&
           calm_recipe_caps(recipe) & CALM_NEEDS_DATA & ~CALM_NEEDS_ABSMAX && begin_alike(&in->calib);
}

calm_row_weight calm_inputs_row_weight(const calm_inputs *in)
{
    if (in->recipe->weight != CALM_WEIGHT_AUTO)
        return in->recipe->weight;
    return first_weighs(in) ? CALM_WEIGHT_FIRST : CALM_WEIGHT_NONE;
}

void calm_inputs_note_row_weight(calm_ctx *ctx, const calm_inputs *in)
{
    if (in->recipe->weight == CALM_WEIGHT_AUTO && calm_inputs_row_weight(in) == CALM_WEIGHT_FIRST)
        calm_log(ctx, CALM_LOG_INFO, "all windows begin with one token, which the others attend to: fits weigh it up "
                                     "to 32 times (`calibration.weight` none: once)");
}

calm_status calm_inputs_check_learn(calm_ctx *ctx, const calm_inputs *in)
{
    if (in->recipe->learn == CALM_LEARN_NONE)
        return CALM_OK;
    return calm_kinds_need_back(ctx, calm_model_config(in->model), "`learn`");
}

void calm_inputs_describe(const calm_inputs *in, calm_result *out)
{
    const calm_config *config = calm_model_config(in->model);
    out->layout = calm_model_layout(in->model);
    out->tensors = in->rotated.temporary ? NULL : calm_model_tensors(in->model);
    calm_inputs_jobs(in, &out->first_job, &out->end_job);
    out->encoder = config->arch->encoder;
    out->loads = calm_auto_class_of(calm_model_class(in->model), out->encoder);
    out->n_experts = calm_config_is_mixture(config) ? config->moe.n_experts : 0;
    out->calib = calm_window_facts_of(&in->calib);
    out->guard = calm_window_facts_of(&in->guard);
}

static calm_status open_as(calm_ctx *ctx, const char *dir, const calm_model_how *how, calm_inputs *in)
{
    bool splits = in->recipe->split_v;
    for (size_t i = 0; i < in->recipe->n_schemes; i++)
        splits |= calm_mix_splits(&in->recipe->schemes[i]);
    CALM_TRY(calm_model_open_floats(ctx, dir, how, &in->model));
    return splits ? calm_model_split(ctx, in->model) : CALM_OK;
}

calm_status calm_inputs_open_given(calm_ctx *ctx, calm_inputs *in)
{
    return open_as(ctx, in->recipe->model.dir, &in->recipe->how, in);
}

/* Returns how calm opens a checkpoint that it wrote from the recipe's model: an adapter is merged into its weights. */
static calm_model_how how_written(const calm_recipe *recipe)
{
    return (calm_model_how){.accept_keys = recipe->how.accept_keys};
}

/* Replaces the open model by its rotated form, which is stored next to the store while the inputs are open. */
static calm_status rotate_model(calm_ctx *ctx, calm_inputs *in)
{
    const calm_recipe *recipe = in->recipe;
    const calm_rotate_options options = {recipe->rotate, (uint64_t)recipe->rotate_seed, CALM_N_DTYPES};
    CALM_SCOPED_MODEL(plain);
    char *target;
    plain = in->model;
    in->model = NULL;
    calm_log(ctx, CALM_LOG_INFO, "%s: rotated by %s, seed %lld", recipe->model.dir, calm_rotate_name(recipe->rotate),
             recipe->rotate_seed);
    CALM_TRY(calm_make_parent(ctx, recipe->store));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &target, "%s.rotated", recipe->store));
    CALM_TRY(calm_export_begin(ctx, target, &in->rotated));
    CALM_TRY(calm_rotate_write(ctx, plain, &options, in->rotated.temporary));
    const calm_model_how how = how_written(recipe);
    return open_as(ctx, in->rotated.temporary, &how, in);
}

calm_status calm_inputs_allow_rotation(calm_ctx *ctx, calm_inputs *in)
{
    const calm_rotate_kind kind = in->recipe->rotate;
    return kind == CALM_ROTATE_NONE ? CALM_OK : calm_rotate_allow(ctx, in->model, kind);
}

calm_status calm_inputs_open_model(calm_ctx *ctx, calm_inputs *in)
{
    CALM_TRY(calm_inputs_open_given(ctx, in));
    in->float_bytes = calm_model_float_bytes(in->model);
    CALM_TRY(calm_inputs_allow_rotation(ctx, in));
    if (in->recipe->rotate == CALM_ROTATE_NONE || in->only_look)
        return CALM_OK;
    CALM_TRY(rotate_model(ctx, in));
    return calm_inputs_allow_rotation(ctx, in);    /* the files of a rotated model do not name its Hadamard matrices */
}

/* Removes the rotated model; after a failure the next run removes the directory. */
static void remove_rotated(calm_inputs *in)
{
    CALM_SCOPED_ARENA(arena);
    calm_ctx quiet;
    calm_ctx_init(&quiet, &arena, &arena);
    if (in->rotated.temporary)
        calm_export_abandon(&quiet, &in->rotated);
    in->rotated.temporary = NULL;
}

calm_status calm_inputs_open_written(calm_ctx *ctx, const calm_recipe *recipe, const char *place, calm_model **out)
{
    calm_model_how how = how_written(recipe);
    how.glance = true;    /* its tensors were reported with the float model's */
    CALM_TRY(calm_model_open_as(ctx, place, &how, out));
    /* A checkpoint names all other rules; schemes with float activations have none. */
    for (size_t i = 0; i < recipe->n_schemes; i++)
        if (recipe->schemes[i].act_rule == CALM_ACT_RULE_VLLM)
            return calm_model_set_act_rule(ctx, *out, CALM_ACT_RULE_VLLM);
    return CALM_OK;
}

void calm_inputs_close(calm_inputs *in)
{
    calm_store_close(in->store);
    calm_tokenizer_close(in->tokenizer);
    calm_model_close(in->model);
    calm_imatrix_close(in->imatrix);
    in->imatrix = NULL;
    in->store = NULL;
    in->tokenizer = NULL;
    in->model = NULL;
    remove_rotated(in);
}

/* ---- texts ---- */

/* Windows of token ids need no tokenizer, but the evaluation's text and the tokens of maxima do. */
calm_status calm_inputs_open_tokenizer(calm_ctx *ctx, calm_inputs *in)
{
    char *path;
    CALM_TRY(calm_gguf_tokenizer_find(ctx, in->recipe->model.dir, &path));
    const calm_status status = calm_tokenizer_open(ctx, path, &in->tokenizer);
    if (status == CALM_OK || !in->recipe->calib_is_token_ids)
        return status;
    calm_log(ctx, CALM_LOG_WARNING, "%s; the run continues with the ids of %s%s", ctx->message, in->recipe->calib_path,
             in->recipe->eval_path ? ", without evaluation" : "");
    calm_ctx_clear_failure(ctx);
    return CALM_OK;
}

/* Reads windows of a text. */
static calm_status read_windows(calm_ctx *ctx, const calm_inputs *in, const char *path,
                                const calm_windows_options *options, calm_windows *out)
{
    const bool encoder = calm_inputs_encode(in);
    calm_windows_options how = *options;
    /* An encoder has a table of positions, which limits the length; a decoder's rotary positions have no limit. */
    if (encoder)
        how.seqlen = calm_size_min(how.seqlen, calm_config_positions(calm_model_config(in->model)));
    /* The template of an encoder is for whole sentences, with a token at both ends. */
    how.special = options->special && !encoder;
    how.prompt = encoder ? calm_pooling_prompt(calm_model_config(in->model)) : NULL;
    /* Decoders read running text in windows; an encoder by default reads sentences, as it does in use. */
    if (!encoder || in->recipe->encoder_stream)
        return calm_windows_read(ctx, in->tokenizer, path, &how, out);
    return calm_sentences_read(ctx, in->tokenizer, path, &how, out);
}

/* Does the same, with chats rendered by the model's chat template. */
static calm_status read_text(calm_ctx *ctx, const calm_inputs *in, const char *path,
                             const calm_windows_options *options, calm_windows *out)
{
    CALM_SCOPED(calm_chat, calm_chat_close) chat = {.model = in->recipe->model.dir};
    calm_windows_options how = *options;
    how.chat = &chat;
    CALM_TRY(read_windows(ctx, in, path, &how, out));
    calm_chat_note(ctx, &chat, path);
    return CALM_OK;
}

/* Returns the options for windows of the recipe's texts. */
static calm_windows_options cut(const calm_inputs *in, long long n_windows, long long seed)
{
    return (calm_windows_options){.seqlen = (size_t)in->recipe->seqlen, .n_windows = (size_t)n_windows, .seed = seed,
                                  .vocab = calm_model_config(in->model)->vocab,
                                  .special = in->recipe->add_special_tokens};
}

/* Reads n_calib windows of one text for calibration and n_guard others for the guard, as far as the text has them; the
 * first *n_first windows of `guard` are the guard's, and the others are for ties. */
static calm_status read_both(calm_ctx *ctx, const calm_inputs *in, const char *path, const char *name,
                             size_t n_calib, size_t n_guard, calm_windows *calib, calm_windows *guard, size_t *n_first)
{
    const calm_recipe *recipe = in->recipe;
    calm_windows_options options = cut(in, (long long)(n_calib + n_guard), recipe->seed);
    /* Spread over the text, because the guard's standard errors assume independent windows. */
    options.n_spread = n_guard;
    options.doublings = CALM_GUARD_DOUBLINGS;
    /* One draw for calibration and guard, so that no window is in both. */
    calm_windows all;
    if (recipe->calib_is_token_ids) {
        calm_token_file file;
        CALM_TRY(calm_token_file_read(ctx, path, options.vocab, &file));
        CALM_TRY(calm_windows_from_tokens(ctx, &file, &options, &all));
    } else {
        CALM_TRY(read_text(ctx, in, path, &options, &all));
    }
    /* Calibration gets all it asks for, the guard gets the rest. */
    size_t n_left = all.n > n_calib ? all.n - n_calib : 0;
    if (n_left < n_guard) {
        /* A short text: an eighth of it is for the guard, so that there is a guard. */
        n_left = calm_size_max(n_left, calm_size_min(all.n / 8, n_guard));
        calm_log(ctx, CALM_LOG_WARNING, "%s has %zu windows of %lld tokens: %zu for calibration, %zu for the guard",
                 name, all.n, recipe->seqlen, all.n - n_left, n_left);
    }
    *n_first = calm_size_min(n_left, n_guard);
    CALM_TRY(calm_windows_slice(ctx, &all, 0, all.n - n_left, calib));
    return calm_windows_slice(ctx, &all, all.n - n_left, n_left, guard);
}

/* Returns the share of text `i` of n; the first texts have one window more if the windows cannot be divided evenly. */
static size_t share_of(long long windows, size_t i, size_t n)
{
    return ((size_t)windows + n - 1 - i) / n;
}

calm_status calm_inputs_read_windows(calm_ctx *ctx, calm_inputs *in)
{
    const calm_recipe *recipe = in->recipe;
    const size_t n = 1 + recipe->n_more_texts;
    calm_windows *calib, *guard;
    size_t n_guard = 0, n_first;
    CALM_TRY(CALM_NEW(ctx, ctx->out, calib, n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, guard, n));
    for (size_t i = 0; i < n; i++) {
        const char *path = calm_recipe_text(recipe, i);
        CALM_TRY(read_both(ctx, in, path, n > 1 ? path : recipe->calib_name, share_of(recipe->calib_windows, i, n),
                           share_of(recipe->guard_windows, i, n), &calib[i], &guard[i], &n_first));
        n_guard += n_first;
    }
    if (n > 1) {
        CALM_TRY(calm_windows_join(ctx, calib, n, &in->calib));
        CALM_TRY(calm_windows_join(ctx, guard, n, &in->guard_all));
    } else {
        in->calib = *calib;
        in->guard_all = *guard;
    }
    calm_windows_warn_positions(ctx, &in->calib, calm_config_positions(calm_model_config(in->model)),
                                calm_model_dir(in->model), "calibration");
    /* With several texts too: a text with fewer windows than its share has none for ties, so that the first windows of
     * all texts come first. */
    return calm_windows_slice(ctx, &in->guard_all, 0, n_guard, &in->guard);
}

size_t calm_inputs_held_windows(const calm_inputs *in)
{
    const size_t asked = (size_t)(in->recipe->score_windows > in->recipe->probe_windows ? in->recipe->score_windows
                                                                                        : in->recipe->probe_windows);
    /* Without scores nothing is measured on held-out windows. */
    return in->recipe->score_windows ? calm_size_min(asked, in->calib.n / 4) : 0;
}

/* Returns `asked`, limited to the held-out windows, or to all windows if none are held out. */
static size_t measured_windows(const calm_inputs *in, long long asked)
{
    const size_t held = calm_inputs_held_windows(in);
    return calm_size_min((size_t)asked, held ? held : in->calib.n);
}

bool calm_inputs_measured(const calm_inputs *in)
{
    return in->recipe->score_windows && calm_inputs_read_rows(in);
}

size_t calm_inputs_score_windows(const calm_inputs *in)
{
    return measured_windows(in, in->recipe->score_windows);
}

size_t calm_inputs_scored_windows(const calm_inputs *in)
{
    return in->recipe->unscored ? 0 : calm_inputs_score_windows(in);
}

size_t calm_inputs_scored_rows(const calm_inputs *in)
{
    return in->scoring.begin ? in->scoring.begin[calm_inputs_scored_windows(in)] : 0;
}

size_t calm_inputs_probe_windows(const calm_inputs *in)
{
    return measured_windows(in, in->recipe->probe_windows);
}

size_t calm_inputs_gradient_windows(const calm_inputs *in)
{
    const size_t held = calm_inputs_held_windows(in);
    return held ? held : calm_size_min(GRADIENT_WINDOWS, in->calib.n);
}

calm_status calm_inputs_read_eval(calm_ctx *ctx, const calm_inputs *in, size_t n, bool spread, calm_windows *out)
{
    calm_windows_options options = cut(in, (long long)n, -1);
    options.n_spread = spread ? n : 0;
    return read_text(ctx, in, in->recipe->eval_path, &options, out);
}
