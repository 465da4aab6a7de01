#!/bin/sh
# Runs the sh blocks of a page in order in tmux, and prints the terminal's content as text on the standard output.
#
#   tests/walk.sh PAGE [COLUMNS] >docs/evidence/walk-PAGE-COLUMNS.txt
#
#   PAGE      for example docs/for-researchers.md
#   COLUMNS   width of the terminal, 80 by default
#
# Environment variables:
#   PROGRAM   folder of calm, build/release by default
#   FOLDER    folder for the commands' files; by default an empty one, which the script removes
#   WINDOWS   number of windows in every calibration and evaluation, for the page's screens in a fraction of the time
#
# The folder is a git repository, for commands that need one.  Lines are as on the screen: wrapped at the edge, without progress bars.
# Exit status 0: done; 1: no tmux, a page without sh blocks, or no end after 30 minutes; then it prints the screen at that moment.
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
