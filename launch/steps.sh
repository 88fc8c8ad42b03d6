# Shared by setup, build, test and demo: announce a step, time it, remember what is done.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

say() { printf '%s\n' "$*" >&2; }
die() { say "$(basename "$0"): $1"; exit "${2:-1}"; }

# step TITLE COMMAND...: run the command, say how long it took; its exit code ends the script.
step() {
  local title=$1 start=$SECONDS code=0
  shift
  say "== $title"
  "$@" || code=$?
  [ "$code" = 0 ] || die "failed after $((SECONDS - start)) s (exit code $code): $title" "$code"
  say "   done in $((SECONDS - start)) s"
}

key_of() { sha256sum | cut -c1-16; }
is_done() { [ "$(cat "$1" 2>/dev/null)" = "$2" ]; }     # is_done STAMP KEY
mark_done() { mkdir -p "$(dirname "$1")"; printf '%s\n' "$2" >"$1.part"; mv "$1.part" "$1"; }
