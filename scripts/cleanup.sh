#!/usr/bin/env bash
# Deletes the machines that these scripts started, and says what is left.
#
# usage: scripts/cleanup.sh [--record NAME] [--reap] [--purge]
#
#   --record NAME  note NAME down as a machine to delete later (its name must begin with smolskill-), and do no more
#   --reap         end VM processes of this user's machines that are still there
#   --purge        remove the record once no machine is left
#
# Only names in the record ($XDG_STATE_HOME or ~/.local/state)/smolvm-skills/gpu-cuda.machines that begin with
# smolskill- are deleted. Exit status: 0 if nothing is left, 1 if machines or VM processes are, 2 for a wrong command line.

# shellcheck source=scripts/launcher.sh
. "$(dirname "${BASH_SOURCE[0]}")/launcher.sh"

# A machine's entry retires shortly after its run returns.
readonly wait_seconds=${SMOLVM_CLEANUP_WAIT:-20}
# The launcher keeps each machine's files in a folder below this one, and names them on its processes' command lines.
readonly machines_dir=$state_home/smolvm/machines

reap=no
purge=no
usage_error() {
  complain "$1; '$prog --help' explains"
  exit 2
}
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) show_help; exit 0 ;;
    --record)
      case ${2:-} in
        "$name_prefix"?*) ;;
        *) usage_error "--record takes a name that begins with $name_prefix, not '${2:-}'" ;;
      esac
      if [ $# -ne 2 ] || [ "$reap$purge" != nono ]; then usage_error "--record goes with no other argument"; fi
      record_machine "$2"
      exit 0
      ;;
    --reap) reap=yes; shift ;;
    --purge) purge=yes; shift ;;
    *) usage_error "unknown argument '$1'" ;;
  esac
done

if ! launcher=$(find_launcher); then
  complain "the launcher is missing: smolvm is neither on PATH nor built in this checkout (scripts/build builds it)"
  exit 1
fi

# Prints the launcher's list of machines, without a header where there is none.
list_machines() {
  local list
  if ! list=$("$launcher" machine list 2>&1 </dev/null); then
    complain "'smolvm machine list' failed: $list"
    exit 1
  fi
  case $list in
    'No machines found'*) ;;
    *) printf '%s\n' "$list" ;;
  esac
}
# Reads such a list, prints its names: the first words below the rule.
names_in() { awk 'below && NF { print $1 } /^[-=─━ +|]+$/ { below = 1 }'; }

delete_recorded() {
  local name present
  [ -f "$record_file" ] || return 0
  present=$(list_machines | names_in)
  while read -r name; do
    case $name in
      '') ;;
      "$name_prefix"*)
        if grep -qxF -e "$name" <<<"$present"; then
          "$launcher" machine delete --name "$name" --force >/dev/null </dev/null ||
            complain "machine '$name' could not be deleted (the launcher's message is above)"
        fi
        ;;
      *) printf 'skipping %s: its name does not begin with %s\n' "$name" "$name_prefix" ;;
    esac
  done < <(sort -u "$record_file")
}

wait_for_list() {
  local began=$SECONDS
  while :; do
    remaining=$(list_machines)
    waited=$((SECONDS - began))
    if [ -z "$remaining" ] || [ "$waited" -ge "$wait_seconds" ]; then return 0; fi
    sleep 0.5
  done
}

# Prints "PID FOLDER" for each process of this user that belongs to one of this user's machines.
vm_processes() {
  local proc pid word rest words
  for proc in /proc/[0-9]*; do
    pid=${proc#/proc/}
    if [ ! -O "$proc" ] || [ "$pid" = $$ ]; then continue; fi
    { mapfile -d '' -t words <"$proc/cmdline"; } 2>/dev/null || continue
    case ${words[0]-} in
      */qemu-system-* | qemu-system-* | */smolvm* | smolvm*) ;;
      *) continue ;;
    esac
    # Helpers of a machine name its folder, or work in it.
    words+=("$(readlink "$proc/cwd" 2>/dev/null || true)/")
    for word in "${words[@]:1}"; do
      rest=${word#*"$machines_dir/"}
      if [ "$rest" != "$word" ]; then
        # The machine's folder ends where a path below it, or QEMU's next property, begins.
        printf '%s %s\n' "$pid" "$machines_dir/${rest%%[/,: ]*}"
        break
      fi
    done
  done
}

gone() { ! kill -0 "$1" 2>/dev/null || [ "$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$1/status" 2>/dev/null)" = Z ]; }

# Ends a process, politely first.
end_process() {
  local tries
  kill "$1" 2>/dev/null || return 0
  for ((tries = 0; tries < 10; ++tries)); do
    if gone "$1"; then return 0; fi
    sleep 0.2
  done
  kill -KILL "$1" 2>/dev/null || true
  sleep 0.2
}

report_processes() {
  local pid folder found=no
  while read -r pid folder; do
    [ -n "$pid" ] || continue
    found=yes
    printf 'vm_process=%s config=%s\n' "$pid" "$folder"
  done < <(vm_processes)
  if [ $found = no ]; then echo 'vm_processes=none'; else left=yes; fi
}

left=no
printf 'waiting=up to %ss for machines to retire from the list\n' "$wait_seconds"
delete_recorded
wait_for_list
printf 'waited=%ss\n' "$waited"
if [ -z "$remaining" ]; then
  echo 'machines=clean'
else
  left=yes
  echo 'machines=remaining'
  printf '%s\n' "$remaining"
  echo 'To delete one by name: smolvm machine delete --name NAME --force'
fi
if [ $reap = yes ]; then
  while read -r pid folder; do
    [ -n "$pid" ] || continue
    end_process "$pid"
    printf 'reaped=%s config=%s\n' "$pid" "$folder"
  done < <(vm_processes)
fi
report_processes
if [ $purge = yes ] && [ -z "$remaining" ]; then rm -f "$record_file"; fi
[ $left = no ]
