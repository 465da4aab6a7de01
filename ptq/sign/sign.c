/* Bundles: writes a signed statement as a Sigstore bundle, and reads and verifies one. */

#include <string.h>

#include "ptq/base/base64.h"
#include "ptq/base/file.h"
#include "ptq/base/output.h"
#include "ptq/sign/sign_impl.h"

#define BUNDLE_TYPE "application/vnd.dev.sigstore.bundle.v0.3+json"
#define STATEMENT_TYPE "https://in-toto.io/Statement/v1"

/* Larger files are no bundles. */
#define BUNDLE_BYTES ((size_t)64 << 20)

/* ---- writing ---- */

static calm_status letters_of(calm_ctx *ctx, const void *bytes, size_t n, const char **out)
{
    CALM_SCOPED_TEXT(text);
    char *letters;
    calm_base64_append(&text, bytes, n);
    CALM_TRY(calm_text_take(ctx, ctx->out, &text, &letters, NULL));
    *out = letters;
    return CALM_OK;
}

/* Returns the signed envelope of a statement; the caller releases it. */
static calm_status new_envelope(calm_ctx *ctx, EVP_PKEY *key, const char *payload, calm_json **out)
{
    unsigned char *sig;
    size_t n;
    const char *letters, *sig_letters;
    CALM_TRY(calm_sign_payload(ctx, key, payload, strlen(payload), &sig, &n));
    CALM_TRY(letters_of(ctx, sig, n, &sig_letters));
    CALM_TRY(letters_of(ctx, payload, strlen(payload), &letters));
    calm_json *signatures = calm_json_new_array();
    calm_json_add(signatures, CALM_OBJECT(CALM_KV("sig", sig_letters), CALM_KV("keyid", "")));
    *out = CALM_OBJECT(CALM_KV("payload", letters), CALM_KV("payloadType", CALM_SIGN_PAYLOAD_TYPE),
                       CALM_KV("signatures", signatures));
    return CALM_OK;
}

/* Returns the verification material, by which the reader finds the key; the caller releases it. */
static calm_status new_material(calm_ctx *ctx, const calm_signer *signer, EVP_PKEY *key, calm_json **out)
{
    char hint[CALM_SHA256_HEX];
    calm_json *certificates = NULL;
    if (signer->certificate) {
        const calm_status status = calm_sign_certificates(ctx, signer, key, &certificates);
        *out = CALM_OBJECT(CALM_KV("x509CertificateChain", CALM_OBJECT(CALM_KV("certificates", certificates))),
                           CALM_KV("tlogEntries", calm_json_new_array()));
        return status;
    }
    CALM_TRY(calm_sign_key_hint(ctx, key, hint));
    *out = CALM_OBJECT(CALM_KV("publicKey", CALM_OBJECT(CALM_KV("hint", (const char *)hint))),
                       CALM_KV("tlogEntries", calm_json_new_array()));
    return CALM_OK;
}

/* Checks that the signature's file does not exist, or is an older signature, which is overwritten. */
static calm_status check_place(calm_ctx *ctx, const char *signature)
{
    CALM_SCOPED_JSON(there);
    if (!calm_path_exists(signature))
        return CALM_OK;
    if (calm_is_file(signature) && calm_json_read(ctx, signature, BUNDLE_BYTES, &there) == CALM_OK &&
        strcmp(calm_json_string(calm_json_get(there, "mediaType"), ""), BUNDLE_TYPE) == 0)
        return CALM_OK;
    calm_ctx_clear_failure(ctx);
    return calm_fail(ctx, CALM_EARG, "%s: exists and is no signature; nothing was written", signature);
}

static calm_status write_bundle(calm_ctx *ctx, const char *signature, const calm_json *material, EVP_PKEY *key,
                                const calm_json *statement)
{
    const char *payload;
    calm_json *envelope = NULL;
    CALM_SCOPED_JSON(bundle);
    CALM_TRY(calm_json_text(ctx, statement, &payload));
    CALM_TRY(new_envelope(ctx, key, payload, &envelope));
    bundle = CALM_OBJECT(CALM_KV("mediaType", BUNDLE_TYPE), CALM_KV("verificationMaterial", calm_json_copy(material)),
                         CALM_KV("dsseEnvelope", envelope));
    CALM_TRY(calm_make_parent(ctx, signature));
    return calm_json_save(ctx, signature, bundle);
}

calm_status calm_sign_folder(calm_ctx *ctx, const char *dir, const char *signature, const calm_signer *signer,
                             calm_tick_fn *tick, void *tick_user, size_t *n_files)
{
    CALM_SCOPED_KEY(key);
    CALM_SCOPED_JSON(statement);
    CALM_SCOPED_JSON(material);
    /* If calm wrote all files of the folder, the signature is added to their list, so that --force may replace the
     * folder. */
    const bool owned = calm_path_has(dir, CALM_OUTPUT_LIST) && calm_output_folder(ctx, dir, true, NULL) == CALM_OK;
    calm_ctx_clear_failure(ctx);
    CALM_TRY(check_place(ctx, signature));
    CALM_TRY(calm_sign_private_key(ctx, signer->key, &key));
    /* Check key and certificates before the digests, which take long. */
    CALM_TRY(new_material(ctx, signer, key, &material));
    CALM_TRY(calm_sign_statement(ctx, dir, signature, tick, tick_user, n_files, &statement));
    CALM_TRY(write_bundle(ctx, signature, material, key, statement));
    return owned ? calm_output_list(ctx, dir) : CALM_OK;
}

/* ---- reading ---- */

/* Decodes a base64 string to bytes, followed by a NUL. */
static calm_status bytes_of(calm_ctx *ctx, const char *where, const char *what, const calm_json *value,
                            unsigned char **out, size_t *n)
{
    const size_t n_letters = calm_json_string_length(value);
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, n_letters / 4 * 3 + 1));
    if (n_letters == 0 || !calm_base64_decode(calm_json_string(value, ""), n_letters, *out, n))
        return calm_fail(ctx, CALM_EFORMAT, "%s: %s: expected base64", where, what);
    (*out)[*n] = '\0';
    return CALM_OK;
}

/* Returns the key to verify with. */
static calm_status trusted_key(calm_ctx *ctx, const char *where, const calm_json *material,
                               const calm_sign_trust *trust, EVP_PKEY **out)
{
    const calm_json *hint = calm_json_get(calm_json_get(material, "publicKey"), "hint");
    const calm_json *chain = calm_json_get(calm_json_get(material, "x509CertificateChain"), "certificates");
    char hex[CALM_SHA256_HEX];
    if (trust->certificates && !chain)
        return calm_fail(ctx, CALM_EMISMATCH, "%s: signed by a key without certificates; give the public key with "
                         "--key", where);
    if (trust->certificates)
        return calm_sign_certified_key(ctx, where, chain, trust->certificates, out);
    CALM_TRY(calm_sign_public_key(ctx, trust->key, out));
    CALM_TRY(calm_sign_key_hint(ctx, *out, hex));
    if (hint && strcmp(calm_json_string(hint, ""), hex) != 0)
        return calm_fail(ctx, CALM_EMISMATCH, "%s: signed by the key with digest %.16s..., %s has %.16s...", where,
                         calm_json_string(hint, ""), trust->key, hex);
    return CALM_OK;
}

/* Returns the statement of a bundle after verifying its signature; the caller releases it. */
static calm_status read_bundle(calm_ctx *ctx, const char *path, const calm_sign_trust *trust, calm_json **out)
{
    CALM_SCOPED_JSON(bundle);
    CALM_SCOPED_KEY(key);
    unsigned char *payload, *sig;
    size_t n, n_sig;
    if (calm_json_read(ctx, path, BUNDLE_BYTES, &bundle) == CALM_EFORMAT)
        calm_ctx_clear_failure(ctx);    /* not JSON: reported below */
    CALM_TRY(ctx->status);
    const calm_json *envelope = calm_json_get(bundle, "dsseEnvelope");
    const calm_json *first = calm_json_at(calm_json_get(envelope, "signatures"), 0);
    const char *media = calm_json_string(calm_json_get(bundle, "mediaType"), "");
    const char *type = calm_json_string(calm_json_get(envelope, "payloadType"), "");
    if (strcmp(media, BUNDLE_TYPE) != 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: no signature of a model; expected a bundle that calm sign or "
                         "model_signing has written%s%s", path, media[0] ? ", found " : "", media);
    if (strcmp(type, CALM_SIGN_PAYLOAD_TYPE) != 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: the payload is \"%s\", expected %s", path, type,
                         CALM_SIGN_PAYLOAD_TYPE);
    CALM_TRY(bytes_of(ctx, path, "payload", calm_json_get(envelope, "payload"), &payload, &n));
    CALM_TRY(bytes_of(ctx, path, "sig", calm_json_get(first, "sig"), &sig, &n_sig));
    CALM_TRY(trusted_key(ctx, path, calm_json_get(bundle, "verificationMaterial"), trust, &key));
    if (!calm_sign_payload_is(key, payload, n, sig, n_sig))
        return calm_fail(ctx, CALM_EMISMATCH, "%s: the signature is not of this statement by this key", path);
    CALM_TRY(calm_json_parse(ctx, path, (const char *)payload, n, out));
    if (strcmp(calm_json_string(calm_json_get(*out, "_type"), ""), STATEMENT_TYPE) != 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: the payload is no statement of in-toto 1", path);
    return CALM_OK;
}

calm_status calm_sign_verify(calm_ctx *ctx, const char *dir, const char *signature, const calm_sign_trust *trust,
                             calm_tick_fn *tick, void *tick_user, calm_sign_check *out)
{
    CALM_SCOPED_JSON(statement);
    CALM_TRY(read_bundle(ctx, signature, trust, &statement));
    CALM_TRY(calm_sign_compare(ctx, dir, signature, statement, tick, tick_user, out));
    /* Names point into the statement, so copy them before it is released. */
    for (size_t i = 0; i < out->n; i++) {
        char *name;
        CALM_TRY(calm_strf(ctx, ctx->out, &name, "%s", out->differences[i].name));
        out->differences[i].name = name;
    }
    return CALM_OK;
}
