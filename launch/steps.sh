# Shared by setup, build, test and demo: announce a step, time it, remember what is done.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

say() { printf '%s\n' "$*" >&2; }
die() { say "$(basename "$0"): $1"; exit "${2:-1}"; }

# step TITLE COMMAND...: run the command and say how long it took. The caller's `set -e` stops at the first failure inside
# (which it would not do under `||`), and the exit handler names the step.
current_step=
step() {
  local start=$SECONDS
  current_step=$1
  shift
  say "== $current_step"
  "$@"
  say "   done in $((SECONDS - start)) s"
  current_step=
}
trap 'code=$?; if [ "$code" != 0 ] && [ -n "$current_step" ]; then say "$(basename "$0"): failed (exit code $code): $current_step"; fi' EXIT

# quietly COMMAND...: its output is shown only if it fails.
quietly() {
  local log code=0
  log=$(mktemp)
  "$@" >"$log" 2>&1 || code=$?
  [ "$code" = 0 ] || tail -n 40 "$log" >&2
  rm -f "$log"
  return "$code"
}

key_of() { sha256sum | cut -c1-16; }
is_done() { [ "$(cat "$1" 2>/dev/null)" = "$2" ]; }     # is_done STAMP KEY
mark_done() { mkdir -p "$(dirname "$1")"; printf '%s\n' "$2" >"$1.part"; mv "$1.part" "$1"; }
