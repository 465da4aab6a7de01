#!/bin/sh
# Tests pages of calm report in a real browser: Debian's chromium and chromium-driver, and from PyPI selenium, pillow and
# axe-selenium-python (which has axe-core).
#
#   report_browser.sh FOLDERS-OF-PROGRAMS
#
# Python is $CALM_BROWSER_PYTHON, else $CALM_PYTHON, else python3.  Where a part is not installed the test is skipped (exit
# status 77) and says which.  CALM_REPORT_PAGES=DIR keeps the pages in DIR/calm-report-pages for the
# next run, as long as the program is the same.  CALM_SCREENSHOTS=DIR writes the pictures of docs/report.md to DIR.
set -eu

PATH=$1:$PATH
here=$(cd "$(dirname "$0")" && pwd)
python=${CALM_BROWSER_PYTHON:-${CALM_PYTHON:-python3}}
for program in chromium chromedriver; do
    command -v "$program" >/dev/null || { echo "SKIP: no $program (apt-get install chromium chromium-driver)"; exit 77; }
done
"$python" -c 'import selenium, PIL, axe_selenium_python' 2>/dev/null ||
    { echo "SKIP: no Python with selenium, pillow and axe-selenium-python (CALM_BROWSER_PYTHON)"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
pages=${CALM_REPORT_PAGES:-$work}/calm-report-pages
mkdir -p "$pages"
cd "$pages"
pages=$PWD
program=$(sha256sum "$(command -v calm)" "$here/report_stores.py" "$0" | sha256sum)

make_pages() {
    head -c 30000 "$CALM_HOME/recipes/text/wikitext2-valid.txt" >text.txt
    small="--samples 8 --seqlen 64 --score-samples 2 --guard-samples 4 --calib text.txt --quiet"
    one="--eval-text text.txt --eval-samples 4"

    # Runs 1 to 4 of one store: the bundled model at W4 and at W4A4, a list of budgets, an ablation.
    calm quantize --model qwen --bits 4 --algorithms rtn,gptq,mkq $small $one --output w4 --store runs.db >log
    calm quantize --model qwen --scheme w4a4_g128 --algorithms rtn,smoothquant,gptq $small $one --output w4a4 --store runs.db >log
    calm quantize --model qwen --scheme w4a16_g128,w3a16_g128 --budget 3.3,3.7,4.1 --algorithms rtn --blocks 0 $small $one --store runs.db >log
    calm ablate --model qwen --schemes w4a16_g128 --algorithms rtn,gptq --brief --blocks 0 --samples 8 --seqlen 64 \
        --score-samples 2 --calib text.txt $one --store runs.db --quiet >log
    calm ablate --model qwen --schemes w4a16_g128,w3a16_g128,w2a16_g128 --algorithms rtn,gptq --brief --blocks 0 --samples 8 --seqlen 64 \
        --score-samples 2 --calib text.txt $one --store schemes.db --report schemes.html --quiet >log
    calm report 1 2 3 --store schemes.db --json >schemes.json
    # An encoder; a mixture with failures.
    write_families families >log
    calm quantize --model families/bert --scheme w8a8 --algorithms rtn,gptq --tokens families/tokens.jsonl --samples 8 --seqlen 32 \
        --guard-samples 2 --no-eval --output bert --store bert.db --quiet >log
    make_store --output moe.db --runs 1 --jobs 84 --candidates 12 --models 1 --experts 8 >log
    make_store --output large.db --runs 1 --jobs 1000 --candidates 20 --models 1 >log

    "$python" "$here/report_stores.py" runs.db
    for page in w4:runs:1 w4a4:runs:2 budgets:runs:3 ablation:runs:4 bert:bert:1 moe:moe:1 large:large:1 \
        stopped:stopped:1 timed:timed:1 hostile:hostile:1 older:older:1; do
        run=${page##*:} rest=${page%:*}
        calm report "$run" --store "${rest#*:}.db" -o "${page%%:*}.html" --quiet
        calm report "$run" --store "${rest#*:}.db" --json >"${page%%:*}.json"
    done
    calm report 1 2 --store runs.db -o two.html --quiet
    calm report 1 2 --store runs.db --json >two.json
    calm report --store empty.db -o empty.html --quiet
    calm report --store empty.db --json >empty.json
}
if [ "$(cat made 2>/dev/null)" != "$program" ]; then
    rm -rf "$pages"/*
    make_pages
    echo "$program" >made
fi
"$python" "$here/report_browser.py" "$pages" ${CALM_SCREENSHOTS:+"$CALM_SCREENSHOTS"}
