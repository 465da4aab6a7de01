/* The layer table: its linears and jobs, their names, shapes and numbers. */
#include "ptq/arch/layout.h"

#include "ptq/arch/arch.h"
#include "ptq/base/text.h"
#include "ptq/model/model.h"
#include "tests/support/config_cases.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

/* hidden 32, inner 48, 4 heads of 8 over 2, 5 experts of 24, a shared one of 40 */
static calm_layout build(const char *family, const char *key, const char *value)
{
    static calm_config config;
    calm_layout layout;
    config = config_with(family, key, value);
    ck_ok(calm_layout_build(ctx, &config, strncmp(family, "bert", 4) == 0 ? "" : "model.", false, &layout));
    return layout;
}

static void check_linear(const calm_layout *layout, size_t i, calm_role role, const char *module, size_t out, size_t in,
                         bool bias)
{
    const calm_linear_ref *linear = &layout->linears[i];
    ck_assert_uint_lt(i, layout->n_linears);
    ck_assert_str_eq(linear->module, module);
    ck_assert_int_eq(linear->role, role);
    ck_assert_uint_eq(linear->out, out);
    ck_assert_uint_eq(linear->in, in);
    ck_assert_int_eq(linear->bias, bias);
}

static void check_job(const calm_layout *layout, size_t i, const char *name, long expert, size_t n, size_t out,
                      size_t in)
{
    const calm_job_ref *job = &layout->jobs[i];
    ck_assert_uint_lt(i, layout->n_jobs);
    ck_assert_str_eq(job->name, name);
    ck_assert_str_eq(job->role, name + strlen(name) - strlen(job->role));
    ck_assert_int_eq(job->expert, expert);
    ck_assert_uint_eq(job->n, n);
    ck_assert_uint_eq(job->out, out);
    ck_assert_uint_eq(job->in, in);
}

TEST(dense)
{
    const calm_layout layout = build("llama", "attention_bias", "true");
    ck_assert_uint_eq(layout.n_jobs, 8);
    ck_assert_uint_eq(layout.n_linears, 14);
    ck_assert(layout.block_begin[0] == 0 && layout.block_begin[1] == 4 && layout.block_begin[2] == 8);
    check_job(&layout, 4, "model.layers.1.qkv", CALM_NO_EXPERT, 3, 64, 32);
    check_job(&layout, 5, "model.layers.1.o", CALM_NO_EXPERT, 1, 32, 32);
    check_job(&layout, 6, "model.layers.1.gate_up", CALM_NO_EXPERT, 2, 96, 32);
    check_job(&layout, 7, "model.layers.1.down", CALM_NO_EXPERT, 1, 32, 48);
    ck_assert(layout.jobs[4].block == 1 && layout.jobs[4].first == 7 && strcmp(layout.jobs[4].role, "qkv") == 0);
    check_linear(&layout, 7, CALM_ROLE_Q, "model.layers.1.self_attn.q_proj", 32, 32, true);
    check_linear(&layout, 8, CALM_ROLE_K, "model.layers.1.self_attn.k_proj", 16, 32, true);
    check_linear(&layout, 9, CALM_ROLE_V, "model.layers.1.self_attn.v_proj", 16, 32, true);
    check_linear(&layout, 10, CALM_ROLE_O, "model.layers.1.self_attn.o_proj", 32, 32, true);
    check_linear(&layout, 11, CALM_ROLE_GATE, "model.layers.1.mlp.gate_proj", 48, 32, false);
    check_linear(&layout, 12, CALM_ROLE_UP, "model.layers.1.mlp.up_proj", 48, 32, false);
    check_linear(&layout, 13, CALM_ROLE_DOWN, "model.layers.1.mlp.down_proj", 32, 48, false);
}
END_OF_TEST

TEST(fused)
{
    const calm_layout layout = build("phi3", "rope_scaling", "null");
    ck_assert_uint_eq(layout.n_jobs, 8);
    ck_assert_uint_eq(layout.n_linears, 8);
    check_job(&layout, 0, "model.layers.0.qkv", CALM_NO_EXPERT, 1, 64, 32);
    check_linear(&layout, 0, CALM_ROLE_FUSED_QKV, "model.layers.0.self_attn.qkv_proj", 64, 32, false);
    check_linear(&layout, 2, CALM_ROLE_FUSED_GATE_UP, "model.layers.0.mlp.gate_up_proj", 96, 32, false);
}
END_OF_TEST

TEST(encoder)
{
    const calm_layout layout = build("bert", "pad_token_id", "0");
    ck_assert_uint_eq(layout.n_linears, 12);
    check_job(&layout, 2, "encoder.layer.0.gate_up", CALM_NO_EXPERT, 1, 48, 32);
    check_linear(&layout, 0, CALM_ROLE_Q, "encoder.layer.0.attention.self.query", 32, 32, true);
    check_linear(&layout, 3, CALM_ROLE_O, "encoder.layer.0.attention.output.dense", 32, 32, true);
    check_linear(&layout, 4, CALM_ROLE_UP, "encoder.layer.0.intermediate.dense", 48, 32, true);
    check_linear(&layout, 5, CALM_ROLE_DOWN, "encoder.layer.0.output.dense", 32, 48, true);
}
END_OF_TEST

/* The shared expert comes before the others and has separate widths; only the attention has biases. */
TEST(shared_expert)
{
    const calm_layout layout = build("qwen2_moe", "pad_token_id", "0");
    ck_assert_uint_eq(layout.n_jobs, 2 * (2 + 2 + 5 * 2));
    check_job(&layout, 2, "model.layers.0.shared_expert.gate_up", CALM_SHARED_EXPERT, 2, 80, 32);
    check_job(&layout, 3, "model.layers.0.shared_expert.down", CALM_SHARED_EXPERT, 1, 32, 40);
    check_job(&layout, 4, "model.layers.0.experts.0.gate_up", 0, 2, 48, 32);
    check_job(&layout, 13, "model.layers.0.experts.4.down", 4, 1, 32, 24);
    check_job(&layout, 14, "model.layers.1.qkv", CALM_NO_EXPERT, 3, 64, 32);
    check_linear(&layout, 4, CALM_ROLE_GATE, "model.layers.0.mlp.shared_expert.gate_proj", 40, 32, false);
    check_linear(&layout, 7, CALM_ROLE_GATE, "model.layers.0.mlp.experts.0.gate_proj", 24, 32, false);
    check_linear(&layout, 21, CALM_ROLE_DOWN, "model.layers.0.mlp.experts.4.down_proj", 32, 24, false);
    check_linear(&layout, 2, CALM_ROLE_V, "model.layers.0.self_attn.v_proj", 16, 32, true);
    ck_assert_str_eq(layout.jobs[13].role, "experts.4.down");
}
END_OF_TEST

TEST(dense_and_sparse_blocks)
{
    const calm_layout layout = build("qwen3_moe", "mlp_only_layers", "[0]");
    size_t begin, end;
    ck_assert(layout.block_begin[1] == 4 && layout.block_begin[2] == 4 + 2 + 10 && layout.n_jobs == 16);
    check_job(&layout, 2, "model.layers.0.gate_up", CALM_NO_EXPERT, 2, 96, 32);
    check_job(&layout, 6, "model.layers.1.experts.0.gate_up", 0, 2, 48, 32);
    calm_layout_sublayer(&layout, 0, CALM_SUBLAYER_MLP, &begin, &end);
    ck_assert(begin == 2 && end == 4);
    calm_layout_sublayer(&layout, 1, CALM_SUBLAYER_ATTENTION, &begin, &end);
    ck_assert(begin == 4 && end == 6);
    calm_layout_sublayer(&layout, 1, CALM_SUBLAYER_MLP, &begin, &end);
    ck_assert(begin == 6 && end == 16);
}
END_OF_TEST

/* Groups of jobs that are folded into each other. */
TEST(groups)
{
    const calm_layout layout = build("qwen2_moe", "mlp_only_layers", "[0]");
    size_t begin, end;
    calm_layout_fold_set(&layout, 0, CALM_SUBLAYER_ATTENTION, CALM_NO_EXPERT, &begin, &end);
    ck_assert(begin == 0 && end == 2);
    calm_layout_fold_set(&layout, 0, CALM_SUBLAYER_MLP, CALM_NO_EXPERT, &begin, &end);
    ck_assert(begin == 2 && end == 4);
    calm_layout_fold_set(&layout, 1, CALM_SUBLAYER_ATTENTION, CALM_NO_EXPERT, &begin, &end);
    ck_assert(begin == 4 && end == 6);
    calm_layout_fold_set(&layout, 1, CALM_SUBLAYER_MLP, CALM_SHARED_EXPERT, &begin, &end);
    ck_assert(begin == 6 && end == 8);
    calm_layout_fold_set(&layout, 1, CALM_SUBLAYER_MLP, 0, &begin, &end);
    ck_assert(begin == 8 && end == 10);
    calm_layout_fold_set(&layout, 1, CALM_SUBLAYER_MLP, 4, &begin, &end);
    ck_assert(begin == 16 && end == 18);
    calm_layout_fold_set(&layout, 1, CALM_SUBLAYER_MLP, CALM_NO_EXPERT, &begin, &end);    /* nothing */
    ck_assert(begin == end);
}
END_OF_TEST

/* Which inputs come from something that can absorb a scale, by job: q, k, v; o; gate, up; down; an expert's gate,
 * up; its down. */
TEST(what_can_be_folded)
{
    static const struct {
        const char *family, *jobs;    /* y or n for each job */
    } all[] = {{"llama", "yyyy"},  {"phi3", "yyyy"}, {"gemma2", "yyyy"},      {"olmo2", "nyny"},
               {"bert", "nynn"}, {"qwen3_moe", "yyny"}, {"qwen2_moe", "yynyny"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const calm_layout layout = build(all[i].family, "pad_token_id", "0");
        for (size_t j = 0; all[i].jobs[j]; j++)
            ck_assert_msg(layout.jobs[j].can_absorb == (all[i].jobs[j] == 'y'), "%s: %s", all[i].family,
                          layout.jobs[j].name);
    }
}
END_OF_TEST

/* Jobs and linears are numbered without gaps, and a job's rows are those of its linears. */
TEST(numbering)
{
    for (size_t f = 0; tiny_families[f]; f++) {
        const calm_layout layout = build(tiny_families[f], "pad_token_id", "0");
        size_t next = 0, block = 0;
        for (size_t i = 0; i < layout.n_jobs; i++) {
            const calm_job_ref *job = &layout.jobs[i];
            size_t out = 0;
            while (i == layout.block_begin[block + 1])
                block++;
            ck_assert(job->block == block && job->first == next && job->n >= 1 && job->n <= 3);
            for (size_t k = job->first; k < job->first + job->n; k++) {
                out += layout.linears[k].out;
                ck_assert(layout.linears[k].in == job->in && calm_role_job(layout.linears[k].role) == job->kind);
            }
            ck_assert_uint_eq(out, job->out);
            next += job->n;
        }
        ck_assert_uint_eq(next, layout.n_linears);
        ck_assert_uint_eq(layout.block_begin[2], layout.n_jobs);
    }
}
END_OF_TEST

/* Each linear is found by its module's full name, and by no part or extension of it. */
TEST(linears_by_name)
{
    for (size_t f = 0; tiny_families[f]; f++) {
        const calm_layout layout = build(tiny_families[f], "pad_token_id", "0");
        for (size_t j = 0; j < layout.n_jobs; j++)
            for (size_t i = layout.jobs[j].first; i < layout.jobs[j].first + layout.jobs[j].n; i++) {
                const char *name = test_format("%s.weight", layout.linears[i].module);
                const size_t n = strlen(layout.linears[i].module);
                const calm_named_linear *found = calm_layout_find(&layout, name, n);
                ck_assert_msg(found && found->linear == &layout.linears[i] && found->job == &layout.jobs[j], "%s",
                              name);
                ck_assert_ptr_null(calm_layout_find(&layout, name, n - 1));
                ck_assert_ptr_null(calm_layout_find(&layout, name, n + 1));
            }
        ck_assert_ptr_null(calm_layout_find(&layout, "", 0));
        ck_assert_ptr_null(calm_layout_find(&layout, layout.head, strlen(layout.head)));
    }
}
END_OF_TEST

/* With v as a separate job: the same linears with the same numbers, and no input scale that both jobs would have to
 * share. */
TEST(split)
{
    const calm_config config = config_with("llama", "attention_bias", "true"), one = config_with("phi3", "pad_token_id",
                                                                                                 "0");
    const calm_layout whole = build("llama", "attention_bias", "true");
    calm_layout layout;
    size_t begin, end;
    ck_ok(calm_layout_build(ctx, &config, "model.", true, &layout));
    ck_assert_uint_eq(layout.n_jobs, 10);
    ck_assert_uint_eq(layout.n_linears, whole.n_linears);
    for (size_t i = 0; i < whole.n_linears; i++)
        ck_assert_str_eq(layout.linears[i].module, whole.linears[i].module);
    check_job(&layout, 5, "model.layers.1.qk", CALM_NO_EXPERT, 2, 48, 32);
    check_job(&layout, 6, "model.layers.1.v", CALM_NO_EXPERT, 1, 16, 32);
    check_job(&layout, 7, "model.layers.1.o", CALM_NO_EXPERT, 1, 32, 32);
    ck_assert(layout.jobs[5].halved && layout.jobs[6].halved && !layout.jobs[7].halved);
    ck_assert(layout.jobs[5].kind == CALM_JOB_QKV && layout.jobs[6].kind == CALM_JOB_QKV);
    ck_assert(!layout.jobs[5].can_absorb && !layout.jobs[6].can_absorb && layout.jobs[7].can_absorb);
    ck_assert(layout.jobs[5].place.role == CALM_PLACE_OTHER && layout.jobs[6].place.role == CALM_PLACE_V);
    ck_assert(layout.jobs[6].place.block == 1 && layout.jobs[6].place.n_blocks == 2 &&
              layout.jobs[6].place.sharing == 2);
    calm_layout_sublayer(&layout, 1, CALM_SUBLAYER_ATTENTION, &begin, &end);
    ck_assert(begin == 5 && end == 8);
    /* A single matrix of all three cannot be split. */
    ck_ok(calm_layout_build(ctx, &one, "model.", true, &layout));
    ck_assert_str_eq(layout.jobs[0].role, "qkv");
}
END_OF_TEST

TEST(no_memory)
{
    const calm_config config = config_with("qwen3_moe", "pad_token_id", "0");
    calm_layout layout;
    for (long n = 1; n < 60; n++) {
        ctx->out->fail_in = n;
        ck_fails(calm_layout_build(ctx, &config, "model.", false, &layout), CALM_ENOMEM, "");
    }
}
END_OF_TEST

/* Which jobs can absorb a scale: inputs of q, k, v, gate, up and convolutions need a norm with no other reader, in
 * no mixture; down needs a gate that is not clamped. */
TEST(jobs_that_can_absorb)
{
    for (size_t f = 0; tiny_families[f]; f++) {
        const tiny_model spec = tiny_of(tiny_families[f]);
        const char *name = strncmp(spec.family, "bert", 4) == 0 ? "bert" : spec.family;
        const bool old = calm_text_listed("bert roberta distilbert mpnet", ' ', name);
        const bool plain = strncmp(name, "nemotron", 8) == 0 || calm_text_listed("starcoder2 gpt_oss", ' ', name);
        const bool gated = !old && !plain;
        const bool post_norm = old || calm_text_listed("nomic_bert gte olmo2 olmo3 exaone4 cohere2", ' ', name);
        calm_model *model;
        ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
        const bool expected[CALM_N_JOBS] = {
            [CALM_JOB_QKV] = !post_norm && strcmp(name, "gemma3n") != 0,    /* a branch reads the norm's output */
            [CALM_JOB_GATE_UP] = !post_norm && !calm_config_is_mixture(calm_model_config(model)),
            [CALM_JOB_O] = !calm_text_listed("gemma3n gemma4", ' ', name), [CALM_JOB_DOWN] = gated,
            [CALM_JOB_QKV_A] = true, [CALM_JOB_MAMBA_IN] = true, [CALM_JOB_CONV_IN] = true, [CALM_JOB_CONV_OUT] = true};
        for (size_t j = 0; j < calm_model_layout(model)->n_jobs; j++) {
            const calm_job_ref *job = &calm_model_layout(model)->jobs[j];
            const bool bare = !strcmp(name, "modernbert") && job->block == 0 && job->kind == CALM_JOB_QKV;
            ck_assert_msg(job->can_absorb == (expected[job->kind] && !bare), "%s: %s", spec.family, job->name);
        }
        calm_model_close(model);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("layout", (const TTest *[]){dense, fused, encoder, shared_expert, dense_and_sparse_blocks, groups,
                                                 what_can_be_folded, jobs_that_can_absorb, numbering,
                                                 linears_by_name, split, no_memory, NULL});
}
