/* Memory of a run: knobs that change no result, limits that are refused before any work, estimates that hold. */
#include <stdio.h>

#include "ptq/estimate/estimate_impl.h"
#include "tests/support/run_rooms.h"
#include "ptq/base/memory.h"
#include "tests/support/play.h"

#ifdef CALM_SANITIZED
#define KNOB_STEP 13    /* sets each knob both ways */
#define REDZONES ((size_t)1024 * 1024)    /* arenas pad thousands of small allocations by 64 bytes */
#else
#define REDZONES ((size_t)0)
#define KNOB_STEP 11    /* all take minutes; use 1 after a change of the knobs */
#endif

static const fault none = {0};

static const calm_knobs everything_at_once = {.candidates_at_once = 2, .experts_at_once = 16};

/* Makes a run of a model whose widths are multiples of the group of 16; experts with too few tokens use rtn. */
static play new_play_of(const tiny_model *from, const char *scheme, const char *algorithms)
{
    tiny_model spec = *from;
    spec.expert_inner = (spec.expert_inner + 15) / 16 * 16;
    spec.shared_inner = (spec.shared_inner + 15) / 16 * 16;
    play run = play_new(&spec, scheme, algorithms);
    run.recipe.least_tokens = 50;
    run.recipe.guard_windows = 0;
    run.recipe.eval_path = NULL;
    return run;
}

static play new_play(const tiny_model *from, const char *algorithms)
{
    return new_play_of(from, "w4a16_g16", algorithms);
}

/* ---- knobs ---- */

/* Returns all results that a store has, sorted. */
static const char *results(const play *run)
{
    const char *candidates =
        play_text(run, "SELECT k.key || ' ' || j.name || ' ' || a.name || ' ' || coalesce(k.blob, k.failure) || ' ' ||"
                       " coalesce(printf('%.17g', k.damp), '') || ' ' || coalesce(k.score_rows, 0) FROM candidate k"
                       " JOIN job j ON j.id = k.job_id JOIN algorithm a ON a.id = k.algorithm_id ORDER BY k.key");
    const char *scores = play_text(run,
                                   "SELECT k.key || ' ' || s.metric || ' ' || printf('%.17g', s.value)"
                                   " FROM score s JOIN candidate k ON k.id = s.candidate_id ORDER BY k.key, s.metric");
    const char *choices =
        play_text(run, "SELECT c.unit || ' ' || k.key || ' ' || c.reason FROM choice c JOIN candidate k"
                       " ON k.id = c.candidate_id ORDER BY c.unit");
    const char *activations = play_text(
        run, "SELECT x.hook || ' ' || x.count || ' ' || printf('%.17g %.17g %.17g', x.mean, x.std, x.mean_abs)"
             " || ' ' || coalesce((SELECT group_concat(printf('%.17g', p.value), ' ') FROM activation_peak p"
             " WHERE p.activation_id = x.id), '') FROM activation x ORDER BY x.hook");
    ck_assert(candidates[0] && scores[0] && choices[0] && activations[0]);
    return test_format("%s%s%s%s", candidates, scores, choices, activations);
}

static void check_same(const play *first, const calm_knobs *knobs, const char *expected, const char *stored)
{
    play run = play_elsewhere(first, "other");
    run.recipe.knobs = knobs;
    const outcome said = play_must_run(&run);
    const char *name = test_format("%s: spill %d, slices %d, job by job %d, %zu candidates, %zu experts, groups %zu",
                                   run.recipe.model.dir, knobs->spill, knobs->slices, knobs->job_by_job,
                                   knobs->candidates_at_once, knobs->experts_at_once, knobs->group_bytes);
    ck_assert_mem_eq(&said.memory.knobs, knobs, sizeof *knobs);
    ck_assert_uint_eq(said.cached, 0);
    ck_assert_msg(strcmp(play_digest(run.recipe.output), expected) == 0, "%s: other bytes", name);
    ck_assert_msg(strcmp(results(&run), stored) == 0, "%s: other results in the store", name);
    ck_assert_int_eq(system(test_format("rm -rf '%s' '%s' '%s.blobs'", run.recipe.output, run.recipe.store,
                                        run.recipe.store)), 0);
}

/* Checks combinations of the knobs.  A group of 6000 bytes is one window of most jobs of these models. */
static void check_knobs(const char *family)
{
    const bool mixture = strstr(family, "moe") != NULL;
    const tiny_model spec = tiny_of(family);
    play first = new_play(&spec, "rtn,gptq");
    first.recipe.knobs = &everything_at_once;
    play_must_run(&first);
    const char *expected = play_digest(first.recipe.output), *stored = results(&first);
    for (int choice = 0; choice < (mixture ? 64 : 32); choice += KNOB_STEP) {
        calm_knobs knobs;
        memset(&knobs, 0, sizeof knobs);    /* padding too */
        knobs.spill = choice & 1;
        knobs.slices = choice & 2;
        knobs.job_by_job = choice & 4;
        knobs.candidates_at_once = choice & 8 ? 1 : 2;
        knobs.group_bytes = choice & 16 ? 6000 : 0;
        knobs.experts_at_once = choice & 32 ? 1 : 3;
        check_same(&first, &knobs, expected, stored);
    }
}

TEST(knobs_change_nothing_in_a_dense_model)
{
    check_knobs("qwen3");
}
END_OF_TEST

TEST(knobs_change_nothing_in_a_mixture)
{
    check_knobs("qwen2_moe");
}
END_OF_TEST

TEST(knobs_change_nothing_in_an_encoder)
{
    check_knobs("bert");
}
END_OF_TEST

/* ---- limits ---- */

/* Returns the limit that a refusal names, in units of 10 MB. */
static size_t named_limit(const outcome *said)
{
    const char *at = strstr(said->message, "the smallest limit it fits in is `memory` ");
    double gigabytes = 0;
    ck_assert_msg(said->status == CALM_ENOMEM && at, "%s: %s", calm_status_name(said->status), said->message);
    ck_assert_int_eq(sscanf(at, "the smallest limit it fits in is `memory` %lfGB", &gigabytes), 1);
    return (size_t)(gigabytes * 100 + 0.5);
}

static void check_limits(const char *family)
{
    tiny_model spec = tiny_of(family);
    spec.hidden = 256;
    spec.head_dim = 64;
    spec.inner = 512;
    play run = new_play(&spec, "rtn,gptq");
    run.recipe.memory = "10MB";
    const outcome refused = play_run(&run, none);
    const size_t smallest = named_limit(&refused);
    ck_assert_ptr_nonnull(strstr(refused.message, "does not fit in 0.010 GB"));
    ck_assert_uint_gt(smallest, 2);
    ck_assert_str_eq(play_list(&run, "out"), "");
    ck_assert_str_eq(play_list(&run, "calm"), "");
    ck_assert_int_eq(refused.calls, 0);    /* nothing was written anywhere */
    /* The limit is rounded up by at most 12 MB, so 20 MB less are too little. */
    run.recipe.memory = test_format("%zuMB", smallest * 10 - 20);
    const outcome less = play_run(&run, none);
    ck_assert_uint_le(named_limit(&less), smallest + 1);
    ck_assert_str_eq(play_list(&run, "out"), "");
    run.recipe.memory = test_format("%.2fGB", (double)smallest / 100);
    const outcome said = play_must_run(&run);
    ck_assert_uint_le(said.memory.peak, smallest * 10000000);
    const char *expected = play_digest(run.recipe.output);
    /* With plenty of memory the result is the same. */
    play wide = play_elsewhere(&run, "wide");
    wide.recipe.memory = "1000GB";
    const outcome easy = play_must_run(&wide);
    ck_assert_str_eq(play_digest(wide.recipe.output), expected);
    ck_assert_uint_ge(easy.memory.peak - easy.memory.base, said.memory.peak - said.memory.base);
    ck_assert(!easy.memory.knobs.spill && !easy.memory.knobs.slices && !easy.memory.knobs.job_by_job);
#ifndef CALM_SANITIZED    /* shadow memory is resident too */
    ck_assert_msg(said.resident <= smallest * 10000000, "%s: %zu MB resident of %zu", family, said.resident / 1000000,
                  smallest * 10);
#endif
}

TEST(too_small_a_limit_is_refused_before_any_work)
{
    check_limits("qwen3");
    check_limits("qwen3_moe");
    check_limits("bert");
}
END_OF_TEST

/* ---- estimates ---- */

/* Returns the estimate of a run whose base is 0. */
static calm_memory_plan estimate(const play *run, size_t n_threads, const calm_knobs *knobs)
{
    calm_run *p;
    calm_memory_plan out = {.base = 0};
    play open = *run;
    open.recipe.knobs = knobs;
    ck_ok(calm_run_open(ctx, &open.recipe, &p));
    calm_memory_plan_estimate(p, n_threads, knobs, &out);
    calm_run_close(&p);
    return out;
}

/* Checks that no stage of `less` needs more than that of `more` and, if `strictly`, that some stage needs less.
 * With slices the quantize stage still holds the references of the slice before, so it may need more. */
static void check_order(const char *what, const calm_memory_plan *less, const calm_memory_plan *more, bool strictly)
{
    const size_t a[] = {less->quantize, less->capture, less->score, less->evaluate, less->assemble, less->peak};
    const size_t b[] = {more->quantize, more->capture, more->score, more->evaluate, more->assemble, more->peak};
    const bool slices = strcmp(what, "slices") == 0;
    bool some = false;
    for (size_t i = slices; i < sizeof a / sizeof *a - slices; i++) {
        /* The reserve grows with the peak, which may be in a stage that is not compared. */
        const size_t x = a[i] - less->kept, y = b[i] - more->kept;
        ck_assert_msg(x <= y, "%s, stage %zu: %zu > %zu", what, i, x, y);
        some |= a[i] < b[i];
    }
    ck_assert_msg(some || !strictly, "%s makes no difference", what);
}

static play shaped(const char *family)
{
    tiny_model spec = tiny_of(family);
    spec.hidden = 128;
    spec.inner = 256;
    play run = new_play(&spec, "rtn,gptq");
    run.recipe.calib_windows = 12;    /* more than 2 threads process at once */
    return run;
}

static void check_growth(const char *family)
{
    const play run = shaped(family);
    const calm_memory_plan now = estimate(&run, 2, &everything_at_once);
    play more = run;
    more.recipe.calib_windows *= 2;
    const calm_memory_plan samples = estimate(&more, 2, &everything_at_once);
    check_order("samples", &now, &samples, true);
    more = run;
    more.recipe.seqlen *= 2;
    const calm_memory_plan seqlen = estimate(&more, 2, &everything_at_once);
    check_order("seqlen", &now, &seqlen, true);
    more = run;
    more.recipe.score_windows *= 2;
    const calm_memory_plan scored = estimate(&more, 2, &everything_at_once);
    check_order("score windows", &now, &scored, true);
    more = run;
    play_pool(&more, NULL, "rtn,gptq,smoothquant");
    const calm_memory_plan pool = estimate(&more, 2, &everything_at_once);
    check_order("algorithms", &now, &pool, true);
    play_pool(&more, NULL, "rtn");
    const calm_memory_plan rtn = estimate(&more, 2, &everything_at_once);
    check_order("without Gram matrices", &rtn, &now, true);
    const calm_memory_plan threads = estimate(&run, 3, &everything_at_once);
    check_order("threads", &now, &threads, true);
    more = run;
    more.recipe.guard_windows = 3;
    const calm_memory_plan guard = estimate(&more, 2, &everything_at_once);
    check_order("guard", &now, &guard, true);
    more = run;
    more.recipe.first_block = more.recipe.last_block = 1;
    const calm_memory_plan block = estimate(&more, 2, &everything_at_once);
    check_order("one block", &block, &now, false);
}

TEST(estimates_grow_with_the_work)
{
    check_growth("qwen3");
    check_growth("qwen2_moe");
    check_growth("gemma2");
}
END_OF_TEST

/* The peak is that of the largest stage; each thread adds the same; learning counts only the rows that it reads. */
TEST(estimates_add_up)
{
    play run = shaped("qwen3");
    run.recipe.learn = CALM_LEARN_BLOCKS;
    ck_ok(calm_learner_parse(ctx, "learn(steps=50)", &run.recipe.learner));
    calm_memory_plan all[4];
    for (size_t n = 1; n < 4; n++) {
        const calm_memory_plan *plan = &all[n];
        all[n] = estimate(&run, n, &everything_at_once);
        const size_t stages[] = {plan->capture, plan->quantize, plan->score, plan->learn, plan->evaluate,
                                 plan->assemble};
        size_t most = 0;
        for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
            ck_assert_uint_gt(stages[i], plan->program + plan->kept);
            most = calm_size_max(most, stages[i]);
        }
        ck_assert_uint_eq(plan->peak, most);
    }
    ck_assert_uint_eq(all[3].program - all[2].program, all[2].program - all[1].program);
    ck_assert_uint_gt(all[2].program, all[1].program);
    run.recipe.score_windows++;
    const calm_memory_plan held = estimate(&run, 1, &everything_at_once);
    ck_assert_uint_lt(held.learn - held.kept, all[1].learn - all[1].kept);
}
END_OF_TEST

/* Each knob alone lowers the estimate, and no combination raises it.  Waves of experts save memory in mixtures only;
 * there experts need the most, whose jobs are processed together and not in groups. */
static void check_savings(const char *family)
{
    const bool mixture = strstr(family, "moe") != NULL;
    const play run = shaped(family);
    static const char *const names[] = {"spill", "slices", "job by job", "small groups", "experts", "candidates"};
    calm_memory_plan all[64];
    for (int i = 0; i < 64; i++) {
        const calm_knobs knobs = {.spill = i & 1, .slices = i & 2, .job_by_job = i & 4, .group_bytes = i & 8 ? 6000 : 0,
                                  .experts_at_once = i & 16 ? 1 : 5, .candidates_at_once = i & 32 ? 1 : 2};
        all[i] = estimate(&run, 2, &knobs);
        ck_assert_int_eq(all[i].spill_bytes > 0, knobs.spill);
    }
    for (int i = 0; i < 64; i++)
        for (int k = 0; k < 6; k++)
            if (i & 1 << k)
                check_order(names[k], &all[i], &all[i & ~(1 << k)],
                            (i == 1 << k) && (mixture ? k != 2 && k != 3 : k != 4));
}

TEST(knobs_need_no_more)
{
    check_savings("qwen3");
    check_savings("qwen2_moe");
}
END_OF_TEST

/* ---- estimates against the memory of arenas ---- */

/* Checks the first `n` of capture, quantize, score, assemble and evaluate: arenas may hold the estimate less the
 * base and the allowance for libraries. */
static void check_stages(const outcome *said, const char *name, size_t n)
{
    const calm_memory_plan *plan = &said->memory;
    const size_t base = plan->base - (plan->reserved - plan->kept - plan->program);
    const struct {
        const char *stage;
        size_t held, expected;
    } stages[] = {{"capture", said->held.capture, plan->capture},    {"quantize", said->held.quantize, plan->quantize},
                  {"score", said->held.score, plan->score},          {"assemble", said->held.assemble, plan->assemble},
                  {"evaluate", said->held.evaluate, plan->evaluate}};
    for (size_t i = 0; i < n; i++) {
        const size_t held = stages[i].held, expected = stages[i].expected - plan->reserved + REDZONES;
        ck_assert_msg(held <= expected, "%s: arenas held %zu KiB in %s, expected at most %zu", name,
                      (held - base) / 1024, stages[i].stage, (expected - base) / 1024);
    }
}

/* Makes the run with these knobs and an empty store. */
static outcome run_afresh(const play *first, const calm_knobs *knobs)
{
    play run = play_elsewhere(first, "other");
    run.recipe.knobs = knobs;
    run.recipe.memory = "1000GB";
    run.recipe.force = true;
    const outcome said = play_must_run(&run);
    ck_assert_int_eq(system(test_format("rm -rf '%s' '%s' '%s.blobs'", run.recipe.output, run.recipe.store,
                                        run.recipe.store)), 0);
    return said;
}

static void check_estimate(const play *first, const char *name, const calm_knobs *knobs)
{
    const bool evaluates = first->recipe.guard_windows || first->recipe.eval_path;
    const outcome said = run_afresh(first, knobs);
    check_stages(&said, name, evaluates ? 5 : 4);
}

/* Checks the estimate with all savings, and with everything at once and a guard. */
static void check_shape(play *run, const char *name)
{
    static const calm_knobs sparing = {.spill = true, .slices = true, .job_by_job = true, .candidates_at_once = 1,
                                       .experts_at_once = 1, .group_bytes = 100000};
    check_estimate(run, test_format("%s, sparing", name), &sparing);
    run->recipe.guard_windows = 3;
    run->recipe.eval_path = run->recipe.calib_path;
    check_estimate(run, name, &everything_at_once);
}

static void check_estimates(const tiny_model *spec, const char *algorithms, const char *name)
{
    play run = new_play(spec, algorithms);
    check_shape(&run, test_format("%s %s", spec->family, name));
}

TEST(estimates_hold_for_every_family)
{
    for (size_t f = 0; tiny_families[f]; f++) {
        const tiny_model spec = tiny_of(tiny_families[f]);
        check_estimates(&spec, "rtn,gptq,smoothquant", "tiny");
    }
}
END_OF_TEST

/* Rows that carry the keys and values of two blocks are several times as wide as hidden states. */
TEST(estimates_hold_for_shared_keys)
{
    static const char *const families[] = {"gemma3n", "gemma4"};
    for (size_t f = 0; f < 2; f++) {
        tiny_model spec = tiny_of(families[f]);
        spec.n_blocks = 4;
        check_estimates(&spec, "rtn,gptq,smoothquant", "shared");
    }
}
END_OF_TEST

/* Models in which weights need most of the memory. */
TEST(estimates_hold_for_wide_models)
{
#ifdef CALM_SANITIZED    /* a minute each */
    static const char *const families[] = {"qwen2_moe"};
#else
    static const char *const families[] = {"qwen3", "qwen2_moe", "phi3", "gemma2", "bert"};
#endif
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        tiny_model spec = tiny_of(families[f]);
        spec.hidden = 256;
        spec.inner = 1024;
        spec.head_dim = 256 / spec.n_heads;
        spec.expert_inner = 384;
        spec.shared_inner = 512;
        check_estimates(&spec, "rtn,gptq,smoothquant", "wide");
    }
}
END_OF_TEST

TEST(estimates_hold_for_many_windows)
{
    static const char *const families[] = {"qwen3", "qwen3_moe", "bert"};
    static const long long shapes[][3] = {{48, 4, 2}, {3, 200, 3}, {24, 16, 24}};    /* windows, tokens, scored */
    for (size_t f = 0; f < sizeof families / sizeof *families; f++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            if (s == (f + 1) % 3)    /* each family has two of the shapes, each shape two of the families */
                continue;
            tiny_model spec = tiny_of(families[f]);
            spec.hidden = 128;
            spec.head_dim = 32;
            spec.inner = 256;
            spec.expert_inner = 64;
            play run = new_play(&spec, "rtn,gptq,mkq-full");
            run.recipe.calib_windows = shapes[s][0];
            run.recipe.seqlen = shapes[s][1];
            run.recipe.score_windows = shapes[s][2];
            check_shape(&run, test_format("%s %lld x %lld", families[f], shapes[s][0], shapes[s][1]));
        }
}
END_OF_TEST

/* Fits to quantized inputs keep rows and hold several square matrices, and bias corrections keep rows; only capture
 * and quantize are compared, since later stages do not hold these. */
TEST(estimates_hold_for_kept_rows)
{
    static const char *const families[] = {"qwen3", "qwen3_moe", "bert", "qwen2"};
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        tiny_model spec = tiny_of(families[f]);
        spec.hidden = 64;
        spec.head_dim = 16;
        spec.inner = 96;
        spec.expert_inner = 32;
        play run = new_play_of(&spec, "w4a4_g16", f < 2 ? "actfit,smoothquant-actfit,awq" : "rtn,mkq-full");
        run.recipe.calib_windows = 24;
        run.recipe.seqlen = 60;
        const outcome said = run_afresh(&run, &everything_at_once);
        check_stages(&said, families[f], 2);
    }
}
END_OF_TEST

/* Runs with scores of units, a quantized prefix, probes under a budget, and several formats. */
static void check_chains(const char *family, const char *name, const char *scheme, const char *algorithms,
                         void (*change)(calm_recipe *recipe))
{
    tiny_model spec = tiny_of(family);
    spec.hidden = 256;
    spec.head_dim = 64;
    spec.inner = 512;
    spec.expert_inner = spec.shared_inner = 128;
    play run = new_play_of(&spec, scheme, algorithms);
    run.recipe.calib_windows = 6;
    run.recipe.score_windows = 4;
    change(&run.recipe);
    const outcome said = run_afresh(&run, &everything_at_once);
    check_stages(&said, test_format("%s, %s", family, name), 5);
}

static void check_recipe(const char *family, const char *name, const char *scheme, void (*change)(calm_recipe *recipe))
{
    check_chains(family, name, scheme, "rtn,gptq,smoothquant", change);
}

static void of_units(calm_recipe *recipe)
{
    recipe->score_points = (1u << CALM_N_POINTS) - 1;
}

static void of_prefix(calm_recipe *recipe)
{
    recipe->prefix = CALM_PREFIX_QUANTIZED;
}

static void of_lockstep(calm_recipe *recipe)
{
    recipe->prefix = CALM_PREFIX_ASYMMETRIC;
}

static void of_bits(calm_recipe *recipe)
{
    static double bits = 3.5;
    recipe->budgets = &bits;
    recipe->n_budgets = 1;
}

static void of_gradients(calm_recipe *recipe)
{
    of_bits(recipe);
    recipe->sensitivity = CALM_SENSITIVITY_GRADIENT;
}

static void of_weights(calm_recipe *recipe)
{
    recipe->weight = CALM_WEIGHT_GRADIENT;
}

static void of_bf16(calm_recipe *recipe)
{
    recipe->operands = CALM_OPERANDS_BF16;
}

static void of_two_bf16(calm_recipe *recipe)
{
    recipe->operands = CALM_OPERANDS_BF16X2;
}

static void of_formats(calm_recipe *recipe)
{
    const char *names[] = {"gptq", "mlx", "gguf", "imatrix"};
    const calm_words words = {names, sizeof names / sizeof *names};
    ck_ok(calm_formats_parse(ctx, &words, &recipe->formats));
}

/* rtn reads no calibration rows: the estimate does not grow with the calibration, and holds. */
TEST(estimates_know_that_nothing_is_read)
{
    tiny_model spec = tiny_of("qwen3");
    play run = new_play(&spec, "rtn");
    const calm_memory_plan scored = estimate(&run, 2, &everything_at_once);
    run.recipe.score_windows = 0;
    const calm_memory_plan few = estimate(&run, 2, &everything_at_once);
    ck_assert(few.capture < scored.capture && few.score < scored.score);
    run.recipe.calib_windows = 12;
    const calm_memory_plan many = estimate(&run, 2, &everything_at_once);
    ck_assert_uint_eq(many.capture, few.capture);
    ck_assert_uint_eq(many.quantize, few.quantize);
    const outcome said = run_afresh(&run, &everything_at_once);
    check_stages(&said, "rtn alone", 4);
}
END_OF_TEST

TEST(estimates_hold_for_other_recipes)
{
    /* Each recipe with one of the families, and with both if experts have their own estimate of it. */
    check_recipe("qwen3", "units", "w4a16_g32", of_units);
    check_recipe("qwen2_moe", "units", "w4a16_g32", of_units);
    check_recipe("qwen2_moe", "prefix", "w4a16_g32", of_prefix);
    check_recipe("qwen3", "lockstep", "w4a16_g32", of_lockstep);    /* mixtures have none */
    check_recipe("qwen3", "bits", "w4a16_g32,w3a16_g32", of_bits);
    check_recipe("qwen2_moe", "gradients", "w4a16_g32,w3a16_g32", of_gradients);
    check_recipe("qwen3", "weights", "w4a16_g32", of_weights);
    check_recipe("qwen2_moe", "bf16", "w4a16_g32", of_bf16);
    check_recipe("qwen3", "bf16x2", "w4a16_g32", of_two_bf16);
    check_chains("qwen3", "bf16x2 in refits", "w4a16_g32", "rtn,mkq-full", of_two_bf16);
    check_recipe("qwen2_moe", "formats", "w4a16_g32", of_formats);
}
END_OF_TEST

/* Every job is probed, and a plan has a row per job: the memory of probes must not grow with the square of jobs. */
TEST(probes_of_many_experts)
{
    tiny_model spec = tiny_of("qwen3_moe");
    spec.n_blocks = 1;
    spec.n_experts = 128;
    play run = new_play_of(&spec, "w4a16_g32,w3a16_g32", "rtn");
    run.recipe.calib_windows = 6;
    run.recipe.probe_windows = 1;
    of_bits(&run.recipe);
    const outcome said = run_afresh(&run, &everything_at_once);
    /* Jobs: q, k, v; o; gate, up and down of each expert.  The plans of all probes would take the square. */
    const size_t n_jobs = 2 + 2 * spec.n_experts, plans = n_jobs * n_jobs * sizeof(calm_plan_job);
    const size_t base = said.memory.base - (said.memory.reserved - said.memory.kept - said.memory.program);
    ck_assert_msg(said.held.evaluate - base < plans, "%zu probes held %zu KiB, all their plans would take %zu", n_jobs,
                  (said.held.evaluate - base) / 1024, plans / 1024);
}
END_OF_TEST

int main(void)
{
    return run_tests("run_memory", (const TTest *[]){
        knobs_change_nothing_in_a_dense_model, knobs_change_nothing_in_a_mixture, knobs_change_nothing_in_an_encoder,
        too_small_a_limit_is_refused_before_any_work, estimates_grow_with_the_work, estimates_add_up,
        knobs_need_no_more,
        estimates_hold_for_shared_keys, estimates_hold_for_every_family,
        estimates_hold_for_wide_models, estimates_hold_for_many_windows, estimates_hold_for_kept_rows,
        estimates_know_that_nothing_is_read,
        estimates_hold_for_other_recipes, probes_of_many_experts, NULL});
}
