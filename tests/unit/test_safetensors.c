/* safetensors: what is written is read back, shards make one set, full disks are reported.  The broken files are in
 * tests/data/mangled (test_mangled.c). */
#include "ptq/io/safetensors.h"

#include <stdio.h>
#include <unistd.h>

#include "ptq/base/sha256.h"
#include "tests/support/harness.h"

#define N_TENSORS 5

/* Tensors of every sort: empty, scalar, one and three dimensions; names out of order. */
static const calm_tensor samples[N_TENSORS] = {
    {.name = "z.weight", .dtype = CALM_F32, .n_dims = 2, .shape = {2, 3}},
    {.name = "a.scalar", .dtype = CALM_F16, .n_dims = 0},
    {.name = "m.cube", .dtype = CALM_U8, .n_dims = 3, .shape = {2, 1, 5}},
    {.name = "m.none", .dtype = CALM_BF16, .n_dims = 2, .shape = {0, 7}},
    {.name = "\xc3\xbc.long", .dtype = CALM_I64, .n_dims = 1, .shape = {3}},
};

static const uint8_t bytes[48] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20};

static size_t bytes_of(const calm_tensor *tensor)
{
    size_t n, size;
    ck_assert(calm_tensor_size(tensor, &n, &size));
    return size;
}

static void write_file(const char *path, const calm_tensor *tensors, size_t n, const void *data)
{
    calm_safetensors_writer writer;
    ck_ok(calm_safetensors_begin(ctx, &writer, path, tensors, n));
    for (size_t i = 0; i < n; i++)
        ck_ok(calm_safetensors_put(ctx, &writer, data, bytes_of(&tensors[i])));
    ck_ok(calm_safetensors_end(ctx, &writer));
}

TEST(round_trip)
{
    const char *path = test_format("%s/x.safetensors", test_directory());
    calm_safetensors *set;
    write_file(path, samples, N_TENSORS, bytes);
    ck_ok(calm_safetensors_open(ctx, path, &set));
    ck_assert_uint_eq(calm_safetensors_count(set), N_TENSORS);
    for (size_t i = 0; i + 1 < N_TENSORS; i++)
        ck_assert_int_lt(strcmp(calm_safetensors_at(set, i)->name, calm_safetensors_at(set, i + 1)->name), 0);
    for (size_t i = 0; i < N_TENSORS; i++) {
        const calm_tensor *found = calm_safetensors_find(set, samples[i].name);
        ck_assert_ptr_nonnull(found);
        ck_assert_int_eq(found->dtype, samples[i].dtype);
        ck_assert_int_eq(found->n_dims, samples[i].n_dims);
        ck_assert(memcmp(found->shape, samples[i].shape, (size_t)found->n_dims * sizeof *found->shape) == 0);
        ck_assert_uint_eq(found->bytes, bytes_of(&samples[i]));
        ck_assert(memcmp(found->data, bytes, found->bytes) == 0);
        ck_assert_str_eq(found->file, path);
        calm_safetensors_release(set, found);
        ck_assert(memcmp(found->data, bytes, found->bytes) == 0);
    }
    ck_assert_ptr_null(calm_safetensors_find(set, "z.weigh"));
    calm_safetensors_close(set);
    char *text;
    size_t n;
    ck_ok(calm_read_file(ctx, path, 1 << 20, &text, &n));
    ck_assert_ptr_eq(strstr(text + 8, "{\"__metadata__\":{\"format\":\"pt\"},"), text + 8);
}
END_OF_TEST

/* A digest is over a tensor's bytes alone, whatever threads make it, and stays. */
TEST(digests)
{
    const char *path = test_format("%s/x.safetensors", test_directory());
    write_file(path, samples, N_TENSORS, bytes);
    for (int threads = 1; threads <= 3; threads++) {
        calm_safetensors *set;
        ctx->n_threads = threads;
        ck_ok(calm_safetensors_open(ctx, path, &set));
        ck_ok(calm_safetensors_hash(ctx, set));
        for (size_t i = 0; i < N_TENSORS; i++) {
            const calm_tensor *tensor = calm_safetensors_find(set, samples[i].name);
            char expected[CALM_SHA256_HEX];
            const char *digest = calm_safetensors_digest(set, tensor);
            ck_ok(calm_sha256_bytes(ctx, bytes, bytes_of(&samples[i]), expected));
            ck_assert_str_eq(digest, expected);
            ck_ok(calm_safetensors_hash(ctx, set));
            ck_assert_ptr_eq(calm_safetensors_digest(set, tensor), digest);
        }
        calm_safetensors_close(set);
    }
}
END_OF_TEST

/* Bytes of this process that are in memory and belong to files. */
static size_t resident(void)
{
    size_t total, all, shared;
    FILE *file = fopen("/proc/self/statm", "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%zu %zu %zu", &total, &all, &shared), 3);
    fclose(file);
    return shared * (size_t)sysconf(_SC_PAGESIZE);
}

/* 32 MB of tensor read in 34 odd pieces, each given back before the next: what stays is what the system maps around a
 * page that is touched, at most 64 KB before each piece, 2 MB in all; and the counter lags by some hundred pages. */
TEST(parts_are_released)
{
    const calm_tensor tensor = {.name = "x", .dtype = CALM_U8, .n_dims = 1, .shape = {(size_t)32 << 20}};
    const char *path = test_format("%s/x.safetensors", test_directory());
    const size_t piece = 1000003, few = (size_t)4 << 20;
    uint8_t *data;
    calm_safetensors *set;
    ck_ok(CALM_NEW(ctx, ctx->out, data, tensor.shape[0]));
    for (size_t i = 0; i < tensor.shape[0]; i++)
        data[i] = (uint8_t)(i * 31 >> 7);
    write_file(path, &tensor, 1, data);
    ck_ok(calm_safetensors_open(ctx, path, &set));
    const calm_tensor *found = calm_safetensors_find(set, "x");
    const size_t before = resident();
    for (size_t at = 0; at < found->bytes; at += piece) {
        const size_t n = found->bytes - at < piece ? found->bytes - at : piece;
        ck_assert(memcmp(found->data + at, data + at, n) == 0);
        calm_safetensors_release_part(set, found, at, n);
        ck_assert_uint_lt(resident(), before + few);
    }
    ck_assert(memcmp(found->data, data, found->bytes) == 0);    /* read again */
    ck_assert_uint_gt(resident(), before + found->bytes - few);
    calm_safetensors_release(set, found);
    ck_assert_uint_lt(resident(), before + few);
    calm_safetensors_close(set);
}
END_OF_TEST

TEST(data_is_aligned_and_files_are_the_same_bytes)
{
    const char *first = test_format("%s/x", test_directory()), *second = test_format("%s/y", test_directory());
    char *a, *b;
    size_t n_a, n_b;
    write_file(first, samples, N_TENSORS, bytes);
    write_file(second, samples, N_TENSORS, bytes);
    ck_ok(calm_read_file(ctx, first, 1 << 16, &a, &n_a));
    ck_ok(calm_read_file(ctx, second, 1 << 16, &b, &n_b));
    ck_assert(n_a == n_b && memcmp(a, b, n_a) == 0);
    ck_assert_int_eq(a[8], '{');
    ck_assert_uint_eq(((unsigned char)a[0] | (unsigned)(unsigned char)a[1] << 8) % 8, 0);
}
END_OF_TEST

TEST(a_tensor_put_in_pieces)
{
    const char *whole = test_format("%s/x", test_directory()), *pieces = test_format("%s/y", test_directory());
    calm_safetensors_writer writer;
    char *a, *b;
    size_t n_a, n_b;
    write_file(whole, samples, N_TENSORS, bytes);
    ck_ok(calm_safetensors_begin(ctx, &writer, pieces, samples, N_TENSORS));
    for (size_t i = 0; i < N_TENSORS; i++)
        for (size_t done = 0, step; done < bytes_of(&samples[i]) || done == 0; done += step) {
            step = bytes_of(&samples[i]) - done < 5 ? bytes_of(&samples[i]) - done : 5;
            ck_ok(calm_safetensors_put(ctx, &writer, bytes + done, step));
            if (step == 0)
                break;
        }
    ck_ok(calm_safetensors_end(ctx, &writer));
    ck_ok(calm_read_file(ctx, whole, 1 << 16, &a, &n_a));
    ck_ok(calm_read_file(ctx, pieces, 1 << 16, &b, &n_b));
    ck_assert(n_a == n_b && memcmp(a, b, n_a) == 0);
}
END_OF_TEST

TEST(an_empty_file_of_tensors)
{
    const char *path = test_format("%s/x", test_directory());
    calm_safetensors *set;
    write_file(path, NULL, 0, NULL);
    ck_ok(calm_safetensors_open(ctx, path, &set));
    ck_assert_uint_eq(calm_safetensors_count(set), 0);
    ck_assert_ptr_null(calm_safetensors_find(set, "a"));
    calm_safetensors_close(set);
}
END_OF_TEST

TEST(shards_make_one_set)
{
    static const char index[] = "{\"metadata\": {}, \"weight_map\": {\"z.weight\": \"b.safetensors\", \"a.scalar\": "
                                "\"a.safetensors\", \"m.cube\": \"b.safetensors\"}}";
    const char *dir = test_directory();
    calm_safetensors *set;
    write_file(test_format("%s/b.safetensors", dir), (const calm_tensor[]){samples[0], samples[2]}, 2, bytes);
    write_file(test_format("%s/a.safetensors", dir), &samples[1], 1, bytes);
    ck_ok(calm_write_file(ctx, test_format("%s/model.safetensors.index.json", dir), index, sizeof index - 1));
    ck_ok(calm_safetensors_open(ctx, dir, &set));
    ck_assert_uint_eq(calm_safetensors_count(set), 3);
    ck_assert_str_eq(calm_safetensors_at(set, 0)->name, "a.scalar");
    ck_assert_str_eq(calm_safetensors_at(set, 2)->name, "z.weight");
    ck_assert_uint_eq(calm_safetensors_at(set, 0)->shard, 0);
    ck_assert_uint_eq(calm_safetensors_at(set, 2)->shard, 1);
    ck_assert_str_eq(calm_safetensors_at(set, 2)->file, test_format("%s/b.safetensors", dir));
    calm_safetensors_close(set);
}
END_OF_TEST

static void keep_line(void *user, calm_log_level level, const char *line)
{
    char *said = user;
    ck_assert_int_eq(level, CALM_LOG_WARNING);
    snprintf(said + strlen(said), 1000 - strlen(said), "%s\n", line);
}

/* Put x-1 (z.weight, a.scalar), x-2 (z.weight, m.cube) and this index into a folder and open it; notes: `said`. */
static calm_safetensors *open_indexed(const char *dir, const char *index, char said[1000])
{
    calm_safetensors *set;
    write_file(test_format("%s/x-1", dir), samples, 2, bytes);
    write_file(test_format("%s/x-2", dir), (const calm_tensor[]){samples[0], samples[2]}, 2, bytes + 8);
    ck_ok(calm_write_file(ctx, test_format("%s/model.safetensors.index.json", dir), index, strlen(index)));
    ck_ok(calm_safetensors_open(ctx, dir, &set));
    said[0] = '\0';
    ctx->log = keep_line, ctx->log_user = said;
    calm_safetensors_log_index(ctx, set);
    ctx->log = NULL;
    return set;
}

TEST(of_two_copies_the_index_decides)
{
    static const struct {
        const char *index;
        size_t shard;
        const char *said;
    } cases[] = {
        {"{\"weight_map\": {\"z.weight\": \"x-1\", \"a.scalar\": \"x-1\", \"m.cube\": \"x-2\"}}", 0,
         "1 tensor is in two files; calm reads z.weight from x-1, as the index says; transformers and vLLM read it "
         "from x-2"},
        {"{\"weight_map\": {\"z.weight\": \"x-2\", \"a.scalar\": \"x-1\", \"m.cube\": \"x-2\"}}", 1,
         "1 tensor is in two files; calm reads z.weight from x-2"},
        {"{\"weight_map\": {\"a.scalar\": \"x-1\", \"m.cube\": \"x-2\"}}", 1,
         "calm reads z.weight from x-2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char said[1000];
        calm_safetensors *set = open_indexed(test_directory(), cases[i].index, said);
        const calm_tensor *found = calm_safetensors_find(set, "z.weight");
        ck_assert_uint_eq(calm_safetensors_count(set), 3);
        ck_assert_uint_eq(found->shard, cases[i].shard);
        ck_assert_int_eq(found->data[0], cases[i].shard ? bytes[8] : bytes[0]);
        ck_assert_msg(strstr(said, cases[i].said), "%s", said);
        calm_safetensors_close(set);
    }
}
END_OF_TEST

TEST(what_the_index_names_and_nobody_has)
{
    const size_t shape[] = {2, 3};
    const calm_tensor *found;
    const char *dir = test_directory();
    char said[1000];
    calm_safetensors *set = open_indexed(
        dir, "{\"weight_map\": {\"z.weight\": \"x-1\", \"a.scalar\": \"x-2\", \"ghost\": \"x-2\", \"far\": \"x-3\", "
             "\"far.too\": \"x-3\", \"m.cube\": \"x-2\"}}", said);
    ck_assert_uint_eq(calm_safetensors_count(set), 3);
    ck_assert_msg(strstr(said, "2 tensors of the index (far, ...) are in x-3, ..., which is missing, and are left "
                               "out"), "%s", said);
    ck_assert_msg(strstr(said, "1 tensor of the index (ghost) is in no file and is left out"), "%s", said);
    ck_assert_msg(strstr(said, "1 tensor is in another file than the index says (a.scalar: in x-1)"), "%s", said);
    /* Who needs one of them hears where it should be. */
    ck_fails(calm_safetensors_need(ctx, set, "far", 2, shape, &found), CALM_ENOTFOUND,
             "model.safetensors.index.json says that it is in x-3, which is not there; download that file again");
    ck_fails(calm_safetensors_need(ctx, set, "ghost", 2, shape, &found), CALM_ENOTFOUND,
             "says that it is in x-2, which does not have it");
    ck_fails(calm_safetensors_need_files(ctx, set), CALM_ENOTFOUND, "x-3: no such file");
    calm_safetensors_close(set);
}
END_OF_TEST

TEST(one_file_counts_more_than_an_index_of_others)
{
    const char *dir = test_directory();
    char said[1000];
    write_file(test_format("%s/model.safetensors", dir), samples, 1, bytes);
    calm_safetensors *set = open_indexed(dir, "{\"weight_map\": {\"a.scalar\": \"x-1\"}}", said);
    ck_assert_uint_eq(calm_safetensors_count(set), 1);
    ck_assert_msg(strstr(said, "not read, as model.safetensors exists"), "%s", said);
    calm_safetensors_close(set);
    set = open_indexed(dir, "{\"weight_map\": {\"a.scalar\": \"x-1\", \"z.weight\": \"model.safetensors\"}}", said);
    ck_assert_uint_eq(calm_safetensors_count(set), 2);
    calm_safetensors_close(set);
}
END_OF_TEST

TEST(a_truncated_file_at_every_length)
{
    const char *dir = test_directory(), *path = test_format("%s/x", dir), *cut = test_format("%s/cut", dir);
    calm_safetensors *set;
    char *whole;
    size_t n;
    write_file(path, samples, N_TENSORS, bytes);
    ck_ok(calm_read_file(ctx, path, 1 << 16, &whole, &n));
    for (size_t length = 0; length < n; length++) {
        ck_ok(calm_write_file(ctx, cut, whole, length));
        ck_fails(calm_safetensors_open(ctx, cut, &set), CALM_EFORMAT, cut);
        ck_assert_ptr_null(set);
    }
}
END_OF_TEST

TEST(files_that_are_not_there)
{
    const char *dir = test_directory();
    calm_safetensors *set;
    ck_fails(calm_safetensors_open(ctx, test_format("%s/none", dir), &set), CALM_ENOTFOUND, "none");
    ck_fails(calm_safetensors_open(ctx, dir, &set), CALM_ENOTFOUND, "holds neither model.safetensors");
    ck_fails(calm_safetensors_open(ctx, "/dev/null", &set), CALM_EARG, "/dev/null");
}
END_OF_TEST

TEST(need_says_what_was_expected)
{
    const char *path = test_format("%s/x", test_directory());
    const size_t right[] = {2, 3}, wrong[] = {3, 2};
    const calm_tensor *found;
    calm_safetensors *set;
    write_file(path, samples, N_TENSORS, bytes);
    ck_ok(calm_safetensors_open(ctx, path, &set));
    ck_ok(calm_safetensors_need(ctx, set, "z.weight", 2, right, &found));
    ck_assert_str_eq(found->name, "z.weight");
    ck_fails(calm_safetensors_need(ctx, set, "z.weight", 2, wrong, &found), CALM_EFORMAT,
             "tensor z.weight: shape [2, 3], expected [3, 2]");
    ck_fails(calm_safetensors_need(ctx, set, "z.weight", 1, right, &found), CALM_EFORMAT, "shape [2, 3], expected [2]");
    ck_fails(calm_safetensors_need(ctx, set, "y.weight", 2, right, &found), CALM_ENOTFOUND,
             "tensor y.weight is missing");
    calm_safetensors_close(set);
}
END_OF_TEST

TEST(nan_is_named_by_tensor_and_index)
{
    const float bad[][6] = {{0, 1, 2, 3, NAN, 5}, {0, 1, -INFINITY, 3, NAN, 5}};
    const char *words[] = {"tensor z.weight: element 4 is nan", "tensor z.weight: element 2 is -inf"};
    const char *path = test_format("%s/x", test_directory());
    for (size_t i = 0; i < 2; i++) {
        float out[6];
        calm_safetensors *set;
        write_file(path, samples, 1, bad[i]);
        ck_ok(calm_safetensors_open(ctx, path, &set));
        ck_fails(calm_tensor_to_f32(ctx, calm_safetensors_at(set, 0), out), CALM_ENUMERIC, words[i]);
        calm_safetensors_close(set);
    }
}
END_OF_TEST

TEST(integers_are_no_floats)
{
    const char *path = test_format("%s/x", test_directory());
    float out[10];
    calm_safetensors *set;
    write_file(path, &samples[2], 1, bytes);
    ck_ok(calm_safetensors_open(ctx, path, &set));
    ck_fails(calm_tensor_to_f32(ctx, calm_safetensors_at(set, 0), out), CALM_EFORMAT,
             "dtype U8, expected F64, F32, F16 or BF16");
    calm_safetensors_close(set);
}
END_OF_TEST

TEST(full_disk)
{
    calm_safetensors_writer writer;
    const calm_tensor large = {.name = "w", .dtype = CALM_U8, .n_dims = 1, .shape = {1 << 20}};
    uint8_t *data;
    ck_ok(CALM_NEW(ctx, ctx->scratch, data, 1 << 20));
    ck_ok(calm_safetensors_begin(ctx, &writer, "/dev/full", &large, 1));
    ck_fails(calm_safetensors_put(ctx, &writer, data, 1 << 20), CALM_ENOSPC, "/dev/full");
    calm_safetensors_end(ctx, &writer);
    calm_ctx_clear_failure(ctx);
    /* What fits the stream's buffer fails when it is flushed. */
    ck_ok(calm_safetensors_begin(ctx, &writer, "/dev/full", samples, 1));
    ck_ok(calm_safetensors_put(ctx, &writer, bytes, 24));
    ck_fails(calm_safetensors_end(ctx, &writer), CALM_ENOSPC, "/dev/full");
    ck_fails(calm_safetensors_begin(ctx, &writer, test_format("%s/no/x", test_directory()), samples, 1), CALM_ENOTFOUND,
             "no/x");
}
END_OF_TEST

/* ---- leniently ---- */

/* "overlap b; ..." of all faults that were heard. */
static void note_fault(void *user, calm_shard_fault fault, const char *tensor, const char *text)
{
    static const char *const words[] = {"header", "dtype", "bounds", "overlap", "hole", "twice", "index", "missing",
                                        "place", "unlisted", "total"};
    char *said = user;
    ck_assert(text && *text);
    snprintf(said + strlen(said), 500 - strlen(said), "%s %s; ", words[fault], tensor ? tensor : "-");
}

static const char *faults_of(const char *dir, size_t n_tensors)
{
    static char said[500];
    calm_safetensors *set;
    said[0] = 0;
    ck_ok(calm_safetensors_open_leniently(ctx, dir, note_fault, said, &set));
    ck_assert_uint_eq(calm_safetensors_count(set), n_tensors);
    calm_safetensors_close(set);
    return said;
}

static const char *write_raw(const char *header, size_t n_data)
{
    const char *dir = test_directory();
    const uint64_t n = strlen(header);
    char *all = test_format("%8s%s%*s", "", header, (int)n_data, "");
    memcpy(all, &n, 8);
    ck_ok(calm_write_file(ctx, test_format("%s/model.safetensors", dir), all, 8 + n + n_data));
    return dir;
}

#define ENTRY(name, dtype, from, to)                                                                         \
    "\"" name "\": {\"dtype\": \"" dtype "\", \"shape\": [4], \"data_offsets\": [" #from ", " #to "]}"

TEST(faults_are_heard)
{
    const char *dir = write_raw("{" ENTRY("a", "U8", 0, 4) "," ENTRY("b", "U8", 2, 6) "}", 8);
    ck_assert_str_eq(faults_of(dir, 2), "overlap b; hole -; ");
    calm_safetensors *set;
    ck_fails(calm_safetensors_open(ctx, dir, &set), CALM_EFORMAT, "tensors a and b overlap");
    dir = write_raw("{" ENTRY("a", "U8", 0, 4) "," ENTRY("c", "Q9", 4, 8) "," ENTRY("d", "U8", 8, 999) ","
                    ENTRY("e", "F32", 4, 8) "}", 8);
    ck_assert_str_eq(faults_of(dir, 1), "dtype c; bounds d; bounds e; ");
    ck_assert_str_eq(faults_of(write_raw("{]", 0), 0), "header -; ");
}
END_OF_TEST

TEST(faults_of_an_index_are_heard)
{
    static const char *const index = "{\"metadata\": {\"total_size\": 7}, \"weight_map\": {\"z.weight\": \"x-1\", "
                                     "\"a.scalar\": \"x-1\", \"ghost\": \"x-2\", \"far\": \"../x\"}}";
    const char *dir = test_directory();
    write_file(test_format("%s/x-1", dir), samples, 1, bytes);
    write_file(test_format("%s/x-2", dir), samples, 2, bytes);
    ck_ok(calm_write_file(ctx, test_format("%s/model.safetensors.index.json", dir), index, strlen(index)));
    ck_assert_str_eq(faults_of(dir, 2), "index far; twice z.weight; place a.scalar; place ghost; total -; ");
    ck_ok(calm_remove_tree(ctx, test_format("%s/x-2", dir)));
    ck_assert_str_eq(faults_of(dir, 1), "index far; missing -; place a.scalar; ");
}
END_OF_TEST

TEST(no_memory_for_a_set)
{
    calm_memory account = {0};
    calm_safetensors *set;
    calm_memory_set_limit(&account, 1);
    ctx->memory = &account;
    ck_fails(calm_safetensors_open(ctx, "/dev/null", &set), CALM_ENOMEM, "would pass the limit");
    ctx->memory = NULL;
    ck_assert_ptr_null(set);
}
END_OF_TEST

TEST(sizes_that_overflow)
{
    const calm_tensor huge = {.name = "w", .dtype = CALM_F32, .n_dims = 2, .shape = {SIZE_MAX / 2, 3}};
    calm_safetensors_writer writer;
    size_t n, size;
    ck_assert(!calm_tensor_size(&huge, &n, &size));
    ck_fails(calm_safetensors_begin(ctx, &writer, test_format("%s/x", test_directory()), &huge, 1), CALM_EARG,
             "overflows");
    ck_fails((calm_fail(ctx, CALM_EARG, "kept"), calm_safetensors_end(ctx, &writer)), CALM_EARG, "kept");
}
END_OF_TEST

int main(void)
{
    return run_tests("safetensors",
                     (const TTest *[]){round_trip, digests, parts_are_released,
                                       data_is_aligned_and_files_are_the_same_bytes, a_tensor_put_in_pieces,
                                       an_empty_file_of_tensors, shards_make_one_set, of_two_copies_the_index_decides,
                                       what_the_index_names_and_nobody_has,
                                       one_file_counts_more_than_an_index_of_others,
                                       a_truncated_file_at_every_length, files_that_are_not_there,
                                       need_says_what_was_expected, nan_is_named_by_tensor_and_index,
                                       integers_are_no_floats, full_disk, faults_are_heard,
                                       faults_of_an_index_are_heard, no_memory_for_a_set, sizes_that_overflow, NULL});
}
