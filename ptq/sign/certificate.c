/* X.509 certificates of a signature: writes the signer's into a bundle, and verifies a bundle's up to a trusted root.
 * */
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "ptq/base/base64.h"
#include "ptq/base/file.h"
#include "ptq/sign/sign_impl.h"

/* More are no chain. */
#define CHAIN_MAX ((size_t)16)
/* Bytes of a certificate at most. */
#define CERTIFICATE_MAX ((size_t)1 << 16)

static void release_stack(STACK_OF(X509) **stack)
{
    sk_X509_pop_free(*stack, X509_free);
}

/* Reads all certificates of a PEM file, at least one. */
static calm_status read_pem(calm_ctx *ctx, const char *path, STACK_OF(X509) *out)
{
    BIO *file;
    X509 *one;
    const int before = sk_X509_num(out);
    CALM_TRY(calm_sign_open(ctx, path, &file));
    while ((one = PEM_read_bio_X509(file, NULL, NULL, NULL)))
        if (sk_X509_push(out, one) == 0)
            X509_free(one);
    BIO_free(file);
    return sk_X509_num(out) > before ? CALM_OK
                                     : calm_fail(ctx, CALM_EFORMAT, "%s: expected certificates in PEM form", path);
}

/* ---- writing ---- */

static calm_status add_der(calm_ctx *ctx, X509 *certificate, calm_json *list)
{
    CALM_SCOPED_TEXT(letters);
    unsigned char *der = NULL;
    const int n = i2d_X509(certificate, &der);
    if (n > 0)
        calm_base64_append(&letters, der, (size_t)n);
    OPENSSL_free(der);
    if (n <= 0 || letters.failed)
        return calm_fail(ctx, CALM_ENOMEM, "certificate: out of memory");
    calm_json_add(list, CALM_OBJECT(CALM_KV("rawBytes", (const char *)letters.data)));
    return CALM_OK;
}

calm_status calm_sign_certificates(calm_ctx *ctx, const calm_signer *signer, EVP_PKEY *key, calm_json **out)
{
    CALM_SCOPED(STACK_OF(X509), release_stack) *all = sk_X509_new_null();
    if (!all)
        return calm_fail(ctx, CALM_ENOMEM, "certificates: out of memory");
    CALM_TRY(read_pem(ctx, signer->certificate, all));
    if (X509_check_private_key(sk_X509_value(all, 0), key) != 1)
        return calm_fail(ctx, CALM_EARG, "%s: the certificate is not that of the key %s", signer->certificate,
                         signer->key);
    if (signer->chain)
        CALM_TRY(read_pem(ctx, signer->chain, all));
    *out = calm_json_new_array();
    for (int i = 0; i < sk_X509_num(all); i++)
        CALM_TRY(add_der(ctx, sk_X509_value(all, i), *out));
    return CALM_OK;
}

/* ---- reading ---- */

static calm_status read_der(calm_ctx *ctx, const char *where, const calm_json *entry, STACK_OF(X509) *out)
{
    const calm_json *bytes = calm_json_get(entry, "rawBytes");
    const size_t n_letters = calm_json_string_length(bytes);
    unsigned char *der;
    size_t n;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, der, n_letters / 4 * 3 + 1));
    const unsigned char *at = der;
    X509 *one = n_letters && n_letters < CERTIFICATE_MAX &&
                calm_base64_decode(calm_json_string(bytes, ""), n_letters, der, &n) ? d2i_X509(NULL, &at, (long)n)
                                                                                : NULL;
    if (!one || sk_X509_push(out, one) == 0) {
        X509_free(one);
        return calm_fail(ctx, CALM_EFORMAT, "%s: expected a certificate, DER in base64, as rawBytes", where);
    }
    return CALM_OK;
}

/* May the certificate's key sign, by its key usage or by the extended key usage for code? */
static bool may_sign(X509 *certificate)
{
    const uint32_t flags = X509_get_extension_flags(certificate);
    return ((flags & EXFLAG_KUSAGE) && (X509_get_key_usage(certificate) & KU_DIGITAL_SIGNATURE)) ||
           ((flags & EXFLAG_XKUSAGE) && (X509_get_extended_key_usage(certificate) & XKU_CODE_SIGN));
}

static time_t seconds_of(const ASN1_TIME *time)
{
    struct tm parts = {0};
    return ASN1_TIME_to_tm(time, &parts) == 1 ? timegm(&parts) : 0;
}

/* Verifies the chain from the first certificate to a root; returns what is wrong, or NULL. */
static const char *fault_of(X509_STORE_CTX *state, X509_STORE *roots, STACK_OF(X509) *chain)
{
    X509 *first = sk_X509_value(chain, 0);
    if (X509_STORE_CTX_init(state, roots, first, chain) != 1)
        return "out of memory";
    X509_STORE_CTX_set_time(state, 0, seconds_of(X509_get0_notBefore(first)));
    if (X509_verify_cert(state) != 1)
        return X509_verify_cert_error_string(X509_STORE_CTX_get_error(state));
    return may_sign(first) ? NULL : "its key usage is not digital signature";
}

static calm_status check_chain(calm_ctx *ctx, const char *where, STACK_OF(X509) *chain, const char *path,
                               STACK_OF(X509) *roots)
{
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *state = X509_STORE_CTX_new();
    const char *fault = store && state ? NULL : "out of memory";
    for (int i = 0; i < sk_X509_num(roots) && !fault; i++)
        if (X509_STORE_add_cert(store, sk_X509_value(roots, i)) != 1)
            fault = "out of memory";
    if (!fault)
        fault = fault_of(state, store, chain);
    X509_STORE_CTX_free(state);
    X509_STORE_free(store);
    return fault ? calm_fail(ctx, CALM_EMISMATCH, "%s: the certificate of the signature is not trusted by %s: %s",
                             where, path, fault) : CALM_OK;
}

calm_status calm_sign_certified_key(calm_ctx *ctx, const char *where, const calm_json *certificates, const char *roots,
                                    EVP_PKEY **out)
{
    CALM_SCOPED(STACK_OF(X509), release_stack) *chain = sk_X509_new_null();
    CALM_SCOPED(STACK_OF(X509), release_stack) *trusted = sk_X509_new_null();
    const size_t n = calm_json_size(certificates);
    if (!chain || !trusted)
        return calm_fail(ctx, CALM_ENOMEM, "certificates: out of memory");
    if (n == 0 || n > CHAIN_MAX)
        return calm_fail(ctx, CALM_EFORMAT, "%s: %zu certificates, expected 1 to %zu", where, n, CHAIN_MAX);
    for (size_t i = 0; i < n; i++)
        CALM_TRY(read_der(ctx, where, calm_json_at(certificates, i), chain));
    CALM_TRY(read_pem(ctx, roots, trusted));
    CALM_TRY(check_chain(ctx, where, chain, roots, trusted));
    *out = X509_get_pubkey(sk_X509_value(chain, 0));
    if (!*out)
        return calm_fail(ctx, CALM_EFORMAT, "%s: the certificate has no key", where);
    return calm_sign_key_check(ctx, where, *out);
}
