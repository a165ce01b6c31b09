#!/bin/sh
# make_initramfs.sh KERNEL_FOLDER INIT OUTPUT [MODULE...]
# Packs INIT as /init with the named modules, and the order to load them in, as /modules/list.
# KERNEL_FOLDER is a kernel in the cache of `smolvm machine` (machine/guest/kernel.h). What is in the folder $TREE, if that is set, is added.
set -eu

kernel=$1
init=$2
output=$3
shift 3

work=$(mktemp -d "${TMPDIR:-/tmp}/smolvm-initramfs.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/root/modules" "$work/root/dev"
if [ -n "${TREE:-}" ]; then
  cp -a "$TREE/." "$work/root/"
fi
cp "$init" "$work/root/init"
chmod 755 "$work/root/init"
: >"$work/root/modules/list"
for module in "$@"; do
  file=$(find "$kernel/modules" -name "$module.ko" | head -n 1)
  if [ -z "$file" ]; then
    echo "make_initramfs.sh: the kernel has no module $module" >&2
    exit 1
  fi
  cp "$file" "$work/root/modules/"
  echo "/modules/$module.ko" >>"$work/root/modules/list"
done
(cd "$work/root" && find . | cpio -o -H newc --quiet) >"$output"
