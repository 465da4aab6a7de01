#!/bin/sh
# Checks that tests/engines/run says why an engine did not run, continues with the next, and exits with 1:  refusals.sh FOLDER-OF-CALM
#
# The environments are imitations: a shell script instead of Python has one engine that dies, one of an old version, one that
# loads what it should not, and one that finds another loss; a fifth engine is missing.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mkdir -p "$work/venv/bin"
cat >"$work/venv/bin/python" <<'PYTHON'
#!/bin/sh
case $1/$2 in
    *engine.py/*) echo '{"ids": [3, 4, 5, 6]}' ;;
    *vllm_cpu.py/--version) echo '{"engine": "vLLM 0.32.0"}' ;;
    *vllm_cpu.py/*) echo "out of memory" >&2; kill -9 $$ ;;
    *transformers_ct.py/--version) echo '{"error": "ImportError: compressed-tensors 0.9.0, expected 0.14 or later"}'; exit 1 ;;
    *gptqmodel_cpu.py/*) echo '{"engine": "GPTQModel 7", "nll": 99.5}' ;;
    *mlx_cpu.py/*) echo '{"engine": "mlx-lm", "nll": 99.5}' ;;
    *) exit 1 ;;
esac
PYTHON
chmod +x "$work/venv/bin/python"
echo 'dies | vllm transformers gptqmodel llamacpp | --scheme w8a16 | |
loads | !mlx | --scheme w8a16 | |
unwritten | gptqmodel | --scheme w8a16 --format nothing | |' >"$work/rows.txt"
printf 'before\n<!-- engines -->\nold\n<!-- /engines -->\nafter\n' >"$work/page.md"

status=0
CALM_PROGRAM=$1/calm "$here/run" --rows "$work/rows.txt" --table "$work/page.md" "$work/venv" >"$work/said" || status=$?
cat "$work/said"
[ "$status" = 1 ] || { echo "exit status $status, expected 1"; exit 1; }
expect() {
    grep -q -e "$1" "$work/said" || { echo "not said: $1"; exit 1; }
}
expect '^| dies | vllm |  |  |  | refused: exit status 137: .* |$'
expect '^| dies | transformers |  |  |  | no environment has it: ImportError: compressed-tensors 0.9.0, expected 0.14 or later |$'
expect '^| dies | GPTQModel 7 | [0-9.]* | 99.5000 | +[0-9.]* | differs, bound .002 |$'
expect '^| dies | llamacpp |  |  |  | no environment has it |$'
expect '^| loads | mlx-lm | [0-9.]* | 99.5000 | +[0-9.]* | loads, expected no kernel |$'
expect '^| unwritten | calm |  |  |  | not written: .*nothing.* |$'
[ "$(grep -c '^|' "$work/page.md")" = 8 ] && [ "$(sed -n '1p;$p' "$work/page.md" | tr '\n' ' ')" = "before after " ] &&
    ! grep -q old "$work/page.md" || { echo "the table is not in its place"; cat "$work/page.md"; exit 1; }
