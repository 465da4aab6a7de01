/* SHA-256 through OpenSSL's EVP interface (keys and certificates: ptq/sign). */
#include "ptq/base/sha256.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "ptq/base/file.h"

static void init(calm_sha256 *sha, const EVP_MD *kind)
{
    sha->state = EVP_MD_CTX_new();
    sha->failed = !sha->state || EVP_DigestInit_ex(sha->state, kind, NULL) != 1;
}

void calm_sha256_init(calm_sha256 *sha)
{
    init(sha, EVP_sha256());
}

void calm_sha256_update(calm_sha256 *sha, const void *bytes, size_t n_bytes)
{
    if (!sha->failed && EVP_DigestUpdate(sha->state, bytes, n_bytes) != 1)
        sha->failed = true;
}

void calm_sha256_field(calm_sha256 *sha, const char *text)
{
    uint64_t length = strlen(text);
    unsigned char prefix[8];
    for (int i = 0; i < 8; i++)
        prefix[i] = (unsigned char)(length >> (8 * i));
    calm_sha256_update(sha, prefix, sizeof prefix);
    calm_sha256_update(sha, text, length);
}

bool calm_is_hex(const char *text, size_t n)
{
    return strlen(text) == n && strspn(text, "0123456789abcdef") == n;
}

/* Finishes a digest and frees the state; `hex` receives two digits per byte and a NUL. */
static calm_status finish(calm_ctx *ctx, calm_sha256 *sha, const char *name, unsigned n_bytes, char *hex)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    if (!sha->failed && (EVP_DigestFinal_ex(sha->state, digest, &length) != 1 || length != n_bytes))
        sha->failed = true;
    EVP_MD_CTX_free(sha->state);
    sha->state = NULL;
    if (sha->failed)
        return calm_fail(ctx, CALM_ENOMEM, "%s: libcrypto failed (out of memory, or no %s provider)", name, name);
    for (unsigned i = 0; i < n_bytes; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[2 * n_bytes] = '\0';
    return CALM_OK;
}

calm_status calm_sha256_finish(calm_ctx *ctx, calm_sha256 *sha, char hex[CALM_SHA256_HEX])
{
    return finish(ctx, sha, "SHA-256", CALM_SHA256_HEX / 2, hex);
}

calm_status calm_sha256_bytes(calm_ctx *ctx, const void *bytes, size_t n_bytes, char hex[CALM_SHA256_HEX])
{
    calm_sha256 sha;
    calm_sha256_init(&sha);
    calm_sha256_update(&sha, bytes, n_bytes);
    return calm_sha256_finish(ctx, &sha, hex);
}

/* Feeds the rest of the stream; returns errno of a failed read, else 0. */
static int feed(calm_sha256 *sha, FILE *stream)
{
    unsigned char piece[1 << 16];
    size_t got;
    while ((got = fread(piece, 1, sizeof piece, stream)) > 0)
        calm_sha256_update(sha, piece, got);
    return ferror(stream) ? errno : 0;
}

/* Computes the SHA-256 of a file or, with `git`, the SHA-1 of git's header and the file. */
static calm_status digest_file(calm_ctx *ctx, const char *path, bool git, char *hex)
{
    CALM_TRY(calm_path_refuse_special(ctx, path));
    FILE *stream = fopen(path, "rb");
    if (!stream)
        return calm_fail_errno(ctx, errno, "%s: cannot open", path);
    calm_sha256 sha;
    struct stat info = {0};
    int broken = 0;
    init(&sha, git ? EVP_sha1() : EVP_sha256());
    if (git) {
        char head[32];
        broken = fstat(fileno(stream), &info) == 0 ? 0 : errno;
        const int n = snprintf(head, sizeof head, "blob %lld", (long long)info.st_size);
        calm_sha256_update(&sha, head, (size_t)n + 1);
    }
    if (!broken)
        broken = feed(&sha, stream);
    fclose(stream);
    /* Also after a failed read: finish frees the state. */
    const calm_status status = git ? finish(ctx, &sha, "SHA-1", CALM_SHA1_HEX / 2, hex)
                                   : calm_sha256_finish(ctx, &sha, hex);
    return broken ? calm_fail_errno(ctx, broken, "%s: cannot read", path) : status;
}

calm_status calm_sha256_file(calm_ctx *ctx, const char *path, char hex[CALM_SHA256_HEX])
{
    return digest_file(ctx, path, false, hex);
}

calm_status calm_git_blob_file(calm_ctx *ctx, const char *path, char hex[CALM_SHA1_HEX])
{
    return digest_file(ctx, path, true, hex);
}
