/* SHA-256 (FIPS 180-4) through OpenSSL's libcrypto, for the keys of candidates and blobs; and git's hash of a file. */
#pragma once

#include "ptq/base/context.h"

#define CALM_SHA256_HEX 65    /* 64 hexadecimal digits and the NUL */
#define CALM_SHA1_HEX 41

/* Returns whether `text` is exactly n lower-case hexadecimal digits; n of a SHA-256 digest is CALM_SHA256_HEX - 1. */
bool calm_is_hex(const char *text, size_t n);

typedef struct calm_sha256 {
    void *state;    /* EVP_MD_CTX; NULL after finish */
    bool failed;
} calm_sha256;

/* Initialise, feed and finish a digest; `hex` receives lower-case digits.  A failure of libcrypto is stored and
 * returned by calm_sha256_finish (CALM_ENOMEM), which also frees the state: every init needs a finish. */
void calm_sha256_init(calm_sha256 *sha);
void calm_sha256_update(calm_sha256 *sha, const void *bytes, size_t n_bytes);

/* Feeds the length of a string and then the string, so that the fields "ab", "c" and "a", "bc" have different
 * digests. */
void calm_sha256_field(calm_sha256 *sha, const char *text);
calm_status calm_sha256_finish(calm_ctx *ctx, calm_sha256 *sha, char hex[CALM_SHA256_HEX]);

/* Computes the digest of one buffer. */
calm_status calm_sha256_bytes(calm_ctx *ctx, const void *bytes, size_t n_bytes, char hex[CALM_SHA256_HEX]);

/* Computes the digest of a file's content, which it reads in pieces.  CALM_EIO or CALM_ENOTFOUND with the path;
 * CALM_EARG: a special file. */
calm_status calm_sha256_file(calm_ctx *ctx, const char *path, char hex[CALM_SHA256_HEX]);

/* Computes git's hash of a file: SHA-1 of "blob <size>", a NUL and the bytes.  For comparison with a hub's listing,
 * not for security.  CALM_EIO or CALM_ENOTFOUND with the path. */
calm_status calm_git_blob_file(calm_ctx *ctx, const char *path, char hex[CALM_SHA1_HEX]);
