/* Inputs of learning a block, from assembly: the target weights of the codes after folding, and vectors by tensor
 * names. */
#include "ptq/plan/block_vectors.h"

#include "ptq/plan/assemble.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_plan.h"

/* Codes are the nearest to W diag(s) before rows are divided, so dequantized weights are within half a step of the
 * target.  A step is the scale, which folding rounds to bfloat16 (2^-9 of up to 15 steps); clipped codes add the
 * rounding of the span's scale, which is the same. */
static void check_targets(const char *family)
{
    static const char *const schemes[] = {"w4a16_g16", "w4a16_g16_asym"};
    const tiny_model spec = tiny_of(family);
    calm_fold_set sets[CALM_N_SUBLAYERS];
    float *targets[CALM_N_ROLES];
    calm_block block;
    tiny_plan p;
    size_t scaled = 0;
    tiny_plan_open(&p, tiny_model_write(&spec));
    tiny_plan_quantize_all(&p, schemes, 2, TINY_GENERAL);
    tiny_plan_pack(&p);
    const calm_layout *layout = calm_model_layout(p.model);
    ck_ok(calm_assemble_block(ctx, p.model, &p.plan, 1, &block, sets));
    ck_ok(calm_assemble_targets(ctx, p.model, &p.plan, block.weight, layout->block_begin[1], layout->block_begin[2],
                                targets));
    for (calm_role role = 0; role < CALM_N_ROLES; role++) {
        const calm_qlinear *linear = &sets[calm_job_sublayer(calm_role_job(role))].linear[role];
        ck_assert((targets[role] != NULL) == (block.weight[role].w != NULL));
        for (size_t i = 0; targets[role] && i < linear->out * linear->in; i++) {
            const size_t cell = i / linear->in * linear->n_groups + i % linear->in / linear->group;
            const double zero = linear->zeros ? linear->zeros[cell] : 8, step = fabs((double)linear->scales[cell]);
            const double steps = linear->codes[i] - zero;
            const double error = linear->scales[cell] * steps - (double)targets[role][i];
            ck_assert_msg(fabs(error) <= (0.5 + 0x1p-8 * 16) * step, "%s: %s[%zu]: %g steps", family,
                          block.weight[role].name, i, error / step);
            scaled += targets[role][i] != block.weight[role].w[i];
        }
    }
    ck_assert_uint_gt(scaled, 0);
    calm_model_close(p.model);
}

TEST(targets_are_what_codes_stand_for)
{
    check_targets("qwen3");
    check_targets("phi3");     /* fused q, k, v and gate, up */
    check_targets("gemma3");
    check_targets("bert");
}
END_OF_TEST

/* Every vector of a block, for each family: the checkpoint has its tensor with the block's values less the offset. */
TEST(vectors_have_their_tensors_names)
{
    for (const char *const *family = tiny_families; *family; family++) {
        tiny_model spec = tiny_of(*family);
        calm_model *model;
        calm_block block;
        calm_block_vector *all;
        size_t n;
        spec.bias = true;
        ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
        ck_ok(calm_model_load_block(ctx, model, 1, &block));
        ck_ok(calm_block_vectors(ctx, model, &block, &all, &n));
        ck_assert_uint_gt(n, 0);
        for (size_t i = 0; i < n; i++) {
            const calm_tensor *tensor = calm_safetensors_find(calm_model_tensors(model), all[i].name);
            float *stored;
            ck_assert_msg(tensor && tensor->n_elements == all[i].n && tensor->dtype == all[i].dtype, "%s: %s", *family,
                          all[i].name);
            ck_ok(CALM_NEW(ctx, ctx->out, stored, all[i].n));
            ck_ok(calm_to_f32(ctx, tensor->dtype, tensor->data, all[i].n, stored));
            for (size_t j = 0; j < all[i].n; j++)
                ck_assert((*all[i].at)[j] == stored[j] + all[i].offset);
        }
        calm_model_close(model);
    }
}
END_OF_TEST

static calm_named_vector learned[] = {{"model.layers.1.self_attn.q_norm.weight", 8, NULL},
                                      {"model.layers.1.post_attention_layernorm.weight", 32, NULL},
                                      {"another.tensor", 3, NULL}};

static calm_status fetch_vectors(void *user, calm_ctx *c, const void *source, calm_vectors *out)
{
    (void)user;
    (void)c;
    ck_assert_ptr_eq(source, learned);
    *out = (calm_vectors){learned, 3};
    return CALM_OK;
}

TEST(a_plan_puts_them_in_place)
{
    static const float values[32] = {1.5f, -2, 0.25f};
    const void *blocks[] = {NULL, learned};
    tiny_plan p;
    calm_block plain[2], changed;
    tiny_plan_open(&p, tiny_model_write(&tiny_default));
    p.plan.blocks = blocks;
    p.plan.vectors = fetch_vectors;
    for (size_t i = 0; i < 3; i++)
        learned[i].values = values;
    calm_plan_override override = {p.model, &p.plan};
    for (size_t b = 0; b < 2; b++) {
        ck_ok(calm_model_load_block(ctx, p.model, b, &plain[b]));
        changed = plain[b];
        ck_ok(calm_plan_apply(&override, ctx, b, &changed));
        ck_assert_int_eq(changed.plain[CALM_PLAIN_Q_NORM].w != plain[b].plain[CALM_PLAIN_Q_NORM].w, b == 1);
        ck_assert_ptr_eq(changed.plain[CALM_PLAIN_K_NORM].w, plain[b].plain[CALM_PLAIN_K_NORM].w);
        ck_assert_ptr_eq(changed.norm[0][CALM_NORM_IN].w, plain[b].norm[0][CALM_NORM_IN].w);
        if (b == 1) {
            ck_assert_mem_eq(changed.plain[CALM_PLAIN_Q_NORM].w, values, 8 * sizeof *values);
            ck_assert_mem_eq(changed.norm[1][CALM_NORM_IN].w, values, 32 * sizeof *values);
        }
    }
    learned[0].n = 7;
    changed = plain[1];
    ck_fails(calm_plan_apply(&override, ctx, 1, &changed), CALM_EFORMAT,
             "q_norm.weight: 8 values, but the store has 7");
    calm_model_close(p.model);
}
END_OF_TEST

int main(void)
{
    return run_tests("block_vectors", (const TTest *[]){targets_are_what_codes_stand_for,
                                                        vectors_have_their_tensors_names, a_plan_puts_them_in_place,
                                                        NULL});
}
