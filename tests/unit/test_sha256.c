/* SHA-256 against the vectors of NIST (FIPS 180-4 examples, SHA256ShortMsg.rsp, SHA256LongMsg). */
#include "ptq/base/sha256.h"

#include "ptq/base/file.h"
#include "tests/support/harness.h"

static const char *digest(const void *bytes, size_t n_bytes)
{
    char hex[CALM_SHA256_HEX];
    ck_ok(calm_sha256_bytes(ctx, bytes, n_bytes, hex));
    return test_format("%s", hex);
}

TEST(nist_vectors)
{
    ck_assert_str_eq(digest("", 0), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    ck_assert_str_eq(digest("abc", 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    ck_assert_str_eq(digest("\xd3", 1), "28969cdfa74a12c82f3bad960b0b000aca2ac329deea5c2328ebc6f2ba9802c1");
    ck_assert_str_eq(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56),
                     "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}
END_OF_TEST

TEST(a_million_letters_in_uneven_pieces)
{
    static char letters[1000000];
    memset(letters, 'a', sizeof letters);
    calm_sha256 sha;
    calm_sha256_init(&sha);
    for (size_t at = 0, piece = 1; at < sizeof letters; at += piece, piece = piece * 3 + 1) {
        if (piece > sizeof letters - at)
            piece = sizeof letters - at;
        calm_sha256_update(&sha, letters + at, piece);
    }
    char hex[CALM_SHA256_HEX];
    ck_ok(calm_sha256_finish(ctx, &sha, hex));
    ck_assert_str_eq(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    ck_assert_str_eq(digest(letters, sizeof letters), hex);
}
END_OF_TEST

static const char *two_fields(const char *a, const char *b)
{
    char hex[CALM_SHA256_HEX];
    calm_sha256 sha;
    calm_sha256_init(&sha);
    calm_sha256_field(&sha, a);
    calm_sha256_field(&sha, b);
    ck_ok(calm_sha256_finish(ctx, &sha, hex));
    return test_format("%s", hex);
}

TEST(fields_do_not_run_together)
{
    ck_assert_str_ne(two_fields("ab", "c"), two_fields("a", "bc"));
    ck_assert_str_ne(two_fields("", "x"), two_fields("x", ""));
    ck_assert_str_eq(two_fields("ab", "c"), two_fields("ab", "c"));
    /* The form of fields in the store's keys: the length in 8 little-endian bytes, then the bytes. */
    ck_assert_str_eq(two_fields("ab", "c"), digest("\2\0\0\0\0\0\0\0ab\1\0\0\0\0\0\0\0c", 19));
    char long_field[301] = "", both[8 + 300 + 8] = "\x2c\1";    /* 300 = 0x12c */
    memset(long_field, 'x', 300);
    memset(both + 8, 'x', 300);
    ck_assert_str_eq(two_fields(long_field, ""), digest(both, sizeof both));
}
END_OF_TEST

TEST(a_file_has_the_digest_of_its_bytes)
{
    const char *path = test_format("%s/data", test_directory());
    static unsigned char bytes[200001];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * i >> 3);
    ck_ok(calm_write_file(ctx, path, bytes, sizeof bytes));
    char hex[CALM_SHA256_HEX];
    ck_ok(calm_sha256_file(ctx, path, hex));
    ck_assert_str_eq(hex, digest(bytes, sizeof bytes));
    ck_fails(calm_sha256_file(ctx, "/nonexistent/file", hex), CALM_ENOTFOUND, "/nonexistent/file");
    ck_fails(calm_sha256_file(ctx, "/", hex), CALM_EIO, "/: cannot read");
}
END_OF_TEST

TEST(git_names_a_file)
{
    const char *path = test_format("%s/data", test_directory());
    char hex[CALM_SHA1_HEX];
    ck_ok(calm_write_file(ctx, path, "", 0));    /* as `git hash-object` prints */
    ck_ok(calm_git_blob_file(ctx, path, hex));
    ck_assert_str_eq(hex, "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
    ck_ok(calm_write_file(ctx, path, "hello\n", 6));
    ck_ok(calm_git_blob_file(ctx, path, hex));
    ck_assert_str_eq(hex, "ce013625030ba8dba906f756967f9e9ca394464a");
    ck_fails(calm_git_blob_file(ctx, "/nonexistent/file", hex), CALM_ENOTFOUND, "/nonexistent/file");
    ck_fails(calm_git_blob_file(ctx, "/", hex), CALM_EIO, "/: cannot read");
}
END_OF_TEST

TEST(hexadecimal_is_lower_case_and_of_one_length)
{
    ck_assert(calm_is_hex("", 0) && calm_is_hex("00", 2) && calm_is_hex("09af", 4));
    ck_assert(!calm_is_hex("", 2) && !calm_is_hex("0", 2) && !calm_is_hex("000", 2));
    for (int c = 1; c < 256; c++)
        ck_assert_int_eq(calm_is_hex((const char[3]){'0', (char)c, 0}, 2), strchr("0123456789abcdef", c) != NULL);
}
END_OF_TEST

int main(void)
{
    return run_tests("sha256",
                     (const TTest *[]){nist_vectors, a_million_letters_in_uneven_pieces, fields_do_not_run_together,
                                       a_file_has_the_digest_of_its_bytes, git_names_a_file,
                                       hexadecimal_is_lower_case_and_of_one_length, NULL});
}
