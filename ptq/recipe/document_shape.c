/* The table of a recipe document. */
#include "ptq/recipe/document_shape.h"

#include <string.h>

#include "ptq/base/sha256.h"
#include "ptq/base/text.h"
#include "ptq/plan/engines.h"
#include "ptq/plan/rule.h"
#include "ptq/recipe/document.h"

/* ---- patterns ---- */

static bool consists_of(const char *text, const char *set)
{
    return text[0] && !text[strspn(text, set)];
}

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

static bool is_digest(const char *text)
{
    return calm_is_hex(text, CALM_SHA256_HEX - 1);
}

static bool is_revision(const char *text)
{
    return consists_of(text, LETTERS "._/-");
}

static bool is_file_name(const char *text)
{
    return consists_of(text, LETTERS "._-") && text[0] != '.';
}

/* Returns true for a unit's name that cannot be confused with the rest of a pin. */
static bool is_unit(const char *text)
{
    return text[0] && !text[strcspn(text, "=,()")];
}

static const calm_shape_pattern digest_pattern = {"^[0-9a-f]{64}$", is_digest};
static const calm_shape_pattern revision_pattern = {"^[A-Za-z0-9._/-]+$", is_revision};
static const calm_shape_pattern file_pattern = {"^[A-Za-z0-9_-][A-Za-z0-9._-]*$", is_file_name};
static const calm_shape_pattern unit_pattern = {"^[^=,()]+$", is_unit};

/* ---- shapes ---- */

static const calm_shape name = {CALM_SHAPE_TEXT, .min = 1, .max = 512};
static const calm_shape digest = {CALM_SHAPE_TEXT, .min = 64, .max = 64, .pattern = &digest_pattern};
static const calm_shape digests = {CALM_SHAPE_MAP, .max = 1024, .pattern = &file_pattern, .item = &digest};
static const calm_shape scalar = {.kind = CALM_SHAPE_SCALAR};
static const calm_shape path = {CALM_SHAPE_TEXT, .min = 1, .max = 4096};
static const calm_shape paths = {CALM_SHAPE_LIST, .min = 1, .max = CALM_TEXTS_MAX, .item = &path};
static const calm_shape texts = {CALM_SHAPE_EITHER, .item = &path, .other = &paths};
static const calm_shape module = {CALM_SHAPE_TEXT, .min = 1, .max = 4096};
static const calm_shape modules = {CALM_SHAPE_LIST, .min = 1, .max = 1024, .item = &module};
static const calm_shape module_or_modules = {CALM_SHAPE_EITHER, .item = &module, .other = &modules};
static const calm_shape options = {CALM_SHAPE_MAP, .max = 32, .item = &scalar};
static const calm_shape revision = {CALM_SHAPE_TEXT, .min = 1, .max = 128, .pattern = &revision_pattern};
static const calm_shape model_object = {CALM_SHAPE_OBJECT, .section = "model"};
static const calm_shape model = {CALM_SHAPE_EITHER, .item = &name, .other = &model_object};
static const calm_shape algorithm_object = {CALM_SHAPE_OBJECT, .section = "algorithms"};
static const calm_shape algorithm = {CALM_SHAPE_EITHER, .item = &name, .other = &algorithm_object};
static const calm_shape algorithms = {CALM_SHAPE_LIST, .min = 1, .max = 64, .item = &algorithm};
static const calm_shape bits = {CALM_SHAPE_NUMBER, .min = 0, .max = CALM_BUDGET_MAX};
static const calm_shape bits_list = {CALM_SHAPE_LIST, .min = 1, .max = 64, .item = &bits};
static const calm_shape budget = {CALM_SHAPE_EITHER, .item = &bits, .other = &bits_list};
static const calm_shape act_bits = {CALM_SHAPE_NUMBER, .min = 0, .max = CALM_ACT_BUDGET_MAX};
static const calm_shape shortlist = {CALM_SHAPE_NUMBER, .min = 1, .max = CALM_SHORTLIST_MAX, .from_min = true};
static const calm_shape pins = {CALM_SHAPE_MAP, .max = 4096, .pattern = &unit_pattern, .item = &name};
static const calm_shape gate = {CALM_SHAPE_TEXT, .min = 3, .max = 128};
static const calm_shape gates = {CALM_SHAPE_LIST, .max = 64, .item = &gate};
static const calm_shape format = {CALM_SHAPE_WORD,
                                  .values = "compressed-tensors|gptq|awq|mlx|gguf|imatrix|tensor-types"};
static const calm_shape formats = {CALM_SHAPE_LIST, .min = 1, .max = 7, .item = &format};
static const calm_shape target = {CALM_SHAPE_WORD, .values = CALM_ENGINE_NAMES};
static const calm_shape block = {CALM_SHAPE_INT, .min = 0, .max = 1 << 20};
static const calm_shape blocks = {CALM_SHAPE_LIST, .min = 2, .max = 2, .item = &block};
static const calm_shape no = {.kind = CALM_SHAPE_FALSE};
static const calm_shape evaluation_object = {CALM_SHAPE_OBJECT, .section = "evaluation"};
static const calm_shape evaluation = {CALM_SHAPE_EITHER, .item = &no, .other = &evaluation_object};
static const calm_shape calibration = {CALM_SHAPE_OBJECT, .section = "calibration"};
static const calm_shape choice = {CALM_SHAPE_OBJECT, .section = "choice"};
static const calm_shape export = {CALM_SHAPE_OBJECT, .section = "export"};
static const calm_shape version = {CALM_SHAPE_VERSION, .max = CALM_RECIPE_VERSION};
static const calm_shape uri = {CALM_SHAPE_TEXT, .max = 512};
static const calm_shape short_name = {CALM_SHAPE_TEXT, .min = 1, .max = 128};
static const calm_shape sentence = {CALM_SHAPE_TEXT, .max = 2000};
static const calm_shape any = {.kind = CALM_SHAPE_ANY};

/* ---- rows ---- */

static const calm_document_row rows[] = {
    {"$schema", "where this schema is found, for editors", &uri, false, false, false},
    {"calm_recipe", "version of this format", &version, true, false, false},
    {"name", "a short name", &short_name, false, false, false},
    {"description", "one sentence", &sentence, false, false, false},
    {"model", "the float checkpoint", &model, true, false, false},
    {"model.name", "a directory, a known name (calm pull --list), or ORG/NAME on the hub", &name, true, false, false},
    {"model.revision", "commit, branch or tag on the hub", &revision, false, false, false},
    {"model.digests", "SHA-256 of files of the model's directory", &digests, false, false, false},
    {"preset", NULL, NULL, false, false, true},
    {"adapter", NULL, NULL, false, false, false},
    {"accept_keys", "keys of config.json that calm does not know and that change nothing", &module_or_modules, false,
     false, false},
    {"rotate", NULL, NULL, false, false, false},
    {"rotate_seed", NULL, NULL, false, false, false},
    {"calibration", "the text for statistics and scores", &calibration, false, false, false},
    {"calibration.text",
     "calibration text, or JSON documents: lines or an array of {\"text\": ...} (default: bundled WikiText-2); a "
     "list of texts: the texts share the windows", &texts, false, false, false},
    {"calibration.sha256", "SHA-256 of the text; of several texts: of their digests", &digest, false, false, false},
    {"calibration.tokens", NULL, NULL, false, false, false},
    {"calibration.imatrix", NULL, NULL, false, false, false},
    {"calibration.samples", NULL, NULL, false, false, false},
    {"calibration.seqlen", NULL, NULL, false, false, false},
    {"calibration.seed", NULL, NULL, false, false, false},
    {"calibration.special",
     "begin every window with the special tokens (BOS) of the tokenizer's template; false: do not", NULL,
     false, false, false},
    {"calibration.stream", NULL, NULL, false, false, false},
    {"calibration.prefix", NULL, NULL, false, false, false},
    {"calibration.weight", NULL, NULL, false, false, true},
    {"calibration.dtype", NULL, NULL, false, false, true},
    {"calibration.score_samples", NULL, NULL, false, false, false},
    {"calibration.guard_samples", NULL, NULL, false, false, false},
    {"schemes", "number formats: one, or several that share a budget", NULL, false, false, false},
    {"scale_dtype", NULL, NULL, false, false, false},
    {"act_rule", NULL, NULL, false, false, false},
    {"exact_float", NULL, NULL, false, false, true},
    {"algorithms", NULL, &algorithms, false, true, false},
    {"algorithms.name", "a name or a chain (calm algorithms)", &name, true, false, false},
    {"algorithms.options", "values that replace the named chain's", &options, false, false, false},
    {"choice", "how calm chooses one candidate per unit", &choice, false, false, false},
    {"choice.unit", NULL, NULL, false, false, false},
    {"choice.metric", NULL, NULL, false, false, false},
    {"choice.rule", NULL, NULL, false, false, false},
    {"choice.shortlist", NULL, &shortlist, false, false, false},
    {"choice.budget", "mean bits per weight, for which the schemes compete; several give a table",
     &budget, false, false, false},
    {"choice.size", NULL, NULL, false, false, false},
    {"choice.bits_per_weight", NULL, &bits, false, false, false},
    {"choice.act_budget", NULL, &act_bits, false, false, false},
    {"choice.pins", NULL, &pins, false, false, false},
    {"choice.forbid", NULL, NULL, false, false, false},
    {"choice.probe_samples", NULL, NULL, false, false, false},
    {"choice.sensitivity", NULL, NULL, false, false, true},
    {"choice.effort", NULL, NULL, false, false, false},
    {"choice.keep_hybrid", NULL, NULL, false, false, false},
    {"choice.split_v", NULL, NULL, false, false, true},
    {"choice.expert_tokens", NULL, NULL, false, false, false},
    {"learn", NULL, NULL, false, false, false},
    {"learn_steps", NULL, NULL, false, false, false},
    {"learn_loss", NULL, NULL, false, false, true},
    {"blocks", "first and last block to quantize; the others stay float", &blocks, false, false, false},
    {"keep_float", "names, or re:patterns, of modules that stay float; !NAME: quantize a module that calm keeps "
     "float", &module_or_modules, false, false, false},
    {"group_fallback", NULL, NULL, false, false, false},
    {"kv_cache", NULL, NULL, false, false, true},
    {"formats", "formats of the result; several: one folder each", &formats, false,
     false, false},
    {"export", "options of exporters", &export, false, false, false},
    {"export.max_shard_size", NULL, NULL, false, false, false},
    {"export.gguf_pre", NULL, NULL, false, false, false},
    {"export.gguf_float", NULL, NULL, false, false, false},
    {"export.embed_scheme", NULL, NULL, false, false, false},
    {"export.head_scheme", NULL, NULL, false, false, false},
    {"target", NULL, &target, false, false, false},
    {"evaluation", "text on which the float model and the result are measured; false: none",
     &evaluation, false, false, false},
    {"evaluation.text", NULL, NULL, false, false, false},
    {"evaluation.sha256", "SHA-256 of the text", &digest, false, false, false},
    {"evaluation.samples", NULL, NULL, false, false, false},
    {"gates", NULL, &gates, false, false, false},
    {"kernels", NULL, NULL, false, false, false},
    {"keep_candidates", NULL, NULL, false, false, true},
    {"measured", "figures of a run of this recipe; a run does not read them", &any, false, false, false},
};

const calm_document_row *calm_document_rows(size_t *n)
{
    *n = sizeof rows / sizeof *rows;
    return rows;
}

const calm_option *calm_document_option(const calm_document_row *row)
{
    for (const calm_option *option = calm_spec_table; option->name; option++)
        if (option->place && strcmp(option->place, row->place) == 0)
            return option;
    return NULL;
}

const calm_shape *calm_document_shape(const calm_document_row *row, calm_shape *room)
{
    static const calm_shape_kind kinds[] = {    /* for options of other types the row has a shape */
        [CALM_OPTION_BOOL] = CALM_SHAPE_BOOL, [CALM_OPTION_INT] = CALM_SHAPE_INT, [CALM_OPTION_ENUM] = CALM_SHAPE_WORD,
        [CALM_OPTION_WORDS] = CALM_SHAPE_LIST, [CALM_OPTION_STRING] = CALM_SHAPE_TEXT};
    const calm_option *option = calm_document_option(row);
    if (row->shape)
        return row->shape;
    *room = (calm_shape){kinds[option->type], option->min, option->max, option->values, .item = &name};
    if (room->kind == CALM_SHAPE_TEXT) {
        room->min = 1;
        room->max = option->max > 0 ? option->max : 4096;
    }
    return room;
}

const char *calm_document_key(const char *place, const char *section)
{
    const size_t n = strlen(section);
    if (n == 0)
        return strchr(place, '.') ? NULL : place;
    return strncmp(place, section, n) == 0 && place[n] == '.' ? place + n + 1 : NULL;
}
