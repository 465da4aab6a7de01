/* Tasks on tiny models against single choices, with naive sums in double over the logits. */
#include "ptq/eval/tasks.h"

#include "ptq/base/file.h"
#include "ptq/base/rng_impl.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

#define VOCAB 61
#define N_TASKS 420    /* of some 60 tokens and 2 to 4 choices: more than one batch, which has 24,576 rows */

/* Letters a to z are ids 0 to 25, the space 26. */
static calm_tokenizer *open_tokenizer(void)
{
    const char *path = test_format("%s/tokenizer.json", test_directory()), *vocab = "\"\xc4\xa0\":26";
    calm_tokenizer *tokenizer;
    for (int i = 0; i < 26; i++)
        vocab = test_format("%s,\"%c\":%d", vocab, 'a' + i, i);
    const char *json = test_format(
        "{\"version\":\"1.0\",\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\","
        "\"add_prefix_space\":false,\"use_regex\":false},\"post_processor\":null,\"decoder\":null,"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{%s},\"merges\":[]}}", vocab);
    ck_ok(calm_write_file(ctx, path, json, strlen(json)));
    ck_ok(calm_tokenizer_open(ctx, path, &tokenizer));
    return tokenizer;
}

static calm_model *open_tiny(uint64_t seed, size_t hidden)
{
    tiny_model spec = tiny_default;
    calm_model *model;
    spec.seed = seed;
    spec.hidden = hidden;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    return model;
}

/* Appends `n` random letters. */
static void letters(calm_text *out, uint64_t seed, uint64_t stream, size_t n)
{
    for (size_t i = 0; i < n; i++)
        calm_text_printf(out, "%c", (char)('a' + calm_rng_u64(seed, stream, i) % 26));
}

static const char *write_tasks(size_t n)
{
    const char *path = test_format("%s/tasks.jsonl", test_directory());
    calm_text text;
    calm_text_init(&text);
    for (size_t t = 0; t < n; t++) {
        const size_t n_choices = 2 + t % 3;
        calm_text_printf(&text, "{\"context\": \"");
        letters(&text, 1, t, t % 7 ? 10 + t % 90 : 0);
        calm_text_printf(&text, "\", \"choices\": [");
        for (size_t c = 0; c < n_choices; c++) {
            calm_text_printf(&text, "%s\" ", c ? ", " : "");
            letters(&text, 2 + c, t, (t % 3 ? 6 : 1) + (t + 5 * c) % (t % 3 ? 2 : 12));
            calm_text_printf(&text, "\"");
        }
        calm_text_printf(&text, "], \"answer\": %zu}\n", t % n_choices);
    }
    ck_ok(calm_text_check(ctx, &text));
    ck_ok(calm_write_file(ctx, path, text.data, text.length));
    calm_text_clear(&text);
    return path;
}

/* ---- the naive evaluation ---- */

static double naive_log_prob(const calm_model *model, const calm_task_choice *choice)
{
    const calm_arena_mark mark = calm_arena_save(ctx->out);
    size_t begin[2] = {0, choice->n};
    const calm_windows windows = {.ids = choice->ids, .begin = begin, .n = 1, .longest = choice->n};
    calm_rope rope;
    calm_head head;
    calm_batch batch;
    float *logits;
    double sum = 0;
    ck_ok(calm_rope_init(ctx, calm_model_config(model), choice->n, &rope));
    ck_ok(calm_model_load_head(ctx, model, &head));
    ck_ok(calm_batch_forward(ctx, model, &rope, &head, &windows, 0, 1, NULL, NULL, ctx->out, &batch));
    const size_t first = choice->n - choice->own;    /* predicted by the row before */
    const float *before = batch.hidden.data + (first - 1) * head.hidden;
    ck_ok(CALM_NEW(ctx, ctx->out, logits, choice->own * VOCAB));
    ck_ok(calm_head_tile_logits(ctx, &head, before, choice->own, 0, head.vocab, logits, head.vocab));
    for (size_t t = 0; t < choice->own; t++) {
        double total = 0;
        for (size_t v = 0; v < VOCAB; v++)
            total += exp((double)logits[t * VOCAB + v]);
        sum += (double)logits[t * VOCAB + choice->ids[first + t]] - log(total);
    }
    calm_arena_rewind(ctx->out, mark);
    return sum;
}

/* Returns the log-probabilities of all choices, in the order of the file. */
static double *naive(const char *path, const calm_tokenizer *tokenizer, const calm_task_options *options,
                     const calm_model *model, size_t n_choices)
{
    calm_task_reader reader;
    double *out;
    size_t at = 0;
    ck_ok(CALM_NEW(ctx, ctx->out, out, n_choices));
    ck_ok(calm_task_reader_open(ctx, tokenizer, path, options, &reader));
    for (;;) {
        calm_task task;
        bool found;
        ck_ok(calm_task_reader_next(ctx, &reader, &task, &found));
        if (!found)
            break;
        for (size_t c = 0; c < task.n; c++)
            out[at++] = naive_log_prob(model, &task.choices[c]);
    }
    ck_assert_uint_eq(at, n_choices);
    calm_task_reader_close(&reader);
    return out;
}

/* The error of a token as test_evaluate.c derives it; a choice has at most 13 tokens.  Hidden states and logits come
 * from products with other rows, whose last bits may differ: 32 products of values below 4, another 1e-5. */
#define TOLERANCE (13 * 2e-5)

static void check_answers(const calm_tasks_result *tasks, const calm_task_answers *found, const double *expected)
{
    double right = 0, right_norm = 0;
    for (size_t t = 0; t < tasks->n; t++) {
        const size_t begin = tasks->begin[t], end = tasks->begin[t + 1];
        size_t best = begin, best_norm = begin;
        for (size_t c = begin; c < end; c++) {
            ck_near(found->log_prob[c], expected[c], TOLERANCE);
            best = found->log_prob[c] > found->log_prob[best] ? c : best;
            if (found->log_prob[c] / (double)tasks->length[c]
                > found->log_prob[best_norm] / (double)tasks->length[best_norm])
                best_norm = c;
        }
        ck_assert_uint_eq(found->choice[t], best - begin);
        ck_assert_uint_eq(found->choice_norm[t], best_norm - begin);
        right += best - begin == tasks->answer[t];
        right_norm += best_norm - begin == tasks->answer[t];
    }
    const double n = (double)tasks->n, acc = right / n, acc_norm = right_norm / n;
    ck_near(found->acc, acc, 1e-15);
    ck_near(found->acc_norm, acc_norm, 1e-15);
    /* The standard deviation of this many ones and zeros, by n - 1, over the root of n. */
    ck_near(found->acc_se, sqrt((right * (1 - acc) * (1 - acc) + (n - right) * acc * acc) / (n - 1) / n), 1e-12);
    ck_near(found->acc_norm_se,
            sqrt((right_norm * (1 - acc_norm) * (1 - acc_norm) + (n - right_norm) * acc_norm * acc_norm) / (n - 1) / n),
            1e-12);
}

static const calm_task_options options = {.max_length = 64, .vocab = VOCAB, .prefix = 60};

TEST(equals_one_choice_at_a_time)
{
    calm_tokenizer *tokenizer = open_tokenizer();
    calm_model *a = open_tiny(1, 32), *b = open_tiny(2, 48);
    const calm_subject reference = {.model = a}, subject = {.model = b};
    const char *path = write_tasks(N_TASKS);
    calm_tasks_result result;
    ck_ok(calm_tasks_evaluate(ctx, path, tokenizer, &options, &reference, &subject, NULL, NULL, &result));
    ck_assert_uint_eq(result.n, N_TASKS);
    ck_assert_uint_eq(result.n_choices, N_TASKS * 3);    /* 2, 3 and 4 in turn */
    ck_assert_uint_eq(result.longest, 64);
    check_answers(&result, &result.model, naive(path, tokenizer, &options, b, result.n_choices));
    check_answers(&result, &result.reference, naive(path, tokenizer, &options, a, result.n_choices));
    double same = 0, same_norm = 0;
    for (size_t t = 0; t < N_TASKS; t++) {
        ck_assert_uint_eq(result.line[t], t + 1);
        ck_assert_uint_eq(result.answer[t], t % (2 + t % 3));
        same += result.model.choice[t] == result.reference.choice[t];
        same_norm += result.model.choice_norm[t] == result.reference.choice_norm[t];
    }
    ck_near(result.same, same / N_TASKS, 1e-15);
    ck_near(result.same_norm, same_norm / N_TASKS, 1e-15);
    ck_assert(result.same > 0.1 && result.same < 0.9 && result.same_norm < 0.9
              && result.model.acc != result.model.acc_norm);
    ck_assert_uint_eq(result.length[0], 1 + 1);    /* a space and a letter */
    calm_model_close(a);
    calm_model_close(b);
    calm_tokenizer_close(tokenizer);
}
END_OF_TEST

/* The last event. */
typedef struct heard {
    size_t last, total;
    bool rising;
} heard;

static void hear(void *user, size_t done, size_t total)
{
    heard *h = user;
    h->rising = h->rising && done >= h->last;
    h->last = done;
    h->total = total;
}

TEST(same_bytes_for_every_number_of_threads)
{
    calm_tokenizer *tokenizer = open_tokenizer();
    calm_model *model = open_tiny(1, 32);
    const calm_subject subject = {.model = model};
    const char *path = write_tasks(N_TASKS);
    calm_tasks_result first, other;
    heard h = {.rising = true};
    ctx->n_threads = 1;
    ck_ok(calm_tasks_evaluate(ctx, path, tokenizer, &options, NULL, &subject, NULL, NULL, &first));
    ctx->n_threads = 4;
    ck_ok(calm_tasks_evaluate(ctx, path, tokenizer, &options, &subject, &subject, hear, &h, &other));
    ck_assert(memcmp(first.model.log_prob, other.model.log_prob, first.n_choices * sizeof(double)) == 0);
    ck_assert(memcmp(first.model.log_prob, other.reference.log_prob, first.n_choices * sizeof(double)) == 0);
    ck_assert(isnan(first.same) && isnan(first.same_norm) && !first.reference.log_prob);
    ck_assert(other.same == 1 && other.same_norm == 1 && other.model.acc == first.model.acc);
    ck_assert(h.rising && h.last == h.total && h.total == 2 * first.n_choices);
    calm_model_close(model);
    calm_tokenizer_close(tokenizer);
}
END_OF_TEST

TEST(equal_choices_and_a_single_task)
{
    static const char text[] = "{\"context\": \"abc\", \"choices\": [\"de\", \"de\"], \"answer\": 1}\n";
    const char *path = test_format("%s/one.jsonl", test_directory());
    calm_tokenizer *tokenizer = open_tokenizer();
    calm_model *model = open_tiny(1, 32);
    const calm_subject subject = {.model = model};
    calm_tasks_result result;
    ck_ok(calm_write_file(ctx, path, text, sizeof text - 1));
    ck_ok(calm_tasks_evaluate(ctx, path, tokenizer, &options, NULL, &subject, NULL, NULL, &result));
    ck_near(result.model.log_prob[0], result.model.log_prob[1], TOLERANCE);
    ck_assert(result.n == 1 && result.tokens == 4 && result.longest == 4);
    ck_assert(result.model.acc == (double)result.model.choice[0] && isnan(result.model.acc_se) &&
              isnan(result.model.acc_norm_se));
    calm_model_close(model);
    calm_tokenizer_close(tokenizer);
}
END_OF_TEST

static calm_status break_norm(void *user, calm_ctx *task, size_t index, calm_block *block)
{
    static float broken[32];
    (void)user, (void)task, (void)index;
    for (size_t i = 0; i < 32; i++)
        broken[i] = INFINITY;
    block->norm[CALM_SUBLAYER_ATTENTION][CALM_NORM_IN].w = broken;
    return CALM_OK;
}

TEST(failures)
{
    calm_tokenizer *tokenizer = open_tokenizer();
    calm_model *model = open_tiny(1, 32), *wider;
    tiny_model spec = tiny_default;
    const calm_subject subject = {.model = model}, broken = {.model = model, .override = break_norm};
    const char *path = write_tasks(3), *late = test_format("%s/late.jsonl", test_directory());
    static const char text[] = "{\"context\": \"abc\", \"choices\": [\"de\"], \"answer\": 0}\n{\"context\": 1}\n";
    calm_tasks_result result;
    heard h = {.rising = true};
    ck_fails(calm_tasks_evaluate(ctx, path, tokenizer, &options, NULL, &broken, NULL, NULL, &result), CALM_ENUMERIC,
             "a logit is not finite");
    ck_ok(calm_write_file(ctx, late, text, sizeof text - 1));
    ck_fails(calm_tasks_evaluate(ctx, late, tokenizer, &options, NULL, &subject, hear, &h, &result), CALM_EFORMAT,
             "late.jsonl: line 2");
    ck_assert_uint_eq(h.total, 0);    /* found before the work began */
    ck_fails(calm_tasks_evaluate(ctx, "/nowhere", tokenizer, &options, NULL, &subject, NULL, NULL, &result),
             CALM_ENOTFOUND, "/nowhere");
    spec.vocab = 70;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &wider));
    const calm_subject reference = {.model = wider};
    ck_fails(calm_tasks_evaluate(ctx, path, tokenizer, &options, &reference, &subject, NULL, NULL, &result), CALM_EARG,
             "has a vocabulary of 61");
    calm_model_close(wider);
    spec = tiny_of("bert");
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &wider));
    const calm_subject encoder = {.model = wider};
    ck_fails(calm_tasks_evaluate(ctx, path, tokenizer, &options, NULL, &encoder, NULL, NULL, &result), CALM_EARG,
             "is an encoder");
    calm_model_close(wider);
    calm_model_close(model);
    calm_tokenizer_close(tokenizer);
}
END_OF_TEST

int main(void)
{
    return run_tests("tasks", (const TTest *[]){equals_one_choice_at_a_time, same_bytes_for_every_number_of_threads,
                                                equal_choices_and_a_single_task, failures, NULL});
}
