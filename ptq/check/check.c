/* Check: runs the stages in order. */
#include "ptq/check/check.h"

#include "ptq/check/check_state.h"
#include "ptq/io/folder.h"
#include "ptq/weights/adapter.h"

#define CONFIG_MAX ((size_t)16 * 1024 * 1024)

static calm_status read_config(calm_checking *c)
{
    char *path;
    CALM_TRY(calm_path_join(c->ctx, c->ctx->out, &path, c->path, "config.json"));
    c->config_path = path;
    if (calm_json_read(c->ctx, path, CONFIG_MAX, &c->config) != CALM_OK)
        return calm_check_add_failure(c, CALM_CHECK_RULE_CONFIG_FORM, "config.json");
    if (calm_json_typeof(c->config) != CALM_JSON_OBJECT) {
        calm_json_free(c->config);
        c->config = NULL;
        return calm_check_add(c, CALM_CHECK_RULE_CONFIG_FORM, "config.json", "%s, expected an object", path);
    }
    c->entry = calm_json_get(c->config, "quantization_config");
    return CALM_OK;
}

/* Quantization methods of engines that calm does not read. */
static const char *const other_methods[] = {
    "bitsandbytes",      "ptpc_fp8",          "hqq",
    "quanto",            "aqlm",              "torchao",           "mxfp8",
    "eetq",              "higgs",             "quark",             "modelopt",          "modelopt_fp4",
    "modelopt_mxfp8",    "modelopt_mixed",    "vptq",              "spqr",              "bitnet",
    "auto-round",        "intel/auto-round",  "inc",               "awq_marlin",        "gptq_marlin",
    "gptq_marlin_24",    "gptq_bitblas",      "bitblas",           "marlin",            "gguf",
    "fp_quant",          "qqq",               "moe_wna16",         "experts_int8",      "deepspeedfp",
    "petit_nvfp4",       "w8a8_int8",         "w8a8_fp8",          "w4afp8",            "qoq",
    "tpu_int8",          "rtn",               "metal",             "sinq",              "four_over_six",
    "exl2",              "exl3"};

/* Finds ModelOpt's configuration, which may be in a separate file that vLLM and SGLang read. */
static calm_status find_modelopt(calm_checking *c)
{
    c->unread = calm_path_has(c->path, "hf_quant_config.json");
    return c->unread ? calm_check_add(c, CALM_CHECK_RULE_METHOD_UNCHECKED, "hf_quant_config.json",
                                      "the checkpoint is ModelOpt's: calm reads quantization_config of config.json")
                     : CALM_OK;
}

/* Finds the format that the entry names, even if calm cannot read the entry further. */
static calm_status find_format(calm_checking *c)
{
    const char *method = calm_json_string(calm_json_get(c->entry, "quant_method"), NULL);
    size_t n;
    const calm_qformat *const *formats = calm_qformats(&n);
    for (size_t i = 0; i < n && !c->format; i++)
        c->format = calm_qformat_detect(formats[i], c->config) ? formats[i] : NULL;
    /* A misspelled method is read as the one that was meant, as vLLM does. */
    if (c->format && method && strcmp(method, "compressed_tensors") == 0)
        CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_METHOD_SPELLING, "quantization_config", "quant_method \"%s\"",
                                method));
    for (size_t i = 0; i < n && !c->format && !method; i++) /* the entry has the format's keys, but no method */
        c->format = formats[i]->resembles && formats[i]->resembles(c->config) ? formats[i] : NULL;
    if (c->format || !c->config || c->published)
        return CALM_OK;
    if (calm_json_typeof(calm_json_get(c->config, "quantization")) == CALM_JSON_OBJECT)
        return calm_check_add(c, CALM_CHECK_RULE_MLX_CONFIG, "quantization", "group_size or bits is missing");
    if (calm_json_typeof(c->entry) == CALM_JSON_NULL)
        return find_modelopt(c);
    c->unread = true;
    if (!method)
        return calm_check_add(c, CALM_CHECK_RULE_NO_METHOD, "quantization_config", "%s: quant_method is missing",
                              c->config_path);
    return calm_check_add(
        c, CALM_CHECK_LISTED(method, other_methods) ? CALM_CHECK_RULE_METHOD_UNCHECKED : CALM_CHECK_RULE_METHOD_UNKNOWN,
        "quantization_config", "quant_method \"%.64s\": calm reads compressed-tensors, gptq, awq, MLX's entry, fp8 and "
                               "mxfp4",
        method);
}

/* Reports a format that the requested engine does not read; then *taken is false. */
static calm_status check_reads(calm_checking *c, bool *taken)
{
    *taken = !c->report->format || calm_engine_reads(c->engine, c->report->format);
    return *taken ? CALM_OK
                  : calm_check_add(c, CALM_CHECK_RULE_TARGET_FORMAT, c->path, "the format is %s; %s reads %s",
                                   c->report->format, calm_engine_name(c->engine), calm_engine_formats(c->engine));
}

/* Reports quantized tensors for which there is no quantization entry. */
static calm_status check_unexplained(calm_checking *c)
{
    size_t n = 0, first = 0;
    for (size_t i = c->n_modules; i-- > 0;)
        if (c->modules[i].stored) {
            n++;
            first = i;
        }
    const bool entry = calm_json_typeof(c->entry) != CALM_JSON_NULL
                       || calm_json_typeof(calm_json_get(c->config, "quantization")) != CALM_JSON_NULL;
    if (c->unread || c->published)
        return CALM_OK;
    if (n && !entry)
        return calm_check_add(c, CALM_CHECK_RULE_ENTRY_MISSING, c->modules[first].name,
                              "%zu modules have quantized tensors, config.json has no quantization_config", n);
    return n || entry ? CALM_OK
                      : calm_check_add(c, CALM_CHECK_RULE_FLOAT_MODEL, c->path,
                                       "no quantization entry and no quantized tensor");
}

static calm_status check_directory(calm_checking *c)
{
    bool taken;
    CALM_TRY(read_config(c));
    CALM_TRY(calm_check_files(c));
    CALM_TRY(find_format(c));
    CALM_TRY(calm_check_model(c));
    CALM_TRY(calm_check_config_keys(c));
    c->report->format = c->format ? c->format->label : NULL;
    c->by_format = c->format ? calm_check_format_of(c->format) : NULL;
    CALM_TRY(c->format ? c->by_format->entry(c) : check_unexplained(c));
    CALM_TRY(check_reads(c, &taken));
    c->report->format = c->published ? c->published : c->report->format;
    if (c->resolved)
        CALM_TRY(calm_check_parts(c));
    CALM_TRY(calm_check_floats(c));
    if (c->resolved && taken)
        CALM_TRY(calm_check_kernels(c));
    CALM_TRY(calm_check_cache(c));
    CALM_TRY(calm_check_tokenizer(c));
    CALM_TRY(calm_check_values(c));
    CALM_TRY(calm_check_sources(c));
    for (size_t i = 0; i < c->n_modules; i++) {
        c->report->n_linears += c->modules[i].linear;
        c->report->n_quantized += c->modules[i].stored;
    }
    return CALM_OK;
}

static calm_status check_gguf_file(calm_checking *c)
{
    bool taken;
    c->report->format = "gguf";
    CALM_TRY(check_reads(c, &taken));
    return calm_check_gguf(c);
}

static calm_status check_path(calm_checking *c)
{
    CALM_TRY(calm_folder_gguf(c->ctx, &c->path));
    CALM_TRY(calm_adapter_is_no_model(c->ctx, c->path));
    if (calm_folder_has_weights(c->path))    /* other missing files are findings */
        return check_directory(c);
    CALM_TRY(calm_folder_require_model(c->ctx, c->path));
    return check_gguf_file(c);
}

calm_status calm_check(calm_ctx *ctx, const char *path, calm_check_engine engine, calm_check_report *out)
{
    return calm_check_accepting(ctx, path, engine, NULL, out);
}

calm_status calm_check_accepting(calm_ctx *ctx, const char *path, calm_check_engine engine,
                                 const calm_words *accept_keys, calm_check_report *out)
{
    calm_checking c = {.ctx = ctx, .asked = engine, .report = out, .path = path, .accept_keys = accept_keys};
    c.engine = calm_engine_find(calm_check_engine_name(engine));
    *out = (calm_check_report){0};
    CALM_SCOPED_SCRATCH(ctx);
    const calm_status status = check_path(&c);
    calm_qformat_close(c.reader);
    calm_safetensors_close(c.set);
    calm_json_free(c.config);
    return status;
}
