/* The windows of a run: calibration, guard and evaluation windows begin as the tokenizer's template begins a text,
 * and the store separates results with and without it. */
#include <stdio.h>

#include "ptq/base/file.h"
#include "ptq/state/work.h"
#include "ptq/state/inputs.h"
#include "tests/support/play.h"

static void check_begin(const calm_windows *windows, uint32_t begin, bool begun)
{
    ck_assert_uint_gt(windows->n, 0);
    for (size_t w = 0; w < windows->n; w++)
        ck_assert((windows->ids[windows->begin[w]] == begin) == begun);
}

/* Checks the windows that a run reads for its recipe. */
static void check_inputs(const play *run, uint32_t begin, bool begun)
{
    calm_inputs in = {.recipe = &run->recipe};
    calm_windows eval;
    ck_ok(calm_model_open(ctx, run->recipe.model.dir, &in.model));
    ck_ok(calm_inputs_open_tokenizer(ctx, &in));
    ck_ok(calm_inputs_read_windows(ctx, &in));
    ck_ok(calm_run_work_read_eval(ctx, &in, &eval));
    check_begin(&in.calib, begin, begun);
    check_begin(&in.guard, begin, begun);
    check_begin(&eval, begin, begun);
    ck_assert_uint_eq(in.calib.n, (size_t)run->recipe.calib_windows);
    ck_assert_uint_eq(in.calib.longest, (size_t)run->recipe.seqlen);
    calm_inputs_close(&in);
}

TEST(calibration_guard_and_evaluation_begin_alike)
{
    play with = play_new(NULL, "w4a16_g16", "rtn,gptq");
    const uint32_t begin =
        (uint32_t)tiny_tokenizer_write(test_format("%s/tokenizer.json", with.recipe.model.dir), -1);
    with.recipe.add_special_tokens = true;
    play without = with;
    without.recipe.add_special_tokens = false;
    without.recipe.output = play_path(&with, "without");
    check_inputs(&with, begin, true);
    check_inputs(&without, begin, false);
    /* In one store neither candidates nor evaluations of one run are used for the other. */
    ck_assert_uint_eq(play_must_run(&with).cached, 0);
    const int64_t evaluations = play_sql(&with, "SELECT count(*) FROM evaluation");
    ck_assert_int_gt(evaluations, 0);
    ck_assert_uint_eq(play_must_run(&without).cached, 0);
    ck_assert_int_eq(play_sql(&with, "SELECT count(DISTINCT tokens_digest) FROM calibration"), 2);
    ck_assert_int_eq(play_sql(&with, "SELECT count(*) FROM evaluation"), 2 * evaluations);
    play again = with;
    again.recipe.output = play_path(&with, "again");
    ck_assert_uint_eq(play_must_run(&again).cached, 16);
    ck_assert_int_eq(play_sql(&with, "SELECT count(*) FROM evaluation"), 2 * evaluations);
    ck_assert_str_eq(play_digest(again.recipe.output), play_digest(with.recipe.output));
}
END_OF_TEST

/* Sentences have both ends of the template; windows of an encoder's running text have neither. */
TEST(an_encoder_s_running_text_is_text_alone)
{
    tiny_model spec = tiny_of("bert");
    play run = play_new(&spec, "w4a16_g16", "rtn");
    const uint32_t begin = (uint32_t)tiny_tokenizer_write(test_format("%s/tokenizer.json", run.recipe.model.dir), -1);
    run.recipe.add_special_tokens = true;
    run.recipe.encoder_stream = true;
    check_inputs(&run, begin, false);
}
END_OF_TEST

/* ---- held-out windows ---- */

TEST(a_quarter_is_held_out_at_most)
{
    static const struct {
        size_t n;
        long long score, probe;
        size_t held, scored, probed;
    } rows[] = {{128, 8, 16, 16, 8, 16}, {128, 20, 16, 20, 20, 16}, {64, 8, 16, 16, 8, 16}, {63, 8, 16, 15, 8, 15},
                {8, 8, 16, 2, 2, 2},     {4, 8, 16, 1, 1, 1},       {3, 8, 16, 0, 3, 3},    {1, 1, 16, 0, 1, 1},
                {128, 128, 1, 32, 32, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const calm_recipe recipe = {.score_windows = rows[i].score, .probe_windows = rows[i].probe};
        const calm_inputs in = {.recipe = &recipe, .calib.n = rows[i].n};
        ck_assert_uint_eq(calm_inputs_held_windows(&in), rows[i].held);
        ck_assert_uint_eq(calm_inputs_score_windows(&in), rows[i].scored);
        ck_assert_uint_eq(calm_inputs_probe_windows(&in), rows[i].probed);
    }
}
END_OF_TEST

/* Writes a text of 12 lines with several windows each, whose first line begins with this word. */
static void write_lines(play *run, const char *begin)
{
    char *text = test_format("%s", "");
    for (int i = 0; i < 12; i++)
        text = test_format("%s\"%s says line %d, and this many words that more than one window of 16 tokens can be cut "
                           "of it.\"\n", text, i == 0 ? begin : "So it", i);
    run->recipe.calib_path = play_path(run, test_format("%s.jsonl", begin));
    ck_ok(calm_write_file(ctx, run->recipe.calib_path, text, strlen(text)));
}

/* Returns the blobs of a run's candidates in the order of jobs. */
static const char *blobs_of(const play *run, int calibration)
{
    return play_text(run, test_format("SELECT a.name || ' ' || k.blob FROM candidate k JOIN algorithm a ON"
                                      " a.id = k.algorithm_id WHERE k.calibration_id = %d ORDER BY k.job_id, a.name",
                                      calibration));
}

/* Two texts differ in one token of the held-out windows: all candidates have the same codes, because no fit uses
 * these windows, and all scores differ, because scores use nothing else. */
static void check_held_out(const char *scheme, const char *algorithms, const tiny_model *spec)
{
    play one = play_new(spec, scheme, algorithms);
    one.recipe.calib_windows = 8;
    one.recipe.guard_windows = 2;
    one.recipe.seqlen = 16;
    one.recipe.seed = -1;
    one.recipe.least_tokens = 1;
    play other = one;
    other.recipe.output = play_path(&one, "other");
    write_lines(&one, "One");
    write_lines(&other, "Two");
    play_must_run(&one);
    ck_assert_uint_eq(play_must_run(&other).cached, 0);
    ck_assert(strcmp(blobs_of(&one, 1), blobs_of(&one, 2)) == 0);
    ck_assert_int_eq(play_sql(&one, "SELECT count(DISTINCT tokens_digest) FROM calibration"), 2);
    ck_assert_int_gt(play_sql(&one, "SELECT count(*) FROM score"), 0);
    ck_assert_int_eq(play_sql(&one, "SELECT count(*) FROM candidate k JOIN candidate l ON l.job_id = k.job_id AND"
                                    " l.algorithm_id = k.algorithm_id AND l.calibration_id = 2 JOIN score s ON"
                                    " s.candidate_id = k.id JOIN score t ON t.candidate_id = l.id AND t.unit = s.unit"
                                    " AND t.metric = s.metric WHERE k.calibration_id = 1 AND s.value = t.value AND"
                                    " s.metric <> 'cka_linear'"), 0);
}

TEST(fits_do_not_see_what_is_scored)
{
    const tiny_model mixture = tiny_of("qwen2_moe");
    check_held_out("w4a16_g16", "rtn,gptq,mkq,awq,mkq-full", NULL);
    check_held_out("w4a8_g16", "smoothquant,smoothquant-gptq", NULL);
    check_held_out("w4a16_g8", "gptq,mkq", &mixture);
}
END_OF_TEST

/* ---- several texts ---- */

/* Writes a file with every step-th of `n` lines, each of which is a window; the lines of several such files in turn
 * are the whole text. */
static const char *write_every(const play *run, const char *name, size_t first, size_t step, size_t n)
{
    char *text = test_format("%s", "");
    for (size_t i = first; i < n; i += step)
        text = test_format("%s\"%s\"\n", text, i % 2 ? "Nothing is so long." : "A line says as much as it has.");
    const char *path = play_path(run, name);
    ck_ok(calm_write_file(ctx, path, text, strlen(text)));
    return path;
}

/* Two texts have the joint statistics of one text with their lines in turn, hence the same candidates; each text
 * also has separate statistics. */
TEST(each_of_several_texts_is_described)
{
    play two = play_new(NULL, "w4a16_g16", "rtn,gptq");
    const char *second[1];
    two.recipe.calib_windows = 8;
    two.recipe.guard_windows = 2;
    two.recipe.seqlen = 16;
    two.recipe.seed = -1;
    play one = two;
    one.recipe.output = play_path(&two, "one");
    one.recipe.calib_path = write_every(&two, "both.jsonl", 0, 1, 10);
    two.recipe.calib_path = write_every(&two, "even.jsonl", 0, 2, 10);
    second[0] = write_every(&two, "odd.jsonl", 1, 2, 10);
    two.recipe.more_texts = second;
    two.recipe.n_more_texts = 1;
    play_must_run(&one);
    ck_assert_uint_eq(play_must_run(&two).cached, 0);    /* statistics of the texts are missing */
    ck_assert_str_eq(blobs_of(&two, 1), blobs_of(&two, 2));
    ck_assert_int_eq(play_sql(&two, "SELECT count(DISTINCT tokens_digest) FROM calibration"), 1);
    ck_assert_str_eq(play_text(&two, "SELECT n_windows FROM calibration ORDER BY id"), "8\n8\n4\n4\n");
    ck_assert_int_eq(play_sql(&two, "SELECT count(*) FROM (SELECT x.hook FROM activation x WHERE calibration_id > 2"
                                    " GROUP BY x.hook HAVING count(*) = 2 AND sum(x.count) = (SELECT a.count"
                                    " FROM activation a WHERE a.hook = x.hook AND a.calibration_id = 2) AND"
                                    " max(x.max_abs) = (SELECT a.max_abs FROM activation a WHERE a.hook = x.hook"
                                    " AND a.calibration_id = 2))"),
                     play_sql(&two, "SELECT count(*) FROM activation WHERE calibration_id = 1"));
    /* A repeated run finds all of it. */
    play again = two;
    again.recipe.output = play_path(&two, "again");
    ck_assert_uint_eq(play_must_run(&again).cached, 16);
    ck_assert_int_eq(play_sql(&two, "SELECT count(*) FROM calibration"), 4);
    ck_assert_str_eq(play_digest(again.recipe.output), play_digest(two.recipe.output));
}
END_OF_TEST

/* Returns the number of windows of `a` that `b` has too. */
static size_t count_shared(const calm_windows *a, const calm_windows *b)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n; i++)
        for (size_t j = 0; j < b->n; j++) {
            const size_t length = a->begin[i + 1] - a->begin[i];
            n += length == b->begin[j + 1] - b->begin[j] &&
                 memcmp(a->ids + a->begin[i], b->ids + b->begin[j], length * sizeof *a->ids) == 0;
        }
    return n;
}

/* The additional windows of an undecided guard come after the first ones, from the texts in turn, none twice.  An
 * exhausted text gives none, and a text too short for its share leaves the order of the first windows unchanged. */
TEST(a_tie_has_windows_of_its_own)
{
    play run = play_new(NULL, "w4a16_g16", "rtn,gptq");
    static const size_t lines[][3] = {{40, 4, 17}, {40, 40, 28}, {7, 6, 7}};    /* lines of two texts; windows in all */
    for (size_t i = 0; i < 3; i++) {
        const char *second[1];
        calm_inputs in = {.recipe = &run.recipe};
        char *text[2] = {"", ""};
        for (size_t t = 0; t < 2; t++)
            for (size_t line = 0; line < lines[i][t]; line++)
                text[t] = test_format("%s\"%zu of %c\"\n", text[t], line, (int)('A' + (int)t));
        run.recipe.calib_path = play_path(&run, "a.jsonl");
        second[0] = play_path(&run, "b.jsonl");
        ck_ok(calm_write_file(ctx, run.recipe.calib_path, text[0], strlen(text[0])));
        ck_ok(calm_write_file(ctx, second[0], text[1], strlen(text[1])));
        run.recipe.more_texts = second;
        run.recipe.n_more_texts = 1;
        run.recipe.calib_windows = 6;
        run.recipe.guard_windows = 7;
        run.recipe.seed = -1;
        ck_ok(calm_model_open(ctx, run.recipe.model.dir, &in.model));
        ck_ok(calm_inputs_open_tokenizer(ctx, &in));
        ck_ok(calm_inputs_read_windows(ctx, &in));
        ck_assert_uint_eq(in.guard_all.n, lines[i][2]);
        ck_assert_uint_le(in.guard.n, 7);
        ck_assert(memcmp(in.guard.ids, in.guard_all.ids, in.guard.begin[in.guard.n] * sizeof *in.guard.ids) == 0);
        ck_assert_uint_eq(count_shared(&in.guard_all, &in.guard_all), in.guard_all.n);
        ck_assert_uint_eq(count_shared(&in.guard_all, &in.calib), 0);
        calm_inputs_close(&in);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("pipeline_windows",
                     (const TTest *[]){calibration_guard_and_evaluation_begin_alike,
                                       an_encoder_s_running_text_is_text_alone, a_quarter_is_held_out_at_most,
                                       fits_do_not_see_what_is_scored,
                                       each_of_several_texts_is_described, a_tie_has_windows_of_its_own, NULL});
}
