#!/bin/sh
# Every fault that make_malformed can put into a file, through every command that reads such a file.  Each command refuses
# the file in one sentence, or does not use the wrong part; none ends by a signal, runs for long, or takes memory that the
# file has no data for.
#
#   malformed.sh GOOD PLACE TEXT    GOOD: the intact file.  PLACE: where its broken form is read from: a name in .gguf, or
#                                   the directory of a model with all other files.  TEXT: to calibrate and evaluate on
#
# Prints a line for each command that did something else; eval and check must refuse every fault.
set -u
good=$1 place=$2 text=$3
case $place in *.gguf) file=$place ;; *) file=$place/$(basename "$good") ;; esac
brief="--samples 2 --seqlen 16 --calib $text --no-eval --guard-samples 0 --algorithms rtn"

# AddressSanitizer maps more memory than any limit that would be of use here.
limit=4000000
grep -q __asan_init "$(command -v calm)" && limit=unlimited

try() {    # try FAULT WORD...
    fault=$1
    shift
    (ulimit -v $limit; timeout 120 calm "$@" --quiet > stdout 2> stderr)
    code=$?
    case $code in
    0) ;;
    1 | 2 | 3) [ -s stdout ] || grep -q '^calm' stderr || echo "$fault: $1: status $code without a word" ;;
    *) echo "$fault: $1: status $code: $(head -c 300 stderr)" ;;
    esac
    [ "$(wc -c < stderr)" -lt 2000 ] || echo "$fault: $1: $(wc -c < stderr) bytes of words"
    rm -rf out out.lock.json
    return $code
}

make_malformed --from "$good" --list > faults
while read -r fault; do
    make_malformed --from "$good" --fault "$fault" --output "$file" || echo "$fault: not made"
    try "$fault" check "$place" && echo "$fault: check takes it"
    try "$fault" eval --model "$place" --samples 1 --seqlen 16 --text "$text" && echo "$fault: eval takes it"
    try "$fault" inspect "$place"
    try "$fault" inspect "$place" linears
    try "$fault" dequantize "$place" --output out
    try "$fault" quantize --model "$place" $brief --store broken.db --output out
    try "$fault" tokenize --model "$place" "$text"
    [ ! -s good.db ] || try "$fault" export 1 --store good.db --model "$place" --format gguf --output out
done < faults
echo "$(wc -l < faults) faults"
rm -rf faults stdout stderr broken.db* "$file"
