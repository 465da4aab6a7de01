/* gzip: whole files, several members, truncated, broken, and too large ones. */
#include "ptq/data/gunzip.h"

#include "ptq/base/scope.h"
#include "tests/support/harness.h"

/* gzip -n of "one\n" */
static const unsigned char one[] = {0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3, 0xCB, 0xCF, 0x4B, 0xE5, 2, 0, 0x9F, 0xA8, 0x17,
                                    0xF8, 4, 0, 0, 0};

static calm_status unzip(const void *bytes, size_t n, size_t limit, calm_text *out)
{
    return calm_gunzip(ctx, "a.gz", bytes, n, limit, out);
}

TEST(members)
{
    unsigned char two[2 * sizeof one];
    CALM_SCOPED_TEXT(text);
    memcpy(two, one, sizeof one);
    memcpy(two + sizeof one, one, sizeof one);
    ck_assert(calm_gunzip_is((const char *)one, sizeof one));
    ck_assert(!calm_gunzip_is("\x1F", 1) && !calm_gunzip_is("\x1F\x8A", 2));
    ck_ok(unzip(one, sizeof one, 100, &text));
    ck_assert_str_eq(text.data, "one\n");
    text.length = 0;
    ck_ok(unzip(two, sizeof two, 8, &text));
    ck_assert_str_eq(text.data, "one\none\n");
}
END_OF_TEST

TEST(what_is_refused)
{
    unsigned char bytes[sizeof one + 3];
    CALM_SCOPED_TEXT(text);
    memcpy(bytes, one, sizeof one);
    memcpy(bytes + sizeof one, "abc", 3);
    for (size_t n = 0; n < sizeof one; n++) {
        text.length = 0;
        ck_fails(unzip(one, n, 100, &text), CALM_EFORMAT, "a.gz: the gzip data is cut off");
    }
    text.length = 0;
    ck_fails(unzip(bytes, sizeof bytes, 100, &text), CALM_EFORMAT, "a.gz: the gzip data is broken after 4 bytes");
    text.length = 0;
    ck_fails(unzip(one, sizeof one, 3, &text), CALM_EFORMAT, "a.gz: expected at most 3 bytes");
    bytes[16] ^= 1;    /* the checksum */
    text.length = 0;
    ck_fails(unzip(bytes, sizeof one, 100, &text), CALM_EFORMAT, "a.gz: the gzip data is broken");
}
END_OF_TEST

int main(void)
{
    return run_tests("gunzip", (const TTest *[]){members, what_is_refused, NULL});
}
