#!/usr/bin/env bash
# Runs the CUDA probe in a machine started with --cuda and says what it reached.
#
# usage: scripts/run-cuda-probe.sh [--mem MIB] [--elements N] [IMAGE]
#
#   IMAGE         a glibc image with Python (default: python:3.12-slim, or a Debian tree where no registry can be reached)
#   --mem MIB     the machine's memory (default: 8192)
#   --elements N  elements of the vector add (default: 16777216)
#
# The probe's lines are printed indented by two spaces, then:
#
#   device_named=ok|FAIL  data_roundtrip=ok|FAIL  kernel_result=ok|FAIL
#   device_kind=gpu|cpu_emulation|none
#   result=cuda_ok|cpu_emulation_not_gpu|FAILED
#
# Exit status: 0 for cuda_ok alone, 2 when the launcher is missing or the command line is wrong, else 1.

# shellcheck source=scripts/launcher.sh
. "$(dirname "${BASH_SOURCE[0]}")/launcher.sh"

readonly emulation_name='smolvm CPU emulation device'

memory=8192
image=
probe_arguments=()
usage_error() {
  complain "$1; '$prog --help' explains"
  exit 2
}
number() {
  case $2 in '' | *[!0-9]*) usage_error "$1 takes a number, not '$2'" ;; esac
  case $2 in *[1-9]*) ;; *) usage_error "$1 takes a number above 0, not '$2'" ;; esac
}
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) show_help; exit 0 ;;
    --mem) number "$1" "${2:-}"; memory=$2; shift 2 ;;
    --elements) number "$1" "${2:-}"; probe_arguments=("$1" "$2"); shift 2 ;;
    -*) usage_error "unknown argument '$1'" ;;
    *)
      [ -z "$image" ] || usage_error "one image at most, not '$image' and '$1'"
      image=$1
      shift
      ;;
  esac
done

if ! launcher=$(find_launcher); then
  complain "the launcher is missing: smolvm is neither on PATH nor built in this checkout (scripts/build builds it)"
  exit 2
fi

name=${name_prefix}cuda-probe-$$-$RANDOM
record_machine "$name"
command=("$launcher" machine run --cuda --mem "$memory" --name "$name" --volume "$scripts_dir:/probe:ro")
# The launcher's own default is python:3.12-slim, and that alone has a stand-in where there is no registry.
if [ -n "$image" ]; then command+=(--image "$image"); fi
command+=(-- python3 /probe/cuda-probe.py ${probe_arguments[@]+"${probe_arguments[@]}"})

output=$(mktemp)
trap 'rm -f "$output"' EXIT
set +e
"${command[@]}" </dev/null | tee "$output" | sed -u 's/^/  /'
status=${PIPESTATUS[0]}
set -e

has() { grep -qE "$1" "$output"; }
device=$(sed -n 's/^cuDeviceGetName -> 0 name = //p' "$output" | head -n 1 | tr -d '\r')

device_named=FAIL
data_roundtrip=FAIL
kernel_result=FAIL
device_kind=none
result=FAILED
if [ -n "$device" ]; then device_named=ok; fi
if has '^roundtrip first 16 bytes match: True' && has '^roundtrip all bytes match: True'; then data_roundtrip=ok; fi
if has '^vector_add -> 0 elements = [1-9][0-9]* match: True'; then kernel_result=ok; fi
# The name, and nothing else, tells a GPU from the emulation device.
case $device in
  '') ;;
  "$emulation_name") device_kind=cpu_emulation ;;
  *) device_kind=gpu ;;
esac
if [ "$device_named $data_roundtrip" = 'ok ok' ]; then
  if [ $device_kind = cpu_emulation ]; then
    result=cpu_emulation_not_gpu
  elif [ "$kernel_result" = ok ] && [ "$status" -eq 0 ]; then
    result=cuda_ok
  fi
fi

printf '%s\n' "device_named=$device_named" "data_roundtrip=$data_roundtrip" "kernel_result=$kernel_result" \
  "device_kind=$device_kind" "result=$result"
if [ $result = FAILED ] && ! has .; then
  complain "the machine gave no output; the launcher's status was $status and its message is above"
fi
[ $result = cuda_ok ]
