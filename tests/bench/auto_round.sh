#!/usr/bin/env bash
# Compares calm's learned blocks with auto-round on the same model, calibration windows, width and group, one thread each, one after the other.
#
#   auto_round.sh FOLDER-OF-CALM FOLDER [BITS GROUP]...      default: 4 128
#
# AUTO_ROUND_PYTHON is the python of an environment with auto-round:  python3 -m venv V; V/bin/pip install torch==2.13.0 auto-round==0.16.1
# accelerate datasets.  Prints a table: KL on the first 200 test windows by calm eval, and CPU seconds: for auto-round of the
# quantization alone, for calm of the whole run.
set -eu
calm=$(cd "${1:?usage: auto_round.sh FOLDER-OF-CALM FOLDER [BITS GROUP]...}" && pwd)/calm
folder=${2:?usage: auto_round.sh FOLDER-OF-CALM FOLDER [BITS GROUP]...}
shift 2
here=$(cd "$(dirname "$0")" && pwd)
home=$(dirname "$(dirname "$here")")
python=${AUTO_ROUND_PYTHON:?the python of an environment with auto-round}
[ $# -gt 0 ] || set -- 4 128
mkdir -p "$folder"
cd "$folder"

kl() { "$calm" eval --model "$1" --reference qwen --samples 200 --quiet --json |
    "$python" -c 'import json, sys; print("%.6f" % json.load(sys.stdin)["kl"])'; }

echo "scheme,tool,kl,cpu_seconds"
while [ $# -gt 1 ]; do
    scheme=w$1a16_g$2
    rm -rf peer calm.db* out
    HF_HUB_OFFLINE=1 "$python" "$here/peer_auto_round.py" "$home/recipes/models/qwen-demo" \
        "$home/recipes/text/wikitext2-valid.txt" peer "$1" "$2" 200 >peer.log 2>&1
    echo "$scheme,auto-round 200 iterations,$(kl peer),$(sed -n 's/^auto-round: \([0-9.]*\) s.*/\1/p' peer.log)"
    (time -p "$calm" quantize --model qwen --scheme "$scheme" --algorithms mkq-full --learn blocks --guard-samples 0 --no-eval \
        --threads 1 --quiet --output out --store calm.db --force) >calm.log 2>calm.time
    echo "$scheme,calm mkq-full and learned blocks,$(kl out),$(awk '/^(user|sys)/ { s += $2 } END { print s }' calm.time)"
    shift 2
done
