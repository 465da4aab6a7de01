/* SHA-256 (FIPS 180-4), through OpenSSL's libcrypto: the keys of candidates and blobs.  Also git's name of a file. */
#pragma once

#include "ptq/base/context.h"

#define CALM_SHA256_HEX 65    /* 64 hexadecimal digits and the NUL */
#define CALM_SHA1_HEX 41

/* Is `text` n lower-case hexadecimal digits and nothing else?  A digest's n is CALM_SHA256_HEX - 1. */
bool calm_is_hex(const char *text, size_t n);

typedef struct calm_sha256 {
    void *state;    /* EVP_MD_CTX; NULL after finish */
    bool failed;
} calm_sha256;

/* Start, feed, finish; `hex` receives lower-case digits.  A failure of the library is remembered and reported by finish
 * (CALM_ENOMEM), which also frees the state: every init needs one. */
void calm_sha256_init(calm_sha256 *sha);
void calm_sha256_update(calm_sha256 *sha, const void *bytes, size_t n_bytes);

/* Feed the length of a string and then the string: fields "ab", "c" and "a", "bc" have different digests. */
void calm_sha256_field(calm_sha256 *sha, const char *text);
calm_status calm_sha256_finish(calm_ctx *ctx, calm_sha256 *sha, char hex[CALM_SHA256_HEX]);

/* Digest of one buffer. */
calm_status calm_sha256_bytes(calm_ctx *ctx, const void *bytes, size_t n_bytes, char hex[CALM_SHA256_HEX]);

/* Digest of a file's content, read in pieces.  CALM_EIO or CALM_ENOTFOUND with the path. */
calm_status calm_sha256_file(calm_ctx *ctx, const char *path, char hex[CALM_SHA256_HEX]);

/* Git's name for a file's content: SHA-1 of "blob <size>", a NUL and the bytes.  For comparing with a hub's listing,
 * not for security.  CALM_EIO or CALM_ENOTFOUND with the path. */
calm_status calm_git_blob_file(calm_ctx *ctx, const char *path, char hex[CALM_SHA1_HEX]);
