# shellcheck shell=bash disable=SC2034
# What run-cuda-probe.sh and cleanup.sh share: the launcher, and the record of machines they started. Sourced, never run.

set -euo pipefail

readonly prog=${0##*/}
scripts_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly scripts_dir
readonly state_home=${XDG_STATE_HOME:-${HOME:?the variable HOME is not set}/.local/state}
readonly record_file=$state_home/smolvm-skills/gpu-cuda.machines
# Only machines with this prefix are ever deleted.
readonly name_prefix=smolskill-

complain() { printf '%s: error: %s\n' "$prog" "$*" >&2; }

# The comment block at the head of the calling script is its --help text.
show_help() { sed -n -e '2,/^$/p' "$0" | sed -n 's/^# \{0,1\}//p'; }

# Prints the launcher's path: smolvm on PATH, else as built in this checkout.
find_launcher() {
  local preset
  if command -v smolvm; then return 0; fi
  for preset in release debug; do
    if [ -x "$scripts_dir/../build/$preset/bin/smolvm" ]; then
      printf '%s\n' "$(cd "$scripts_dir/../build/$preset/bin" && pwd)/smolvm"
      return 0
    fi
  done
  return 1
}

record_machine() {
  mkdir -p "$(dirname "$record_file")"
  printf '%s\n' "$1" >>"$record_file"
}
