/* Opening checkpoints: contradictions to config.json are reported with the tensor, what was found and expected. */
#include "ptq/model/model.h"

#include "ptq/arch/arch.h"
#include "ptq/base/file.h"
#include "ptq/model/head.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

static calm_model *open_tiny(const tiny_model *spec)
{
    calm_model *model;
    ck_ok(calm_model_open(ctx, tiny_model_write(spec), &model));
    return model;
}

/* Checks that opening fails with this status and a message with both words. */
static void refused(const char *dir, calm_status expected, const char *a, const char *b)
{
    calm_model *model;
    calm_status status = calm_model_open(ctx, dir, &model);
    ck_assert_msg(status == expected, "%s: %s", calm_status_name(status), ctx->message);
    ck_assert_ptr_null(model);
    ck_assert_msg(strstr(ctx->message, a) && strstr(ctx->message, b), "\"%s\" lacks \"%s\" or \"%s\"", ctx->message, a,
                  b);
    calm_ctx_clear_failure(ctx);
}

TEST(opens_what_is_right)
{
    tiny_model spec = tiny_default;
    for (int variant = 0; variant < 8; variant++) {
        spec.tied = variant & 1;
        spec.bias = variant & 2;
        spec.dtype = variant & 4 ? CALM_F32 : CALM_F16;
        spec.window = variant & 4 ? 5 : 0;
        calm_model *model = open_tiny(&spec);
        const calm_config *config = calm_model_config(model);
        calm_block block;
        calm_head head;
        ck_assert_uint_eq(config->hidden, 32);
        ck_assert_uint_eq(config->window[1], spec.window);
        ck_assert_uint_eq(config->window[0], 0);
        ck_assert(!calm_model_is_quantized(model));
        ck_ok(calm_model_load_block(ctx, model, 1, &block));
        ck_assert_str_eq(block.weight[CALM_ROLE_UP].name, "model.layers.1.mlp.up_proj");
        ck_assert_uint_eq(block.weight[CALM_ROLE_K].out, 16);
        ck_assert((block.weight[CALM_ROLE_O].bias != NULL) == spec.bias);
        ck_assert_ptr_null(block.weight[CALM_ROLE_UP].bias);
        ck_ok(calm_model_load_head(ctx, model, &head));
        ck_assert_uint_eq(head.vocab, 61);
        calm_model_close(model);
    }
}
END_OF_TEST

TEST(counts_and_names)
{
    tiny_model spec = tiny_default;
    spec.tied = false;
    calm_model *model = open_tiny(&spec);
    char *name;
    const size_t block = 32 * 32 + 2 * 16 * 32 + 32 * 32 + 3 * 48 * 32 + 2 * 32 + 2 * 8;
    ck_assert_uint_eq(calm_model_n_params(model), 2 * block + 32 + 2 * 61 * 32);
    ck_assert_uint_eq(calm_model_bytes(model), 2 * calm_model_n_params(model));
    ck_assert_str_eq(calm_model_class(model), "Qwen3ForCausalLM");
    ck_ok(calm_model_block_name(ctx, model, 1, &name));
    ck_assert_str_eq(name, "model.layers.1");
    calm_model_close(model);
}
END_OF_TEST

TEST(shape_against_config)
{
    tiny_model spec = tiny_default;
    spec.transposed = "model.layers.1.mlp.down_proj.weight";
    refused(tiny_model_write(&spec), CALM_EFORMAT, "model.layers.1.mlp.down_proj.weight",
            "shape [48, 32], expected [32, 48]");
    spec = tiny_default;
    const char *dir = tiny_model_write(&spec);
    spec.vocab = 62;
    tiny_model_write_config(&spec, dir);
    refused(dir, CALM_EFORMAT, "model.embed_tokens.weight", "shape [61, 32], expected [62, 32]");
    spec = tiny_default;
    spec.head_dim = 16;
    spec.n_heads = 2;
    spec.n_kv = 1;
    tiny_model_write_config(&spec, dir);
    refused(dir, CALM_EFORMAT, "q_norm.weight", "shape [8], expected [16]");
    spec = tiny_default;
    spec.n_blocks = 3;
    tiny_model_write_config(&spec, dir);
    refused(dir, CALM_ENOTFOUND, "model.layers.2.", "missing");
    spec = tiny_default;
    spec.tied = false;
    tiny_model_write_config(&spec, dir);
    refused(dir, CALM_ENOTFOUND, "lm_head.weight", "shape [61, 32]");
    spec = tiny_default;
    spec.bias = true;
    tiny_model_write_config(&spec, dir);
    refused(dir, CALM_ENOTFOUND, "model.layers.0.self_attn.q_proj.bias", "missing");
}
END_OF_TEST

TEST(dtype_against_what_is_needed)
{
    static const char *const names[] = {"model.embed_tokens.weight", "model.layers.0.self_attn.v_proj.weight",
                                        "model.layers.1.input_layernorm.weight", "model.norm.weight", "lm_head.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tiny_model spec = tiny_default;
        spec.tied = false;
        spec.as_integers = names[i];
        refused(tiny_model_write(&spec), CALM_EFORMAT, names[i], "dtype I32, expected BF16, F16 or F32");
    }
}
END_OF_TEST

TEST(missing_tensors)
{
    static const char *const names[] = {"model.embed_tokens.weight", "model.layers.0.self_attn.k_norm.weight",
                                        "model.layers.1.mlp.gate_proj.weight", "model.norm.weight",
                                        "model.layers.1.post_attention_layernorm.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tiny_model spec = tiny_default;
        spec.missing = names[i];
        refused(tiny_model_write(&spec), CALM_ENOTFOUND, names[i], "missing");
    }
}
END_OF_TEST

/* Embeds `n` ids as one window, without positions and types. */
static calm_status embed(const calm_model *model, const uint32_t *ids, size_t n, float *x)
{
    const calm_span span = {.n_tokens = n};
    return calm_model_embed(ctx, model, ids, NULL, &span, x);
}

TEST(nan_is_named_by_tensor_and_index)
{
    tiny_model spec = tiny_default;
    calm_block block;
    spec.nan_in = "model.layers.1.self_attn.o_proj.weight";
    spec.nan_at = 777;
    calm_model *model = open_tiny(&spec);
    ck_ok(calm_model_load_block(ctx, model, 0, &block));
    ck_ok(calm_model_load_sublayer(ctx, model, 1, CALM_SUBLAYER_MLP, &block));
    ck_assert_ptr_null(block.weight[CALM_ROLE_O].w);
    ck_fails(calm_model_load_block(ctx, model, 1, &block), CALM_ENUMERIC,
             "tensor model.layers.1.self_attn.o_proj.weight: element 777 is nan");
    calm_model_close(model);

    spec.nan_in = "model.layers.0.post_attention_layernorm.weight";
    spec.nan_at = 31;
    model = open_tiny(&spec);
    ck_fails(calm_model_load_block(ctx, model, 0, &block), CALM_ENUMERIC,
             "tensor model.layers.0.post_attention_layernorm.weight: element 31 is nan");
    calm_model_close(model);

    spec.nan_in = "model.embed_tokens.weight";
    spec.nan_at = 5 * 32 + 3;
    model = open_tiny(&spec);
    const uint32_t ids[] = {4, 6, 5};
    float x[3 * 32];
    ck_ok(embed(model, ids, 2, x));
    ck_fails(embed(model, ids, 3, x), CALM_ENUMERIC, "tensor model.embed_tokens.weight: element 163 is nan");
    calm_model_close(model);
}
END_OF_TEST

/* Matrices with more elements than are converted at once, and a short last piece: every value is that of the file. */
TEST(large_matrices)
{
    tiny_model spec = tiny_default;
    spec.hidden = 1024;
    spec.inner = 1100;
    calm_model *model = open_tiny(&spec);
    const calm_role roles[] = {CALM_ROLE_UP, CALM_ROLE_DOWN};
    calm_block block;
    ck_ok(calm_model_load_block(ctx, model, 0, &block));
    for (size_t r = 0; r < 2; r++) {
        const calm_weight *weight = &block.weight[roles[r]];
        const char *name = test_format("%s.weight", weight->name);
        const calm_tensor *tensor = calm_safetensors_find(calm_model_tensors(model), name);
        float *whole;
        ck_assert_ptr_nonnull(tensor);
        ck_assert_uint_eq(tensor->n_elements, 1024 * 1100);
        ck_ok(CALM_NEW(ctx, ctx->out, whole, tensor->n_elements));
        ck_ok(calm_tensor_to_f32(ctx, tensor, whole));
        ck_assert(memcmp(whole, weight->w, tensor->n_elements * sizeof *whole) == 0);
    }
    calm_model_close(model);
    spec.nan_in = "model.layers.0.mlp.up_proj.weight";
    spec.nan_at = 1024 * 1000 + 5;
    model = open_tiny(&spec);
    ck_fails(calm_model_load_block(ctx, model, 0, &block), CALM_ENUMERIC,
             "tensor model.layers.0.mlp.up_proj.weight: element 1024005 is nan");
    calm_model_close(model);
}
END_OF_TEST

TEST(nan_in_an_expert_is_found_when_it_is_read)
{
    tiny_model spec = tiny_of("qwen3_moe");
    calm_block block;
    calm_weight weight[CALM_N_ROLES] = {{0}};
    spec.nan_in = "model.layers.1.mlp.experts.3.up_proj.weight";
    spec.nan_at = 6;
    calm_model *model = open_tiny(&spec);
    ck_ok(calm_model_load_block(ctx, model, 1, &block));
    ck_ok(block.moe.load(block.moe.user, ctx, 1, 2, weight));
    ck_assert_str_eq(weight[CALM_ROLE_UP].name, "model.layers.1.mlp.experts.2.up_proj");
    ck_assert_uint_eq(weight[CALM_ROLE_DOWN].in, 24);
    ck_fails(block.moe.load(block.moe.user, ctx, 1, 3, weight), CALM_ENUMERIC,
             "tensor model.layers.1.mlp.experts.3.up_proj.weight: element 6 is nan");
    calm_model_close(model);
}
END_OF_TEST

TEST(ids_outside_the_vocabulary)
{
    calm_model *model = open_tiny(&tiny_default);
    const uint32_t ids[] = {60, 61};
    float x[2 * 32];
    ck_ok(embed(model, ids, 1, x));
    ck_fails(embed(model, ids, 2, x), CALM_EARG, "token id 61, but the vocabulary has 61");
    calm_model_close(model);
}
END_OF_TEST

/* Every family with each dtype, tied or not, with and without biases: tiny_model writes the tensors that
 * calm_model_open() looks for. */
TEST(every_family_opens)
{
    for (size_t f = 0; tiny_families[f]; f++)
        for (int variant = 0; variant < 4; variant++) {
            tiny_model spec = tiny_of(tiny_families[f]);
            spec.tied = variant & 1;
            spec.bias = variant & 2;
            spec.window = variant & 1 ? 0 : 5;
            spec.dtype = variant == 0 ? CALM_F32 : variant == 1 ? CALM_F16 : CALM_BF16;
            calm_model *model = open_tiny(&spec);
            calm_block block;
            calm_head head;
            ck_assert_int_eq(calm_model_config(model)->tied, spec.tied);
            for (size_t i = 0; i < spec.n_blocks; i++)
                ck_ok(calm_model_load_block(ctx, model, i, &block));
            ck_ok(calm_model_load_head(ctx, model, &head));
            ck_assert(!head.table == (strcmp(tiny_families[f], "bert") == 0));
            ck_assert_uint_eq(calm_model_bytes(model),
                              calm_model_n_params(model) * calm_dtype_bytes(spec.dtype));
            calm_model_close(model);
        }
}
END_OF_TEST

/* A checkpoint that lacks any one tensor is refused by its name, so every tensor is both checked and read. */
TEST(every_tensor_is_needed)
{
    for (size_t f = 0; tiny_families[f]; f++) {
        tiny_model spec = tiny_of(tiny_families[f]);
        spec.tied = false;
        spec.bias = true;
        /* Gemma 4's last block has no window, and wider heads than the others. */
        spec.n_blocks = strcmp(tiny_families[f], "gemma4") == 0 ? 2 : 1;
        spec.n_experts = 2;
        spec.dtype = CALM_F16;
        calm_model *model = open_tiny(&spec), *other;
        const calm_safetensors *set = calm_model_tensors(model);
        for (size_t i = 0; i < calm_safetensors_count(set); i++) {
            const char *name = calm_safetensors_at(set, i)->name;
            if (strncmp(name, "pooler.", 7) == 0 || strncmp(name, "cls.", 4) == 0)
                continue;    /* an encoder may lack it */
            spec.missing = name;
            const char *dir = tiny_model_write(&spec);
            const calm_status status = calm_model_open(ctx, dir, &other);
            ck_assert_msg(status == CALM_ENOTFOUND && strstr(ctx->message, name), "%s without %s: %s (%s)",
                          tiny_families[f], name, calm_status_name(status), ctx->message);
            calm_ctx_clear_failure(ctx);
        }
        calm_model_close(model);
    }
}
END_OF_TEST

/* Copies the checkpoint at `dir` to a new directory with renamed tensors, and appends `extra`. */
static const char *rewritten(const char *dir, const char *(*rename)(const char *), const calm_tensor *extra)
{
    const char *copy = test_directory();
    calm_safetensors *set;
    calm_safetensors_writer writer;
    calm_tensor *tensors;
    ck_ok(calm_safetensors_open(ctx, dir, &set));
    const size_t n = calm_safetensors_count(set);
    ck_ok(CALM_NEW(ctx, ctx->out, tensors, n + 1));
    for (size_t i = 0; i < n; i++) {
        tensors[i] = *calm_safetensors_at(set, i);
        tensors[i].name = rename(tensors[i].name);
    }
    if (extra)
        tensors[n] = *extra;
    ck_ok(calm_copy_file(ctx, test_format("%s/config.json", dir), test_format("%s/config.json", copy)));
    ck_ok(
        calm_safetensors_begin(ctx, &writer, test_format("%s/model.safetensors", copy), tensors, n + (extra != NULL)));
    for (size_t i = 0; i < n + (extra != NULL); i++)
        ck_ok(calm_safetensors_put(ctx, &writer, tensors[i].data, tensors[i].bytes));
    ck_ok(calm_safetensors_end(ctx, &writer));
    calm_safetensors_close(set);
    return copy;
}

static const char *same(const char *name)
{
    return name;
}

/* A stored head next to "tie_word_embeddings" is used if it differs from the embedding, by a single bit too. */
TEST(heads_beside_a_tied_embedding)
{
    const char *dir = tiny_model_write(&tiny_default);
    calm_safetensors *set;
    calm_model *model;
    uint8_t *bytes;
    ck_ok(calm_safetensors_open(ctx, dir, &set));
    calm_tensor head = *calm_safetensors_find(set, "model.embed_tokens.weight");
    head.name = "lm_head.weight";
    for (int differs = 0; differs < 2; differs++) {
        ck_ok(CALM_NEW(ctx, ctx->out, bytes, head.bytes));
        memcpy(bytes, head.data, head.bytes);
        bytes[head.bytes - 1] ^= (uint8_t)differs;
        head.data = bytes;
        ck_ok(calm_model_open(ctx, rewritten(dir, same, &head), &model));
        ck_assert_int_eq(calm_model_config(model)->tied, !differs);
        calm_model_close(model);
    }
    float *wide;
    ck_ok(CALM_NEW(ctx, ctx->out, wide, head.n_elements));
    ck_ok(calm_tensor_to_f32(ctx, calm_safetensors_find(set, "model.embed_tokens.weight"), wide));
    for (int differs = 0; differs < 2; differs++) {    /* the same numbers in another dtype */
        calm_tensor other = head;
        other.dtype = CALM_F32;
        other.bytes = 2 * head.bytes;
        other.data = (const uint8_t *)wide;
        wide[0] += (float)differs;
        ck_ok(calm_model_open(ctx, rewritten(dir, same, &other), &model));
        ck_assert_int_eq(calm_model_config(model)->tied, !differs);
        calm_model_close(model);
    }
    head.shape[0]--;
    head.bytes -= 2 * head.shape[1];
    head.n_elements -= head.shape[1];
    refused(rewritten(dir, same, &head), CALM_EFORMAT, "lm_head.weight", "shape [60, 32], expected [61, 32]");
    calm_safetensors_close(set);
}
END_OF_TEST

static const char *without_prefix(const char *name)
{
    return strncmp(name, "model.", 6) == 0 ? name + 6 : name;
}

static const char *with_gamma(const char *name)
{
    const char *norm = strstr(name, "LayerNorm.");
    return !norm ? name
                 : test_format("%.*s.%s", (int)(norm + 9 - name), name,
                               strcmp(norm + 10, "bias") == 0 ? "beta" : "gamma");
}

/* Decoders saved without their head; gamma and beta, as in the first BERT checkpoints. */
TEST(older_names)
{
    tiny_model spec = tiny_of("bert");
    calm_block block, old;
    calm_model *model, *other;
    const char *dir = tiny_model_write(&spec);
    ck_ok(calm_model_open(ctx, dir, &model));
    ck_ok(calm_model_open(ctx, rewritten(dir, with_gamma, NULL), &other));
    ck_ok(calm_model_load_block(ctx, model, 1, &block));
    ck_ok(calm_model_load_block(ctx, other, 1, &old));
    const calm_norm *a = &block.norm[CALM_SUBLAYER_MLP][CALM_NORM_RESIDUAL],
                    *b = &old.norm[CALM_SUBLAYER_MLP][CALM_NORM_RESIDUAL];
    ck_assert(memcmp(a->w, b->w, 32 * sizeof(float)) == 0 && memcmp(a->b, b->b, 32 * sizeof(float)) == 0);
    ck_assert(memcmp(a->w, a->b, 32 * sizeof(float)) != 0);
    calm_model_close(model);
    calm_model_close(other);

    ck_ok(calm_model_open(ctx, rewritten(tiny_model_write(&tiny_default), without_prefix, NULL), &model));
    ck_assert_str_eq(calm_model_prefix(model), "");
    ck_ok(calm_model_load_block(ctx, model, 0, &old));
    ck_assert_str_eq(old.weight[CALM_ROLE_Q].name, "layers.0.self_attn.q_proj");
    calm_model_close(model);
}
END_OF_TEST

TEST(directories_that_are_no_models)
{
    const char *dir = test_directory();
    refused(test_format("%s/none", dir), CALM_ENOTFOUND, "none", "no such directory");
    refused(dir, CALM_ENOTFOUND, "config.json", "");
    tiny_model_write_config(&tiny_default, dir);
    refused(dir, CALM_ENOTFOUND, dir, "no weights here; expected model.safetensors");
    ck_ok(calm_write_file(ctx, test_format("%s/config.json", dir), "{\"a\": ", 6));
    ck_ok(calm_write_file(ctx, test_format("%s/model.safetensors", dir), "", 0));
    refused(dir, CALM_EFORMAT, "config.json", "");
}
END_OF_TEST

/* Checks that each job's weights are those of the block, as rows of one matrix, and that the outline has shapes,
 * names and biases. */
static void check_jobs(const calm_model *model, const calm_block *block, const calm_block *outline)
{
    const calm_layout *layout = calm_model_layout(model);
    for (size_t j = layout->block_begin[1]; j < layout->block_begin[2]; j++) {
        const calm_job_ref *job = &layout->jobs[j];
        calm_weight weight[CALM_N_ROLES] = {{0}};
        if (job->expert != CALM_NO_EXPERT)
            continue;
        test_memory_begin();
        ck_ok(calm_model_load_job(ctx, model, job, weight));
        ck_assert_uint_eq(test_memory_end().out, calm_model_load_jobs_bytes(model, j, j + 1));
        const float *next = weight[layout->linears[job->first].role].w;
        for (size_t i = job->first; i < job->first + job->n; i++) {
            const calm_role role = layout->linears[i].role;
            const calm_weight *whole = &block->weight[role], *bare = &outline->weight[role];
            const size_t n = whole->out * whole->in;
            ck_assert_ptr_eq(weight[role].w, next);
            ck_assert_mem_eq(next, whole->w, n * sizeof *next);
            ck_assert_ptr_null(bare->w);
            ck_assert_uint_eq(bare->out * bare->in, n);
            ck_assert_str_eq(bare->name, whole->name);
            ck_assert_int_eq(bare->bias != NULL, whole->bias != NULL);
            next += n;
        }
    }
}

/* The estimates for a block, sublayer by sublayer, and for an expert. */
TEST(memory)
{
    for (size_t f = 0; tiny_families[f]; f++)
        for (int bias = 0; bias < 2; bias++) {
            tiny_model spec = tiny_of(tiny_families[f]);
            spec.bias = bias;
            calm_model *model = open_tiny(&spec);
            const calm_config *config = calm_model_config(model);
            calm_block block, outline;
            calm_weight weight[CALM_N_ROLES] = {{0}};
            size_t all = 0, begin, end;
            for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
                test_memory_begin();
                ck_ok(calm_model_load_sublayer(ctx, model, 1, s, &block));
                ck_assert_uint_eq(test_memory_end().out, calm_model_load_sublayer_bytes(model, 1, s));
                all += calm_model_load_sublayer_bytes(model, 1, s);
            }
            test_memory_begin();
            ck_ok(calm_model_load_block(ctx, model, 1, &block));
            ck_assert_uint_eq(test_memory_end().out, all);
            ck_assert_int_eq(block.moe.router != NULL, config->moe.n_experts > 0);
            test_memory_begin();
            ck_ok(calm_model_load_outline(ctx, model, 1, &outline));
            ck_assert_uint_eq(test_memory_end().out, calm_model_load_outline_bytes(model, 1));
            /* again, since a measurement's memory is freed by the next one */
            ck_ok(calm_model_load_block(ctx, model, 1, &block));
            ck_ok(calm_model_load_outline(ctx, model, 1, &outline));
            check_jobs(model, &block, &outline);
            if (block.moe.router) {
                calm_layout_fold_set(calm_model_layout(model), 1, CALM_SUBLAYER_MLP, 3, &begin, &end);
                test_memory_begin();
                ck_ok(block.moe.load(block.moe.user, ctx, 1, 3, weight));
                ck_assert_uint_eq(test_memory_end().out, calm_model_load_jobs_bytes(model, begin, end));
            }
            calm_model_close(model);
        }
}
END_OF_TEST

int main(void)
{
    return run_tests("model",
                     (const TTest *[]){opens_what_is_right, counts_and_names, shape_against_config,
                                       dtype_against_what_is_needed, missing_tensors, nan_is_named_by_tensor_and_index,
                                       large_matrices,
                                       nan_in_an_expert_is_found_when_it_is_read, every_family_opens,
                                       every_tensor_is_needed, heads_beside_a_tied_embedding, older_names,
                                       ids_outside_the_vocabulary, directories_that_are_no_models, memory, NULL});
}
