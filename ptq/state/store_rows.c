/* Rows of the store that a run needs, and the keys of its candidates. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ptq/state/state.h"
#include "ptq/plan/key.h"
#include "ptq/arch/arch.h"
#include "store/blob.h"

/* Stores a calibration for each of several texts, which only activation statistics refer to; its key is the whole
 * calibration's with the text's number appended. */
static calm_status put_texts(calm_ctx *ctx, calm_run *p, const calm_store_calibration *all)
{
    const calm_windows *calib = &p->in.calib;
    if (calib->n_texts < 2)
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, p->arena, p->text_ids, calib->n_texts));
    for (size_t t = 0; t < calib->n_texts; t++) {
        char *key, digest[CALM_SHA256_HEX];
        calm_store_calibration one = *all;
        CALM_TRY(calm_strf(ctx, ctx->scratch, &key, "%s/%zu", all->key, t + 1));
        CALM_TRY(calm_sha256_file(ctx, calm_recipe_text(p->in.recipe, t), digest));
        one.key = key;
        one.text_name = calm_recipe_text(p->in.recipe, t);
        one.text_digest = digest;
        one.tokens_digest = NULL;    /* its windows are a part of the whole calibration's */
        one.n_windows = 0;
        for (size_t w = 0; w < calib->n; w++)
            one.n_windows += calib->text[w] == t;
        one.n_tokens = (int64_t)calm_windows_text_tokens(calib, t);
        one.score_windows = 0;
        CALM_TRY(calm_store_calibration_id(ctx, p->in.store, &one, &p->text_ids[t]));
    }
    return CALM_OK;
}

/* Stores the rows of the model and of its calibration windows. */
static calm_status put_model(calm_ctx *ctx, calm_run *p)
{
    const calm_config *config = calm_model_config(p->in.model);
    const char *published = calm_model_published(p->in.model);
    char text_digest[CALM_SHA256_HEX], *dtype;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &dtype, "%s%s%s", calm_dtype_name(config->dtype),
                       published ? ", published as " : "", published ? published : ""));
    const calm_store_model model = {
        .digest = p->model_key, .name = p->in.recipe->model.name, .path = p->in.recipe->model.dir,
        .architecture = calm_model_class(p->in.model), .dtype = dtype,
        .n_params = (int64_t)calm_model_n_params(p->in.model), .n_blocks = (int64_t)config->n_blocks,
        .hidden_size = (int64_t)config->hidden, .vocab_size = (int64_t)config->vocab,
        .bytes = (int64_t)calm_model_bytes(p->in.model)};
    CALM_TRY(calm_store_model_id(ctx, p->in.store, &model, &p->result.model_id));
    /* Digests of the file and of its tokens: users can compare the first, only calm can compute the second. */
    CALM_TRY(calm_recipe_text_digest(ctx, p->in.recipe, text_digest));
    const calm_store_calibration calibration = {
        .key = p->calib_key, .text_name = p->in.recipe->calib_name, .text_digest = text_digest,
        .tokens_digest = p->in.calib.sha256, .n_windows = (int64_t)p->in.calib.n,
        .window_tokens = p->in.recipe->seqlen, .seed = p->in.recipe->seed,
        .n_tokens = (int64_t)p->in.calib.begin[p->in.calib.n],
        .score_windows = (int64_t)calm_inputs_score_windows(&p->in)};
    CALM_TRY(calm_store_calibration_id(ctx, p->in.store, &calibration, &p->result.calibration_id));
    return put_texts(ctx, p, &calibration);
}

/* "model.layers.3.down_in", "model.layers.3.experts.7.down_in": the hook point at a job's input; "model.embed" and
 * "model.final_norm" outside the blocks. */
calm_status calm_run_hook_name(calm_ctx *ctx, const calm_run *p, long block, long expert, calm_hook hook, char **out)
{
    char *name = "model";
    if (block >= 0)
        CALM_TRY(calm_model_block_name(ctx, p->in.model, (size_t)block, &name));
    if (expert == CALM_NO_EXPERT)
        return calm_strf(ctx, ctx->out, out, "%s.%s", name, calm_hook_name(hook));
    if (expert == CALM_SHARED_EXPERT)
        return calm_strf(ctx, ctx->out, out, "%s.shared_expert.%s", name, calm_hook_name(hook));
    return calm_strf(ctx, ctx->out, out, "%s.experts.%ld.%s", name, expert, calm_hook_name(hook));
}

/* Stores the row of a job, and computes the keys of all its candidates. */
static calm_status put_job(calm_ctx *ctx, calm_run *p, size_t index, int64_t block_id)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    const calm_job_ref *job = &layout->jobs[index];
    char *hook, digest[CALM_SHA256_HEX];
    CALM_SCOPED_TEXT(linears);    /* module names, joined by a space */
    /* Once per job, not per candidate, because it reads all weights of the job. */
    CALM_TRY(calm_key_weights(ctx, p->in.model, job, digest));
    CALM_TRY(calm_run_hook_name(ctx, p, (long)job->block, job->expert, calm_job_input(job->kind), &hook));
    for (size_t i = job->first; i < job->first + job->n; i++)
        calm_text_printf(&linears, "%s%s", i > job->first ? " " : "", layout->linears[i].module);
    const calm_store_job row = {
        .block_id = block_id, .role = job->role, .position = (int64_t)(index - layout->block_begin[job->block]),
        .name = job->name, .sublayer = calm_sublayer_name(calm_job_sublayer(job->kind)), .linears = linears.data,
        .out = (int64_t)job->out, .in = (int64_t)job->in, .weights_digest = digest, .input_hook = hook};
    /* The fallback may compute an expert's candidate, so the fallback and its limit of tokens are part of the key. */
    const calm_key_expert expert = {calm_recipe_least_tokens(p->in.recipe), calm_algorithm_canonical(p->fallback)};
    CALM_TRY(calm_store_job_id(ctx, p->in.store, &row, &p->job_ids[index]));
    for (size_t i = 0; i < p->in.recipe->n_pool; i++) {
        const calm_entry *entry = &p->in.recipe->pool[i];
        /* Whether and how an input scale is absorbed changes the result of such a chain, but not its canonical
         * text. */
        const bool scales = calm_algorithm_caps(entry->algorithm) & CALM_SETS_IN_SCALE;
        const char *how = !scales                                       ? ""
                          : calm_recipe_frees_scale(p->in.recipe, job) ? " with a free input scale"
                          : job->can_absorb && !calm_recipe_folds_scale(p->in.recipe, layout, index)
                              ? " without an input scale" : "";
        char *chain;
        CALM_TRY(calm_strf(ctx, ctx->scratch, &chain, "%s%s", calm_algorithm_canonical(entry->algorithm), how));
        const calm_scheme scheme = calm_scheme_at(&entry->scheme, &job->place);
        CALM_TRY(calm_key_candidate(ctx, p->calib_key, job, digest, chain, &scheme, &expert,
                                    calm_candidate_at(&p->in, index, i)->key));
    }
    return CALM_OK;
}

/* Begins a variant of the calibration's key from the present key, a name and a revision (NULL: none).  The caller may
 * add fields, and finishes into p->calib_key. */
static void begin_variant(const calm_run *p, const char *what, const char *revision, calm_sha256 *sha)
{
    calm_sha256_init(sha);
    calm_sha256_field(sha, what);
    if (revision)
        calm_sha256_field(sha, revision);
    calm_sha256_field(sha, p->calib_key);
}

/* Adds the division into texts: the same windows as one text have no statistics per text. */
static calm_status add_texts(calm_ctx *ctx, calm_run *p)
{
    const calm_windows *calib = &p->in.calib;
    calm_sha256 sha;
    if (calib->n_texts < 2)
        return CALM_OK;
    begin_variant(p, "calm-texts-1", NULL, &sha);
    calm_sha256_update(&sha, calib->text, calib->n);
    return calm_sha256_finish(ctx, &sha, p->calib_key);
}

/* Raise this when weights of rows change. */
#define WEIGHT_REVISION "2"

/* Adds the weights of rows, which change candidates and so their scores, and cka_linear of all. */
static calm_status add_weight(calm_ctx *ctx, calm_run *p)
{
    calm_sha256 sha;
    if (calm_inputs_row_weight(&p->in) == CALM_WEIGHT_NONE)
        return CALM_OK;
    begin_variant(p, calm_inputs_row_weight(&p->in) == CALM_WEIGHT_FIRST ? "calm-first-weight" : "calm-gradient-weight",
                  WEIGHT_REVISION, &sha);
    return calm_sha256_finish(ctx, &sha, p->calib_key);
}

/* Raise this when mean squares from a file change. */
#define IMATRIX_REVISION "1"

static calm_status add_imatrix(calm_ctx *ctx, calm_run *p)
{
    char digest[CALM_SHA256_HEX];
    calm_sha256 sha;
    if (!p->in.recipe->imatrix)
        return CALM_OK;
    CALM_TRY(calm_sha256_file(ctx, p->in.recipe->imatrix, digest));
    begin_variant(p, "calm-imatrix", IMATRIX_REVISION, &sha);
    calm_sha256_field(&sha, digest);
    return calm_sha256_finish(ctx, &sha, p->calib_key);
}

/* Adds the dtype of products: rounded products give other inputs and other scores. */
static calm_status add_dtype(calm_ctx *ctx, calm_run *p)
{
    calm_sha256 sha;
    if (p->in.recipe->operands == CALM_OPERANDS_F32)
        return CALM_OK;
    begin_variant(p, p->in.recipe->operands == CALM_OPERANDS_BF16 ? "calm-bf16-1" : "calm-bf16x2-2", NULL, &sha);
    return calm_sha256_finish(ctx, &sha, p->calib_key);
}

calm_status calm_run_calibration_key(calm_ctx *ctx, calm_run *p)
{
    const calm_recipe *recipe = p->in.recipe;
    const calm_selection *selection = &recipe->selection;
    calm_sha256 sha;
    char *shortlist;
    CALM_TRY(calm_key_calibration(ctx, p->model_key, &p->in.calib, calm_inputs_score_windows(&p->in),
                                  p->in.score_tokens, calm_inputs_held_windows(&p->in), p->calib_key));
    CALM_TRY(add_texts(ctx, p));
    CALM_TRY(add_weight(ctx, p));
    CALM_TRY(add_imatrix(ctx, p));
    CALM_TRY(add_dtype(ctx, p));
    /* With a float prefix, a candidate's inputs depend only on the windows. */
    if (recipe->prefix == CALM_PREFIX_FLOAT)
        return CALM_OK;
    begin_variant(p, recipe->prefix == CALM_PREFIX_QUANTIZED ? "calm-quantized-prefix-2" : "calm-asymmetric-prefix-1",
                  NULL, &sha);
    /* Everything that determines earlier blocks: the pool, the rule, jobs that stay float, and pins. */
    for (size_t i = 0; i < recipe->n_pool; i++) {
        calm_sha256_field(&sha, calm_algorithm_canonical(recipe->pool[i].algorithm));
        calm_sha256_field(&sha, CALM_SCHEME_NAME(&recipe->pool[i].scheme));
    }
    calm_sha256_field(&sha, calm_unit_name(selection->unit));
    calm_sha256_field(&sha, calm_choice_rule_name(selection->rule));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &shortlist, "%.17g",
                       selection->rule == CALM_CHOICE_RULE_TOKEN ? selection->shortlist : 0));
    calm_sha256_field(&sha, shortlist);
    calm_sha256_field(&sha, calm_score_name(selection->point, selection->score));
    calm_sha256_field(&sha, recipe->skip_smoothing ? "light" : "full");
    for (size_t i = 0; i < recipe->n_pins; i++) {
        calm_sha256_field(&sha, recipe->pins[i].unit);
        calm_sha256_field(&sha, recipe->pins[i].candidate.said);
    }
    /* Blocks before first_block stay float. */
    calm_sha256_field(&sha, recipe->first_block ? "later blocks" : "all blocks");
    for (size_t i = 0; i < recipe->keep_float.n; i++)
        calm_sha256_field(&sha, recipe->keep_float.of[i]);
    for (size_t i = 0; i < recipe->float_pins.n; i++)
        calm_sha256_field(&sha, recipe->float_pins.of[i]);
    if (recipe->float_groups)
        calm_sha256_field(&sha, "group fallback float");
    return calm_sha256_finish(ctx, &sha, p->calib_key);
}

calm_status calm_run_register(calm_ctx *ctx, calm_run *p)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    const char *kind = calm_model_config(p->in.model)->arch->encoder ? "encoder" : "decoder";
    CALM_TRY(put_model(ctx, p));
    /* Rows that exist keep their ids when a run is continued. */
    for (size_t block = p->in.first_block; block < p->in.end_block; block++) {
        char *name;
        int64_t id;
        CALM_TRY(calm_model_block_name(ctx, p->in.model, block, &name));
        CALM_TRY(calm_store_block_id(ctx, p->in.store,
                                     &(calm_store_block){p->result.model_id, (int64_t)block, name, kind}, &id));
        for (size_t job = layout->block_begin[block]; job < layout->block_begin[block + 1]; job++)
            CALM_TRY(put_job(ctx, p, job, id));
    }
    return CALM_OK;
}

calm_status calm_run_put_blob(calm_ctx *ctx, const calm_run *p, const void *bytes, size_t n_bytes,
                              char digest[CALM_SHA256_HEX])
{
    const calm_blob_piece piece = {bytes, n_bytes};
    return calm_blob_put(ctx, calm_store_blobs(p->in.store), &piece, 1, digest);
}

/* Copies the scores whose names this version of calm knows. */
static void adopt_scores(const calm_store_candidate *row, calm_score_set *out)
{
    for (size_t i = 0; i < row->n_scores; i++) {
        calm_point point;
        int score;
        /* Names may come from an older or newer calm: unknown ones are skipped. */
        for (calm_unit unit = 0; unit < CALM_N_UNITS; unit++)
            if (strcmp(row->scores[i].unit, calm_unit_name(unit)) == 0 &&
                calm_score_find(unit, row->scores[i].metric, &point, &score))
                out->value[point][score] = row->scores[i].value;
    }
}

void calm_run_adopt(calm_candidate *candidate, const calm_store_candidate *row)
{
    calm_score_set_clear(&candidate->scores);
    candidate->failure = row->failure;
    adopt_scores(row, &candidate->scores);
    candidate->bits_per_weight = row->bits_per_weight;
    candidate->seconds = isnan(row->seconds) ? 0 : row->seconds;
    candidate->blob_bytes = (size_t)row->blob_bytes;
    if (row->blob)
        snprintf(candidate->blob, sizeof candidate->blob, "%s", row->blob);
}

double calm_run_crest(calm_ctx *ctx, const calm_run *p, size_t job)
{
    static const char sql[] = "SELECT x.crest_median FROM activation x JOIN job j ON j.input_hook = x.hook "
                              "WHERE j.id = ?1 AND x.model_id = ?2 AND x.calibration_id = ?3";
    const calm_value params[] = {calm_value_int(p->job_ids[job]), calm_value_int(p->result.model_id),
                                 calm_value_int(p->result.calibration_id)};
    calm_value value;
    /* An unknown crest is no failure: the activation rule then gives no advice for this job. */
    if (calm_store_query_one(ctx, p->in.store, sql, params, 3, &value, 1) != CALM_OK) {
        calm_ctx_clear_failure(ctx);
        return NAN;
    }
    return value.type == CALM_VALUE_REAL ? value.real : NAN;
}
