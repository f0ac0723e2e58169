#!/bin/bash
# Jobs of two users on two software GPUs, with Debian's slurmctld and slurmd on one node: slurm.sh CUMUX PROGRAMS
# PROGRAMS is the folder with examples/ and tests/, the compiled CUDA programs.
set -Eeux
cumux=$1 programs=$2
export PATH=/usr/local/bin:$PATH CUDA_MPS_PIPE_DIRECTORY=/run/cumux CUDA_MPS_LOG_DIRECTORY=/run/cumux-log
trap 'set +x; tail -n 40 /var/log/slurm/*.log /run/cumux-log/*.log /tmp/jobs/* || true' ERR

# await CONDITION…: until the command succeeds; its attempts are not shown.
await() {
    echo "await: $*"
    { set +x; } 2>/dev/null
    until "$@" >/dev/null 2>&1; do sleep 0.1; done
    set -x
}

apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends slurmctld slurmd slurm-client munge >/dev/null
systemctl stop slurmctld slurmd
# Slurm looks at a card's device file, and never opens it. /dev is the system's: the files are made in another one.
mkdir /tmp/dev
mount -t tmpfs -o mode=755 tmpfs /tmp/dev
for name in null zero full random urandom tty; do
    mknod --mode=666 "/tmp/dev/$name" c $((0x$(stat -c %t "/dev/$name"))) $((0x$(stat -c %T "/dev/$name")))
done
for card in 0 1; do mknod --mode=666 "/tmp/dev/nvidia$card" c 195 "$card"; done
mkdir --mode=1777 /tmp/dev/shm
ln -s /proc/self/fd /tmp/dev/fd
mount --move /tmp/dev /dev
systemctl restart munge
await bash -c 'munge -n | unmunge'

# As docs/slurm.md says it.
"$cumux" install --prefix /usr/local >/dev/null
mkdir --mode=755 "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
start_daemon() { /usr/local/bin/cumux control -d -M --device sim:h200,sim:h200 9>&-; }
start_daemon
for hook in prolog epilog task-prolog; do
    printf '#!/bin/sh\nexec /usr/local/bin/cumux slurm %s --pipe /run/cumux\n' "$hook" >"/etc/slurm/cumux-$hook.sh"
    chmod 755 "/etc/slurm/cumux-$hook.sh"
done
node=$(hostname)
mkdir -p /var/lib/slurm/slurmctld /var/lib/slurm/slurmd /var/log/slurm
chown -R slurm /var/lib/slurm /var/log/slurm
are_gone() { ! pidof slurmctld slurmd; }
node_is() { [ "$(sinfo -h -o %T)" = "$1" ]; }
# What `cumux slurm gres` prints, and above it what every slurm.conf has.
configure() {
    if pidof slurmctld slurmd; then
        pkill -x slurmctld
        pkill -x slurmd
        await are_gone
    fi
    cumux slurm gres "$@" --pipe /run/cumux >/etc/slurm/gres.conf
    cat >/etc/slurm/slurm.conf <<END
ClusterName=story
SlurmctldHost=$node
SlurmUser=slurm
AuthInfo=cred_expire=5
SchedulerParameters=sched_interval=1
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldPort=16817
SlurmdPort=16818
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
SlurmdDebug=debug
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MailProg=/bin/true
PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE:8
END
    sed -n 's/^#   //p' /etc/slurm/gres.conf | sed "s/NodeName=\.\.\./NodeName=$node CPUs=$(nproc)/" >>/etc/slurm/slurm.conf
    slurmctld
    slurmd
    await node_is idle
    scontrol show node | grep "Gres=gpu:2,$resource:$all"
}
useradd --create-home one
useradd --create-home two
mkdir --mode=1777 /tmp/jobs
cp "$programs/examples/vector_add" "$programs/examples/long_kernel" "$programs/tests/view" "$programs/tests/idle" /usr/local/bin
# The environment of a user has nothing of ours.
as() { env --unset CUDA_MPS_PIPE_DIRECTORY --unset CUDA_MPS_LOG_DIRECTORY su "$1" -s /bin/sh -c "$2"; }
# submit USER GRES COMMAND…: prints the job's number; its output is /tmp/jobs/NUMBER.
submit() { as "$1" "cd /tmp && sbatch --parsable --output=/tmp/jobs/%j --gres=$2 --wrap '${*:3}'"; }
state() { scontrol show job "$1" | sed -n 's/.*JobState=\([A-Z]*\) .*/\1/p'; }
job_is() { [ "$(state "$1")" = "$2" ]; }
has_gone() { local list; list=$(squeue -h -j "$1" -o %T) && [ -z "$list" ]; }
finish() {
    await has_gone "$1"
    test "$(state "$1")" = COMPLETED
}
says() { await grep -q "$2" "/tmp/jobs/$1"; }
works_on() { cumux status | grep "/$1 " | grep -vE ' (exited|killed|terminated) ' || true; }
groups() { cumux group list | grep -c slurm- || true; }

resource=mps all=200
configure --mps 100

# What a job sees: its part of the card, and that nothing stands in its way.
job=$(submit one mps:25 "view </dev/null && cumux doctor")
finish "$job"
cat "/tmp/jobs/$job"
grep -qx 'multiprocessors 32' "/tmp/jobs/$job"
grep -qx "total 35788" "/tmp/jobs/$job"
grep -q 'a program that starts here is served' "/tmp/jobs/$job"
grep -q 'Nothing stands in the way' "/tmp/jobs/$job"

# A job without a card, and one with a whole one.
job=$(as one "cd /tmp && sbatch --parsable --output=/tmp/jobs/%j --wrap 'env | grep CUDA || echo none'")
finish "$job"
grep -qx none "/tmp/jobs/$job"
job=$(submit one gpu:1 "view </dev/null")
finish "$job"
grep -qx 'multiprocessors 132' "/tmp/jobs/$job"
test "$(groups)" = 0

# Two users on one card at the same time. What does not fit there goes to the next card.
mkfifo --mode=666 /tmp/words
first=$(submit one mps:25 long_kernel)
says "$first" 'kernel running'
second=$(submit two mps:50 "idle </tmp/words")
exec 9>/tmp/words
says "$second" ready
third=$(submit two mps:75 "sleep 1000")
await job_is "$third" RUNNING
scontrol show job -d "$second" | grep 'GRES=mps:50(IDX:0)'
scontrol show job -d "$third" | grep 'GRES=mps:75(IDX:1)'
test "$(groups)" = 3
# Nobody uses the group of another user's job.
if as two "CUDA_MPS_PIPE_DIRECTORY=/run/cumux/groups/slurm-$first LD_LIBRARY_PATH=/usr/local/lib/cumux view </dev/null"; then exit 1; fi

# Cancelled in the middle of a kernel: the epilog leaves nothing of it, and the neighbour goes on.
scancel "$first"
await has_gone "$first"
test ! -e "/run/cumux/groups/slurm-$first"
test "$(groups)" = 2
test -z "$(works_on long_kernel)"
echo >&9
says "$second" 'round 1 right'
scancel "$third"
await has_gone "$third"

# The daemon dies. The running job goes on; the next one's prolog drains the node with the reason, and Slurm requeues the job.
daemon=$(pgrep -f '^/usr/local/bin/cumux control')
kill -KILL "$daemon"
await test ! -e "/proc/$daemon"
sed -i '2s/$/ --wait 1/' /etc/slurm/cumux-prolog.sh /etc/slurm/cumux-epilog.sh
fourth=$(submit two mps:25 "view </dev/null")
await bash -c "scontrol show node | grep 'Reason=cumux: no cumux daemon answers'"
await job_is "$fourth" PENDING
start_daemon
scontrol update NodeName="$node" State=RESUME
scontrol release "$fourth"
finish "$fourth"
grep -qx 'multiprocessors 32' "/tmp/jobs/$fourth"
echo >&9
says "$second" 'round 2 right'
exec 9>&-
finish "$second"
test "$(groups)" = 0

# The same with shards, of which Slurm tells a prolog nothing.
resource=shard all=16
configure --shard 8
job=$(submit two shard:2 "view </dev/null")
finish "$job"
grep -qx 'multiprocessors 32' "/tmp/jobs/$job"
first=$(submit one shard:4 long_kernel)
second=$(submit two shard:4 long_kernel)
says "$first" 'kernel running'
says "$second" 'kernel running'
scancel "$first" "$second"
await has_gone "$first"
await has_gone "$second"
test "$(groups)" = 0
test -z "$(ls /run/cumux/groups)"
test -z "$(works_on long_kernel)"
test "$(sinfo -h -o %T)" = idle
echo quit | cumux control
pkill -x slurmctld
pkill -x slurmd
echo "jobs of two users ran, were cancelled, and left nothing"
