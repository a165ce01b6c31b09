#!/usr/bin/env bash
# Says whether this machine can run CUDA in a smolvm machine. Read-only; starts no machine.
#
# usage: scripts/preflight.sh [--json]
#
# Prints one key=value a line, result=ready or result=blocked last; note= lines explain what blocks and how to mend it.
# --json prints the same as one JSON object. Exit status: 0 for ready, 1 for blocked, 2 for a wrong command line.
#
# The NVIDIA driver is asked through the program cuda-preflight where it is built, in a process of its own and within a
# time limit; else nvidia-smi is.

# Runs on macOS too, to say no there: bash 3.2, no GNU options.
set -euo pipefail

scripts_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# Below this folder /dev and /etc are looked for; tests set it.
host_root=${SMOLVM_PREFLIGHT_ROOT:-}
emulation_name='smolvm CPU emulation device'

json=no
case ${1:-} in
  '') ;;
  --json) json=yes ;;
  -h | --help)
    sed -n -e '2,/^$/p' "$0" | sed -n 's/^# \{0,1\}//p'
    exit 0
    ;;
  *)
    echo "preflight.sh: error: unknown argument '$1'; 'preflight.sh --help' explains" >&2
    exit 2
    ;;
esac
if [ $# -gt 1 ]; then
  echo "preflight.sh: error: unknown argument '$2'; 'preflight.sh --help' explains" >&2
  exit 2
fi

keys=()
values=()
blocked=no
emit() {
  keys+=("$1")
  values+=("${2//[[:cntrl:]]/ }")
}
note() { emit note "$1"; }
block() {
  blocked=yes
  note "$1"
}

# Prints the path of PROGRAM: on PATH, else beside the launcher, else built in this checkout.
find_program() {
  local candidate
  if command -v "$1" 2>/dev/null; then return 0; fi
  for candidate in ${launcher:+"$(dirname "$launcher")/$1"} \
    "$scripts_dir/../build/release/bin/$1" "$scripts_dir/../build/debug/bin/$1"; do
    if [ -x "$candidate" ]; then
      echo "$candidate"
      return 0
    fi
  done
  return 1
}

first_version() { sed -n 's/^[^0-9]*\([0-9][0-9]*\(\.[0-9][0-9]*\)*\).*/\1/p' | head -n 1; }

# Prints match, newer or older: how version $1 stands to $2.
compare_versions() {
  local a b i x y
  IFS=. read -r -a a <<<"$1"
  IFS=. read -r -a b <<<"$2"
  for i in 0 1 2 3; do
    x=${a[i]:-0}
    y=${b[i]:-0}
    if [ "$x" -gt "$y" ]; then echo newer; return; fi
    if [ "$x" -lt "$y" ]; then echo older; return; fi
  done
  echo match
}

check_launcher() {
  local version=unknown verified status=unknown
  verified=$(sed -n 's/^project(smolvm-cuda VERSION \([0-9.]*\).*/\1/p' "$scripts_dir/../CMakeLists.txt" 2>/dev/null || true)
  verified=${verified:-unknown}
  if launcher=$(find_program smolvm); then
    emit smolvm_installed yes
    version=$("$launcher" --version 2>/dev/null </dev/null | first_version || true)
    version=${version:-unknown}
  else
    launcher=
    emit smolvm_installed no
    block "smolvm is neither on PATH nor built in this checkout: run scripts/build, or put its folder on PATH."
  fi
  if [ "$version" != unknown ] && [ "$verified" != unknown ]; then status=$(compare_versions "$version" "$verified"); fi
  emit smolvm_version "$version"
  emit verified_version "$verified"
  emit version_status "$status"
}

check_platform() {
  os=$(uname -s | tr '[:upper:]' '[:lower:]')
  arch=$(uname -m)
  if [ "$arch" = arm64 ]; then arch=aarch64; fi
  emit platform "$os-$arch"
}

can_open() { (exec 3<>"$1") 2>/dev/null; }

# What machines have found out about this host's KVM: yes, no or untried. In the JSON alone; a note says it in words.
kvm_seen_to_work=untried
note_whether_kvm_works() {
  local report='' reason
  if [ -n "$launcher" ]; then
    report=$(unset SMOLVM_ACCELERATOR && "$launcher" machine accelerator --json 2>/dev/null </dev/null) || report=
  fi
  case $report in
    *'"kvm_works": true'*)
      kvm_seen_to_work=yes
      note "KVM was seen to work: it has booted the machines' kernel on this host."
      ;;
    *'"kvm_works": false'*)
      kvm_seen_to_work=no
      reason=$(printf '%s\n' "$report" | sed -n 's/^ *"reason": "\(.*\)",\{0,1\}$/\1/p' | sed 's/\\\(["\\]\)/\1/g')
      note "KVM was seen to fail, so machines are emulated in software and slow: ${reason:-no reason is kept}; 'smolvm machine accelerator --retry' tries again."
      ;;
    *) note "whether KVM works here is not known yet: the first machine tries it, or 'smolvm machine accelerator --retry'." ;;
  esac
}

check_acceleration() {
  local kvm=$host_root/dev/kvm
  case $os in
    darwin)
      emit accel hvf
      emit accel_access ok
      ;;
    linux)
      if [ ! -e "$kvm" ]; then
        emit accel tcg
        emit accel_access ok
        note "/dev/kvm is absent, so the machine will be emulated in software and slow; turn on virtualisation in the firmware, or nested virtualisation on the host above."
      elif can_open "$kvm"; then
        emit accel kvm
        emit accel_access ok
        note_whether_kvm_works
      else
        emit accel kvm
        emit accel_access denied
        block "/dev/kvm is there but closed to this user: run 'sudo usermod -aG kvm $(id -un)', then start commands with sg kvm -c '…', which needs no log-out."
      fi
      ;;
    *)
      emit accel unknown
      emit accel_access unknown
      ;;
  esac
}

# Fills gpu_lines with "name, driver" and driver_state with what cuda-preflight says of the driver (none: not built).
gpu_lines=()
driver_state=none
driver_error=
emulated=no
# What cuda-preflight finds of GPUs on this host, as `smolvm gpu detect` does: "vendor mechanism address…".
host_gpus=()
ask_driver() {
  local program out key value driver='' api=''
  program=$(find_program cuda-preflight) || return 0
  out=$("$program" 2>/dev/null </dev/null) || true
  while IFS='=' read -r key value; do
    case $key in
      libcuda) driver_state=$value ;;
      error) driver_error=$value ;;
      driver) driver=$value ;;
      host_gpu) host_gpus+=("$value") ;;
      cuda_version) api=$value ;;
      gpu)
        # The emulation library standing in for the driver is no GPU.
        if [ "$value" = "$emulation_name" ]; then
          emulated=yes
        else
          gpu_lines+=("$value, ${driver:-CUDA ${api:-unknown}}")
        fi
        ;;
    esac
  done <<<"$out"
  # A driver that failed halfway lists no GPU that one could use.
  if [ "$driver_state" != ok ]; then gpu_lines=(); fi
}

ask_nvidia_smi() {
  local out line
  command -v nvidia-smi >/dev/null 2>&1 || return 0
  # It hangs where the kernel module does; macOS has no timeout, and no nvidia-smi either.
  out=$(timeout 20 nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null </dev/null) || return 0
  while IFS= read -r line; do
    case $line in
      *,*) gpu_lines+=("$line") ;;
    esac
  done <<<"$out"
}

check_gpus() {
  local line
  if [ "$os" != linux ]; then
    emit gpu_present no
    emit unsupported cuda
    if [ "$os" = darwin ]; then
      block "macOS has no CUDA driver, so --cuda has nothing to reach here."
    else
      block "these scripts serve Linux; on Windows and elsewhere they cannot say what smolvm can reach."
    fi
    return
  fi
  ask_driver
  if [ ${#gpu_lines[@]} -eq 0 ]; then ask_nvidia_smi; fi
  if [ ${#gpu_lines[@]} -gt 0 ]; then
    emit gpu_present yes
    for line in "${gpu_lines[@]}"; do emit gpu "$line"; done
  else
    emit gpu_present no
  fi
  explain_driver
  if [ ${#gpu_lines[@]} -eq 0 ]; then explain_host_gpus; fi
}

# Without a GPU that CUDA can use: what GPUs this host shows all the same.
explain_host_gpus() {
  local vendor mechanism addresses line
  for line in ${host_gpus[@]+"${host_gpus[@]}"}; do
    read -r vendor mechanism addresses <<<"$line"
    case $vendor in
      nvidia) note "the host shows NVIDIA GPUs all the same (${addresses:-by $mechanism}): the driver's library must come from the same release as its kernel module." ;;
      *) note "the host has GPUs of $vendor (${addresses:-by $mechanism}), which CUDA does not run on; 'smolvm gpu run $vendor' hands them to a container." ;;
    esac
  done
}

# Notes on what the driver, and nvidia-smi in its stead, could not do.
explain_driver() {
  if [ ${#gpu_lines[@]} -eq 0 ]; then
    if [ "$emulated" = yes ]; then
      block "the libcuda.so.1 that the loader finds is smolvm's CPU emulation device, not an NVIDIA driver."
      return
    fi
    case $driver_state in
      ok | no_device) block "the NVIDIA driver library is here but finds no GPU: ${driver_error:-it lists none}." ;;
      none) block "no GPU was found: nvidia-smi is absent or lists none, and cuda-preflight is not built to ask the driver itself (scripts/build builds it)." ;;
      absent) block "no NVIDIA GPU was found: there is no driver library to ask, and nvidia-smi is absent or lists none; a --cuda machine will use the CPU emulation device." ;;
      *) block "the NVIDIA driver library could not be used: ${driver_error:-it gave no reason}." ;;
    esac
    return
  fi
  case $driver_state in
    ok) ;;
    none) note "the driver was not asked itself: cuda-preflight is not built; nvidia-smi's word is taken." ;;
    absent) ;; # host_libcuda says it
    *) block "nvidia-smi lists a GPU but the driver library cannot be used: ${driver_error:-it gave no reason}; after a driver update, reboot or reload the kernel module." ;;
  esac
}

check_libcuda() {
  local ldconfig count
  for ldconfig in ldconfig /sbin/ldconfig /usr/sbin/ldconfig ''; do
    if [ -n "$ldconfig" ] && command -v "$ldconfig" >/dev/null 2>&1; then break; fi
  done
  if [ "$os" != linux ] || [ -z "$ldconfig" ]; then
    emit host_libcuda unknown
    return
  fi
  if ! count=$("$ldconfig" -p 2>/dev/null); then
    emit host_libcuda unknown
    note "the loader cache cannot be read: '$ldconfig -p' failed."
    return
  fi
  count=$(printf '%s\n' "$count" | grep -c '^[[:space:]]*libcuda\.so\.1 ' || true)
  emit host_libcuda "$count"
  if [ "$count" = 0 ]; then
    block "libcuda.so.1 is not in this host's loader cache; the daemon loads it on the host, and without it the guest reaches the CPU emulation device: install the NVIDIA driver, or name its folder in /etc/ld.so.conf.d and run ldconfig."
  fi
}

print_lines() {
  local i
  for i in "${!keys[@]}"; do printf '%s=%s\n' "${keys[i]}" "${values[i]}"; done
}

json_string() {
  local text=$1
  text=${text//\\/\\\\}
  printf '"%s"' "${text//\"/\\\"}"
}

# json_list KEY: the values of a key that may come several times.
json_list() {
  local i separator=
  printf '['
  for i in "${!keys[@]}"; do
    if [ "${keys[i]}" = "$1" ]; then
      printf '%s' "$separator"
      json_string "${values[i]}"
      separator=', '
    fi
  done
  printf ']'
}

print_json() {
  local i separator=''
  printf '{'
  for i in "${!keys[@]}"; do
    case ${keys[i]} in gpu | note) continue ;; esac
    printf '%s\n  "%s": ' "$separator" "${keys[i]}"
    if [ "${keys[i]}" = host_libcuda ] && [ "${values[i]}" != unknown ]; then
      printf '%s' "${values[i]}"
    else
      json_string "${values[i]}"
    fi
    separator=','
  done
  printf ',\n  "kvm_seen_to_work": "%s"' "$kvm_seen_to_work"
  printf ',\n  "gpus": '
  json_list gpu
  printf ',\n  "notes": '
  json_list note
  printf '\n}\n'
}

check_launcher
check_platform
check_acceleration
check_gpus
check_libcuda
emit guest_needs_glibc_image yes
emit guest_shim_path /opt/smolvm-cuda/libcuda.so.1
if [ $blocked = yes ]; then emit result blocked; else emit result ready; fi

if [ $json = yes ]; then print_json; else print_lines; fi
[ $blocked = no ]
