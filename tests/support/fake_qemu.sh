#!/bin/bash
# Plays a QEMU whose KVM does what $FAKE_QEMU_KVM says; with any other accelerator it is the QEMU that is installed.
#
#   abort           aborts at once, as where IA32_ARCH_CAPABILITIES cannot be set, with every processor model
#   arch            the same, but only with that capability: without it this KVM works
#   silence         uses a processor and prints nothing
#   internal-error  says "KVM internal error" and waits for ever
#   works           works: it is really emulated
#   boots           passes the trial alone; a machine ends as with internal-error
#   dies            works, and QEMU is killed some seconds after $FAKE_QEMU_GO is there
#   stops           works, and says "KVM internal error" and waits once $FAKE_QEMU_GO is there
#
# With $FAKE_QEMU_QMP the QEMU of a machine on KVM can be told what to do there as well, over QMP.
#
# $FAKE_QEMU_LOG gets a line for each start on KVM: trial or machine, and the processor model.
set -u

self=$(readlink -f "$0")
name=$(basename "$0")
real=
IFS=: read -r -a folders <<<"$PATH:/usr/local/bin:/usr/bin:/bin"
for folder in "${folders[@]}"; do
  candidate=$folder/$name
  if [ -x "$candidate" ] && [ "$(readlink -f "$candidate")" != "$self" ]; then
    real=$candidate
    break
  fi
done
if [ -z "$real" ]; then
  echo "fake_qemu.sh: there is no $name on PATH but this one" >&2
  exit 127
fi

kvm=no cpu='' what=machine emulated=() previous=''
khz=$(awk '/^cpu MHz/ { printf "%d", $4 * 1000; exit }' /proc/cpuinfo)
for word in "$@"; do
  case $previous:$word in
    -accel:kvm) kvm=yes word=tcg,thread=multi ;;
    -cpu:*) cpu=$word word=max ;;
    -name:guest=smolvm-trial) what=trial ;;
    # A guest that is emulated must be told its clock's frequency.
    -append:*) word="tsc_early_khz=$khz tsc=reliable $word" ;;
  esac
  emulated+=("$word")
  previous=$word
done
if [ $kvm = no ]; then exec "$real" "$@"; fi
if [ -n "${FAKE_QEMU_LOG:-}" ]; then echo "$what $cpu" >>"$FAKE_QEMU_LOG"; fi

refuse_register() {
  echo "$name: error: failed to set MSR 0x10a to 0x69" >&2
  echo "$name: kvm.c:3183: kvm_buf_set_msrs: Assertion \`ret == cpu->kvm_msr_buf->nmsrs' failed." >&2
  kill -ABRT $$
}
stop_for_ever() {
  printf 'KVM internal error. Suberror: 1\nemulation failure\nRAX=0000000000000000 RBX=0000000000000000\n' >&2
  exec sleep 1000
}

play=${FAKE_QEMU_KVM:?}
case $play:$what:$cpu in
  abort:*) refuse_register ;;
  arch:*:host) refuse_register ;;
  silence:*) while :; do :; done ;;
  internal-error:* | boots:machine:*) stop_for_ever ;;
  dies:machine:* | stops:machine:*)
    # QEMU is this process, so that what kills it kills QEMU.
    (
      until [ -e "${FAKE_QEMU_GO:?}" ]; do sleep 0.1; done
      if [ "$play" = dies ]; then kill -SEGV $$; else
        printf 'KVM internal error. Suberror: 1\n' >&2
        kill -STOP $$
      fi
    ) &
    ;;
esac
if [ -n "${FAKE_QEMU_QMP:-}" ] && [ $what = machine ]; then
  emulated+=(-qmp "unix:$FAKE_QEMU_QMP,server=on,wait=off")
fi
exec "$real" "${emulated[@]}"
