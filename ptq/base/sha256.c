/* SHA-256 through OpenSSL's EVP interface; the one user of openssl headers. */
#include "ptq/base/sha256.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

void calm_sha256_init(calm_sha256 *sha)
{
    sha->state = EVP_MD_CTX_new();
    sha->failed = !sha->state || EVP_DigestInit_ex(sha->state, EVP_sha256(), NULL) != 1;
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

calm_status calm_sha256_finish(calm_ctx *ctx, calm_sha256 *sha, char hex[CALM_SHA256_HEX])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char digest[32];
    unsigned length = 0;
    if (!sha->failed && (EVP_DigestFinal_ex(sha->state, digest, &length) != 1 || length != sizeof digest))
        sha->failed = true;
    EVP_MD_CTX_free(sha->state);
    sha->state = NULL;
    if (sha->failed)
        return calm_fail(ctx, CALM_ENOMEM, "SHA-256: libcrypto failed (out of memory, or no SHA-256 provider)");
    for (int i = 0; i < 32; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[64] = '\0';
    return CALM_OK;
}

calm_status calm_sha256_bytes(calm_ctx *ctx, const void *bytes, size_t n_bytes, char hex[CALM_SHA256_HEX])
{
    calm_sha256 sha;
    calm_sha256_init(&sha);
    calm_sha256_update(&sha, bytes, n_bytes);
    return calm_sha256_finish(ctx, &sha, hex);
}

calm_status calm_sha256_file(calm_ctx *ctx, const char *path, char hex[CALM_SHA256_HEX])
{
    FILE *stream = fopen(path, "rb");
    if (!stream)
        return calm_fail_errno(ctx, errno, "%s: cannot open", path);
    calm_sha256 sha;
    calm_sha256_init(&sha);
    unsigned char piece[1 << 16];
    size_t got;
    while ((got = fread(piece, 1, sizeof piece, stream)) > 0)
        calm_sha256_update(&sha, piece, got);
    int broken = ferror(stream) ? errno : 0;
    fclose(stream);
    calm_status status = calm_sha256_finish(ctx, &sha, hex);
    return broken ? calm_fail_errno(ctx, broken, "%s: cannot read", path) : status;
}
