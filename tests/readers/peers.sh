# Sourced by scripts that run other tools on the bundled model; $here is their folder.  Environment variables: CALM_LLAMA_CPP: llama.cpp's
# programs (tests/readers/build_llama_cpp.sh).  LLM_COMPRESSOR_PYTHON, MLX_LM_PYTHON: Pythons with llmcompressor and with mlx-lm; else
# $CALM_PYTHON, else python3.

python=${CALM_PYTHON:-python3}
lc=${LLM_COMPRESSOR_PYTHON:-$python}
mlx=${MLX_LM_PYTHON:-$python}
model=$CALM_HOME/recipes/models/qwen-demo
export HF_HUB_OFFLINE=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

try() {    # try COMMAND...: shows its messages only after a failure
    "$@" >"$work/said" 2>&1 || { tail -n 20 "$work/said"; echo "fails: $*"; exit 1; }
}

has() {    # has PYTHON MODULES: prints a SKIP line if a module is missing
    "$1" -c "import $2" >/dev/null 2>&1 || { echo "SKIP: a part: no Python with $2, found $1 (CALM_PYTHON, LLM_COMPRESSOR_PYTHON or MLX_LM_PYTHON names one)"; return 1; }
}

has_llama_cpp() {
    [ -x "${CALM_LLAMA_CPP:-}/llama-quantize" ] ||
        { echo "SKIP: a part: no llama-quantize in CALM_LLAMA_CPP=${CALM_LLAMA_CPP:-} (tests/readers/build_llama_cpp.sh builds it)"; return 1; }
}

write_foreign() {    # write_foreign SCHEME...: writes $work/ct/SCHEME by llm-compressor
    try "$lc" "$here/foreign_ct.py" "$model" "$work/ct" "$@"
}
