# What the scripts that measure files have in common; they source it.  $work: a separate folder.

# loss FILE REFERENCE: KL over $WINDOWS test windows (196) of FILE, a checkpoint's folder or a GGUF file, to the float model REFERENCE; of encoders
# 1 - cosine of the pooled embeddings of this many sentences.
loss() {
    calm eval --model "$1" --reference "$2" --samples "${WINDOWS:-196}" --json --quiet >"$work/eval.json"
    tr ',{}' '\n\n\n' <"$work/eval.json" | awk '
        $1 == "\"kl\":" { printf "%s\n", $2; found = 1; exit }
        $1 == "\"cosine\":" { printf "%.6f\n", 1 - $2; found = 1; exit }
        END { exit !found }'
}
