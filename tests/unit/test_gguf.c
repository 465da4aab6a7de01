/* GGUF: written files are read back; malformed files are refused with a name; values of every type. */
#include "ptq/io/gguf_impl.h"

#include <stdio.h>

#include "ptq/base/file.h"
#include "ptq/io/ggml_blocks.h"
#include "ptq/io/gguf_write.h"
#include "ptq/tensor/dtype.h"
#include "tests/support/harness.h"

static const calm_gguf_tensor samples[] = {
    {.name = "z.weight", .type = CALM_GGML_F32, .n_dims = 2, .dims = {2, 3}},
    {.name = "a.weight", .type = CALM_GGML_Q4_0, .n_dims = 2, .dims = {64, 2}},
    {.name = "m.exps", .type = CALM_GGML_Q8_0, .n_dims = 3, .dims = {32, 2, 2}},
    {.name = "k", .type = CALM_GGML_F16, .n_dims = 1, .dims = {3}},
};
#define N_SAMPLES (sizeof samples / sizeof *samples)

/* Adds keys of all kinds that calm writes. */
static void add_keys(calm_gguf_keys *keys)
{
    calm_gguf_add_string(keys, "general.architecture", "llama");
    calm_gguf_add_u32(keys, "a.u32", 4000000000u);
    calm_gguf_add_f32(keys, "a.f32", 1e-5f);
    calm_gguf_add_bool(keys, "a.bool", true);
    calm_gguf_add_array(keys, "a.strings", CALM_GGUF_STRING, 3);
    calm_gguf_element_string(keys, "one", 3);
    calm_gguf_element_string(keys, "", 0);
    calm_gguf_element_string(keys, "t\0o", 3);
    calm_gguf_add_array(keys, "a.numbers", CALM_GGUF_I32, 2);
    calm_gguf_element_i32(keys, -7);
    calm_gguf_element_i32(keys, 8);
    calm_gguf_add_array(keys, "a.scores", CALM_GGUF_F32, 1);
    calm_gguf_element_f32(keys, -0.5f);
    calm_gguf_add_array(keys, "a.flags", CALM_GGUF_BOOL, 2);
    calm_gguf_element_bool(keys, true);
    calm_gguf_element_bool(keys, false);
    calm_gguf_add_array(keys, "a.none", CALM_GGUF_U32, 0);
}

static const char *write_sample(void)
{
    const char *path = test_format("%s/x.gguf", test_directory());
    calm_gguf_keys keys;
    calm_gguf_writer writer;
    uint8_t data[256];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i % 60);    /* no scale that is not finite */
    calm_gguf_keys_init(&keys);
    add_keys(&keys);
    ck_ok(calm_gguf_begin(ctx, &writer, path, &keys, samples, N_SAMPLES));
    for (size_t i = 0; i < N_SAMPLES; i++) {
        size_t bytes;
        ck_assert(calm_gguf_tensor_bytes(&samples[i], &bytes));
        ck_ok(calm_gguf_put(ctx, &writer, data, 1));
        ck_ok(calm_gguf_put(ctx, &writer, data + 1, bytes - 1));
    }
    ck_ok(calm_gguf_end(ctx, &writer));
    calm_gguf_keys_clear(&keys);
    return path;
}

TEST(round_trip)
{
    const char *path = write_sample();
    calm_gguf *file;
    ck_ok(calm_gguf_open(ctx, path, &file));
    ck_assert_str_eq(calm_gguf_path(file), path);
    ck_assert_uint_eq(calm_gguf_n_tensors(file), N_SAMPLES);
    ck_assert_uint_eq(calm_gguf_n_keys(file), 9);
    ck_assert_str_eq(calm_gguf_key_at(file, 1)->name, "a.u32");
    ck_assert_uint_eq(calm_gguf_spare(file), 0);
    for (size_t i = 0; i < N_SAMPLES; i++) {
        const calm_gguf_tensor *found = calm_gguf_find_tensor(file, samples[i].name);
        size_t bytes;
        ck_assert(calm_gguf_tensor_bytes(&samples[i], &bytes));
        ck_assert_ptr_eq(found, calm_gguf_tensor_at(file, i));
        ck_assert_int_eq(found->type, samples[i].type);
        ck_assert_int_eq(found->n_dims, samples[i].n_dims);
        ck_assert_uint_eq(found->bytes, bytes);
        for (size_t b = 0; b < bytes; b++)
            ck_assert_uint_eq(found->data[b], b % 60);
        calm_gguf_release_part(file, found, 0, found->bytes);
        ck_assert_uint_eq(found->data[bytes - 1], (bytes - 1) % 60);
    }
    ck_assert_ptr_null(calm_gguf_find_tensor(file, "k2"));
    ck_assert_uint_eq(calm_gguf_find_tensor(file, "m.exps")->n_elements, 4 * 32);
    calm_gguf_close(file);
}
END_OF_TEST

TEST(values)
{
    calm_gguf *file;
    int64_t whole;
    double number;
    const char *text;
    size_t at = 0, n;
    ck_ok(calm_gguf_open(ctx, write_sample(), &file));
    ck_assert(calm_gguf_is(calm_gguf_find_key(file, "general.architecture"), "llama"));
    ck_assert(!calm_gguf_is(calm_gguf_find_key(file, "general.architecture"), "llam"));
    ck_assert(!calm_gguf_is(calm_gguf_find_key(file, "a.strings"), "one"));
    ck_assert(!calm_gguf_is(NULL, "one"));
    ck_assert(calm_gguf_int(calm_gguf_find_key(file, "a.u32"), 0, &whole) && whole == 4000000000);
    ck_assert(!calm_gguf_int(calm_gguf_find_key(file, "a.u32"), 1, &whole));
    ck_assert(!calm_gguf_int(calm_gguf_find_key(file, "a.f32"), 0, &whole));
    ck_assert(calm_gguf_number(calm_gguf_find_key(file, "a.f32"), 0, &number) && number == (double)1e-5f);
    ck_assert(calm_gguf_number(calm_gguf_find_key(file, "a.numbers"), 0, &number) && number == -7);
    ck_assert(!calm_gguf_number(calm_gguf_find_key(file, "a.bool"), 0, &number));
    const calm_gguf_key *truth = calm_gguf_find_key(file, "a.bool");
    ck_assert(truth->kind == CALM_GGUF_BOOL && !truth->array && truth->n == 1 && truth->data[0] == 1);
    ck_assert(!calm_gguf_int(calm_gguf_find_key(file, "a.none"), 0, &whole));
    static const char *const words[] = {"one", "", "t\0o"};
    static const size_t lengths[] = {3, 0, 3};
    for (size_t i = 0; i < 3; i++) {
        ck_assert(calm_gguf_next_string(calm_gguf_find_key(file, "a.strings"), &at, &text, &n));
        ck_assert(n == lengths[i] && memcmp(text, words[i], n) == 0);
    }
    ck_assert(!calm_gguf_next_string(calm_gguf_find_key(file, "a.strings"), &at, &text, &n));
    at = 0;
    ck_assert(!calm_gguf_next_string(calm_gguf_find_key(file, "a.numbers"), &at, &text, &n));
    calm_gguf_close(file);
}
END_OF_TEST

/* Every type of number, as other writers store them. */
TEST(kinds_of_numbers)
{
    static const struct {
        calm_gguf_kind kind;
        const char *bytes;
        size_t n;
        int64_t whole;
    } rows[] = {
        {CALM_GGUF_U8, "\xfe", 1, 254},          {CALM_GGUF_I8, "\xfe", 1, -2},
        {CALM_GGUF_U16, "\xfe\xff", 2, 65534},   {CALM_GGUF_I16, "\xfe\xff", 2, -2},
        {CALM_GGUF_I32, "\xfe\xff\xff\xff", 4, -2},
        {CALM_GGUF_U64, "\xfe\xff\xff\xff\0\0\0\0", 8, 4294967294},
        {CALM_GGUF_I64, "\xfe\xff\xff\xff\xff\xff\xff\xff", 8, -2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const calm_gguf_key key = {"x", rows[i].kind, false, 1, (const uint8_t *)rows[i].bytes, rows[i].n};
        int64_t whole = 0;
        double number = 0;
        ck_assert(calm_gguf_int(&key, 0, &whole) && whole == rows[i].whole);
        ck_assert(calm_gguf_number(&key, 0, &number) && number == (double)rows[i].whole);
    }
    const calm_gguf_key large = {"x", CALM_GGUF_U64, false, 1, (const uint8_t *)"\0\0\0\0\0\0\0\x80", 8};
    const double half = 0.5;
    const calm_gguf_key real = {"x", CALM_GGUF_F64, false, 1, (const uint8_t *)&half, 8};
    int64_t whole;
    double number;
    ck_assert(!calm_gguf_int(&large, 0, &whole));
    ck_assert(calm_gguf_number(&real, 0, &number) && number == 0.5);
}
END_OF_TEST

/* ---- malformed files: bytes of the sample changed in one place ---- */

typedef struct file_bytes {
    uint8_t *data;
    size_t n;
} file_bytes;

static file_bytes read_bytes(const char *path)
{
    char *data;
    file_bytes out;
    ck_ok(calm_read_file(ctx, path, 1 << 20, &data, &out.n));
    out.data = (uint8_t *)data;
    return out;
}

/* Returns the place of a name in the sample, with its length. */
static size_t place_of(file_bytes in, const char *name)
{
    const uint8_t *found = memmem(in.data, in.n, name, strlen(name));
    ck_assert_ptr_nonnull(found);
    return (size_t)(found - in.data);
}

static void check_refused(file_bytes in, calm_status status, const char *words)
{
    const char *path = test_format("%s/broken.gguf", test_directory());
    calm_gguf *file;
    ck_ok(calm_write_file(ctx, path, in.data, in.n));
    ck_fails(calm_gguf_open(ctx, path, &file), status, words);
    ck_assert_ptr_null(file);
}

/* Checks the sample with n bytes at `at` replaced. */
static void check_changed(size_t at, const char *with, size_t n, calm_status status, const char *words)
{
    file_bytes in = read_bytes(write_sample());
    ck_assert_uint_le(at + n, in.n);
    memcpy(in.data + at, with, n);
    check_refused(in, status, words);
}

TEST(broken_heads)
{
    check_changed(0, "GGUG", 4, CALM_EFORMAT, "it does not begin with \"GGUF\"");
    check_changed(4, "\1\0\0\0", 4, CALM_EUNSUPPORTED, "GGUF version 1, expected 2 or 3");
    check_changed(4, "\0\0\0\3", 4, CALM_EUNSUPPORTED, "big-endian");
    check_changed(8, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, CALM_EFORMAT, "more than its");
    check_changed(16, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, CALM_EFORMAT, "more than its");
    check_changed(24, "\xff\xff\xff\xff\xff\xff\xff\x7f", 8, CALM_EFORMAT,
                  "key 0: its name takes 9223372036854775807 bytes");
    check_changed(24, "\0", 1, CALM_EFORMAT, "key 0: its name has 0 bytes, expected 1 to 65535");
    check_changed(34, "\0", 1, CALM_EFORMAT, "key 0: its name holds a zero byte");
}
END_OF_TEST

TEST(broken_keys)
{
    const file_bytes in = read_bytes(write_sample());
    const size_t strings = place_of(in, "a.strings") + 9, flags = place_of(in, "a.flags") + 7;
    const size_t numbers = place_of(in, "a.numbers") + 9, truth = place_of(in, "a.bool") + 6;
    check_changed(truth, "\15", 1, CALM_EFORMAT, "key a.bool: the type of its value is 13, expected 0 to 12");
    check_changed(truth + 4, "\2", 1, CALM_EFORMAT, "key a.bool: a bool is 2, expected 0 or 1");
    check_changed(strings + 4, "\11", 1, CALM_EUNSUPPORTED, "key a.strings: an array of arrays");
    check_changed(strings + 8, "\0\0\0\1", 4, CALM_EFORMAT, "key a.strings: 16777216 strings, more than");
    check_changed(strings + 16, "\xff\xff", 2, CALM_EFORMAT, "key a.strings: a string takes 65535 bytes");
    check_changed(numbers + 8, "\0\0\0\0\0\0\0\x40", 8, CALM_EFORMAT,
                  "key a.numbers: 4611686018427387904 values of type i32 reach past the end");
    check_changed(flags + 17, "\7", 1, CALM_EFORMAT, "key a.flags: a bool is 7");
    check_changed(place_of(in, "a.u32"), "a.f32", 5, CALM_EFORMAT, "key a.f32 is there twice");
}
END_OF_TEST

TEST(broken_tensors)
{
    const file_bytes in = read_bytes(write_sample());
    const size_t z = place_of(in, "z.weight") + 8, a = place_of(in, "a.weight") + 8, k = place_of(in, "m.exps") + 6;
    check_changed(z - 16, "\x40", 1, CALM_EFORMAT, "tensor 0: its name has 64 bytes, expected 1 to 63");
    check_changed(z, "\5", 1, CALM_EFORMAT, "tensor z.weight: 5 dimensions, expected at most 4");
    check_changed(z + 4, "\0", 1, CALM_EFORMAT, "tensor z.weight: size 0 is 0, expected 1");
    check_changed(z + 11, "\x80", 1, CALM_EFORMAT, "size 0 is 9223372036854775810, expected");
    check_changed(z + 10, "\1", 1, CALM_EFORMAT, "reach past");
    check_changed(z + 11, "\x40\3\0\0\0\0\0\0\x40", 9, CALM_EFORMAT, "the product of its sizes overflows");
    check_changed(z + 20, "\5", 1, CALM_EUNSUPPORTED, "tensor z.weight: its type is 5, which is not known");
    check_changed(z + 24, "\1", 1, CALM_EFORMAT, "tensor z.weight: offset 1, expected 0");
    check_changed(a + 4, "\x41", 1, CALM_EFORMAT,
                  "tensor a.weight: rows of 65 elements, expected a multiple of 32 for type Q4_0");
    check_changed(a + 24, "\x40", 1, CALM_EFORMAT,
                  "tensor a.weight: offset 64, expected 32: tensors lie one after the other");
    check_changed(z - 8, "a", 1, CALM_EFORMAT, "tensor a.weight is there twice");
    check_changed(z - 8, "\0", 1, CALM_EFORMAT, "tensor 0: its name holds a zero byte");
    check_changed(k + 28, "\7", 1, CALM_EFORMAT, "tensor k: offset 288, expected 224");    /* smaller in Q5_1 */
}
END_OF_TEST

/* A file that ends too early is refused, unless only the padding after the last tensor is missing. */
TEST(truncated)
{
    const file_bytes in = read_bytes(write_sample());
    calm_gguf *file;
    const char *path = test_format("%s/cut.gguf", test_directory());
    for (size_t n = 0; n < in.n - 26; n++) {
        calm_status status;
        ck_ok(calm_write_file(ctx, path, in.data, n));
        status = calm_gguf_open(ctx, path, &file);
        ck_assert_msg(status == CALM_EFORMAT, "%zu of %zu bytes: %s", n, in.n, calm_status_name(status));
        ck_assert_ptr_nonnull(strstr(ctx->message, "cut.gguf"));
        calm_ctx_clear_failure(ctx);
    }
    ck_ok(calm_write_file(ctx, path, in.data, in.n - 26));    /* three float16 end 26 bytes before the padding */
    ck_ok(calm_gguf_open(ctx, path, &file));
    calm_gguf_close(file);
    in.data[in.n] = 1;    /* calm_read_file() wrote a NUL there */
    ck_ok(calm_write_file(ctx, path, in.data, in.n + 1));
    ck_ok(calm_gguf_open(ctx, path, &file));
    ck_assert_uint_eq(calm_gguf_spare(file), 1);
    calm_gguf_close(file);
}
END_OF_TEST

/* Makes a file with one key, general.alignment, and one tensor "t" of two bytes. */
static file_bytes aligned_file(calm_gguf_kind kind, uint32_t alignment, size_t begin)
{
    calm_text text;
    calm_text_init(&text);
    calm_text_append(&text, "GGUF\3\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\x11\0\0\0\0\0\0\0general.alignment", 49);
    calm_text_append(&text, (const char *)&kind, 4);
    calm_text_append(&text, (const char *)&alignment, 4);
    calm_text_append(&text, "\1\0\0\0\0\0\0\0t\0\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0", 25);
    while (text.length < begin)
        calm_text_append(&text, "", 1);
    calm_text_append(&text, "\0\x3c", 2);
    const file_bytes out = {(uint8_t *)test_format("%*s", 2000, ""), text.length};
    memcpy(out.data, text.data, text.length);
    calm_text_clear(&text);
    return out;
}

TEST(alignment)
{
    static const uint32_t good[] = {1, 4, 32, 1024};
    for (size_t i = 0; i < 4; i++) {
        const file_bytes in = aligned_file(CALM_GGUF_U32, good[i], (82 + good[i] - 1) / good[i] * good[i]);
        const char *path = test_format("%s/x.gguf", test_directory());
        calm_gguf *file;
        float value;
        ck_ok(calm_write_file(ctx, path, in.data, in.n));
        ck_ok(calm_gguf_open(ctx, path, &file));
        ck_ok(calm_gguf_to_f32(ctx, file, calm_gguf_find_tensor(file, "t"), 0, 1, &value));
        ck_assert(value == 1);
        calm_gguf_close(file);
    }
    check_refused(aligned_file(CALM_GGUF_U32, 0, 96), CALM_EFORMAT, "general.alignment is 0, expected a power of two");
    check_refused(aligned_file(CALM_GGUF_U32, 24, 96), CALM_EFORMAT,
                  "general.alignment is 24, expected a power of two");
    check_refused(aligned_file(CALM_GGUF_U32, UINT32_C(1) << 31, 96), CALM_EFORMAT,
                  "expected a power of two up to 2^30");
    check_refused(aligned_file(CALM_GGUF_I32, 32, 96), CALM_EFORMAT, "general.alignment is of type i32, expected u32");
    check_refused(aligned_file(CALM_GGUF_U32, 4096, 96), CALM_EFORMAT, "the data begin at byte 4096, but the file has");
}
END_OF_TEST

TEST(types)
{
    ck_assert_str_eq(calm_ggml_find(30)->name, "BF16");
    ck_assert_uint_eq(calm_ggml_find(12)->bytes, 144);
    ck_assert(calm_ggml_readable(CALM_GGML_Q4_K) && calm_ggml_readable(CALM_GGML_BF16));
    ck_assert(!calm_ggml_readable(CALM_GGML_Q8_K) && !calm_ggml_readable(CALM_GGML_F64));
    float out[256];
    ck_fails(calm_ggml_to_f32(ctx, CALM_GGML_IQ2_S, "", 0, out), CALM_EUNSUPPORTED, "IQ2_S");
    ck_assert_ptr_null(calm_ggml_find(4));
    ck_assert_ptr_null(calm_ggml_find(43));
    ck_assert_ptr_null(calm_ggml_find(UINT32_MAX));
}
END_OF_TEST

TEST(not_finite_and_not_readable)
{
    file_bytes in = read_bytes(write_sample());
    const char *path = test_format("%s/nan.gguf", test_directory());
    calm_gguf *file;
    float out[128];
    in.data[in.n - 26 - 1] = 0x7c;    /* the last of k: an infinite float16 */
    in.data[in.n - 26 - 2] = 0;
    ck_ok(calm_write_file(ctx, path, in.data, in.n));
    ck_ok(calm_gguf_open(ctx, path, &file));
    ck_fails(calm_gguf_to_f32(ctx, file, calm_gguf_find_tensor(file, "k"), 0, 1, out), CALM_ENUMERIC,
             "tensor k: element 2 is not finite");
    ck_ok(calm_gguf_to_f32(ctx, file, calm_gguf_find_tensor(file, "m.exps"), 3, 1, out));
    calm_gguf_close(file);
    in = read_bytes(write_sample());
    const size_t a = place_of(in, "a.weight") + 8;
    in.data[a + 4] = 36;     /* rows of 36 int8 have the bytes of two blocks */
    in.data[a + 20] = CALM_GGML_I8;
    ck_ok(calm_write_file(ctx, path, in.data, in.n));
    ck_ok(calm_gguf_open(ctx, path, &file));
    ck_fails(calm_gguf_to_f32(ctx, file, calm_gguf_find_tensor(file, "a.weight"), 0, 1, out), CALM_EUNSUPPORTED,
             "tensor a.weight: type I8");
    calm_gguf_close(file);
}
END_OF_TEST

/* A small file that claims much is refused before memory is allocated. */
TEST(memory_is_bounded)
{
    calm_text text;
    calm_gguf *file;
    const char *path = test_format("%s/many.gguf", test_directory());
    calm_text_init(&text);
    calm_text_append(&text, "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24);
    for (size_t i = 0; i < 60000; i++) {    /* keys of 16 bytes each: names have three bytes */
        const char name[3] = {(char)(1 + i % 250), (char)(1 + i / 250 % 250), 'k'};
        calm_text_append(&text, "\3\0\0\0\0\0\0\0", 8);
        calm_text_append(&text, name, 3);
        calm_text_append(&text, "\0\0\0\0\7", 5);
    }
    text.data[16] = (char)(60000 & 255), text.data[17] = (char)(60000 >> 8);
    ck_ok(calm_write_file(ctx, path, text.data, text.length));
    calm_text_clear(&text);
    const size_t before = ctx->scratch->used_bytes;
    ck_ok(calm_gguf_open(ctx, path, &file));
    ck_assert_uint_eq(calm_gguf_n_keys(file), 60000);
    ck_assert_uint_eq(ctx->scratch->used_bytes, before);
    calm_gguf_close(file);
}
END_OF_TEST

TEST(writer_refuses)
{
    const calm_gguf_tensor twice[] = {samples[0], samples[1], samples[0]};
    calm_gguf_tensor odd = samples[1], nameless = samples[0], lengthy = samples[0];
    calm_gguf_keys keys;
    calm_gguf_writer writer;
    const char *path = test_format("%s/x.gguf", test_directory());
    odd.dims[0] = 33;
    nameless.name = "";
    lengthy.name = test_format("%064d", 0);
    const struct {
        const calm_gguf_tensor *tensors;
        size_t n;
        const char *words;
    } rows[] = {{twice, 3, "tensor z.weight is there twice"},
                {&odd, 1, "tensor a.weight: its size overflows, or its rows"},
                {&nameless, 1, "a name of 0 bytes"}, {&lengthy, 1, "a name of 64 bytes; GGUF takes 1 to 63"}};
    calm_gguf_keys_init(&keys);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const calm_status status = calm_gguf_begin(ctx, &writer, path, &keys, rows[i].tensors, rows[i].n);
        ck_fails(calm_gguf_end(ctx, &writer), CALM_EARG, rows[i].words);
        ck_assert_int_eq(status, CALM_EARG);
    }
    size_t data, label;
    odd.dims[0] = 32;
    odd.dims[1] = SIZE_MAX / 2;
    calm_gguf_sizes(&odd, &data, &label);
    ck_assert_uint_eq(data, 0);
    calm_gguf_begin(ctx, &writer, "/nowhere/x.gguf", &keys, samples, 1);
    ck_fails(calm_gguf_end(ctx, &writer), CALM_ENOTFOUND, "/nowhere/x.gguf");
}
END_OF_TEST

TEST(every_allocation_fails)
{
    const char *path = write_sample();
    bool used = true;
    calm_gguf *file;
    size_t failures = 0;
    for (size_t k = 1; used; k++) {
        ctx->scratch->fail_in = (long)k;
        const calm_status status = calm_gguf_open(ctx, path, &file);
        used = ctx->scratch->fail_in == 0;
        ctx->scratch->fail_in = 0;
        ck_assert_int_eq(status, used ? CALM_ENOMEM : CALM_OK);
        ck_assert(!file == used);
        failures += used;
        calm_gguf_close(file);
        calm_ctx_clear_failure(ctx);
    }
    ck_assert_uint_gt(failures, 1);
    ck_fails(calm_gguf_open(ctx, "/nowhere.gguf", &file), CALM_ENOTFOUND, "/nowhere.gguf");
}
END_OF_TEST

int main(void)
{
    return run_tests("gguf", (const TTest *[]){round_trip, values, kinds_of_numbers, broken_heads, broken_keys,
                                               broken_tensors, truncated, alignment, types,
                                               not_finite_and_not_readable, memory_is_bounded, writer_refuses,
                                               every_allocation_fails, NULL});
}
