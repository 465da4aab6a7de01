/* Importance matrices: both forms of file have the same means, for each expert; faults are reported with the entry. */
#include "ptq/io/imatrix.h"

#include <stdio.h>

#include "ptq/base/file.h"
#include "ptq/io/gguf_write.h"
#include "tests/support/harness.h"

#define Q "blk.0.attn_q.weight"
#define UP "blk.0.ffn_up_exps.weight"

/* A matrix of 4 inputs that saw 2 tokens, and 3 experts of 2 inputs, the second without tokens. */
static const float q_sums[] = {2, 0, 1, 8}, up_sums[] = {3, 6, 0, 0, 5, 10};
static const float q_count[] = {2}, up_counts[] = {3, 0, 5};
static const double q_means[] = {1, 0, 0.5, 4};

/* ---- files ---- */

typedef struct part {
    const char *name;
    size_t dims[2];
    const float *values;
} part;

static const char *write_gguf(const char *type, const part *parts, size_t n)
{
    const char *path = test_format("%s/x.gguf", test_directory());
    calm_gguf_tensor tensors[8];
    calm_gguf_keys keys;
    calm_gguf_writer writer;
    for (size_t i = 0; i < n; i++)
        tensors[i] = (calm_gguf_tensor){.name = parts[i].name, .type = CALM_GGML_F32, .n_dims = 2,
                                        .dims = {parts[i].dims[0], parts[i].dims[1]}};
    calm_gguf_keys_init(&keys);
    calm_gguf_add_string(&keys, "general.type", type);
    ck_ok(calm_gguf_begin(ctx, &writer, path, &keys, tensors, n));
    for (size_t i = 0; i < n; i++)
        ck_ok(calm_gguf_put(ctx, &writer, parts[i].values, parts[i].dims[0] * parts[i].dims[1] * sizeof(float)));
    ck_ok(calm_gguf_end(ctx, &writer));
    calm_gguf_keys_clear(&keys);
    return path;
}

static const part whole[] = {{Q ".counts", {1, 1}, q_count}, {Q ".in_sum2", {4, 1}, q_sums},
                             {UP ".counts", {1, 3}, up_counts}, {UP ".in_sum2", {2, 3}, up_sums}};

/* A .dat file, assembled value by value. */
typedef struct bytes {
    uint8_t at[512];
    size_t n;
} bytes;

static void put(bytes *to, const void *from, size_t n)
{
    memcpy(to->at + to->n, from, n);
    to->n += n;
}

static void put_int(bytes *to, int32_t value)
{
    put(to, &value, sizeof value);
}

static void put_entry(bytes *to, const char *name, int32_t calls, const float *values, size_t n)
{
    put_int(to, (int32_t)strlen(name));
    put(to, name, strlen(name));
    put_int(to, calls);
    put_int(to, (int32_t)n);
    put(to, values, n * sizeof *values);
}

static const char *write_dat(const bytes *from)
{
    const char *path = test_format("%s/x.dat", test_directory());
    ck_ok(calm_write_file(ctx, path, from->at, from->n));
    return path;
}

/* The same means in the old form: means times the number of calls, here 3. */
static bytes old_form(void)
{
    static const float q[] = {3, 0, 1.5f, 12}, up[] = {3, 6, 0, 0, 3, 6};
    bytes out = {.n = 0};
    put_int(&out, 2);
    put_entry(&out, UP, 3, up, 6);
    put_entry(&out, Q, 3, q, 4);
    return out;
}

/* ---- what they mean ---- */

static void check_means(const calm_imatrix *file, bool counted)
{
    static const double up[3][2] = {{1, 2}, {0, 0}, {1, 2}};
    double means[4];
    bool seen;
    ck_assert_uint_eq(calm_imatrix_count(file), 2);
    ck_assert_str_eq(calm_imatrix_at(file, 0)->name, Q);
    ck_assert_ptr_null(calm_imatrix_find(file, "blk.1.attn_q.weight"));
    ck_ok(calm_imatrix_means(ctx, file, calm_imatrix_find(file, Q), 0, 1, 4, means, &seen));
    ck_assert(seen && memcmp(means, q_means, sizeof means) == 0);
    for (size_t e = 0; e < 3; e++) {
        ck_ok(calm_imatrix_means(ctx, file, calm_imatrix_find(file, UP), e, 3, 2, means, &seen));
        ck_assert_int_eq(seen, e != 1);
        ck_assert(!seen || memcmp(means, up[e], sizeof up[e]) == 0);
    }
    ck_fails(calm_imatrix_means(ctx, file, calm_imatrix_find(file, Q), 0, 1, 5, means, &seen), CALM_EFORMAT,
             Q ": expected values of 1 x 5 inputs, found 4 values");
    if (counted)    /* an old file has no number of experts */
        ck_fails(calm_imatrix_means(ctx, file, calm_imatrix_find(file, UP), 0, 2, 3, means, &seen), CALM_EFORMAT,
                 UP ": expected values of 2 x 3 inputs, found 6 values and 3 counts");
}

TEST(both_forms)
{
    bytes old = old_form();
    calm_imatrix *file;
    ck_ok(calm_imatrix_open(ctx, write_gguf("imatrix", whole, 4), &file));
    check_means(file, true);
    calm_imatrix_close(file);
    ck_ok(calm_imatrix_open(ctx, write_dat(&old), &file));
    check_means(file, false);
    calm_imatrix_close(file);
    put_int(&old, 7);    /* as later files end */
    put_int(&old, 5);
    put(&old, "a.txt", 5);
    ck_ok(calm_imatrix_open(ctx, write_dat(&old), &file));
    check_means(file, false);
    calm_imatrix_close(file);
}
END_OF_TEST

static void refused(const char *path, const char *text)
{
    calm_imatrix *file;
    ck_fails(calm_imatrix_open(ctx, path, &file), CALM_EFORMAT, text);
    ck_assert_ptr_null(file);
}

TEST(gguf_that_is_wrong)
{
    static const float bad[] = {1, -1, NAN, 1}, three[] = {1, 2, 3};
    const part negative[] = {whole[0], {Q ".in_sum2", {4, 1}, bad}};
    const part uneven[] = {{Q ".counts", {1, 3}, three}, whole[1]};
    const part stranger[] = {whole[0], whole[1], {"token_embd.weight", {4, 1}, q_sums}};
    refused(write_gguf("model", whole, 4), "general.type is not \"imatrix\"");
    refused(write_gguf("imatrix", whole, 0), "without entries");
    refused(write_gguf("imatrix", whole + 1, 1), "there is " Q ".in_sum2, but no " Q ".counts");
    refused(write_gguf("imatrix", negative, 2), Q ": value 1 is -1");
    refused(write_gguf("imatrix", uneven, 2), Q ": 3 counts, expected a number that divides its 4 sums");
    refused(write_gguf("imatrix", stranger, 3), "tensor token_embd.weight; expected names that end in");
}
END_OF_TEST

TEST(nothing_was_seen)
{
    static const float none[] = {0}, zeros[] = {0, 0, 0, 0};
    const part unseen[] = {{Q ".counts", {1, 1}, none}, whole[1]}, empty[] = {whole[0], {Q ".in_sum2", {4, 1}, zeros}};
    const part *const both[] = {unseen, empty};
    for (size_t i = 0; i < 2; i++) {
        calm_imatrix *file;
        double means[4];
        bool seen;
        ck_ok(calm_imatrix_open(ctx, write_gguf("imatrix", both[i], 2), &file));
        ck_fails(calm_imatrix_means(ctx, file, calm_imatrix_at(file, 0), 0, 1, 4, means, &seen), CALM_EFORMAT,
                 Q ": expected sums of tokens that were seen");
        calm_imatrix_close(file);
    }
}
END_OF_TEST

/* An old file that ends too early is refused, as is each value that is changed to an impossible one. */
TEST(dat_that_is_wrong)
{
    static const float bad[] = {1, INFINITY};
    bytes old = old_form(), twice = {.n = 0}, infinite = {.n = 0}, unsure = {.n = 0};
    for (size_t n = 0; n < old.n; n++) {
        bytes copy = old;
        copy.n = n;
        refused(write_dat(&copy), "x.dat");
    }
    put_int(&twice, 2);
    put_entry(&twice, Q, 1, q_sums, 4);
    put_entry(&twice, Q, 1, q_sums, 4);
    refused(write_dat(&twice), Q " is there twice");
    put_int(&infinite, 1);
    put_entry(&infinite, Q, 1, bad, 2);
    refused(write_dat(&infinite), Q ": value 1 is inf");
    put_int(&unsure, 1);
    put_entry(&unsure, Q, 0, q_sums, 4);
    refused(write_dat(&unsure), Q ": the number of its calls is 0, expected a positive number");
}
END_OF_TEST

int main(void)
{
    return run_tests("imatrix", (const TTest *[]){both_forms, gguf_that_is_wrong, nothing_was_seen, dat_that_is_wrong,
                                                  NULL});
}
