/* Words that name modules: full names, patterns from the start of a name, invalid patterns. */
#include "ptq/arch/module_words.h"

#include <string.h>

#include "tests/support/harness.h"

static const char *const names[] = {"model.layers.0.mlp.down_proj", "model.layers.0.self_attn.q_proj",
                                    "model.layers.10.mlp.down_proj", "lm_head"};
#define N_NAMES (sizeof names / sizeof *names)

/* Returns which names matched, as digits: "0110". */
static const char *matched_by(const char *word)
{
    static char text[N_NAMES + 1];
    bool matched[N_NAMES] = {false}, any;
    ck_ok(calm_model_module_word(ctx, word, names, N_NAMES, matched, &any));
    for (size_t i = 0; i < N_NAMES; i++)
        text[i] = matched[i] ? '1' : '0';
    ck_assert_int_eq(any, strchr(text, '1') != NULL);
    return text;
}

TEST(a_name_is_a_whole_one)
{
    ck_assert_str_eq(matched_by("lm_head"), "0001");
    ck_assert_str_eq(matched_by("model.layers.0.mlp.down_proj"), "1000");
    ck_assert_str_eq(matched_by("down_proj"), "0000");
    ck_assert_str_eq(matched_by("model.layers.0"), "0000");
}
END_OF_TEST

TEST(a_pattern_matches_from_the_start)
{
    ck_assert_str_eq(matched_by("re:.*down_proj"), "1010");
    ck_assert_str_eq(matched_by("re:down_proj"), "0000");
    ck_assert_str_eq(matched_by("re:model\\.layers\\.(0|1)\\."), "1100");
    ck_assert_str_eq(matched_by("re:lm_head$"), "0001");
    ck_assert_str_eq(matched_by("re:nothing"), "0000");
}
END_OF_TEST

TEST(words_add_up)
{
    bool matched[N_NAMES] = {false}, any;
    ck_ok(calm_model_module_word(ctx, "lm_head", names, N_NAMES, matched, &any));
    ck_ok(calm_model_module_word(ctx, "nothing", names, N_NAMES, matched, &any));
    ck_assert(!any && matched[3] && !matched[0]);
}
END_OF_TEST

TEST(what_is_no_pattern_is_a_mistake_of_the_user)
{
    bool matched[N_NAMES], any;
    ck_fails(calm_model_module_word(ctx, "re:.*(", names, N_NAMES, matched, &any), CALM_EARG, "`keep_float`");
}
END_OF_TEST

int main(void)
{
    return run_tests("module words", (const TTest *[]){a_name_is_a_whole_one, a_pattern_matches_from_the_start,
                                                       words_add_up, what_is_no_pattern_is_a_mistake_of_the_user,
                                                       NULL});
}
