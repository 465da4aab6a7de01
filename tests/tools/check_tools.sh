#!/bin/sh
# Tests the measuring programs: calm reads make_checkpoint's files; make_twin's model computes the same with other
# weights; peak_memory counts touched memory.
#
#   check_tools.sh FOLDER    where the programs and ../calm are
set -eu
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "check_tools: $1" >&2; exit 1; }
status() { set +e; "$@" > "$work/out" 2> "$work/err"; code=$?; set -e; }

# A qwen3 in two files, read by the program.
status "$bin/make_checkpoint" --shape tiny-qwen3 --output "$work/m" --blocks 2 --shard-size 500KB --seed 5
[ "$code" = 0 ] || fail "make_checkpoint: status $code: $(cat "$work/err")"
[ -f "$work/m/model-00002-of-00002.safetensors" ] || fail "no shards: $(ls "$work/m")"
status "$bin/../calm" inspect "$work/m"
[ "$code" = 0 ] || fail "calm inspect: status $code: $(cat "$work/err")"

# Refusals of make_checkpoint.
status "$bin/make_checkpoint" --shape tiny-qwen3 --output "$work/m"
[ "$code" = 1 ] || fail "an output that is there: status $code"
status "$bin/make_checkpoint" --shape tiny-qwen3
[ "$code" = 2 ] || fail "no output: status $code"
status "$bin/make_checkpoint" --shape tiny-qwen3 --output "$work/n" --shard-size 5XB
[ "$code" = 2 ] || fail "a wrong size: status $code"
status "$bin/make_checkpoint" --shape tiny-qwen3 --output "$work/n" --hidden 100
[ "$code" = 2 ] || fail "a width without whole heads: status $code"
status "$bin/make_checkpoint" --shape tiny-qwen3 --output "$work/n" --experts 4
[ "$code" = 2 ] || fail "experts of a dense model: status $code"
[ ! -e "$work/n" ] || fail "something was written"
status "$bin/make_checkpoint" --shape tiny-qwen3-moe --output "$work/wide" --hidden 128 --experts 5
[ "$code" = 0 ] || fail "another width: status $code: $(cat "$work/err")"
status "$bin/../calm" inspect "$work/wide"
[ "$code" = 0 ] || fail "a model of another width: status $code: $(cat "$work/err")"

# Outlier models: logits are of order 1 to 4; another order of float32 sums changes them by 1e-6 to 4e-6, a wrong factor
# in one tensor by 0.1.  qwen2 has biases, gemma2 norms stored minus 1.
echo '{"ids": [1, 2, 3, 40, 50, 60, 7, 8, 9, 100, 200, 300, 11, 12, 13, 14]}' > "$work/ids.jsonl"
logits() { status "$bin/../calm" forward -q --model "$work/$1" --tokens "$work/ids.jsonl" --output "$work/$1.logits"; }
for shape in qwen3 qwen2 gemma2 llama; do
    status "$bin/make_checkpoint" --shape "tiny-$shape" --output "$work/$shape" --seed 5
    status "$bin/make_twin" --model "$work/$shape" --output "$work/$shape-twin" --seed 2
    [ "$code" = 0 ] || fail "make_twin of $shape: status $code: $(cat "$work/err")"
    logits "$shape"
    logits "$shape-twin"
    status "$bin/compare_tensors" --a "$work/$shape.logits" --b "$work/$shape-twin.logits" --limit 2e-5
    [ "$code" = 0 ] || fail "the twin of $shape: $(cat "$work/out" "$work/err")"
done
# In all blocks 9 weights change; with --even those of block 1 do not.
changed() { grep "layers\.$1\." "$work/out" | grep -vc 'difference 0,' || true; }
status "$bin/compare_tensors" --a "$work/qwen3" --b "$work/qwen3-twin"
[ "$(changed 0) $(changed 1) $(changed 2)" = "9 9 9" ] || fail "the twin's weights: $(cat "$work/out" "$work/err")"
status "$bin/compare_tensors" --a "$work/qwen3" --b "$work/qwen3-twin" --limit 1
[ "$code" = 1 ] || fail "compare_tensors past its limit: status $code"
status "$bin/make_twin" --model "$work/qwen3" --output "$work/even" --seed 2 --even
status "$bin/compare_tensors" --a "$work/even" --b "$work/qwen3"
[ "$(changed 0) $(changed 1) $(changed 2)" = "9 0 9" ] || fail "an even twin's weights: $(cat "$work/out" "$work/err")"
status "$bin/make_twin" --model "$work/qwen3" --output "$work/even"
[ "$code" = 1 ] || fail "a twin that is there: status $code"
status "$bin/make_checkpoint" --shape tiny-qwen3-moe --output "$work/moe"
status "$bin/make_twin" --model "$work/moe" --output "$work/moe-twin"
[ "$code" = 1 ] || fail "a mixture's twin: status $code"
grep -q 'qwen3_moe, expected a float dense decoder' "$work/err" || fail "a mixture's twin: $(cat "$work/err")"
[ ! -e "$work/moe-twin" ] || fail "something was written"

# A mixture with the same function: the weights of a slice's two experts add up to 1/S within rounding, 1e-7 of an output
# for each block, like another order of sums.  An expert of the wrong slice or factor changes logits by 0.1.
status "$bin/make_twin" --model "$work/qwen3" --output "$work/qwen3-split" --split-mlp 4 --seed 2
[ "$code" = 0 ] || fail "make_twin --split-mlp: status $code: $(cat "$work/err")"
logits qwen3-split
status "$bin/compare_tensors" --a "$work/qwen3.logits" --b "$work/qwen3-split.logits" --limit 2e-5
[ "$code" = 0 ] || fail "the mixture of qwen3: $(cat "$work/out" "$work/err")"
grep -q 'difference 0,' "$work/out" && fail "the mixture of qwen3 computes as qwen3 does: no mixture"
status "$bin/make_twin" --model "$work/qwen3" --output "$work/odd" --split-mlp 3
{ [ "$code" = 2 ] && grep -q 'expected an even number' "$work/err"; } || fail "three experts: status $code"
status "$bin/make_twin" --model "$work/qwen2" --output "$work/odd" --split-mlp 4
{ [ "$code" = 1 ] && grep -q 'expected a qwen3' "$work/err"; } || fail "a mixture of qwen2: status $code"
[ ! -e "$work/odd" ] || fail "something was written"

# Smaller rows of gate and up after a larger norm.
status "$bin/make_twin" --model "$work/qwen3" --output "$work/qwen3-shrink" --shrink 64 --seed 2
logits qwen3-shrink
status "$bin/compare_tensors" --a "$work/qwen3.logits" --b "$work/qwen3-shrink.logits" --limit 2e-5
[ "$code" = 0 ] || fail "the shrunk twin: $(cat "$work/out" "$work/err")"
# Scales of up fall below the least scale of a grid, 2^-17, when input scales of down (up to 150) are folded into
# them; codes are fixed by then, so the scales must not be raised.  A power of two changes codes only in rows whose scale
# is below 2^-17 before folding: the losses are almost equal (docs/evidence/twins.csv); raised scales would lose 70 times as much.
qwen=$CALM_HOME/recipes/models/qwen-demo
loss_of() {    # loss_of NAME OPTIONS-OF-MAKE-TWIN...
    name=$1
    shift
    status "$bin/make_twin" --model "$qwen" --output "$work/$name" --seed 1 "$@"
    status "$bin/../calm" quantize --quiet --model "$work/$name" --scheme w8a8 --algorithms smoothquant --samples 4 \
        --seqlen 128 --guard-samples 0 --no-eval --store "$work/$name.db" --output "$work/$name-w8a8"
    [ "$code" = 0 ] || fail "W8A8 of $name: status $code: $(cat "$work/err")"
    status "$bin/../calm" eval --quiet --json --model "$work/$name-w8a8" --reference "$qwen" --seqlen 128 --samples 8
    tr ',{}' '\n\n\n' < "$work/out" | sed -n 's/^ *"kl": *\([-0-9.e+]*\).*/\1/p' | head -n 1
}
plain=$(loss_of outliers)
shrunk=$(loss_of shrunk --shrink 256)
awk -v a="$plain" -v b="$shrunk" 'BEGIN { exit !(a > 0 && b > 0 && b < 2 * a) }' ||
    fail "scales that were folded: KL $shrunk, of the twin with larger rows $plain"

# A massive first token: for ids without it the logits are the model's; for a text, which then begins with it, they differ.
status "$bin/make_twin" --model "$qwen" --output "$work/first" --first-token '<|endoftext|>' --seed 2
[ "$code" = 0 ] || fail "make_twin --first-token: status $code: $(cat "$work/err")"
ln -s "$qwen" "$work/demo"
logits first
logits demo
status "$bin/compare_tensors" --a "$work/first.logits" --b "$work/demo.logits"
grep -q 'logits: largest difference 0,' "$work/out" || fail "the twin with a first token: $(cat "$work/out" "$work/err")"
echo '{"ids": [4093, 2, 3, 40, 50]}' > "$work/ids.jsonl"
logits first
logits demo
status "$bin/compare_tensors" --a "$work/first.logits" --b "$work/demo.logits" --limit 0.1
[ "$code" = 1 ] || fail "a first token that is not massive: $(cat "$work/out" "$work/err")"
status "$bin/make_twin" --model "$qwen" --output "$work/none" --first-token '<none>'
{ [ "$code" = 1 ] && grep -q 'no added token <none>' "$work/err"; } || fail "a token that is none: status $code"
[ ! -e "$work/none" ] || fail "something was written"

# A store, and the documentation checked against one: a word in a comment, a digit in the rows of a query.
status "$bin/make_store" --output "$work/s.db" --runs 2 --jobs 4 --candidates 2 --scores 2
[ "$code" = 0 ] || fail "make_store: status $code: $(cat "$work/err")"
status "$bin/../calm" inspect "$work/s.db" runs
{ [ "$code" = 0 ] && [ "$(grep -c finished "$work/out")" = 2 ]; } || fail "a made store: $(cat "$work/out" "$work/err")"
status "$bin/make_store" --output "$work/s.db"
[ "$code" = 2 ] || fail "a store that is there: status $code"
status "$bin/make_store" --output "$work/n.db" --candidates 41
[ "$code" = 2 ] || fail "too many candidates: status $code"
[ ! -e "$work/n.db" ] || fail "something was written"
docs=$CALM_HOME/docs/store.md
for change in 's/joins tables/joins rows/' 's/^\(gptq-hls  *12 .*[0-9]\)$/\10/' 's/^```sql$/```/' 's/^<!-- schema -->$//'; do
    sed "$change" "$docs" > "$work/store.md"
    ! cmp -s "$docs" "$work/store.md" || fail "store_doc: $change changes nothing"
    status "$bin/store_doc" --docs "$work/store.md"
    { [ "$code" = 1 ] && [ ! -s "$work/out" ]; } || fail "store_doc after $change: status $code"
done
sed 's/joins tables/joins rows/; s/^\(gptq-hls  *12 .*[0-9]\)$/\10/' "$docs" > "$work/store.md"
status "$bin/store_doc" --docs "$work/store.md" --update
{ [ "$code" = 0 ] && cmp -s "$docs" "$work/store.md"; } || fail "store_doc --update: status $code: $(cat "$work/err")"

# Pages made from tables: a word of a table, and a page without its marks.
for page in commands:commands keys:recipes rules:check metrics:method algorithms:method; do
    docs=$CALM_HOME/docs/${page#*:}.md
    for change in '/^| `*[a-zA-Z-]/s/ the / a /' '/^<!-- \/.* -->$/d'; do
        sed "$change" "$docs" > "$work/page.md"
        ! cmp -s "$docs" "$work/page.md" || fail "pages: $change changes nothing in $docs"
        status "$bin/pages" --page "${page%:*}" --docs "$work/page.md"
        { [ "$code" = 1 ] && [ ! -s "$work/out" ]; } || fail "pages after $change in $docs: status $code"
    done
    sed '/^| `*[a-zA-Z-]/s/ the / a /' "$docs" > "$work/page.md"
    status "$bin/pages" --page "${page%:*}" --docs "$work/page.md" --update
    [ "$code" = 0 ] || fail "pages --update of $docs: status $code: $(cat "$work/err")"
    status "$bin/pages" --page "${page%:*}" --docs "$work/page.md"
    [ "$code" = 0 ] || fail "pages after --update of $docs: status $code: $(cat "$work/err")"
done
status "$bin/pages" --page none --docs "$work/page.md"
[ "$code" = 2 ] || fail "pages of no table: status $code"

# Names in pages: a link, a path, a file, a word, and README's command, all missing; then all present.
mkdir -p "$work/pages/docs/evidence" "$work/pages/ptq"
echo a,b > "$work/pages/docs/evidence/table.csv"
cat > "$work/pages/README.md" <<'END'
[a](docs/a.md) [b](https://example.org/b) `ptq/a.c` `a.h` `calm_a` `ptq/<name>.c`
END
pages=$CALM_HOME/tests/tools/check_pages.sh
status "$pages" "$work/pages"
{ [ "$code" = 1 ] && [ "$(wc -l < "$work/out")" = 6 ]; } || fail "check_pages: status $code: $(cat "$work/out")"
printf '\n./calm quantize --model qwen\n' >> "$work/pages/README.md"
echo > "$work/pages/docs/a.md"
echo '`table`' > "$work/pages/docs/evidence/README.md"
echo 'int calm_a(void);' > "$work/pages/ptq/a.h"
echo > "$work/pages/ptq/a.c"
status "$pages" "$work/pages"
[ "$code" = 0 ] || fail "check_pages of good pages: status $code: $(cat "$work/out" "$work/err")"

# Commands of a page: they run; one that fails; one in a block that is not run.
page_runs() { printf '%s\n' "$@" > "$work/run.md"; status "$CALM_HOME/tests/tools/run_pages.sh" "$bin/..:$bin" "$work/run.md"; }
page_runs '```sh' 'calm --version' '```'
[ "$code" = 0 ] || fail "run_pages of a good page: status $code: $(cat "$work/out" "$work/err")"
page_runs '```sh' 'calm --version' 'calm inspect none.db' '```'
{ [ "$code" = 1 ] && grep -q 'ended with status' "$work/out"; } || fail "run_pages of a command that fails: status $code"
page_runs '```sh' 'calm --version' '```' '```' 'calm inspect none.db' '```'
{ [ "$code" = 1 ] && grep -q 'outside of a block of sh' "$work/out"; } || fail "run_pages of a block that is not run: status $code"

# dd keeps its block in memory: 80 MB in one read and write.
status "$bin/peak_memory" dd if=/dev/zero of=/dev/null bs=80000000 count=1
[ "$code" = 0 ] || fail "peak_memory: status $code: $(cat "$work/err")"
peak=$(sed -n 's/^peak_memory: .* peak \([0-9]*\)\.[0-9]* MB$/\1/p' "$work/err")
{ [ "${peak:-0}" -ge 80 ] && [ "$peak" -le 100 ]; } || fail "peak of dd: $(cat "$work/err")"
status "$bin/peak_memory" sh -c 'exit 7'
[ "$code" = 7 ] || fail "status of the command: $code"
status "$bin/peak_memory" sh -c 'kill -9 $$'
[ "$code" = 137 ] || fail "status after a signal: $code"
status "$bin/peak_memory" "$work/none"
[ "$code" = 127 ] || fail "status of no command: $code"
