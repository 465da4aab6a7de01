/* Private parts of signing.  Only files of this folder include this file. */
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>

#include "ptq/base/scope.h"
#include "ptq/base/sha256.h"
#include "ptq/io/json.h"
#include "ptq/sign/sign.h"

#define CALM_SIGN_PAYLOAD_TYPE "application/vnd.in-toto+json"

/* ---- keys (sign_key.c) ---- */

/* Opens a PEM file for reading; free with BIO_free. */
calm_status calm_sign_open(calm_ctx *ctx, const char *path, BIO **out);

/* Read a key from a PEM file; free with EVP_PKEY_free.  Fail as calm_sign_folder and calm_sign_verify. */
calm_status calm_sign_private_key(calm_ctx *ctx, const char *path, EVP_PKEY **out);
calm_status calm_sign_public_key(calm_ctx *ctx, const char *path, EVP_PKEY **out);
static inline void calm_sign_key_release(EVP_PKEY **key)
{
    EVP_PKEY_free(*key);
}
#define CALM_SCOPED_KEY(name) CALM_SCOPED(EVP_PKEY, calm_sign_key_release) *name = NULL

/* Checks that the key is of one of the three curves.  CALM_EARG, naming its file `where`: it is not. */
calm_status calm_sign_key_check(calm_ctx *ctx, const char *where, const EVP_PKEY *key);

/* Computes the SHA-256 of the PEM form of the public key, which identifies it in a bundle. */
calm_status calm_sign_key_hint(calm_ctx *ctx, const EVP_PKEY *key, char hex[CALM_SHA256_HEX]);

/* Signs the envelope of `payload` [n]; the signature is *out [*n_out] in ctx->out. */
calm_status calm_sign_payload(calm_ctx *ctx, EVP_PKEY *key, const void *payload, size_t n, unsigned char **out,
                              size_t *n_out);

/* Is `sig` [n_sig] a valid signature of the envelope of `payload` [n]? */
bool calm_sign_payload_is(EVP_PKEY *key, const void *payload, size_t n, const unsigned char *sig, size_t n_sig);

/* ---- certificates (certificate.c) ---- */

/* Returns the certificate and its chain as the bundle's "certificates"; the caller releases *out. */
calm_status calm_sign_certificates(calm_ctx *ctx, const calm_signer *signer, EVP_PKEY *key, calm_json **out);

/* Returns the key of the first of a bundle's certificates, after verifying that they form a chain to a certificate in
 * the PEM file `roots`, at the time when the first became valid, as model_signing does.  CALM_EMISMATCH: no such
 * chain. */
calm_status calm_sign_certified_key(calm_ctx *ctx, const char *where, const calm_json *certificates, const char *roots,
                                    EVP_PKEY **out);

/* ---- statements (statement.c) ---- */

/* Returns the statement of the files below `dir` without `signature`; the caller releases *out. */
calm_status calm_sign_statement(calm_ctx *ctx, const char *dir, const char *signature, calm_tick_fn *tick,
                                void *tick_user, size_t *n_files, calm_json **out);

/* Compares the files below `dir` with a statement. */
calm_status calm_sign_compare(calm_ctx *ctx, const char *dir, const char *signature, const calm_json *statement,
                              calm_tick_fn *tick, void *tick_user, calm_sign_check *out);
