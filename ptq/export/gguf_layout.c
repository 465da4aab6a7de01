/* Computes the tensors of a plan's GGUF file. */
#include "ptq/export/gguf_layout.h"

#include <stdlib.h>
#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/export/gguf_factors.h"
#include "ptq/export/gguf_lacks.h"
#include "ptq/export/gguf_linear.h"
#include "ptq/model/pooling.h"
#include "ptq/model/tensor_use.h"

typedef struct builder {
    const calm_export_input *input;
    const calm_gguf_spot *spots;   /* spots of the checkpoint's tensors, in order; name NULL: not written */
    calm_gguf_layout *out;
} builder;

/* ---- types ---- */

static const calm_plan_job *planned(const builder *b, const calm_job_ref *job)
{
    return &b->input->plan->jobs[job - calm_model_layout(b->input->model)->jobs];
}

static calm_ggml_type float_type(const builder *b, calm_dtype dtype)
{
    const calm_export_float wanted = b->input->options ? b->input->options->gguf_float : CALM_EXPORT_AS_STORED;
    if (wanted == CALM_EXPORT_F16 || (wanted == CALM_EXPORT_AS_STORED && dtype == CALM_F16))
        return CALM_GGML_F16;
    if (wanted == CALM_EXPORT_BF16 || (wanted == CALM_EXPORT_AS_STORED && dtype == CALM_BF16))
        return CALM_GGML_BF16;
    return CALM_GGML_F32;
}

/* Finds one type for all experts of a projection: their common type, or Q8_0, which holds the codes of other types. */
static calm_status type_of_experts(calm_ctx *ctx, const builder *b, const calm_gguf_part *part, calm_ggml_type *out)
{
    const calm_layout *table = calm_model_layout(b->input->model);
    const calm_plan_job *first = planned(b, part->of.job);
    const size_t in = part->of.source->shape[1];
    if (first->quantized)
        CALM_TRY(calm_gguf_type_of(ctx, &first->scheme, part->of.job->name, in, out));
    else
        *out = float_type(b, part->of.source->dtype);
    for (size_t j = table->block_begin[part->of.job->block]; j < table->block_begin[part->of.job->block + 1]; j++) {
        const calm_job_ref *job = &table->jobs[j];
        const calm_plan_job *plan = planned(b, job);
        calm_ggml_type type;
        if (job->expert < 0 || job->kind != part->of.job->kind)
            continue;
        if (plan->quantized != first->quantized)
            return calm_fail(ctx, CALM_EUNSUPPORTED,
                             "gguf: %s is %s, but %s is %s: GGUF has one type for all experts of a block", job->name,
                             plan->quantized ? "quantized" : "float", part->of.job->name,
                             first->quantized ? "quantized" : "float");
        if (!plan->quantized)
            continue;
        CALM_TRY(calm_gguf_type_of(ctx, &plan->scheme, job->name, in, &type));
        if (type != *out && (plan->scheme.family || first->scheme.family))
            return calm_fail(ctx, CALM_EUNSUPPORTED,
                             "gguf: %s and %s are of different schemes, of which none holds the codes of the other: "
                             "GGUF has one type for all experts of a block", job->name, part->of.job->name);
        *out = type == *out ? type : CALM_GGML_Q8_0;
    }
    return CALM_OK;
}

/* Is a matrix quantized whose columns or rows have another order in the file than the codes' blocks? */
static calm_status check_order(calm_ctx *ctx, const calm_gguf_part *part, calm_ggml_type type)
{
    const size_t elements = calm_ggml_find(type)->elements;
    if (elements > 1 && part->order.form == CALM_GGUF_KV_KEYS)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "gguf: %s is quantized, and llama.cpp has the rows of its keys as "
                         "columns, across the groups; leave it float (`--keep-float`)", part->of.module);
    if (elements == 1 || part->order.form != CALM_GGUF_VALUE_COLUMNS || part->order.widths->value_dim % elements == 0)
        return CALM_OK;
    return calm_fail(ctx, CALM_EUNSUPPORTED,
                     "gguf: %s: llama.cpp has its heads of %zu columns in another order, so blocks of %zu of %s do not "
                     "stay together; %sleave it float (`--keep-float`)",
                     part->of.module, part->order.widths->value_dim, elements, calm_ggml_find(type)->name,
                     part->order.widths->value_dim % 32 ? "" : "use q5_0, w4a16_g32 or w8a16_g32 for it, or ");
}

static calm_status find_type(calm_ctx *ctx, const builder *b, const calm_gguf_part *part, calm_ggml_type *out)
{
    const bool vector = part->of.source->n_dims == 1;
    if (part->table)
        return calm_gguf_type_of(ctx, part->table, part->of.source->name, part->of.source->shape[1], out);
    if (part->of.kind == CALM_EXPORT_EXPERTS && !vector)
        return type_of_experts(ctx, b, part, out);
    const calm_plan_job *job = part->of.kind == CALM_EXPORT_WEIGHT ? planned(b, part->of.job) : NULL;
    if (job && job->quantized) {
        CALM_TRY(calm_gguf_type_of(ctx, &job->scheme, part->of.module, part->of.source->shape[1], out));
        return check_order(ctx, part, *out);
    }
    /* Vectors, routers and tensors that are added to an embedding are float32, because llama.cpp computes in float32.
     * */
    const bool stays_f32 = part->of.source->n_dims != 2 || strstr(part->spot.name, "ffn_gate_inp")
                           || strstr(part->spot.name, "exp_probs_b") || strstr(part->spot.name, "position_embd")
                           || strstr(part->spot.name, "token_types");
    *out = stays_f32 ? CALM_GGML_F32 : float_type(b, part->of.source->dtype);
    return CALM_OK;
}

/* ---- parts ---- */

/* Adds the global scale after an NVFP4 matrix, with the name of llama.cpp's converters: NAME.scale for NAME.weight. */
static calm_status add_factor(calm_ctx *ctx, builder *b, const calm_gguf_part *part, const calm_gguf_tensor *matrix)
{
    const size_t n = matrix->n_dims == 3 ? matrix->dims[2] : 1, stem = strlen(matrix->name) - strlen("weight");
    char *name;
    CALM_TRY(calm_strf(ctx, ctx->out, &name, "%.*sscale", (int)stem, matrix->name));
    for (size_t i = 0; i < calm_safetensors_count(calm_model_tensors(b->input->model)); i++)
        if (b->spots[i].name && strcmp(b->spots[i].name, name) == 0)
            return calm_fail(ctx, CALM_EUNSUPPORTED, "gguf: %s: the global scale of NVFP4 would be %s, which llama.cpp "
                             "has for another tensor of the model; take another scheme for it", part->of.source->name,
                             name);
    b->out->tensors[b->out->n] = (calm_gguf_tensor){.name = name, .type = CALM_GGML_F32, .n_dims = 1,
                                                    .dims = {n, 1, 1, 1}};
    b->out->parts[b->out->n] = *part;
    b->out->parts[b->out->n++].factor = true;
    return CALM_OK;
}

static calm_status add(calm_ctx *ctx, builder *b, calm_gguf_part *part)
{
    const calm_config *config = calm_model_config(b->input->model);
    const calm_tensor *source = part->of.source;
    const size_t *shape = source->shape;
    calm_gguf_tensor *tensor = &b->out->tensors[b->out->n];
    *tensor = (calm_gguf_tensor){.name = part->spot.name, .n_dims = source->n_dims, .dims = {shape[0], 1, 1, 1}};
    part->order = calm_gguf_order_of(part->spot.form, part->order.head_dim, &b->out->widths);
    part->order.half = shape[0] / 2;
    part->order.skipped = part->spot.form == CALM_GGUF_LATER_ROWS ? config->position_base : 0;
    CALM_TRY(find_type(ctx, b, part, &tensor->type));
    if (calm_gguf_order_is_vector(part->order.form))
        tensor->n_dims = calm_gguf_order_dims(&part->order, shape[0], 1, tensor->dims);
    if (source->n_dims == 2) {
        tensor->n_dims = calm_gguf_order_dims(&part->order, shape[0], shape[1], tensor->dims);
        /* The shared expert's gate is a vector, and so is the bias of the choice, [1, E] in some families. */
        if (shape[0] == 1 && (strstr(part->spot.name, "ffn_gate_inp_shexp") || strstr(part->spot.name, "exp_probs_b")))
            tensor->n_dims = 1;
    }
    /* The taps of a convolution by channels, [channels, 1, width]. */
    if (source->n_dims == 3) {
        tensor->n_dims = 2;
        tensor->dims[0] = shape[2];
        tensor->dims[1] = shape[0];
    }
    part->n_rows = source->n_dims == 1 ? shape[0] : tensor->dims[1] * tensor->dims[2];
    if (part->of.kind == CALM_EXPORT_EXPERTS) {
        /* Behind the sizes of one: of a bias it has one. */
        tensor->dims[tensor->n_dims++] = config->moe.n_experts;
    }
    if (part->of.kind == CALM_EXPORT_STREAMS)
        tensor->dims[tensor->n_dims++] = config->streams.n - 1;
    /* llama.cpp has one size for all tables of ids. */
    if (strcmp(part->spot.name, "per_layer_token_embd.weight") == 0 && part->n_rows < config->vocab) {
        part->n_repeats = config->vocab - part->n_rows;
        tensor->dims[1] = config->vocab;
    }
    part->n_elements = tensor->dims[0] * tensor->dims[1] * tensor->dims[2];
    b->out->parts[b->out->n++] = *part;
    return tensor->type == CALM_GGML_NVFP4 ? add_factor(ctx, b, part, tensor) : CALM_OK;
}

static calm_status no_place(calm_ctx *ctx, const builder *b, const char *name)
{
    return calm_fail(ctx, CALM_EUNSUPPORTED, "gguf: tensor %s has no place in llama.cpp's architecture %s", name,
                     calm_gguf_arch_in(calm_model_config(b->input->model))->name);
}

static calm_status add_source(calm_ctx *ctx, builder *b, const calm_tensor *source, const calm_gguf_spot *spot,
                              long block)
{
    const calm_config *config = calm_model_config(b->input->model);
    const calm_gguf_arch *as = calm_gguf_arch_in(config);
    calm_gguf_part part = {.of = calm_export_part_of(b->input->model, source), .spot = *spot};
    part.order.head_dim = config->head_dim;
    part.table = calm_outer_of(b->input->model, b->input->outer, source->name);
    part.of.block = block;
    if (part.of.kind == CALM_EXPORT_BIAS && !calm_gguf_takes_bias(as, part.of.role))
        return no_place(ctx, b, source->name);
    if (spot->expert >= 0) {
        part.of.kind = part.of.block < 0 ? CALM_EXPORT_STREAMS : CALM_EXPORT_EXPERTS;
        return spot->expert == 0 ? add(ctx, b, &part) : CALM_OK;
    }
    CALM_TRY(add(ctx, b, &part));
    if (spot->rest) {
        part.spot.name = spot->rest;
        part.spot.form = spot->rest_form;
        return add(ctx, b, &part);
    }
    if (!config->tied || !as->own_head || strcmp(spot->name, "token_embd.weight") != 0)
        return CALM_OK;
    /* The embedding is the head too where that is tied; llama.cpp needs it twice in some architectures. */
    part.spot.name = "output.weight";
    return add(ctx, b, &part);
}

static calm_status add_rope_factors(calm_ctx *ctx, builder *b)
{
    const calm_config *config = calm_model_config(b->input->model);
    if (!calm_gguf_has_rope_factors(b->input->model))
        return CALM_OK;
    calm_tensor *none;
    CALM_TRY(CALM_NEW(ctx, ctx->out, none, 1));
    *none = (calm_tensor){.name = "rope_freqs.weight", .dtype = CALM_F32, .n_dims = 1,
                          .shape = {config->rope[CALM_ROPE_GLOBAL].rotary / 2}};
    calm_gguf_part part = {.of = {.kind = CALM_EXPORT_ROPE_FACTORS, .block = -1, .source = none},
                           .spot = {.name = none->name, .expert = CALM_NO_EXPERT}};
    return add(ctx, b, &part);
}

/* Adds layers after the pooling, which are not in the checkpoint's main files. */
static calm_status add_dense(calm_ctx *ctx, builder *b)
{
    const calm_config *config = calm_model_config(b->input->model);
    calm_tensor *layers;
    if (!calm_gguf_has_dense(config))
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->out, layers, 2));
    for (size_t i = 0; i < 2; i++) {
        const calm_pooling_step *step = &config->pooling->steps[i];
        layers[i] = (calm_tensor){.name = i ? "dense_3.weight" : "dense_2.weight", .dtype = CALM_F32, .n_dims = 2,
                                  .shape = {step->out, step->in}, .n_elements = step->out * step->in};
        calm_gguf_part part = {.of = {.kind = CALM_EXPORT_DENSE, .block = -1, .source = &layers[i]},
                               .spot = {.name = layers[i].name, .expert = CALM_NO_EXPERT}};
        CALM_TRY(add(ctx, b, &part));
    }
    return CALM_OK;
}

/* Adds keys and values for Gemma 3n's blocks that share those of other blocks: llama.cpp's loader requires them but
 * never reads them, and few checkpoints have them. */
static calm_status add_unread(calm_ctx *ctx, builder *b, long block)
{
    const calm_config *config = calm_model_config(b->input->model), *own = calm_config_at(config, (size_t)block);
    const calm_names *names = config->arch->names;
    const size_t rows = own->n_kv * own->head_dim;
    const struct {
        const char *word;
        int n_dims;
        size_t shape[2];
    } all[] = {{"attn_k", 2, {rows, config->hidden}},
               {"attn_v", 2, {rows, config->hidden}},
               {"attn_k_norm", 1, {own->head_dim, 1}}};
    for (size_t i = 0; i < sizeof all / sizeof *all && names->streams && own->kv == CALM_KV_SHARED; i++) {
        calm_gguf_part part = {.of = {.kind = CALM_EXPORT_ZEROS, .block = block}};
        calm_tensor *none;
        char *name;
        CALM_TRY(calm_strf(ctx, ctx->out, &name, "blk.%ld.%s.weight", block, all[i].word));
        CALM_TRY(CALM_NEW(ctx, ctx->out, none, 1));
        *none = (calm_tensor){.name = name, .dtype = config->dtype, .n_dims = all[i].n_dims,
                              .shape = {all[i].shape[0], all[i].shape[1]}};
        part.spot = (calm_gguf_spot){.name = name, .expert = CALM_NO_EXPERT};
        part.of.source = none;
        CALM_TRY(add(ctx, b, &part));
    }
    return CALM_OK;
}

/* ---- the layout ---- */

/* Returns llama.cpp's label for files of a type; UINT32_MAX: none. */
static uint32_t label_of(calm_ggml_type type)
{
    switch (type) {
    case CALM_GGML_F32:
        return 0;
    case CALM_GGML_F16:
        return 1;
    case CALM_GGML_Q4_0:
        return 2;
    case CALM_GGML_Q8_0:
        return 7;
    case CALM_GGML_BF16:
        return 32;
    default:
        break;
    }
    for (int family = 0; family < CALM_N_FAMILIES; family++)
        if (calm_families[family].ggml == type)
            return calm_families[family].label;
    return UINT32_MAX;
}

/* Returns the file's label: that of the type with the most elements, of equals the least. */
static uint32_t label(const calm_gguf_layout *layout)
{
    double elements[CALM_GGML_END] = {0};
    uint32_t out = UINT32_MAX;
    double most = 0;
    for (size_t i = 0; i < layout->n; i++) {
        const size_t *dims = layout->tensors[i].dims;
        if (layout->parts[i].of.job && !layout->parts[i].factor)
            elements[layout->tensors[i].type] += (double)dims[0] * (double)dims[1] * (double)dims[2];
    }
    for (uint32_t type = 0; type < CALM_GGML_END; type++) {
        const uint32_t number = label_of(type);
        if (number == UINT32_MAX || elements[type] < most || (elements[type] == most && number > out))
            continue;
        most = elements[type];
        out = number;
    }
    return out;
}

/* Returns the number of a spot's block; -1: outside the blocks. */
static long block_of(const calm_gguf_spot *spot)
{
    return strncmp(spot->name, "blk.", 4) == 0 ? strtol(spot->name + 4, NULL, 10) : -1;
}

calm_status calm_gguf_lay_out(calm_ctx *ctx, const calm_export_input *input, calm_gguf_layout *out)
{
    const calm_model *model = input->model;
    const calm_safetensors *set = calm_model_tensors(model);
    const size_t n = calm_safetensors_count(set);
    const calm_config *config = calm_model_config(model);
    builder b = {.input = input, .out = out};
    calm_gguf_spot *spots;
    *out = (calm_gguf_layout){.widths = {.key_heads = config->delta.n_key_heads,
                                         .value_heads = config->delta.n_value_heads,
                                         .key_dim = config->delta.key_dim,
                                         .value_dim = config->delta.value_dim,
                                         .heads = config->n_heads,
                                         .nope = config->latent.nope,
                                         .value = config->latent.value,
                                         .groups = config->mamba.shape.n_groups}};
    CALM_TRY(CALM_NEW(ctx, ctx->out, spots, n));
    b.spots = spots;
    /* The head twice, factors of RoPE, two layers, of a block three that nothing reads or one in two parts, and each
     * with its own factor. */
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->parts, 2 * (n + 4 + 3 * config->n_blocks)));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->tensors, 2 * (n + 4 + 3 * config->n_blocks)));
    for (size_t i = 0; i < n; i++) {
        bool known;
        const char *name = calm_safetensors_at(set, i)->name;
        spots[i] = (calm_gguf_spot){0};
        if (calm_model_tensor_use(model, name) != CALM_TENSOR_READ)
            continue;
        CALM_TRY(calm_gguf_spot_of(ctx, config->arch, calm_gguf_arch_in(config), calm_model_prefix(model), name,
                                   &spots[i], &known));
        /* An encoder's pooler, and its head for masked tokens, of which calm_gguf_check_arch has warned. */
        if (!known && calm_gguf_arch_in(config)->both_ways
            && !calm_arch_in_block(config->arch, calm_model_prefix(model), name))
            continue;
        if (!known)
            return no_place(ctx, &b, name);
    }
    CALM_TRY(add_rope_factors(ctx, &b));
    CALM_TRY(add_dense(ctx, &b));
    for (long block = -1; block < (long)config->n_blocks; block++) {
        for (size_t i = 0; i < n; i++)
            if (spots[i].name && block_of(&spots[i]) == block)
                CALM_TRY(add_source(ctx, &b, calm_safetensors_at(set, i), &spots[i], block));
        if (block >= 0)
            CALM_TRY(add_unread(ctx, &b, block));
    }
    out->file_type = label(out);
    return CALM_OK;
}

calm_status calm_gguf_need_spot(calm_ctx *ctx, const char *format, const calm_model *model, const char *tensor,
                                calm_gguf_spot *out)
{
    const calm_arch *arch = calm_model_config(model)->arch;
    const calm_gguf_arch *as = calm_gguf_arch_in(calm_model_config(model));
    bool known;
    if (!as)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: %s: calm does not know llama.cpp's names for %s models", format,
                         calm_model_dir(model), arch->name);
    CALM_TRY(calm_gguf_spot_of(ctx, arch, as, calm_model_prefix(model), tensor, out, &known));
    /* One name and the checkpoint's columns are what callers write and read. */
    if (known && (out->rest || out->form == CALM_GGUF_VALUE_COLUMNS))
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: %s is two tensors in llama.cpp, or has its columns in another "
                         "order there; take `--format gguf`", format, tensor);
    return known ? CALM_OK : calm_fail(ctx, CALM_EUNSUPPORTED, "%s: %s has no name in llama.cpp", format, tensor);
}
