#!/bin/bash
# Runs a script as root in a copy of this system that is thrown away, under a systemd of its own: throwaway.sh FOLDER SCRIPT [ARGUMENT…]
# What is below this repository and below FOLDER is the same inside; everything else the script changes is gone afterwards. Its output is FOLDER/output.
set -eu
if [ "${1-}" != --inside ]; then
    copy=$(mktemp -d /tmp/cumux-throwaway.XXXXXX)
    group=
    trap 'rmdir "$copy"; if [ -n "$group" ]; then find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true; fi' EXIT
    if [ ! -e /sys/fs/cgroup/cgroup.controllers ]; then
        # A control group of its own in the old hierarchy, so that nothing is left in the system's.
        group=/sys/fs/cgroup/systemd/cumux-throwaway-$$
        mkdir "$group"
    fi
    status=0
    bash -c 'if [ -n "$0" ]; then echo $$ >"$0/cgroup.procs"; fi; exec setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --cgroup --uts --ipc bash "$@"' "$group" "$0" --inside "$copy" "$@" || status=$?
    exit $status
fi
copy=$2
folder=$3
shift 3
repository=$(cd "$(dirname "$0")/../.." && pwd -P)
mount --make-rprivate /
mount -t tmpfs -o size=4G tmpfs "$copy"
mkdir "$copy/upper" "$copy/work" "$copy/root"
# An overlay shows what is mounted nowhere: repository and folder are mounted again below.
mount -t overlay overlay -o "lowerdir=/,upperdir=$copy/upper,workdir=$copy/work" "$copy/root"
root=$copy/root
mount -t proc proc "$root/proc"
for place in run tmp; do mount -t tmpfs tmpfs "$root/$place"; done
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
else
    mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
    mkdir "$root/sys/fs/cgroup/systemd"
    mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"
fi
for same in "$repository" "$folder"; do
    mkdir -p "$root$same"
    mount --rbind "$same" "$root$same"
done
# An index of manual pages is made by every installation otherwise, in minutes.
rm -f "$root/var/lib/man-db/auto-update"
# Nothing of this system's services is started.
rm -rf "$root"/etc/systemd/system/*.wants "$root"/lib/systemd/system/*.target.wants
printf '[Unit]\nDefaultDependencies=no\nRequires=story.service\nAfter=story.service\n' >"$root/etc/systemd/system/story.target"
{
    printf '[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\nTimeoutStartSec=infinity\nTimeoutStopSec=5\nStandardOutput=file:%s\nStandardError=inherit\n' "$folder/output"
    printf 'ExecStart=/bin/bash -c '\''PATH=/usr/sbin:/usr/bin:/sbin:/bin; "$@"; status=$$?; systemctl exit $$status'\'' story'
    printf ' "%s"' "$@"
    printf '\n'
} >"$root/etc/systemd/system/story.service"
export container=throwaway
exec chroot "$root" /lib/systemd/systemd --system --unit=story.target --log-target=console --log-level=warning
