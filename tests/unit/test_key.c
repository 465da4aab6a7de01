/* Content keys: everything that a candidate depends on is in its key, and nothing else. */
#include "ptq/plan/key.h"

#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

/* What a candidate depends on. */
typedef struct facts {
    const char *calibration, *weights, *chain, *scheme;
    calm_job_ref job;
    calm_key_expert expert;
} facts;

static const facts base = {
    .calibration = "c",
    .weights = "w",
    .chain = "absmax@1+nearest@1",
    .scheme = "w4a16_g32",
    .job = {.block = 3, .expert = 7, .role = "experts.7.down", .name = "model.layers.3.experts.7.down"},
    .expert = {128, "absmax@1+nearest@1"}};

static const char *key_of(const facts *f)
{
    char key[CALM_SHA256_HEX];
    calm_scheme scheme;
    ck_ok(calm_scheme_parse(ctx, f->scheme, &scheme));
    ck_ok(calm_key_candidate(ctx, f->calibration, &f->job, f->weights, f->chain, &scheme, &f->expert, key));
    return test_format("%s", key);
}

TEST(candidates_differ_by_what_they_depend_on)
{
    facts changed[9];
    for (size_t i = 0; i < 9; i++)
        changed[i] = base;
    changed[1].calibration = "d";
    changed[2].weights = "x";
    changed[3].chain = "absmax@1+nearest@2";
    changed[4].scheme = "w4a16_g32_f16s";
    changed[5].job.block = 4;
    changed[6].job.role = "experts.8.down";
    changed[7].expert.least_tokens = 129;
    changed[8].expert.fallback = "absmax@2+nearest@1";    /* another revision of the fallback */
    for (size_t i = 0; i < 9; i++)
        for (size_t j = 0; j < i; j++)
            ck_assert_msg(strcmp(key_of(&changed[i]), key_of(&changed[j])) != 0, "%zu and %zu have one key", i, j);
}
END_OF_TEST

/* Only experts have a fallback, and names are not in the key. */
TEST(what_is_not_in_the_key)
{
    facts dense = base, other;
    dense.job.expert = CALM_NO_EXPERT;
    other = dense;
    other.expert = (calm_key_expert){1, "other"};
    other.job.name = "another name";
    ck_assert_str_eq(key_of(&dense), key_of(&other));
    other.job.expert = dense.job.expert = CALM_SHARED_EXPERT;
    ck_assert_str_eq(key_of(&dense), key_of(&other));
}
END_OF_TEST

/* One bit of a tensor, or of config.json, makes another model; its path does not. */
TEST(models)
{
    tiny_model spec = tiny_default;
    char keys[4][CALM_SHA256_HEX], weights[4][CALM_SHA256_HEX];
    for (size_t i = 0; i < 4; i++) {
        calm_model *model;
        spec.seed = i == 2 ? 2 : 1;
        spec.extra = i == 3 ? "\"pad_token_id\": 0" : NULL;
        ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
        ck_ok(calm_key_model(ctx, model, keys[i]));
        ck_ok(calm_key_weights(ctx, model, &calm_model_layout(model)->jobs[1], weights[i]));
        calm_model_close(model);
    }
    ck_assert_str_eq(keys[0], keys[1]);
    ck_assert_str_ne(keys[0], keys[2]);
    ck_assert_str_ne(keys[0], keys[3]);
    ck_assert_str_eq(weights[0], weights[1]);
    ck_assert_str_ne(weights[0], weights[2]);
    ck_assert_str_eq(weights[0], weights[3]);
}
END_OF_TEST

/* The key of a learned block has everything that it was learned from; keys of its jobs have their role too. */
TEST(learned_blocks)
{
    static const struct {
        const char *calibration, *learner, *prefix;
        size_t block;
        const char *starts[2];
    } cases[] = {{"c", "learn@1", "float", 0, {"a", "b"}}, {"d", "learn@1", "float", 0, {"a", "b"}},
                 {"c", "learn@2", "float", 0, {"a", "b"}}, {"c", "learn@1", "other", 0, {"a", "b"}},
                 {"c", "learn@1", "float", 1, {"a", "b"}}, {"c", "learn@1", "float", 0, {"a", "c"}},
                 {"c", "learn@1", "float", 0, {"b", "a"}}};
    enum { N = sizeof cases / sizeof *cases };
    char keys[N][CALM_SHA256_HEX], again[CALM_SHA256_HEX], job[2][CALM_SHA256_HEX];
    for (size_t i = 0; i < N; i++) {
        ck_ok(calm_key_learned(ctx, cases[i].calibration, cases[i].learner, cases[i].prefix, cases[i].block,
                               cases[i].starts, 2, keys[i]));
        for (size_t k = 0; k < i; k++)
            ck_assert_str_ne(keys[i], keys[k]);
    }
    ck_ok(calm_key_learned(ctx, "c", "learn@1", "float", 0, cases[0].starts, 2, again));
    ck_assert_str_eq(again, keys[0]);
    ck_ok(calm_key_learned_job(ctx, keys[0], &(calm_job_ref){.role = "qkv"}, job[0]));
    ck_ok(calm_key_learned_job(ctx, keys[0], &(calm_job_ref){.role = "o"}, job[1]));
    ck_assert_str_ne(job[0], job[1]);
    ck_ok(calm_key_learned_job(ctx, keys[1], &(calm_job_ref){.role = "qkv"}, job[1]));
    ck_assert_str_ne(job[0], job[1]);
}
END_OF_TEST

int main(void)
{
    return run_tests("key", (const TTest *[]){candidates_differ_by_what_they_depend_on, what_is_not_in_the_key, models,
                                              learned_blocks, NULL});
}
