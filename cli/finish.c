/* The end of a run: write the checkpoint, evaluate what was written, give it its name. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/pipeline.h"
#include "cli/report.h"
#include "ptq/hybrid/assemble.h"
#include "ptq/hybrid/export.h"
#include "ptq/hybrid/key.h"

static void assembled(void *user, size_t done, size_t total)
{
    calm_progress_update(((calm_pipeline *)user)->progress, CALM_STAGE_ASSEMBLE, done, total);
}

static void evaluated(void *user, size_t done, size_t total)
{
    calm_progress_update(((calm_pipeline *)user)->progress, CALM_STAGE_EVALUATE, done, total);
}

/* ---- evaluation of what was written ---- */

/* What was written as a checkpoint is read back; of other formats the plan is measured, whose weights they hold. */
static calm_status measure_written(calm_ctx *ctx, calm_pipeline *p, const char *dir)
{
    calm_model *written;
    char *folder;
    calm_act_rule rule = CALM_ACT_RULE_COMPRESSED_TENSORS;    /* which the directory does not say */
    for (size_t i = 0; i < p->recipe->n_schemes; i++)
        rule = p->recipe->schemes[i].act_bits ? p->recipe->schemes[i].act_rule : rule;
    CALM_TRY(calm_formats_checkpoint(ctx, &p->recipe->formats, dir, &folder));
    if (!folder) {
        calm_plan_override override = {p->model, &p->result};
        const calm_subject plan = {p->model, calm_plan_apply, &override};
        return calm_pipeline_measure(ctx, p, &p->eval_float, &plan, 1, &p->eval_result, &p->eval_encoding, &p->eval,
                                     evaluated, p);
    }
    CALM_TRY(calm_model_open(ctx, folder, &written));
    const calm_subject subject = {.model = written};
    calm_status status = rule ? calm_model_set_act_rule(ctx, written, rule) : CALM_OK;
    if (status == CALM_OK)
        status = calm_pipeline_measure(ctx, p, &p->eval_float, &subject, 1, &p->eval_result, &p->eval_encoding, &p->eval,
                                       evaluated, p);
    calm_model_close(written);
    return status;
}

static calm_status measure(calm_ctx *ctx, calm_pipeline *p, const char *dir, const char *plan_key, int64_t ids[2])
{
    CALM_TRY(measure_written(ctx, p, dir));
    CALM_TRY(calm_pipeline_put_evaluation(ctx, p, "float", "float", p->recipe->eval_name, &p->eval, &p->eval_float,
                                          &ids[0]));
    CALM_TRY(calm_pipeline_put_evaluation(ctx, p, plan_key, p->result_name, p->recipe->eval_name, &p->eval,
                                          &p->eval_result, &ids[1]));
    if (!calm_pipeline_encodes(p))
        return CALM_OK;
    const calm_embedding_result *e = &p->eval_encoding;
    const calm_store_encoding row = {(int64_t)e->n, (int64_t)e->pairs, e->error, e->cosine, e->cosine_min, e->spearman};
    return calm_store_encoding_put(ctx, p->store, ids[1], &row);
}

calm_status calm_pipeline_find_encoding(calm_ctx *ctx, calm_pipeline *p, int64_t id)
{
    calm_store_encoding row;
    bool found;
    CALM_TRY(calm_store_encoding_find(ctx, p->store, id, &row, &found));
    p->eval_encoding = (calm_embedding_result){.n = (size_t)row.sentences,
                                               .pairs = (size_t)row.pairs,
                                               .error = row.error,
                                               .cosine = row.cosine,
                                               .cosine_min = row.cosine_min,
                                               .spearman = row.spearman};
    return found ? CALM_OK : calm_fail(ctx, CALM_EFORMAT, "%s: evaluation %lld lacks the figures of an encoder",
                                       p->recipe->store, (long long)id);
}

calm_status calm_pipeline_read_eval(calm_ctx *ctx, calm_pipeline *p)
{
    const calm_recipe *recipe = p->recipe;
    const calm_windows_options options = {.seqlen = (size_t)recipe->seqlen,
                                          .samples = (size_t)recipe->eval_windows,
                                          .seed = -1,
                                          .vocab = calm_model_config(p->model)->vocab,
                                          .special = recipe->special};
    return calm_pipeline_read_text(ctx, p, recipe->eval_path, &options, &p->eval);
}

calm_status calm_pipeline_test_budgets(calm_ctx *ctx, calm_pipeline *p)
{
    const size_t n = p->recipe->n_budgets;
    calm_trial *trials;
    char *name;
    if (!p->evaluates)
        return CALM_OK;
    CALM_TRY(calm_pipeline_read_eval(ctx, p));
    CALM_TRY(CALM_NEW(ctx, ctx->out, trials, n));
    for (size_t i = 0; i < n; i++) {
        trials[i] = p->pareto[i].trials[p->pareto[i].result];
        CALM_TRY(calm_strf(ctx, ctx->out, &name, "%g bits: %s", p->pareto[i].budget, trials[i].name));
        trials[i].name = name;
    }
    CALM_TRY(calm_trials_measure(ctx, p, trials, n, &p->eval, p->recipe->eval_name, evaluated, p));
    CALM_TRY(calm_trials_put(ctx, p, trials, n, "budget"));
    for (size_t i = 0; i < n; i++)
        p->pareto[i].test = trials[i];
    calm_progress_finish(p->progress, CALM_STAGE_EVALUATE);
    return CALM_OK;
}

static calm_status evaluate(calm_ctx *ctx, calm_pipeline *p, const char *dir)
{
    char plan_key[CALM_SHA256_HEX];
    int64_t ids[2] = {0, 0};
    if (!p->evaluates)
        return CALM_OK;
    CALM_TRY(calm_pipeline_read_eval(ctx, p));
    CALM_TRY(calm_pipeline_plan_key(ctx, &p->result, plan_key));
    CALM_TRY(calm_pipeline_find_evaluation(ctx, p, "float", &p->eval, &p->eval_float, &ids[0]));
    CALM_TRY(calm_pipeline_find_evaluation(ctx, p, plan_key, &p->eval, &p->eval_result, &ids[1]));
    if (!ids[0] || !ids[1])
        CALM_TRY(measure(ctx, p, dir, plan_key, ids));
    else if (calm_pipeline_encodes(p))
        CALM_TRY(calm_pipeline_find_encoding(ctx, p, ids[1]));
    calm_progress_finish(p->progress, CALM_STAGE_EVALUATE);
    const calm_store_verdict verdicts[2] = {{p->run_id, ids[0], "test", "float", NAN, NAN},
                                            {p->run_id, ids[1], "test", p->result_name, NAN, NAN}};
    CALM_TRY(calm_store_verdict_put(ctx, p->store, &verdicts[0]));
    return calm_store_verdict_put(ctx, p->store, &verdicts[1]);
}

static calm_status evaluate_and_judge(calm_ctx *ctx, calm_pipeline *p, const char *dir)
{
    CALM_TRY(evaluate(ctx, p, dir));
    return calm_pipeline_gates(ctx, p);
}

/* ---- files beside the weights ---- */

static calm_status write_text(calm_ctx *ctx, const char *dir, const char *name, calm_text *text)
{
    char *path;
    CALM_TRY(calm_text_check(ctx, text));
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, dir, name));
    return calm_write_file(ctx, path, text->data, text->length);
}

static calm_status write_recipe(calm_ctx *ctx, const calm_pipeline *p, const char *dir)
{
    calm_text text;
    calm_json *json;
    const char *document = p->recipe->document;
    if (document && !p->stored_recipe)
        CALM_TRY(calm_json_parse(ctx, "calm_recipe.json", document, strlen(document), &json));
    else
        json = p->stored_recipe ? calm_json_copy(p->stored_recipe) : calm_recipe_json(p->recipe);
    calm_text_init(&text);
    calm_status status = calm_json_write(ctx, json, 2, &text);
    calm_text_append(&text, "\n", 1);
    if (status == CALM_OK)
        status = write_text(ctx, dir, "calm_recipe.json", &text);
    calm_text_clear(&text);
    calm_json_free(json);
    return status;
}

static calm_status write_card(calm_ctx *ctx, const calm_pipeline *p, const char *dir)
{
    calm_text text;
    calm_text_init(&text);
    calm_status status = calm_report_card(ctx, p, &text);
    if (status == CALM_OK)
        status = write_text(ctx, dir, "README.md", &text);
    calm_text_clear(&text);
    return status;
}

/* ---- artifacts ---- */

static const char *file_role(const char *name)
{
    const char *slash = strrchr(name, '/');
    name = slash ? slash + 1 : name;
    if (strstr(name, ".safetensors") || strstr(name, ".gguf"))
        return "weights";
    if (strcmp(name, "README.md") == 0)
        return "card";
    if (strcmp(name, "calm_recipe.json") == 0)
        return "recipe";
    return strcmp(name, "config.json") == 0 || strcmp(name, "generation_config.json") == 0 ? "config" : "tokenizer";
}

static calm_status put_artifact(calm_ctx *ctx, const calm_pipeline *p, const char *name)
{
    char *path, digest[CALM_SHA256_HEX];
    struct stat info;
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, p->recipe->output, name));
    if (stat(path, &info) != 0)
        return calm_fail_errno(ctx, errno, "%s: cannot stat", path);
    CALM_TRY(calm_sha256_file(ctx, path, digest));
    const calm_store_artifact row = {p->run_id, path, file_role(name), info.st_size, digest};
    return calm_store_artifact_put(ctx, p->store, &row);
}

calm_status calm_checkpoint_put(calm_ctx *ctx, const calm_pipeline *p)
{
    char **names;
    size_t n;
    CALM_TRY(calm_output_files(ctx, p->recipe->output, &names, &n));
    CALM_TRY(calm_store_begin(ctx, p->store));
    for (size_t i = 0; i < n; i++)
        CALM_TRY(put_artifact(ctx, p, names[i]));
    return calm_store_commit(ctx, p->store);
}

/* ---- the stage ---- */

static calm_status fill(calm_ctx *ctx, calm_pipeline *p, const char *dir, calm_tick_fn *tick, calm_evaluate_fn *measure_it)
{
    CALM_TRY(calm_formats_write(ctx, p, dir, tick));
    calm_memory_plan_note(&p->held.assemble);
    p->bytes_before = (int64_t)calm_model_bytes(p->model);
    CALM_TRY(calm_formats_bytes(ctx, &p->recipe->formats, dir, &p->bytes_after));
    p->bits_per_weight = calm_pipeline_plan_bits(p, &p->result);
    if (measure_it)
        CALM_TRY(measure_it(ctx, p, dir));
    CALM_TRY(write_recipe(ctx, p, dir));
    return write_card(ctx, p, dir);
}

calm_status calm_checkpoint_write(calm_ctx *ctx, calm_pipeline *p, calm_tick_fn *tick, calm_evaluate_fn *measure_it)
{
    calm_export_place place;
    CALM_TRY(calm_export_begin(ctx, p->recipe->output, &place));
    if (fill(ctx, p, place.temporary, tick, measure_it) != CALM_OK ||
        calm_export_commit(ctx, &place, p->recipe->output) != CALM_OK) {
        calm_export_abandon(ctx, &place);
        return ctx->status;
    }
    return CALM_OK;
}

calm_status calm_pipeline_export(calm_ctx *ctx, calm_pipeline *p)
{
    CALM_TRY(calm_checkpoint_write(ctx, p, assembled, evaluate_and_judge));
    calm_memory_plan_note(&p->held.evaluate);
    return calm_checkpoint_put(ctx, p);
}
