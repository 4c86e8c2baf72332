# shellcheck shell=bash
# Shared by the commands beside it and CI: checks that everything emm is built with is there, fetches
# missing parts, and builds. If nothing is missing, it installs nothing and needs no network.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
logs=$root/.cache/logs
mkdir -p "$logs"

say() { printf '%s\n' "$@"; }
stop() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# usage_if_asked TEXT ARGUMENT...: the script's usage, if that is all that is wanted of it.
usage_if_asked() {
    local text=$1 argument
    shift
    for argument; do
        case $argument in -h | --help) say "$text"; exit 0 ;; esac
    done
}

# In one line of the terminal, the seconds that go by and the latest line of what it reads; of a build, the latest that
# tells how far it is, [12/345] what. Elsewhere that is a line of its own now and then.
progress_seconds=30
show_progress() {
    local line='' shown='' columns builds='' status=0 begin=$SECONDS told=$SECONDS
    columns=$(tput cols 2>/dev/null) || columns=80
    while [ $status = 0 ] || [ $status -gt 128 ]; do # 128: a second without a line
        line="$((SECONDS - begin)) s  $shown"
        if [ -t 1 ]; then
            printf '\r\033[K%s' "${line:0:columns-1}"
        elif ((SECONDS - told >= progress_seconds)); then
            say "... $line"
            told=$SECONDS
        fi
        status=0
        IFS= read -r -t 1 line || status=$?
        if [[ $line =~ ^\[[0-9]+/[0-9]+\]\  ]]; then
            builds=yes
        elif [ -n "$builds" ] || [ $status != 0 ]; then
            continue
        fi
        shown=${line//[^[:print:]]/ }
    done
    [ ! -t 1 ] || printf '\r\033[K'
}

# logged NAME COMMAND...: what the command prints goes to a log, which is named if it fails. Its progress is shown.
logged() {
    local log=$logs/$1.log
    shift
    (set -o pipefail; "$@" 2>&1 </dev/null | tee "$log" | show_progress) && return
    printf '%s\n' "... the last lines of $log:" >&2
    tail -n 12 "$log" >&2
    return 1
}

have_program() { command -v "$1" >/dev/null 2>&1; }
have_library() { pkg-config --exists "$1" 2>/dev/null; }
have_meson() {
    have_program meson && [ "$(printf '1.0\n%s\n' "$(meson --version)" | sort -V | head -n 1)" = 1.0 ]
}
have_compiler() { have_program g++ || have_program clang++; }
python3_has_venv() { python3 -c 'import ensurepip' 2>/dev/null; }
have_ninja() { have_program ninja || have_program ninja-build; }

# cuda.h supplies types, and its version must know those that emm uses.
cuda_release=12000
fetched_headers=$root/.cache/cuda/include
cuda_header_is_good() {
    local version
    version=$(sed -n 's/^#define CUDA_VERSION \([0-9]*\).*/\1/p' "$1/cuda.h" 2>/dev/null)
    [ "${version:-0}" -ge "$cuda_release" ]
}

# The folder of a usable cuda.h; of the places where the build looks, in its order. CUDA_PATH and
# CUDA_HOME name a toolkit that is not where toolkits usually are.
cuda_headers() {
    local folder
    for folder in "${CUDA_PATH:+$CUDA_PATH/include}" "${CUDA_HOME:+$CUDA_HOME/include}" \
        /usr/local/cuda/include /opt/cuda/include "$fetched_headers" /usr/include; do
        if [ -n "$folder" ] && cuda_header_is_good "$folder"; then
            printf '%s' "$folder"
            return
        fi
    done
    return 1
}

# pip is there to fetch cuda.h, if nothing else brought it.
have_pip_if_needed() { cuda_headers >/dev/null || python3 -m pip --version >/dev/null 2>&1; }

# One line for each thing: how to find out that it is there, and the package that brings it.
needs='
have_compiler                   g++
have_program pkg-config         pkgconf
have_program python3            python3
have_program dpkg-architecture  dpkg-dev
have_meson                      meson
have_ninja                      ninja-build
have_library fmt                libfmt-dev
have_library spdlog             libspdlog-dev
have_library CLI11              libcli11-dev
have_library nlohmann_json      nlohmann-json3-dev
have_library catch2             catch2
have_program gzip               gzip
have_pip_if_needed              python3-pip
'

have_fuzzer() {
    printf 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char *, unsigned long) { return 0; }' |
        clang++-16 -fsanitize=fuzzer -x c++ - -o /dev/null 2>/dev/null
}
# shellcheck disable=SC2034 # tools/fuzz reads it
needs_to_fuzz='
have_program clang++-16         clang-16
have_fuzzer                     libclang-rt-16-dev
'

# The packages whose probe fails, of a list such as the one above.
missing_of() {
    local probe package
    while read -r probe; do
        [ -n "$probe" ] || continue
        package=${probe##* }
        # shellcheck disable=SC2086 # a probe is a command and its argument
        ${probe% *} || printf '%s ' "$package"
    done <<<"$1"
}

# install PACKAGE...: with apt, as root or through sudo.
install() {
    local as_root=()
    have_program apt-get || stop "this system has no apt; please install what these Debian packages hold: $*"
    if [ "$(id -u)" != 0 ]; then
        have_program sudo || stop "no sudo here; as root, please run: apt-get install $*"
        as_root=(sudo)
    fi
    say "installing $*"
    # A package may be there although the lists are out of date, or the other way round.
    say "... first the package lists are refreshed, then packages fetched (some minutes)"
    logged apt-update "${as_root[@]}" apt-get update ||
        say "the package lists could not be refreshed; trying with those at hand"
    logged apt-install "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends "$@" ||
        stop "apt could not install: $*"
}

install_missing() {
    local missing
    missing=$(missing_of "$1")
    [ -n "$missing" ] || return 0
    # shellcheck disable=SC2086 # a list of names
    install $missing
    missing=$(missing_of "$1")
    [ -z "$missing" ] || stop "installed, yet not found or too old: $missing"
}

# NVIDIA publishes its headers on the Python registry too, 2 MB instead of a toolkit of gigabytes.
cuda_wheel=nvidia-cuda-runtime==13.0.96
cuda_crt_wheel=nvidia-cuda-crt==13.0.88 # what cuda_runtime_api.h includes
nvtx_wheel=nvidia-nvtx==13.0.85         # the layer sanitize is built with it; toolkits before CUDA 13 lack a part

# fetch_wheel WHEEL FOLDER: unpacks it there.
fetch_wheel() {
    rm -rf "$2"
    mkdir -p "$2"
    logged "fetch-${1%%==*}" python3 -m pip download --disable-pip-version-check --no-deps --retries 1 \
        --timeout 20 --only-binary :all: -d "$2" "$1" && python3 -m zipfile -e "$2"/*.whl "$2"
}

fetch_cuda_headers() {
    cuda_headers >/dev/null && return
    say "no CUDA Toolkit here: fetching NVIDIA's headers ($cuda_wheel)"
    local scratch=$root/.cache/cuda/wheel
    mkdir -p "$fetched_headers"
    fetch_wheel "$cuda_wheel" "$scratch" ||
        stop "cuda.h is missing: install the CUDA Toolkit, or put its headers into $fetched_headers"
    cp -r "$scratch"/nvidia/*/include/. "$fetched_headers"
    rm -rf "$scratch"
    cuda_headers >/dev/null || stop "$cuda_wheel was fetched, yet it holds no usable cuda.h"
    fetch_nvtx_headers
}

# Google's protobuf, with which tests read profiles.
protobuf_wheel=protobuf==7.36.2
fetch_protobuf() {
    local folder=$root/.cache/protobuf
    [ -d "$folder/google" ] || fetch_wheel "$protobuf_wheel" "$folder" || return
    export EMM_TEST_PROTOBUF=$folder
}

fetch_nvtx_headers() {
    local scratch=$root/.cache/cuda/wheel
    [ ! -f "$(cuda_headers)/nvtx3/nvToolsExtMem.h" ] && [ ! -d "$fetched_headers/nvtx3" ] || return 0
    say "fetching NVTX's headers ($nvtx_wheel)"
    if fetch_wheel "$nvtx_wheel" "$scratch"; then
        mkdir -p "$fetched_headers"
        cp -r "$scratch"/nvidia/*/include/nvtx3 "$fetched_headers"
    else
        say "... they could not be had: the layer sanitize is not built"
    fi
    rm -rf "$scratch"
}

# Some tests compile emm.hpp against these, one on each side of a change of names. Tests that miss
# one are skipped; a toolkit brings one of them.
cccl_wheels='
cu12 nvidia-cuda-cccl-cu12==12.9.27
cu13 nvidia-cuda-cccl==13.3.5.0.6
'
fetch_cccl_headers() {
    local name wheel scratch=$root/.cache/cccl/wheel
    if [ "$(cuda_headers)" = "$fetched_headers" ] && [ ! -d "$fetched_headers/crt" ]; then
        fetch_wheel "$cuda_crt_wheel" "$scratch" && cp -r "$scratch"/nvidia/*/include/crt "$fetched_headers"
    fi
    while read -r name wheel; do
        if [ -z "$name" ] || [ -d "$root/.cache/cccl/$name" ]; then
            continue
        fi
        say "fetching NVIDIA's C++ headers for tests ($wheel)"
        if fetch_wheel "$wheel" "$scratch"; then
            mv "$(dirname "$(dirname "$(find "$scratch" -path '*/cuda/memory_resource')")")" \
                "$root/.cache/cccl/$name"
        else
            say "... they could not be had: tests that need them are skipped"
        fi
        rm -rf "$scratch"
    done <<<"$cccl_wheels"
}

# fetch_for_tests NAME PART WHEEL WHAT: puts PART of the wheel into .cache/NAME, unless it is there.
# Tests that miss it are skipped.
fetch_for_tests() {
    local folder=$root/.cache/$1 part=$2 wheel=$3 what=$4
    local scratch=${folder%/*}/wheel
    [ ! -d "$folder" ] || return 0
    say "fetching $what for tests ($wheel)"
    if fetch_wheel "$wheel" "$scratch"; then
        mv "$scratch/$part" "$folder"
    else
        say "... it could not be had: tests that need it are skipped"
    fi
    rm -rf "$scratch"
}

# One test counts what these look up; programs on RMM are linked to the second.
fetch_cuda_runtimes() {
    fetch_for_tests runtime/cuda-12 nvidia nvidia-cuda-runtime-cu12==12.9.79 "NVIDIA's CUDA runtime"
    fetch_for_tests runtime/cuda-13 nvidia nvidia-cuda-runtime==13.0.96 "NVIDIA's CUDA runtime"
}

# A test builds a program against this RMM.
fetch_rmm() {
    fetch_for_tests rmm/librmm librmm librmm-cu13==26.10.0 RMM
    fetch_for_tests rmm/rapids_logger rapids_logger rapids-logger==0.3.0 "RMM's logger"
}

# set_up: everything that is needed to build is there afterwards.
set_up() {
    say "looking for what emm is built with (seconds, if all is there)"
    install_missing "$needs"
    fetch_cuda_headers
    fetch_nvtx_headers
}

# configure FOLDER [MESON OPTION...]: the options count when the folder is new. A whole build takes a third of the
# time when many files are compiled as one. A folder that is older than a meson.build is configured again.
configure() {
    local folder=$1 name=${1##*/}
    shift
    if [ ! -f "$folder/build.ninja" ]; then
        say "configuring (some seconds)"
        logged "$name-configure" meson setup "$folder" "$root" \
            "-Dtoolkit_include=$(cuda_headers)" -Dunity=on -Dunity_size=8 "$@" ||
            stop "emm could not be configured"
    else
        logged "$name-configure" meson compile -C "$folder" --ninja-args=build.ninja ||
            stop "emm could not be configured again"
    fi
}

# compile FOLDER [TARGET...]: all of it, or the targets.
compile() {
    local folder=$1 name=${1##*/}
    shift
    say "compiling (some minutes the first time, by the processors; the log is $logs/$name.log)"
    logged "$name" meson compile -C "$folder" "$@" || stop "emm did not build"
}

# build FOLDER [MESON OPTION...]: configures it and builds `targets`, or all.
targets=()
build() {
    configure "$@"
    compile "$1" "${targets[@]}"
}
