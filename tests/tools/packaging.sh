#!/bin/sh
# Checks that the recipes of packages/ agree with packages.txt and CMakeLists.txt:  packaging.sh [ROOT]
#
#   Dockerfile   known instructions; installs only calm's build packages; removes apt's lists; ends with a user
#                without rights whose entry point is calm
#   conda        the version of CMakeLists.txt; a package for every library that calm links
#   Homebrew     the version; the column `brew` of packages.txt, no more
#   sbom.sh      the same bytes twice; JSON whose relationships name existing packages (with python3)
#
# Without ROOT it also shows that each check can fail, on copies.  Prints one line per finding; exit status 1 if there is one.
set -eu
export LC_ALL=C
root=${1:-$(cd "$(dirname "$0")/../.." && pwd)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$(sed -n 's/^project(calm VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
found=$work/found
: > "$found"
say() { echo "$*" >> "$found"; }
same() {    # same FILE WHAT: checks that two sorted lists are equal
    comm -3 "$work/there" "$work/wanted" | while read -r name; do
        grep -qxF -- "$name" "$work/wanted" && say "$1: $2: $name is missing" || say "$1: $2: $name is not in packages.txt"
    done
}
builds() { awk '!/^#/ && $2 == "build"' "$root/packages.txt"; }

# ---- Dockerfile ----
file=packages/Dockerfile
sed -e ':a' -e '/\\$/N; s/\\\n/ /; ta' "$root/$file" | grep -v -e '^ *#' -e '^ *$' > "$work/steps"
grep -vE '^(ARG|FROM|RUN|COPY|ENV|USER|WORKDIR|ENTRYPOINT|CMD) ' "$work/steps" | while read -r step; do say "$file: not an instruction: $step"; done
grep '^FROM ' "$work/steps" | grep -vE '^FROM debian:\$\{DEBIAN\}-slim( AS [a-z]+)?$' | while read -r step; do say "$file: $step: expected Debian, slim"; done
grep 'apt-get update' "$work/steps" | grep -v 'rm -rf /var/lib/apt/lists/\*' | while read -r step; do say "$file: it keeps the lists of apt: $step"; done
awk '/^FROM / { user = entry = "" } /^USER / { user = $2 } /^ENTRYPOINT / { entry = $0; last = user }
     /^RUN / && user { late = 1 } END { if (entry != "ENTRYPOINT [\"calm\"]") print "the entry point is not calm"
     if (last == "" || last == "root" || last == 0) print "it runs as root"; if (late) print "RUN after USER" }' "$work/steps" |
    while read -r what; do say "$file: $what"; done
grep -m 1 'apt-get install' "$work/steps" | sed 's/.*--no-install-recommends//; s/&&.*//' | tr -s ' ' '\n' | grep . | sort > "$work/there"
{ builds | awk '{ print $1 }'; echo dpkg-dev; echo file; } | sort > "$work/wanted"    # cpack -G DEB needs the last two
same "$file" 'packages of the build'

# ---- conda ----
file=packages/conda/meta.yaml
grep -q "^{% set version = \"$version\" %}\$" "$root/$file" || say "$file: the version is not $version"
awk '/^  host:/ { host = 1; next } /^  [a-z]+:/ { host = 0 } host && $1 == "-" { print $2 }' "$root/$file" > "$work/host"
builds | awk '$3 ~ /^pkg:/ { print $NF }' > "$work/linked"
while read -r name; do
    grep -qE "^(lib)?$name(e|3)?\$" "$work/host" || say "$file: host has no $name, which calm links"
done < "$work/linked"
[ "$(wc -l < "$work/host")" = "$(wc -l < "$work/linked")" ] || say "$file: host has $(wc -l < "$work/host") packages, calm links $(wc -l < "$work/linked")"

# ---- Homebrew ----
file=packages/homebrew/calm.rb
grep -q "^  version \"$version\"\$" "$root/$file" || say "$file: the version is not $version"
sed -n 's/^  depends_on "\([^"]*\)".*/\1/p' "$root/$file" | sort > "$work/there"
builds | awk '$NF != "-" { print $NF }' | sort -u > "$work/wanted"
same "$file" depends_on
! command -v ruby > /dev/null || ruby -c "$root/$file" > /dev/null 2>&1 || say "$file: not Ruby"

# ---- SBOM ----
file=packages/sbom.sh
SOURCE_DATE_EPOCH=1 "$root/$file" > "$work/one.json" 2> "$work/said" || say "$file: $(cat "$work/said")"
SOURCE_DATE_EPOCH=1 "$root/$file" > "$work/two.json" 2> /dev/null || :
cmp -s "$work/one.json" "$work/two.json" || say "$file: other bytes the second time"
if command -v python3 > /dev/null; then
    python3 - "$work/one.json" "$(builds | wc -l)" > "$work/said" 2>&1 <<'END' || say "$file: $(tail -n 1 "$work/said")"
import json, sys
document = json.load(open(sys.argv[1]))
ids = [p["SPDXID"] for p in document["packages"]] + [document["SPDXID"]]
assert document["spdxVersion"] == "SPDX-2.3" and document["dataLicense"] == "CC0-1.0", "not SPDX 2.3"
assert len(ids) == len(set(ids)) == int(sys.argv[2]) + 2, f"{len(ids) - 2} packages, packages.txt has {sys.argv[2]}"
for row in document["relationships"]:
    assert row["spdxElementId"] in ids and row["relatedSpdxElement"] in ids, f"a relationship of nothing: {row}"
assert len(document["relationships"]) == len(ids) - 1, "a package without a relationship"
END
else
    [ $# -gt 0 ] || echo 'SKIP: the JSON of sbom.sh: no python3 (apt-get install python3)'
fi

cat "$found"
[ ! -s "$found" ] || exit 1
[ $# -eq 0 ] || exit 0

# ---- each can fail ----
fails() {    # fails FILE SCRIPT WORDS: checks that FILE changed by sed SCRIPT gives a finding with WORDS
    rm -rf "$work/tree"
    mkdir -p "$work/tree"
    cp -r "$root/packages" "$root/packages.txt" "$root/CMakeLists.txt" "$work/tree/"
    sed -i "$2" "$work/tree/$1"
    if said=$("$0" "$work/tree"); then echo "$1 with $2: nothing was found"; exit 1; fi
    case $said in *"$3"*) ;; *) echo "$1 with $2: \"$said\", expected \"$3\""; exit 1 ;; esac
}
fails packages/Dockerfile '/libssl-dev/d' 'libssl-dev is missing'
fails packages/Dockerfile 's/ninja-build/ninja-build telnet/' 'telnet is not in packages.txt'
fails packages/Dockerfile '/^USER/d' 'it runs as root'
fails packages/Dockerfile 's/^USER .*/USER root/' 'it runs as root'
fails packages/Dockerfile 's/^WORKDIR/WORKDIRR/' 'not an instruction'
fails packages/Dockerfile 's/^ENTRYPOINT .*/ENTRYPOINT ["sh"]/' 'the entry point is not calm'
fails packages/Dockerfile 's/-slim$/-full/' 'expected Debian, slim'
fails packages/Dockerfile 's,rm -rf /var/lib/apt/lists/\* /tmp,rm -rf /tmp,' 'it keeps the lists of apt'
fails packages/conda/meta.yaml 's/^    - jansson//' 'host has no jansson'
fails packages/conda/meta.yaml 's/version = "[0-9]*/version = "9/' 'the version is not'
fails packages/homebrew/calm.rb '/"pcre2"/d' 'pcre2 is missing'
fails CMakeLists.txt 's/^project(calm VERSION [0-9]*/&9/' 'the version is not'
fails packages.txt '/^zlib1g-dev/d' 'zlib is not in packages.txt'
! command -v python3 > /dev/null || fails packages.txt 's/^zlib1g-dev /gcc /' 'packages, packages.txt has'
echo 'packaging: ok'
