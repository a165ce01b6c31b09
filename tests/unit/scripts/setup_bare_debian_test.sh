#!/usr/bin/env bash
# Runs scripts/setup in a bare Debian 12 tree, then configures the project there and looks for each system header that the
# sources include: a machine that already has the packages hides one that is missing from scripts/packages.txt.
#
# usage: setup_bare_debian_test.sh CUDA-INCLUDE-FOLDER
#
# Needs root, mmdebstrap and a Debian mirror; exit status 77 says that it was skipped. Packages are kept in the cache
# folder, so that a second run downloads nothing.

set -euo pipefail

readonly cuda_include=$1
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
readonly source_dir
readonly archives=${XDG_CACHE_HOME:-$HOME/.cache}/smolvm-cuda/apt-archives

skip() {
  echo "SKIPPED: setup in a bare Debian tree: $1" >&2
  exit 77
}
[ "$(id -u)" = 0 ] || skip "it needs root, for chroot"
command -v mmdebstrap >/dev/null || skip "mmdebstrap is not installed"
unshare -m true 2>/dev/null || skip "this host does not let root make a mount namespace"
[ -f "$cuda_include/cuda.h" ] || skip "there are no CUDA headers in '$cuda_include'"

if [ "${2:-}" != inside ]; then
  work=$(mktemp -d "${TMPDIR:-/tmp}/smolvm-bare-debian-XXXXXX")
  trap 'rm -rf --one-file-system "$work"' EXIT
  WORK=$work unshare -m --propagation private bash "${BASH_SOURCE[0]}" "$cuda_include" inside
  exit
fi

# From here on in a mount namespace of its own: what is mounted goes with it.
# shellcheck disable=SC2153  # set by the outer run
tree=$WORK/tree
mkdir -p "$archives/partial" "$tree"
echo "-- making the tree"
if ! mmdebstrap --variant=minbase --quiet --aptopt='Acquire::Languages "none"' --aptopt='Acquire::Retries "3"' \
  --dpkgopt='force-unsafe-io' --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
  --setup-hook="mkdir -p \"\$1/var/cache/apt/archives\" && mount --bind '$archives' \"\$1/var/cache/apt/archives\"" \
  --skip=cleanup/apt/cache --skip=download/empty bookworm "$tree" </dev/null; then
  if ! getent hosts deb.debian.org >/dev/null; then skip "no Debian mirror can be reached"; fi
  echo "mmdebstrap failed" >&2
  exit 1
fi
mkdir -p "$tree/src" "$tree/usr/local/cuda/include"
mountpoint -q "$tree/var/cache/apt/archives" || mount --bind "$archives" "$tree/var/cache/apt/archives"
mount --bind "$source_dir" "$tree/src"
mount -o remount,ro,bind "$tree/src"
mount --bind "$cuda_include" "$tree/usr/local/cuda/include"
mount -t proc proc "$tree/proc"
# No service may start, and no downloaded package go away.
printf '#!/bin/sh\nexit 101\n' >"$tree/usr/sbin/policy-rc.d"
chmod +x "$tree/usr/sbin/policy-rc.d"
echo 'Binary::apt-get::APT::Keep-Downloaded-Packages "true"; APT::Keep-Downloaded-Packages "true";' \
  >"$tree/etc/apt/apt.conf.d/99keep"
rm -f "$tree/etc/apt/apt.conf.d/docker-clean"

inside() { chroot "$tree" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 "$@" </dev/null; }

echo "-- scripts/setup"
inside /src/scripts/setup >"$WORK/setup.log" 2>&1 || {
  tail -n 60 "$WORK/setup.log"
  echo "scripts/setup failed in a bare Debian tree" >&2
  exit 1
}
tail -n 2 "$WORK/setup.log"
inside /src/scripts/setup --check

echo "-- configuring"
inside cmake -S /src -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release >"$WORK/configure.log" 2>&1 || {
  tail -n 60 "$WORK/configure.log"
  echo "the project cannot be configured with the packages of scripts/packages.txt" >&2
  exit 1
}

# Configuring does not look for headers that need no library, such as Boost's.
echo "-- headers"
cd "$source_dir"
{
  find protocol guest-shim host-daemon probe container machine tests \( -name '*.cc' -o -name '*.h' \) -print0 |
    xargs -0 sed -nE 's/^#include <([a-zA-Z0-9_./+-]+)>.*/\1/p' | sort -u |
    while read -r header; do
      printf '#if !__has_include(<%s>)\n#error "no package brings <%s>"\n#endif\n' "$header" "$header"
    done
} >"$tree/headers.cc"
# shellcheck disable=SC2016  # expanded in there
inside sh -c 'g++ -std=c++20 -fsyntax-only -I/usr/local/cuda/include -I"$(llvm-config-19 --includedir)" /headers.cc'

echo "-- programs"
for program in ccache clang++ clang-format clang-tidy cpio crun dpkg-deb docker-registry git lz4 mkfs.erofs mkfs.ext4 mmdebstrap ninja \
  podman protoc python3 qemu-system-x86_64 readelf runc shellcheck skopeo umoci xz zstd; do
  inside sh -c "command -v $program" >/dev/null || {
    echo "no package brings the program $program" >&2
    exit 1
  }
done
echo "-- all there"
