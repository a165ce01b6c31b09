#!/bin/sh
# Fetches Debian's cloud kernel without installing it, and prints the folder that holds it:
#   FOLDER/vmlinuz, FOLDER/modules/ (the tree of /lib/modules/VERSION)
#
# The version is whatever linux-image-cloud-amd64 depends on. Kept in
# ${XDG_CACHE_HOME:-~/.cache}/smolvm-cuda/test-kernel/; a second call is instant and needs no network.
set -eu

cache="${XDG_CACHE_HOME:-$HOME/.cache}/smolvm-cuda/test-kernel"
meta=linux-image-cloud-amd64

fail() {
  echo "fetch_kernel.sh: $*" >&2
  exit 1
}

resolve() {
  apt-cache depends "$meta" 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)$/\1/p' | head -n 1
}

package=$(resolve)
if [ -z "$package" ]; then
  apt-get update -qq >&2 || true
  package=$(resolve)
fi
if [ -z "$package" ]; then
  # Without package lists an earlier kernel does as well.
  for old in "$cache"/linux-image-*; do
    [ -e "$old/vmlinuz" ] && echo "$old" && exit 0
  done
  fail "apt knows no $meta"
fi

if [ ! -e "$cache/$package/vmlinuz" ]; then
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/fetch.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  chmod 755 "$work"
  (cd "$work" && apt-get download -qq -o APT::Sandbox::User=root "$package" >&2) || fail "cannot download $package"
  dpkg-deb -x "$work"/*.deb "$work/tree" || fail "cannot unpack $package"
  mkdir "$work/kernel"
  mv "$work"/tree/boot/vmlinuz-* "$work/kernel/vmlinuz"
  mv "$work"/tree/lib/modules/* "$work/kernel/modules"
  # Whoever is first wins; the others' copies are the same.
  mv -T "$work/kernel" "$cache/$package" 2>/dev/null || [ -e "$cache/$package/vmlinuz" ] ||
    fail "cannot store the kernel in $cache"
fi
echo "$cache/$package"
