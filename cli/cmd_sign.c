/* calm sign: signs a model folder. */
#include <stddef.h>
#include <stdio.h>

#include "cli/command.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "ptq/base/file.h"
#include "ptq/base/output.h"
#include "ptq/sign/sign.h"

typedef struct options {
    calm_common common;
    const char *key, *certificate, *chain, *signature;
    bool json;
} options;

static const calm_option table[] = {
    CALM_OPT("key", key, STRING, "PEM file of the private key (curve P-256, P-384 or P-521); the environment "
             "variable CALM_KEY_PASSWORD has the password of an encrypted key", .metavar = "FILE", .key = 'k'),
    CALM_OPT("certificate", certificate, STRING, "PEM file of the key's certificate, which the signature then "
             "contains",
             .metavar = "FILE"),
    CALM_OPT("chain", chain, STRING, "PEM file of the certificates between this certificate and the root",
             .metavar = "FILE"),
    CALM_OPT("signature", signature, STRING,
             "where the signature goes (default: " CALM_OUTPUT_SIGNATURE " in the folder)",
             .metavar = "FILE"),
    CALM_OPT("json", json, BOOL, "print {signature, files}"),
    CALM_OPT_COMMON,
    {0},
};

static calm_status run(calm_ctx *ctx, const void *opts)
{
    const options *o = opts;
    const char *dir = o->common.args.of[0];
    const calm_signer signer = {.key = o->key, .certificate = o->certificate, .chain = o->chain};
    char *signature;
    calm_progress progress;
    size_t n_files;
    if (!o->key)
        return calm_fail(ctx, CALM_EARG, "calm sign: expected --key FILE; openssl ecparam -name prime256v1 -genkey "
                         "-noout -out FILE makes one");
    if (o->chain && !o->certificate)
        return calm_fail(ctx, CALM_EARG, "calm sign: --chain needs --certificate");
    CALM_TRY(o->signature ? calm_strf(ctx, ctx->out, &signature, "%s", o->signature)
                          : calm_path_join(ctx, ctx->out, &signature, dir, CALM_OUTPUT_SIGNATURE));
    calm_progress_begin(ctx, &progress, o->common.quiet);
    calm_progress_add(&progress, "digests", "bytes");
    calm_sign_folder(ctx, dir, signature, &signer, calm_progress_tick, &progress, &n_files);
    CALM_TRY(calm_progress_end(ctx, &progress));
    if (o->json)
        return calm_print_json(ctx, CALM_OBJECT(CALM_KV("signature", (const char *)signature),
                                                CALM_KV("files", n_files)));
    return calm_print_line(ctx, "%s: %zu files signed", signature, n_files);
}

const calm_command calm_cmd_sign = {
    .name = "sign",
    .summary = "sign a model folder (OpenSSF Model Signing)",
    .arguments = "DIR",
    .description =
        "Writes a Sigstore bundle with the digests of all files of the folder, signed by a key.  `calm verify "
        "--signature` checks it, and so does `model_signing verify key` (or certificate) from PyPI.",
    .examples = "  openssl ecparam -name prime256v1 -genkey -noout -out key.pem\n"
                "  openssl ec -in key.pem -pubout -out key.pub\n"
                "  calm sign --key key.pem calm-out/qwen-w4a16_g128\n"
                "  calm verify --signature DIR/model.sig --key key.pub DIR\n"
                "  model_signing verify key --signature DIR/model.sig --public_key key.pub DIR    (of PyPI)\n",
    .min_args = 1,
    .max_args = 1,
    CALM_COMMAND_PARTS,
};
