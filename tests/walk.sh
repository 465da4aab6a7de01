#!/bin/sh
# What a terminal shows of the commands of a page: its sh blocks, run in order in tmux, as text on the standard output.
#
#   tests/walk.sh PAGE [COLUMNS] >docs/evidence/walk-PAGE-COLUMNS.txt
#
#   PAGE      docs/for-researchers.md, say
#   COLUMNS   80 by default
#   PROGRAM   in the environment: the folder of calm, build/release by default
#   FOLDER    in the environment: where the commands write, a fresh one (removed) by default
#
# A page whose commands need git gets a repository.  Lines are as a reader sees them: wrapped at the edge, bars gone.  Exit status 0: done;
# 1: no tmux, a page without sh blocks, or 30 minutes without an end.
set -eu
[ $# -ge 1 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
home=$(cd "$(dirname "$0")/.." && pwd -P)
program=$(cd "${PROGRAM:-$home/build/release}" && pwd -P)
columns=${2:-80}
command -v tmux >/dev/null || { echo "tests/walk.sh: no tmux; expected Debian's package tmux" >&2; exit 1; }
work=$(mktemp -d)
server=walk$$
trap 'tmux -L $server kill-server 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

awk '/^```sh$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$1" >"$work/commands"
[ -s "$work/commands" ] || { echo "tests/walk.sh: $1: no \`\`\`sh block" >&2; exit 1; }
folder=${FOLDER:-$work/folder}
mkdir -p "$folder"
git init -q "$folder"

# -v prints each command before it runs
cat >"$work/run" <<END
export PATH=$program:\$PATH CALM_HOME=$home LANG=C.UTF-8
cd $folder && sh -v $work/commands
tmux -L $server wait-for -S done
sleep 60
END
tmux -L "$server" -f /dev/null new-session -d -x "$columns" -y 50 "sleep 1; sh $work/run"
tmux -L "$server" set-option -g history-limit 20000 >/dev/null
timeout 1800 tmux -L "$server" wait-for done
tmux -L "$server" capture-pane -p -S - | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}'
