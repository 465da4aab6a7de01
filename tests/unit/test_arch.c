/* The registry of architectures, and the tables of roles, jobs and hooks. */
#include "ptq/arch/arch.h"

#include "tests/support/harness.h"

/* The class decides; model_type is used only if no class is named. */
TEST(finding)
{
    ck_assert_str_eq(calm_arch_find("BertForMaskedLM", NULL)->name, "bert");
    ck_assert_str_eq(calm_arch_find("LlamaForCausalLM", "qwen3")->name, "llama");
    ck_assert_str_eq(calm_arch_find(NULL, "gemma3_text")->name, "gemma3");
    ck_assert_ptr_null(calm_arch_find("OtherForCausalLM", "llama"));
    ck_assert_ptr_null(calm_arch_find(NULL, "gemma3"));    /* that of the multimodal model */
    ck_assert_ptr_null(calm_arch_find(NULL, NULL));
    ck_assert_ptr_null(calm_arch_find("Llama", NULL));
}
END_OF_TEST

/* Classes without a language model's head, which transformers has for every family. */
TEST(headless)
{
    static const char *const classes[][2] = {
        {"OlmoeModel", "olmoe"}, {"Glm4MoeModel", "glm4_moe"}, {"Glm4MoeLiteModel", "glm4_moe_lite"},
        {"MiniMaxM2Model", "minimax_m2"}, {"PhimoeForSequenceClassification", "phimoe"},
        {"Ernie4_5_MoeModel", "ernie4_5_moe"}, {"Gemma3nTextModel", "gemma3n"}, {"Gemma4TextModel", "gemma4"},
        {"Gemma3TextForSequenceClassification", "embeddinggemma"}, {"BertForTokenClassification", "bert"},
        {"BertForQuestionAnswering", "bert"}, {"Qwen3_5TextModel", "qwen3_5"}, {"Qwen3VLTextModel", "qwen3"},
        {"Qwen3Model", "qwen3"}};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        const calm_arch *arch = calm_arch_find(classes[i][0], NULL);
        ck_assert_msg(arch != NULL, "%s", classes[i][0]);
        ck_assert_str_eq(arch->name, classes[i][1]);
    }
}
END_OF_TEST

/* Every family has one kind of input and output, and norms that its modules have. */
TEST(descriptors)
{
    size_t n;
    const calm_arch *const *all = calm_architectures(&n);
    ck_assert_uint_ge(n, 11);
    for (size_t i = 0; i < n; i++) {
        const calm_names *names = all[i]->names;
        const bool fused_qkv = names->role[CALM_ROLE_FUSED_QKV], fused_mlp = names->role[CALM_ROLE_FUSED_GATE_UP];
        for (size_t k = 0; k < i; k++)
            ck_assert_str_ne(all[i]->name, all[k]->name);
        ck_assert(names->blocks && names->embed && (names->head || all[i]->encoder) &&
                  names->role[CALM_ROLE_O] && names->role[CALM_ROLE_DOWN]);
        for (calm_role role = CALM_ROLE_Q; role <= CALM_ROLE_V; role++)
            ck_assert(!names->role[role] == (fused_qkv || all[i]->latent));
        ck_assert(!names->role[CALM_ROLE_UP] == fused_mlp && !(names->role[CALM_ROLE_GATE] && fused_mlp));
        const bool plain = all[i]->qk_norm == CALM_QK_NORM_HEAD || all[i]->qk_norm == CALM_QK_NORM_WHOLE;
        ck_assert(!names->plain[CALM_PLAIN_Q_NORM] != plain &&
                  !names->plain[CALM_PLAIN_Q_NORM] == !names->plain[CALM_PLAIN_K_NORM]);
        for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
            ck_assert(names->norm[s][CALM_NORM_IN] || names->norm[s][CALM_NORM_OUT] ||
                      names->norm[s][CALM_NORM_RESIDUAL] || (all[i]->parallel && s == CALM_SUBLAYER_MLP));
        /* Encoders have a table of positions or rotary embeddings; decoders have rotary embeddings, or none with
         * Mamba-2. */
        const calm_ends *ends = all[i]->ends;
        ck_assert((ends && ends->positions) == (all[i]->encoder && all[i]->default_rope_theta == 0));
        ck_assert(names->final_norm || (ends && ends->norm));
        ck_assert(all[i]->encoder || (!ends && names->final_norm));
    }
}
END_OF_TEST

TEST(roles_jobs_and_hooks)
{
    ck_assert(calm_role_job(CALM_ROLE_K) == CALM_JOB_QKV && calm_role_job(CALM_ROLE_FUSED_GATE_UP) == CALM_JOB_GATE_UP);
    ck_assert_str_eq(calm_job_name(CALM_JOB_GATE_UP), "gate_up");
    ck_assert(calm_job_sublayer(CALM_JOB_O) == CALM_SUBLAYER_ATTENTION &&
              calm_job_sublayer(CALM_JOB_DOWN) == CALM_SUBLAYER_MLP);
    ck_assert(calm_job_input(CALM_JOB_QKV) == CALM_HOOK_QKV_IN && calm_job_input(CALM_JOB_DOWN) == CALM_HOOK_DOWN_IN);
    ck_assert_str_eq(calm_hook_name(CALM_HOOK_O_IN), "o_in");
    ck_assert_str_eq(calm_sublayer_name(CALM_SUBLAYER_MLP), "mlp");
}
END_OF_TEST

int main(void)
{
    return run_tests("arch", (const TTest *[]){finding, headless, descriptors, roles_jobs_and_hooks, NULL});
}
