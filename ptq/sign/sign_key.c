/* Keys: ECDSA over the curves that OpenSSF Model Signing knows, through OpenSSL's libcrypto. */
#include <errno.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/base/file.h"
#include "ptq/base/text.h"
#include "ptq/sign/sign_impl.h"

typedef struct curve {
    const char *name;
    const EVP_MD *(*digest)(void);
} curve;

static const curve curves[] = {{"prime256v1", EVP_sha256}, {"secp384r1", EVP_sha384}, {"secp521r1", EVP_sha512}};

/* Returns the key's curve; NULL: the key is of another kind. */
static const curve *curve_of(const EVP_PKEY *key)
{
    char name[64];
    size_t n;
    if (!EVP_PKEY_is_a(key, "EC") || EVP_PKEY_get_group_name(key, name, sizeof name, &n) != 1)
        return NULL;
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++)
        if (strcmp(name, curves[i].name) == 0)
            return &curves[i];
    return NULL;
}

calm_status calm_sign_key_check(calm_ctx *ctx, const char *where, const EVP_PKEY *key)
{
    return curve_of(key) ? CALM_OK
                         : calm_fail(ctx, CALM_EARG, "%s: expected an elliptic key of the curve P-256, P-384 or P-521; "
                                     "openssl ecparam -name prime256v1 -genkey -noout -out FILE makes one", where);
}

/* An OpenSSL callback: gives the password from the environment, and never asks on the terminal. */
static int password(char *out, int room, int writes, void *asked)
{
    const char *word = getenv("CALM_KEY_PASSWORD");
    (void)writes;
    *(bool *)asked = true;
    if (!word || strlen(word) >= (size_t)room)
        return -1;
    memcpy(out, word, strlen(word));
    return (int)strlen(word);
}

calm_status calm_sign_open(calm_ctx *ctx, const char *path, BIO **out)
{
    CALM_TRY(calm_path_refuse_directory(ctx, path));
    errno = 0;
    *out = BIO_new_file(path, "rb");
    if (!*out && errno == ENOENT)
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: no such file", path);
    return *out ? CALM_OK : calm_fail_errno(ctx, errno, "%s: cannot open", path);
}

calm_status calm_sign_private_key(calm_ctx *ctx, const char *path, EVP_PKEY **out)
{
    BIO *file;
    bool asked = false;
    CALM_TRY(calm_sign_open(ctx, path, &file));
    *out = PEM_read_bio_PrivateKey(file, NULL, password, &asked);
    BIO_free(file);
    if (!*out && asked)
        return calm_fail(ctx, CALM_EARG, "%s: the key is encrypted, and the environment variable CALM_KEY_PASSWORD %s",
                         path, getenv("CALM_KEY_PASSWORD") ? "has another password" : "is not set");
    if (!*out)
        return calm_fail(ctx, CALM_EFORMAT, "%s: expected a private key in PEM form", path);
    return calm_sign_key_check(ctx, path, *out);
}

calm_status calm_sign_public_key(calm_ctx *ctx, const char *path, EVP_PKEY **out)
{
    BIO *file;
    CALM_TRY(calm_sign_open(ctx, path, &file));
    *out = PEM_read_bio_PUBKEY(file, NULL, NULL, NULL);
    BIO_free(file);
    if (!*out)
        return calm_fail(ctx, CALM_EFORMAT, "%s: expected a public key in PEM form; openssl ec -in KEY -pubout writes "
                         "that of a private key", path);
    return calm_sign_key_check(ctx, path, *out);
}

calm_status calm_sign_key_hint(calm_ctx *ctx, const EVP_PKEY *key, char hex[CALM_SHA256_HEX])
{
    BIO *pem = BIO_new(BIO_s_mem());
    char *bytes = NULL;
    const bool written = pem && PEM_write_bio_PUBKEY(pem, key) == 1;
    const long n = written ? BIO_get_mem_data(pem, &bytes) : 0;
    const calm_status status = n > 0 ? calm_sha256_bytes(ctx, bytes, (size_t)n, hex)
                                     : calm_fail(ctx, CALM_ENOMEM, "public key: out of memory");
    BIO_free(pem);
    return status;
}

/* Computes the signed bytes: DSSE's pre-authentication encoding of the payload. */
static void envelope_of(const void *payload, size_t n, calm_text *out)
{
    calm_text_printf(out, "DSSEv1 %zu %s %zu ", strlen(CALM_SIGN_PAYLOAD_TYPE), CALM_SIGN_PAYLOAD_TYPE, n);
    calm_text_append(out, payload, n);
}

calm_status calm_sign_payload(calm_ctx *ctx, EVP_PKEY *key, const void *payload, size_t n, unsigned char **out,
                              size_t *n_out)
{
    CALM_SCOPED_TEXT(text);
    envelope_of(payload, n, &text);
    CALM_TRY(calm_text_check(ctx, &text));
    *n_out = (size_t)EVP_PKEY_get_size(key);
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, *n_out));
    EVP_MD_CTX *state = EVP_MD_CTX_new();
    const bool done = state && EVP_DigestSignInit(state, NULL, curve_of(key)->digest(), NULL, key) == 1 &&
                      EVP_DigestSign(state, *out, n_out, (const unsigned char *)text.data, text.length) == 1;
    EVP_MD_CTX_free(state);
    return done ? CALM_OK : calm_fail(ctx, CALM_ENOMEM, "signature: libcrypto failed");
}

bool calm_sign_payload_is(EVP_PKEY *key, const void *payload, size_t n, const unsigned char *sig, size_t n_sig)
{
    CALM_SCOPED_TEXT(text);
    envelope_of(payload, n, &text);
    EVP_MD_CTX *state = EVP_MD_CTX_new();
    const bool is = !text.failed && state &&
                    EVP_DigestVerifyInit(state, NULL, curve_of(key)->digest(), NULL, key) == 1 &&
                    EVP_DigestVerify(state, sig, n_sig, (const unsigned char *)text.data, text.length) == 1;
    EVP_MD_CTX_free(state);
    return is;
}
