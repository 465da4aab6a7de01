#!/bin/sh
# What a terminal shows of the commands of a page: its sh blocks, run in order in tmux, as text on the standard output.
#
#   tests/walk.sh PAGE [COLUMNS] >docs/evidence/walk-PAGE-COLUMNS.txt
#
#   PAGE      docs/for-researchers.md, say
#   COLUMNS   80 by default
#   PROGRAM   in the environment: the folder of calm, build/release by default
#   FOLDER    in the environment: where the commands write, a fresh one (removed) by default
#   WINDOWS   in the environment: as many windows in every calibration and evaluation; the page's screens in a fraction of the time
#
# A page whose commands need git gets a repository.  Lines are as a reader sees them: wrapped at the edge, bars gone.  Exit status 0: done;
# 1: no tmux, a page without sh blocks, or 30 minutes without an end, after the screen of that moment.
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

# The same commands with fewer windows; a recipe has its own.
bin=$program
if [ -n "${WINDOWS:-}" ]; then
    bin=$work/bin
    mkdir "$bin"
    cat >"$bin/calm" <<'END'
#!/bin/sh
case " $* " in
    *" --recipe "*) ;;
    " quantize "* | " recipe init "* | " ablate "*) set -- "$@" --samples "$WINDOWS" --eval-samples "$WINDOWS" ;;
    " eval "*) set -- "$@" --samples "$WINDOWS" ;;
esac
exec "$PROGRAM/calm" "$@"
END
    chmod +x "$bin/calm"
fi

# -v prints each command before it runs
cat >"$work/run" <<END
export PATH=$bin:\$PATH PROGRAM=$program WINDOWS=${WINDOWS:-} CALM_HOME=$home LANG=C.UTF-8
cd $folder && sh -v $work/commands
tmux -L $server wait-for -S done
sleep 60
END
tmux -L "$server" -f /dev/null new-session -d -x "$columns" -y 50 "sleep 1; sh $work/run"
tmux -L "$server" set-option -g history-limit 20000 >/dev/null
late=0
timeout 1800 tmux -L "$server" wait-for done || late=1
tmux -L "$server" capture-pane -p -S - | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}'
[ "$late" = 0 ] || { echo "tests/walk.sh: $1: no end after 30 minutes" >&2; exit 1; }
