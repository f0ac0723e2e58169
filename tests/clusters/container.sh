#!/bin/bash
# What packaging/Containerfile puts into its last stage, as a root without a shell, in two containers: container.sh STAGED FOLDER VECTOR_ADD
# No engine and no registry: the base is Debian's C and C++ libraries, which are all that gcr.io/distroless/cc-debian12 has for a program.
set -eux
if [ "${CUMUX_STORY_INSIDE-}" != 1 ]; then
    CUMUX_STORY_INSIDE=1 exec setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --mount-proc "$0" "$@"
fi
staged=$1 folder=$2 vector_add=$3
image=$folder/image
mkdir -p "$image" "$folder/pipe" "$folder/debs"
(cd "$folder/debs" && apt-get download -qq libc6 libgcc-s1 libstdc++6 && for deb in *.deb; do dpkg-deb -x "$deb" "$image"; done)
cp -r "$staged/usr/." "$image/usr/"
mkdir -p "$image/proc" "$image/dev" "$image/tmp" "$image/run/cumux" "$image/work"
cp "$vector_add" "$image/work/vector_add"
# container NAME COMMAND…: with the environment of the recipe.
container() {
    env --ignore-environment PATH=/usr/bin CUMUX_DEVICE="${device-}" CUDA_MPS_PIPE_DIRECTORY=/run/cumux CUDA_MPS_LOG_DIRECTORY=/run/cumux/log LD_LIBRARY_PATH=/usr/lib/cumux \
        /usr/bin/unshare --mount --pid --fork --kill-child /bin/bash -c 'PATH=$PATH:/bin:/usr/sbin:/sbin; mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount --bind "$1" "$0/run/cumux" && shift && exec chroot "$0" "$@"' "$image" "$folder/pipe" "$@"
}
device=sim:h200 container cumux control -f >"$folder/daemon" 2>&1 &
until [ -S "$folder/pipe/cumux" ]; do
    kill -0 $! || { cat "$folder/daemon"; exit 1; }
    sleep 0.1
done
container /work/vector_add 1 | grep PASS
container cumux doctor | tee "$folder/doctor" || true
grep -q 'in another PID namespace' "$folder/doctor"
grep -q 'is ACTIVE' "$folder/doctor"
container cumux control get_server_list
echo "the image's content serves a program in another container"
