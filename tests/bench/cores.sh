#!/bin/sh
# Prints a table of time, CPU time, peak memory and page faults: GPTQ at W4 g128 on a model with a published model's shapes (random
# weights, vocabulary 4,096), calibrated on 8 x 2048 tokens, and RTN on the same model.  It measures one row after the other;
# run it on an idle machine.  It ignores OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE.
#
#   tests/bench/cores.sh [--peer] FOLDER
#
#   --peer      also measure llm-compressor (Python); installs it from PyPI into FOLDER/venv if it is missing (some GB); its model
#               is in bfloat16 and in float32
#   FOLDER      holds model, stores and checkpoints
#
# Environment variables:
#   ROWS        rows for calm, "gptq bf16 balanced windows rtn waits bound" by default; balanced: all algorithms, guard and evaluation
#   DTYPES      dtypes of llm-compressor's model, "bfloat16 float32" by default
#   PYTHON      a Python that has llm-compressor, instead of FOLDER/venv
#   SHAPE       shape for make_checkpoint, qwen3-0.6b by default
#   BLOCKS      number of blocks of the model, 4 by default
#   THREADS     numbers of threads, "1 2" by default
#   CALM, MAKE  the program and make_checkpoint; build/release/... by default
#   CALM_LLAMA_CPP  llama.cpp's programs (tests/readers/build_llama_cpp.sh), to measure llama-quantize next to RTN
#
# CSV: name, threads, wall and CPU seconds, busy cores, peak MiB, page faults that read a file, other page faults.  Two rows use
# the most threads only: with the kernels that OpenBLAS 0.3.21 chooses on an unknown CPU (Prescott), and with threads that
# sleep while they wait.  The row before the last is the serial share by Amdahl's law, fitted by least squares over THREADS, which
# must contain 1; the last is the time that the rates of sgemm and dgemm allow for one forward pass, the Gram matrices, their
# factors and the updates on all threads.  Fails if the checkpoints of a command differ between numbers of threads.
set -eu
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE
peer=
[ "${1:-}" != --peer ] || { peer=yes; shift; }
[ $# -eq 1 ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
. "$(dirname "$0")/timed.sh"
write=$(dirname "$make")/write_format
blocks=${BLOCKS:-4}
shape=${SHAPE:-qwen3-0.6b}
model=$folder/$shape-$blocks
[ -d "$model" ] || "$make" --shape "$shape" --blocks "$blocks" --vocab 4096 --output "$model" >&2

measure()    # measure NAME THREADS COMMAND: a row
{
    name=$1 threads=$2
    shift 2
    rm -rf "$folder/out" "$folder/out.lock.json" "$folder/s.db" "$folder/s.db.blobs" "$folder/s.db.lock"
    if ! /usr/bin/time -o "$folder/time" -f '%e %U %S %M %F %R' "$@" >"$folder/said" 2>&1; then
        echo "cores.sh: $name failed:" >&2
        tail -n 5 "$folder/said" >&2
        exit 1
    fi
    awk -v name="$name" -v threads="$threads" \
        '{ printf "%s,%s,%.2f,%.2f,%.2f,%.0f,%d,%d\n", name, threads, $1, $2 + $3, ($2 + $3) / $1, $4 / 1024, $5, $6 }' \
        "$folder/time"
}

# Set by some rows of this script: WITH, variables for the program, "NAME=VALUE", and part of the row's name; ALONE, options
# that leave out what comes after quantization.
ALONE='--guard-samples 0 --no-eval'
quantize()    # quantize THREADS WORDS...
{
    threads=$1
    shift
    # shellcheck disable=SC2086 # several variables, several options
    measure "${WITH:+$WITH }calm $*" "$threads" env $WITH "$calm" quantize --model "$model" $ALONE --quiet \
        --threads "$threads" --output "$folder/out" --store "$folder/s.db" "$@"
}

# Compares the checkpoint of a command with the first number of threads and with others.
same_bytes()    # same_bytes NAME THREADS
{
    digest=$(cat "$folder/out"/*.safetensors | sha256sum)
    first=$(sed -n "s/^$1 //p" "$folder/digests")
    [ -n "$first" ] || echo "$1 $digest" >>"$folder/digests"
    [ "${first:-$digest}" = "$digest" ] && return
    echo "cores.sh: $1 on $2 threads wrote another checkpoint than on fewer" >&2
    exit 1
}

rows=${ROWS:-gptq bf16 balanced windows rtn waits bound}
wanted()    # wanted ROW
{
    case " $rows " in *" $1 "*) ;; *) return 1 ;; esac
}

WITH=
: >"$folder/digests"
: >"$folder/walls"
"$calm" --version >&2
echo name,threads,wall_seconds,cpu_seconds,busy_cores,peak_mib,major_faults,minor_faults
most=1
for threads in ${THREADS:-1 2}; do
    [ "$threads" -lt "$most" ] || most=$threads
    if wanted gptq; then
        quantize "$threads" --bits 4 --samples 8 --seqlen 2048 --algorithms gptq
        echo "$threads $(cut -d ' ' -f 1 "$folder/time")" >>"$folder/walls"
        same_bytes gptq "$threads"
    fi
    if wanted bf16; then
        quantize "$threads" --bits 4 --samples 8 --seqlen 2048 --algorithms gptq --calib-dtype bf16
        same_bytes bf16 "$threads"
    fi
    if wanted balanced; then
        before=$ALONE ALONE=
        quantize "$threads" --bits 4 --samples 8 --seqlen 2048 --preset balanced
        ALONE=$before
        same_bytes balanced "$threads"
    fi
    for windows in 1 2 0; do
        wanted windows || continue
        quantize "$threads" --bits 4 --samples 8 --seqlen 2048 --algorithms gptq --score-samples $windows
    done
    if wanted rtn; then
        quantize "$threads" --bits 4 --algorithms rtn --score-samples 0
        same_bytes rtn "$threads"
    fi
done
for WITH in OMP_WAIT_POLICY=passive OPENBLAS_CORETYPE=Prescott; do
    ! wanted waits || quantize "$most" --bits 4 --samples 8 --seqlen 2048 --algorithms gptq
done
WITH=

if [ -n "${CALM_LLAMA_CPP:-}" ]; then
    [ -d "$folder/float-$blocks" ] || "$write" "$model" "$folder/float-$blocks" gguf float >&2
    for threads in ${THREADS:-1 2}; do
        quantize "$threads" --format gguf --gguf-type Q4_0 --algorithms rtn --score-samples 0
        measure "llama-quantize Q4_0" "$threads" "$CALM_LLAMA_CPP/llama-quantize" "$folder/float-$blocks/model.gguf" \
            "$folder/peer.gguf" Q4_0 "$threads"
    done
    rm -f "$folder/peer.gguf"
fi

if [ -n "$peer" ]; then
    python=${PYTHON:-$folder/venv/bin/python}
    if [ -z "${PYTHON:-}" ] && [ ! -x "$python" ]; then
        python3 -m venv "$folder/venv"
        "$python" -m pip install -q --no-input llmcompressor >&2
    fi
    export CUDA_VISIBLE_DEVICES=
    cat >"$folder/peer.py" <<'PY'
import sys, torch
from datasets import Dataset
from llmcompressor import oneshot
from llmcompressor.modifiers.quantization import GPTQModifier
from transformers import AutoModelForCausalLM, AutoTokenizer
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=getattr(torch, sys.argv[4]))
ids = AutoTokenizer.from_pretrained(sys.argv[1])(open(sys.argv[2]).read())["input_ids"]
rows = [{"input_ids": ids[i * 2048:(i + 1) * 2048], "attention_mask": [1] * 2048} for i in range(8)]
oneshot(model=model, dataset=Dataset.from_list(rows), max_seq_length=2048, num_calibration_samples=8,
        recipe=GPTQModifier(targets="Linear", scheme="W4A16", ignore=["lm_head"]))
model.save_pretrained(sys.argv[3], save_compressed=True)
PY
    version=$("$python" -c 'import llmcompressor as l; print(l.__version__)' 2>/dev/null | tail -n 1)
    for dtype in ${DTYPES:-bfloat16 float32}; do
        measure "llm-compressor $version, $dtype" "$(nproc)" "$python" "$folder/peer.py" "$model" \
            "$CALM_HOME/recipes/text/wikitext2-valid.txt" "$folder/out" $dtype
    done
fi

# T(t) / T(1) - 1/t = s (1 - 1/t), as in calm bench scaling.
sort -n "$folder/walls" | awk 'NR == 1 { one = $2 }
    NR > 1 { rest = 1 - 1 / $1; above += ($2 / one - 1 / $1) * rest; below += rest * rest }
    END { if (below > 0) printf "serial share of calm gptq by Amdahl'"'"'s law: %.3f,all,,,,,,\n", above / below }'

wanted bound || exit 0
# Operations in float: 15.7 M weights of a block by 16384 tokens, twice; attention over half of 2048 keys; upper triangles of the
# Gram matrices for q, o, gate and down.  In double, for those four with I inputs and O outputs: 2/3 I^3 of the inverse's Cholesky factor (a
# Cholesky factorization and a triangular inverse) and O I^2 of GPTQ's updates.
"$calm" bench forward --json >"$folder/bench.json"
"$calm" bench quantize --repeats 10 --json >"$folder/double.json"
awk -v blocks="$blocks" -v cores="$(nproc)" '/"sgemm_gflops"/ { gsub(/[^0-9.]/, "", $2); rate = $2 }
    /"dgemm_gflops"/ { gsub(/[^0-9.]/, "", $2); double = $2 * cores }
    function job(outs, ins) { return 2 / 3 * ins ^ 3 + outs * ins ^ 2 }
    END {
        tokens = 16384
        flops = blocks * tokens * (2 * (1024 * 4096 + 2048 * 1024 + 3 * 1024 * 3072) + 4 * 1024 * 2048)
        flops += blocks * tokens * (2 * 1024 ^ 2 + 2048 ^ 2 + 3072 ^ 2)
        factors = blocks * (job(4096, 1024) + job(1024, 2048) + job(6144, 1024) + job(1024, 3072))
        if (rate > 0 && double > 0)
            printf "what sgemm and dgemm allow (%.0f and %.0f GFLOP/s),all,%.1f,,,,,\n", rate, double,
                   flops / rate / 1e9 + factors / double / 1e9
        else print "cores.sh: the machine is too busy for the rates of sgemm and dgemm" > "/dev/stderr"
    }' "$folder/bench.json" "$folder/double.json"
