# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Shared by the scripts of this folder; sourced, not run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# The same sorting and messages everywhere; C.UTF-8 exists on a minimal system.
export LC_ALL=C.UTF-8

say() { printf '%s\n' "$*" >&2; }
die() { say "$(basename "$0"): $*"; exit 1; }

# Package lists.  build: to compile; model: to fetch the model; check: everything tier 1 runs;
# all: what tier 2 runs besides.
packages_build="gcc libc6-dev cmake ninja-build pkg-config libevent-dev libnghttp2-dev libssl-dev libpcre2-dev libutf8proc-dev
  libxxhash-dev libmsgpack-dev libjansson-dev uuid-dev libopenblas0-pthread libseccomp-dev libpq-dev
  libsqlite3-dev libcurl4-openssl-dev libprotobuf-c-dev protobuf-c-compiler libwslay-dev"
packages_model="python3 python3-pip ca-certificates"
packages_check="$packages_build $packages_model g++ curl git clang clang-format clang-tidy
  libclang-rt-14-dev gcc-aarch64-linux-gnu libc6-dev-arm64-cross libcriterion-dev libhttp-parser-dev
  spin procps postgresql systemd dpkg-dev fakeroot groff-base nginx-light haproxy"
packages_all="python3-venv varnish nghttp2-client prometheus chromium fonts-dejavu-core"
packages_node="nodejs npm" # where there is no npm

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "packages are missing and can be installed only by root or with sudo"
  fi
}

# Installs what is missing of the named packages; asks no registry when nothing is.
install_packages() {
  local missing="" p log
  for p in "$@"; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
  done
  [ -n "$missing" ] || return 0
  say "installing:$missing"
  log=$(mktemp)
  # shellcheck disable=SC2086
  if ! as_root apt-get update -qq >"$log" 2>&1 </dev/null ||
    ! as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >>"$log" 2>&1 </dev/null; then
    tail -n 30 "$log" >&2
    die "apt-get could not install:$missing"
  fi
  rm -f "$log"
}

# configure_build PRESET [TARGET...]: quiet unless it fails.
configure_build() {
  local log preset=$1 rc=0
  shift
  log=$(mktemp)
  { cmake --preset "$preset" && cmake --build --preset "$preset" ${1:+--target "$@"}; } >"$log" 2>&1 || rc=$?
  [ "$rc" = 0 ] || tail -n 60 "$log" >&2
  rm -f "$log"
  return "$rc"
}
