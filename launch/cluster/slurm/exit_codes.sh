# Shared by the batch scripts: what a run's exit codes mean for Slurm. A rank's code says who can help (README, exit codes):
# 75 asks for another try; 1, 2, 3 and 74 would fail again; over 128 a signal has ended the rank. srun returns the largest
# code of all ranks and torchrun returns 1 for any, so each rank leaves its own in a directory that all nodes share.

# shellcheck disable=SC2034  # the scripts use it
codes=dex-codes-${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}-${SLURM_RESTART_COUNT:-0}
mkdir -p "$codes"

# For bash -c: runs a rank and leaves its code. The signal that warns of the time limit goes to this shell and to the rank: the shell
# outlives it, the rank saves.
# shellcheck disable=SC2016,SC2034  # expanded by the rank's shell
leave_code='trap : USR1 TERM; "${@:2}"; code=$?; echo $code >"$1/${SLURM_PROCID:-0}-${LOCAL_RANK:-0}-$$"; exit $code'

# option_of NAME ARGUMENTS...: the value behind NAME
option_of() {
  local name=$1
  shift
  while [ $# -gt 1 ]; do
    [ "$1" != "$name" ] || { printf '%s\n' "$2"; return; }
    shift
  done
}

# end_job CODE [OUT]: ends the batch script, after asking for another try if one can help. A run that saved no new step in
# OUT/checkpoints in three tries in a row is not tried again.
end_job() {
  local code=$1 out=${2:-} all job newest
  all=$(find "$codes" -type f -exec cat {} + | sort -nu | tr '\n' ' ')
  echo "exit code $code; of the ranks: ${all:-none}" >&2
  [ "$code" != 0 ] || { rm -rf "$codes"; exit 0; }
  for rank in $all; do
    case $rank in 1 | 2 | 3 | 74) exit "$rank" ;; esac
  done
  case $code in 1 | 2 | 3 | 74) [ -n "$all" ] || exit "$code" ;; esac
  if [ -n "$out" ] && [ -d "$out" ]; then
    newest=$(find "$out/checkpoints" -maxdepth 1 -name 'step-*' ! -name '*.tmp*' -printf '%f\n' 2>/dev/null | sort -V | tail -n 1 || true)
    printf '%s\n' "${newest:-none}" >>"$out/tries"
    if [ "$(tail -n 3 "$out/tries" | grep -cxF -- "${newest:-none}")" = 3 ]; then
      echo "three tries without a new checkpoint (${newest:-none}): not tried again; remove $out/tries to go on" >&2
      exit 75
    fi
  fi
  job=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}
  echo "asking for another try of job $job" >&2
  scontrol requeue "$job"
  exit 75
}
