# shellcheck shell=bash disable=SC2034
# What the scripts share: messages, once-only steps, where things are. Sourced, never run.

set -euo pipefail

readonly prog=${0##*/}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly root
readonly cache_dir=${XDG_CACHE_HOME:-${HOME:?the variable HOME is not set}/.cache}/smolvm-cuda

# Progress goes to stderr, so that a script's stdout stays its own.
say() { printf '==> %s\n' "$*" >&2; }
warn() { printf '%s: warning: %s\n' "$prog" "$*" >&2; }
die() {
  printf '%s: error: %s\n' "$prog" "$*" >&2
  exit 1
}
usage_error() {
  printf "%s: error: %s; '%s --help' explains\n" "$prog" "$*" "$prog" >&2
  exit 2
}

# The comment block at the head of the calling script is its --help text.
show_help() {
  sed -e '1d' -e '/^#/!q' -e '/^# shellcheck/d' -e 's/^# \{0,1\}//' "$0" | sed '/^$/{N;/^\n$/D;}'
}

# need COMMAND PACKAGE: fails unless COMMAND is there.
need() {
  command -v "$1" >/dev/null 2>&1 ||
    die "the command '$1' is missing (Debian package $2); scripts/setup installs it"
}

job_count() { echo "${SMOLVM_JOBS:-$(nproc)}"; }

# Prints a hash of its arguments, and of the files among them by content.
hash_of() {
  local arg
  for arg in "$@"; do
    if [ -f "$arg" ]; then sha256sum <"$arg"; else printf '%s\n' "$arg"; fi
  done | sha256sum | cut -d' ' -f1
}

# once STAMP KEY COMMAND…: runs COMMAND unless it last succeeded with the same KEY. STAMP is a file.
once() {
  local stamp=$1 key=$2
  shift 2
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$key" ]; then return 0; fi
  rm -f "$stamp"
  "$@" || return
  mkdir -p "$(dirname "$stamp")"
  printf '%s\n' "$key" >"$stamp"
}

# Runs a command as root, through sudo where need be.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif ! command -v sudo >/dev/null 2>&1; then
    die "this step needs root and there is no sudo; as root, run: $*"
  elif [ -t 0 ]; then
    sudo -- "$@"
  else
    sudo -n -- "$@" || die "this step needs root and sudo asks for a password; as root, run: $*"
  fi
}

# Seconds as m:ss.
clock() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }
