#!/bin/sh
# With pinned kernels, CPUs of other types give the same bytes: a lock that is written here is verified on emulated CPUs.
#
#   other_cpu.sh FOLDER-OF-PROGRAMS
#
# Skipped (exit status 77) without qemu-x86_64 (Debian: qemu-user), or where this CPU cannot run the kernels itself.
set -eu

PATH=$1:$PATH
command -v qemu-x86_64 >/dev/null || { echo 'SKIP: no qemu-x86_64 (apt-get install qemu-user)'; exit 77; }
grep -q -m 1 -w avx2 /proc/cpuinfo || { echo 'SKIP: this CPU has no AVX2 (another machine)'; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
head -c 20000 "$CALM_HOME/recipes/text/wikitext2-valid.txt" >text.txt
calm quantize --model qwen --bits 4 --blocks 0 --samples 2 --seqlen 24 --score-samples 1 --guard-samples 1 \
    --algorithms rtn,gptq-hls --calib text.txt --eval-text text.txt --eval-samples 1 --kernels Haswell --quiet \
    --lock run.lock.json -o out >/dev/null
for cpu in Haswell EPYC; do
    echo "$cpu:"
    # The variable keeps calm from starting itself anew, which would leave the emulator.
    OPENBLAS_CORETYPE=Haswell qemu-x86_64 -cpu "$cpu" "$1/calm" verify run.lock.json --threads 1 --quiet 2>qemu.err ||
        { status=$?; cat qemu.err; exit $status; }
done
# The comparison can fail: other kernels give other bytes.
if calm --version | grep -q -E 'kernels (SkylakeX|Cooperlake)'; then
    calm quantize --model qwen --bits 4 --blocks 0 --samples 2 --seqlen 24 --score-samples 1 --guard-samples 1 \
        --algorithms rtn,gptq-hls --calib text.txt --eval-text text.txt --eval-samples 1 --quiet -o other \
        --lock other.lock.json >/dev/null
    if calm verify --output-only other run.lock.json >/dev/null 2>&1; then
        echo 'kernels of two families gave the same bytes: this test shows nothing'
        exit 1
    fi
fi
