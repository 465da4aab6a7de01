# Sourced by scripts that measure files; $work is an empty folder.

# loss FILE REFERENCE: prints the KL of FILE, a checkpoint's folder or a GGUF file, to the float model REFERENCE over $WINDOWS test windows
# (196); for encoders 1 - cosine of the pooled embeddings of $WINDOWS sentences.
loss() {
    calm eval --model "$1" --reference "$2" --samples "${WINDOWS:-196}" --json --quiet >"$work/eval.json"
    tr ',{}' '\n\n\n' <"$work/eval.json" | awk '
        $1 == "\"kl\":" { printf "%s\n", $2; found = 1; exit }
        $1 == "\"cosine\":" { printf "%.6f\n", 1 - $2; found = 1; exit }
        END { exit !found }'
}
