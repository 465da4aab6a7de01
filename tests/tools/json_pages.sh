#!/bin/sh
# Makes the keys of --json in docs/json.md and the columns of calm inspect in docs/inspect.md from the program's output.
#
#   json_pages.sh PROGRAMS [--update]      PROGRAMS: folders of calm, json_shape and write_families, as of PATH
#
# Runs each command on a small model, and compares the lines between <!-- NAME --> and <!-- /NAME --> of the two pages with
# the printed members (--update: writes them).  A member's type comes from any of the command's runs.
set -eu
PATH=$1:$PATH
export PATH
docs=${CALM_HOME:?}/docs
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/parts" "$work/in"
cd "$work/in"

# run HEADING WORDS...: prints the members of a command's --json output, one per line, after the heading.  A status other than
# 0 is allowed; output that is no JSON is a failure.
run() {
    heading=$1
    shift
    calm "$@" --json > "$work/json" 2> "$work/said" || true
    json_shape all < "$work/json" > "$work/members" || { echo "calm $*:"; cat "$work/said"; exit 1; } >&2
    # members named by data (histograms by hook point, facts of a machine) or described elsewhere (recipes) have no row
    grep -vE '\.(histograms|recipe|document)\.|^\.?(facts\.|warnings\[\]: )' "$work/members" | awk '!seen[$0]++' | sed "s/^/$heading	/" >> "$work/shapes"
}

head -c 30000 "$CALM_HOME/recipes/text/wikitext2-valid.txt" > text.txt
head -c 60000 "$CALM_HOME/recipes/text/wikitext2-valid.txt" | tail -c 30000 > second.txt
printf '{"context": "One", "choices": [" two", " three"], "answer": %d}\n' 0 1 > tasks.jsonl
printf '{"calm_recipe": 1, "model": "qwen", "shcemes": []}\n' > bad.json
write_families families > "$work/said"
openssl ecparam -name prime256v1 -genkey -noout -out key.pem
small='--model qwen --calib text.txt --samples 10 --seqlen 32 --score-samples 1 --quiet'
# shellcheck disable=SC2086 # several options
{
    run quantize quantize $small --calib second.txt --bits 4 --blocks 0-1 --algorithms rtn,gptq --eval-text text.txt --eval-samples 2 --guard-samples 2 \
        --gate 'ppl_ratio <= 9' --target vllm --learn both --learn-steps 50 --output out --store calm.db
    run quantize quantize $small --bits 4 --blocks 0 --algorithms rtn,gptq --budget 4.2 --scheme w4a16_g128,w8a16_g128 --target vllm \
        --guard-samples 2 --no-eval --output two --store calm.db
    run 'quantize, several budgets' quantize $small --blocks 0 --algorithms rtn --budget 4.2,5 --scheme w4a16_g128,w8a16_g128 \
        --guard-samples 2 --eval-text text.txt --eval-samples 2 --output budgets --store calm.db
    run 'quantize --dry-run' quantize $small --bits 4 --learn blocks --dry-run
    run select select 1 --store calm.db --dry-run
    run select select 2 --store calm.db --dry-run --target vllm
    run assemble assemble 2 --store calm.db -o again -q
    run export export 2 --store calm.db --format gptq -o gptq -q
    run verify verify --output-only out out.lock.json
    run verify verify --output-only gptq out.lock.json
    run eval eval -q --model out --reference qwen --text text.txt --samples 1 --seqlen 32 --worst 1 --detail
    run 'eval --tasks' eval -q --model out --reference qwen --tasks tasks.jsonl
    run generate generate -q --model qwen --prompt 'The history of' --max-tokens 4
    run 'eval, encoder' eval -q --model families/bert --reference families/bert --tokens families/tokens.jsonl
    run ablate ablate $small --schemes w4a16_g128 --algorithms rtn,gptq --guard-samples 2 --probe-samples 1 --eval-samples 2 --seeds 5,6 \
        --eval-text text.txt --output evidence --store calm.db
    run check check gptq --target mlx
    run 'check --list' check --list
    run gc gc --store calm.db --drop 2 --dry-run
    run 'pull --list' pull --list
    run 'recipe check' recipe check bad.json
    run 'recipe list' recipe list
    run algorithms algorithms
    run 'bench forward' bench forward --repeats 10 --tokens 16 --hidden 64 --inner 64
    run 'bench backward' bench backward --repeats 10 --tokens 16 --hidden 64 --inner 64
    run 'bench scaling' bench scaling --repeats 10 --tokens 16 --hidden 64 --inner 64
    run 'bench gram' bench gram --repeats 10 --tokens 16
    run 'bench quantize' bench quantize --repeats 10 --hidden 128 --inner 128
    run 'bench kernels' bench kernels --repeats 10 --tokens 1 --hidden 64 --inner 64
    run 'bench code' bench code --repeats 10 --hidden 64 --inner 64
    run 'bench cluster' bench cluster $small --bits 4 --algorithms rtn --eval-samples 2 --threads 1 --bandwidth 10 --ranks 1,2
    run report report 1 --store calm.db
    run embed embed -q --batch 2 --model families/bert --tokens families/tokens.jsonl --output embeddings.npy
    run sign sign --key key.pem out
    run push push --dry-run out me/model
    run doctor doctor --no-hub
}

# ---- docs/json.md ----

# One line per object: its name, and its members with their types: s text, n number, b true or false, {} object, [] list;
# null where no run had a value.
awk -F'\t' '
    function word(type) { return type == "string" ? "s" : type == "int" || type == "real" ? "n" : type == "bool" ? "b" : type == "object" ? "{}" : type == "array" ? "[]" : type }
    {
        heading = $1; colon = index($2, ": ")
        path = substr($2, 1, colon - 1); type = word(substr($2, colon + 2))
        if (type == "null" && heading ~ /^bench/) type = "n"    # a figure that was too noisy to print
        if (!(heading in seen)) { seen[heading] = 1; order[++n_headings] = heading }
        key = heading SUBSEP path
        if (!(key in types)) { paths[heading, ++n[heading]] = path; types[key] = type }
        else if (types[key] == "null" || types[key] == "[]") types[key] = type == "null" ? types[key] : type
    }
    END {
        for (h = 1; h <= n_headings; h++) {
            heading = order[h]
            printf "%s### %s\n\n", (h > 1 ? "\n" : ""), heading
            n_rows = 0; delete row; delete at
            for (i = 1; i <= n[heading]; i++) {
                path = paths[heading, i]; type = types[heading, path]
                if (path ~ /\[\]$/) {
                    if (type == "{}" || type == "[]") continue
                    owner = path; sub(/(\[\])+$/, "", owner)
                    if ((heading, owner) in lists && lists[heading, owner] != type) type = ""
                    lists[heading, owner] = type
                }
            }
            for (i = 1; i <= n[heading]; i++) {
                path = paths[heading, i]; type = types[heading, path]
                if (path ~ /\[\]$/) continue
                parent = path; leaf = path
                if (match(path, /.*\./)) { parent = substr(path, 1, RLENGTH - 1); leaf = substr(path, RLENGTH + 1) } else parent = ""
                if ((heading, path) in lists) type = "[" lists[heading, path] "]"
                if (!(parent in at)) { at[parent] = ++n_rows; name[n_rows] = parent }
                row[at[parent]] = row[at[parent]] (row[at[parent]] == "" ? "" : ", ") "`" leaf "` " type
            }
            for (i = 1; i <= n_rows; i++) print "- " (name[i] == "" ? "" : "`" name[i] "`: ") row[i]
        }
    }' "$work/shapes" > "$work/parts/shapes"

# ---- docs/inspect.md ----

# Prints the sections of a view and their columns, from the headings of its CSV.
columns() {    # columns WHAT < CSV
    tr -d '\r' | awk -v what="$1" '
        NR == 1 && /,/ { print what "\t" $0; exit }
        (NR == 1 || blank) && /^[a-z0-9_]+$/ { section = $0; blank = 0; next }
        section != "" { print section "\t" $0; section = "" }
        { blank = $0 == "" }' |
        awk -F'\t' '{ gsub(/,/, ", ", $2); print "- `" $1 "`: " $2 }'
}
for what in summary runs show layers blocks candidates scores choices why activations evaluations rate ablation diff; do
    words=
    [ $what != diff ] || words='1 2'
    [ $what != why ] || words='1 --unit 0.qkv'
    [ $what != activations ] || words=1
    # shellcheck disable=SC2086
    calm inspect calm.db $what $words --csv > "$work/csv"
    columns $what < "$work/csv" > "$work/parts/$what"
done
for what in summary blocks linears; do
    calm inspect out $what --csv | columns $what
done > "$work/parts/model"

# ---- the pages ----

# A member may appear only on some CPUs (a tie of the guard), so docs/json.md must have the printed members, and may
# have more; the columns of docs/inspect.md are the same everywhere.
members() {    # members < PAGE: "HEADING OBJECT MEMBER" of each
    awk '/^<!-- shapes -->$/ { inside = 1 } /^<!-- \/shapes -->$/ { inside = 0 }
        inside && /^### / { heading = substr($0, 5) }
        inside && /^- / {
            line = $0; sub(/^- /, "", line); object = ""
            if (match(line, /^`[^`]*`: /)) { object = substr(line, 1, RLENGTH - 2); line = substr(line, RLENGTH + 1) }
            n = split(line, part, ", ")
            for (i = 1; i <= n; i++) { split(part[i], word, "`"); print heading " " object " `" word[2] "`" }
        }'
}
failed=0
for page in json inspect; do
    awk -v parts="$work/parts" '
        /^<!-- \/[a-z]+ -->$/ { inside = 0 }
        !inside { print }
        /^<!-- [a-z]+ -->$/ {
            file = parts "/" $2
            while ((getline line < file) > 0) print line
            inside = 1
        }' "$docs/$page.md" > "$work/$page.md"
    cmp -s "$work/$page.md" "$docs/$page.md" && continue
    if [ "${2-}" = --update ]; then
        cp "$work/$page.md" "$docs/$page.md"
        continue
    fi
    if [ $page = json ]; then
        members < "$docs/json.md" > "$work/known"
        members < "$work/json.md" | grep -vxF -f "$work/known" > "$work/lacking" || true
    else
        diff "$docs/$page.md" "$work/$page.md" > "$work/lacking" || true
    fi
    [ -s "$work/lacking" ] || continue
    head -20 "$work/lacking"
    echo "docs/$page.md does not have what the program prints: ninja docs writes it"
    failed=1
done
exit $failed
