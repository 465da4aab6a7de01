/* Signatures of model folders: OpenSSF Model Signing 1.0, as `model_signing sign` and `verify` read and write it.
 *
 *   statement   in-toto 1 with predicate https://model_signing/signature/v1.0: the SHA-256 of every file, and one over
 *               all of these
 *   envelope    DSSE: the statement, signed by ECDSA (P-256 with SHA-256, P-384 with SHA-384, P-521 with SHA-512)
 *   bundle      Sigstore bundle 0.3, JSON: the envelope with the digest of the public key, or with certificates
 *
 * calm's statements do not cover the signature, the list of files that calm wrote (CALM_OUTPUT_LIST) and git's files; a
 * statement names what it does not cover, and the reader ignores these files. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/base/event.h"

/* PEM files.  An encrypted key is opened with the password in the environment variable CALM_KEY_PASSWORD. */
typedef struct calm_signer {
    const char *key;            /* the private key                                       */
    const char *certificate;    /* certificate of the key; NULL: the reader has the public key */
    const char *chain;          /* certificates between `certificate` and the root; NULL: none */
} calm_signer;

/* Signs the files below `dir` and writes the bundle `signature`; *n_files is their number.  `tick` (may be NULL) counts
 * bytes.  CALM_EARG: `dir` has a symbolic link, `signature` is an existing file of another kind, the key is of another
 * kind or needs a password, or the certificate is of another key.  CALM_EFORMAT: not PEM. */
calm_status calm_sign_folder(calm_ctx *ctx, const char *dir, const char *signature, const calm_signer *signer,
                             calm_tick_fn *tick, void *tick_user, size_t *n_files);

/* The trusted key or certificates; exactly one is set. */
typedef struct calm_sign_trust {
    const char *key;            /* PEM file of the public key                                         */
    const char *certificates;   /* PEM file of root certificates, one of which the signature's chain must end in */
} calm_sign_trust;

typedef struct calm_sign_difference {
    const char *name;
    const char *expected, *found;    /* digests; expected NULL: not signed; found NULL: no such file */
} calm_sign_difference;

typedef struct calm_sign_check {
    calm_sign_difference *differences;    /* [n] by name, in ctx->out */
    size_t n;
    size_t n_files;                       /* number of compared files */
} calm_sign_check;

/* Checks the bundle, then the files.  Files that differ are reported in *out and are not a failure.  CALM_EMISMATCH:
 * the signature is not of this key, or its certificates do not lead to a trusted one.  CALM_EFORMAT: not such a bundle,
 * or a statement that contradicts itself.  CALM_EUNSUPPORTED: files in shards, or digests other than SHA-256. */
calm_status calm_sign_verify(calm_ctx *ctx, const char *dir, const char *signature, const calm_sign_trust *trust,
                             calm_tick_fn *tick, void *tick_user, calm_sign_check *out);
