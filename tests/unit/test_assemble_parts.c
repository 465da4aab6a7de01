/* Assembly for a writer: the parts of a block, without its float weights. */
#include "ptq/plan/assemble.h"

#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_plan.h"

#define ALL_KINDS ((1u << CALM_N_JOBS) - 1)

static void same_floats(const float *a, const float *b, size_t n)
{
    ck_assert_int_eq(a != NULL, b != NULL);
    if (a)
        ck_assert_mem_eq(a, b, n * sizeof *a);
}

/* What is assembled without the float weights is equal to what is assembled with them, including changes of float
 * linears. */
TEST(parts_are_those_of_the_block)
{
    static const unsigned sets[] = {ALL_KINDS, 1u << CALM_JOB_O | 1u << CALM_JOB_DOWN};
    for (size_t f = 0; tiny_families[f]; f++)
        for (size_t i = 0; i < 2; i++) {
            tiny_model spec = tiny_of(tiny_families[f]);
            calm_fold_set whole[CALM_N_SUBLAYERS], parts[CALM_N_SUBLAYERS];
            calm_block block, outline;
            size_t changed = 0;
            bool folds = false;
            tiny_plan p;
            spec.bias = true;
            tiny_plan_open(&p, tiny_model_write(&spec));
            const calm_layout *layout = calm_model_layout(p.model);
            for (size_t j = layout->block_begin[1]; j < layout->block_begin[2]; j++)
                if (sets[i] >> layout->jobs[j].kind & 1) {
                    tiny_plan_quantize(&p, j, "w4a16_g16", TINY_GENERAL);
                    folds |= layout->jobs[j].can_absorb;
                }
            tiny_plan_pack(&p);
            ck_ok(calm_assemble_block(ctx, p.model, &p.plan, 1, &block, whole));
            test_memory_begin();
            ck_ok(calm_assemble_parts(ctx, p.model, &p.plan, 1, &outline, parts));
            const size_t held = test_memory_end().out;
            for (int s = 0; s < CALM_N_SUBLAYERS; s++) {
                for (calm_role role = 0; role < CALM_N_ROLES; role++) {
                    const calm_qlinear *a = &whole[s].linear[role], *c = &parts[s].linear[role];
                    const calm_weight *weight = &block.weight[role];
                    ck_assert_ptr_null(outline.weight[role].w);
                    ck_assert_uint_eq(outline.weight[role].in, weight->in);
                    same_floats(a->w, c->w, weight->out * weight->in);
                    same_floats(a->bias, c->bias, weight->out);
                    same_floats(a->scales, c->scales, a->out * a->n_groups);
                    changed += a->w != NULL;
                }
                same_floats(whole[s].norm, parts[s].norm, calm_model_config(p.model)->hidden);
            }
            if (sets[i] == ALL_KINDS) {
                calm_scheme scheme;
                ck_ok(calm_scheme_parse(ctx, "w4a16_g16", &scheme));
                ck_assert_uint_le(held, calm_assembled_parts_bytes(p.model, 1, &scheme, CALM_QJOB_SCALED));
                ck_assert_uint_lt(held, calm_assembled_block_bytes(p.model, 1, &scheme, CALM_QJOB_SCALED));
            }
            /* A block with only a plain MLP has no rows into which a scale is folded. */
            ck_assert_int_eq(changed > 0, folds && sets[i] != ALL_KINDS);
            calm_model_close(p.model);
        }
}
END_OF_TEST

int main(void)
{
    return run_tests("assemble_parts", (const TTest *[]){parts_are_those_of_the_block, NULL});
}
