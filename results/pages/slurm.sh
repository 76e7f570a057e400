#!/bin/bash{{ " -l" if setup }}
# Trains {{ names | join(", ") }}. Submit it: sbatch FILE
{% for name, value in asked.items() %}
#SBATCH --{{ name }}{{ "=" if value }}{{ value }}
{% endfor %}

job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
job=${job:-$SLURM_JOB_ID}  # a task's SLURM_JOB_ID may stand for the whole array
ask() {  # a command of Slurm, again and again for ten minutes: its controller may be away
    local try
    for try in {1..40}; do
        timeout 60 "$@" && return
        sleep 15
    done
    echo "$1 $2 failed for ten minutes: submit this script again" >&2
    return 1
}
requeue() {  # WHY: queue the job again
    trap '' TERM
    [[ $(ask scontrol show job "$job") = *JobState=RUNNING* ]] || exit 3  # by scancel, which sends TERM, too
    echo "$1" >&2
    ask scontrol requeue "$job" || exit 3
}
again() {  # WHY
    requeue "$1: the job queues again"
    exit 3
}
elsewhere() {  # WHY: queue the job again without this node; with the third such node, or where no other is, end
    without=$(ask scontrol show job "$job" | sed -n 's/.*ExcNodeList=\([^ ]*\).*/\1/p')
    without=${without/#(null)/}
    without=${without:+$without,}$SLURMD_NODENAME
    left_out=$(scontrol show hostnames "$without")
    if sinfo --noheader --Node --format=%N --partition="$SLURM_JOB_PARTITION" | grep -qvxF "$left_out"; then
        if [ "${SLURM_RESTART_COUNT:-0}" -lt 2 ] || [ "$(wc -l <<< "$left_out")" -lt 3 ]; then
            requeue "$1: the job queues again, without $without"
            scontrol update JobId="$job" ExcNodeList="$without" || {  # a job that runs takes no list
                echo "Slurm leaves out no node: the job ends. Submit it again: sbatch --exclude=$without FILE" >&2
                scancel "$job"
            }
            exit 3
        fi
    fi
    echo "$1: the job ends. Once that is mended, or with other nodes: sbatch --exclude=$without FILE" >&2
    exit 5
}
tasks() {  # the other tasks of the array that have not ended: ID STATE DEPENDENCY
    ask squeue --noheader --array --jobs="$SLURM_ARRAY_JOB_ID" --format='%i %T %E' | grep -v "^$job "
}
relieved() {  # other jobs train all that is left: of an array, one task waits until they end, for what they may leave
    local others
    [ "$SLURM_ARRAY_JOB_ID" ] && others=$(tasks)
    [[ $others != *afterany:* && $others = *RUNNING* ]] || exit 0
    requeue "other tasks train all trials that are left: the job queues again, to begin when they end"
    running=$(tasks | sed -n 's/ RUNNING .*//p' | paste -sd:)  # not one that waits, too: it queued before this one
    [ -z "$running" ] || scontrol update JobId="$job" Dependency="afterany:$running" || scancel "$job"
    exit 3
}
trap 'again "asked to end before the grid trains"' TERM
{% if setup %}
{{ setup }}
set +eu  # whatever these lines set: the exit code below decides what follows
{% endif %}
export PATH={{ path }}:$PATH
export RAY_USAGE_STATS_ENABLED=0 RAY_TMPDIR="${RAY_TMPDIR:-/tmp}"  # TMPDIR may be shared, or too long for Ray's sockets
cd {{ folder }} || elsewhere "$SLURMD_NODENAME lacks this folder"
{% if unpack or stage %}
disk=${SLURM_TMPDIR:-$RAY_TMPDIR}
disk=$(mkdir -p "$disk" && mktemp -d "$disk/goalgrid-XXXXXX") || elsewhere "$SLURMD_NODENAME has no room"
export disk
{% if nodes > 1 %}
each="srun --overlap --nodes=$SLURM_NNODES --ntasks-per-node=1 --chdir=/"
trap 'kill $(jobs -p) 2>/dev/null; timeout 30 $each rm -rf "$disk"; rm -rf "$disk"' EXIT
{% else %}
trap 'rm -rf "$disk"' EXIT
{% endif %}
{% elif nodes > 1 %}
trap 'kill $(jobs -p) 2>/dev/null' EXIT
{% endif %}
{% if unpack %}
unpack={{ unpack }}
eval "$unpack" || elsewhere "$SLURMD_NODENAME cannot unpack the code of the launch"
export PYTHONPATH="$disk/code${PYTHONPATH:+:$PYTHONPATH}"
{% endif %}
{% if stage %}
stage={{ stage }}
{{ "$each " if nodes > 1 }}bash -c "$stage" &
wait $! || elsewhere "$SLURMD_NODENAME cannot take the data"  # a signal ends the wait
{% endif %}

{% if nodes > 1 %}
# This node is the head of a Ray cluster, which trains too. The nodes of the job know a token that nobody else knows.
export RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=$(openssl rand -hex 32) && export RAY_AUTH_TOKEN
others=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | grep -vxF "$SLURMD_NODENAME")
read -r other <<< "${others:-$SLURMD_NODENAME}"
other=$(scontrol show node "$other" | sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p')
# The address by which this node reaches another; its own name may stand for 127.0.1.1 in /etc/hosts.
ip=$(python -c "import socket
s = socket.socket(type=socket.SOCK_DGRAM)
s.connect(('$other', 9))
print(s.getsockname()[0])")
address=$ip:$((20000 + SLURM_JOB_ID % 10000))
has="--num-cpus=$SLURM_CPUS_PER_TASK --num-gpus=${SLURM_GPUS_ON_NODE:-0}"
ray start --head --block --node-ip-address="$ip" --port="${address##*:}" $has &
began=$SECONDS
await() {  # so many nodes
    until [ "$(timeout 20 ray status --address="$address" 2>/dev/null | grep -c ' 1 node_')" -ge "$1" ]; do
        [ $((SECONDS - began)) -lt 300 ] || again "fewer than $SLURM_NNODES nodes joined Ray in five minutes"
        sleep 2
    done
}
await 1
# Where the head's host is lost, --no-kill would leave the job to the other nodes, without this script.
join="{{ "$unpack; " if unpack }}ray start --address=$address --block $has; ray status --address=$address &>/dev/null || scontrol requeue $job"
for node in $others; do
    srun --nodes=1 --ntasks=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" --nodelist="$node" --chdir={{ folder }} bash -c "$join" &
done
await "$SLURM_NNODES"
{% endif %}
{% if force %}
[ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || force=--force  # a job that is queued again goes on
{% endif %}
{% if nodes == 1 %}
export GOALGRID_ELSEWHERE=yes  # where attempts only die on this node, the exit code is 5
{% endif %}
{{ command }}{% for name in staged %} --root {{ name }}="$disk/{{ name }}"{% endfor %}{{ " $force" if force }}{% if nodes > 1 %} --address "$address"{% elif not limited %} --jobs $((SLURM_CPUS_PER_TASK / {{ cpus }})){% endif %} &
driver=$!
trap 'asked=yes; kill -TERM $driver' TERM
wait $driver
status=$?
while kill -0 $driver 2>/dev/null; do  # the signal ended the wait, not the grid
    wait $driver
    status=$?
done
# After TERM, trials may also be left beside failed trials (4), or because none had begun (143).
case $status$asked in
    0*) exit 0 ;;
    6*) relieved ;;
    *yes) again "trials are left" ;;
    5) elsewhere "$SLURMD_NODENAME trains nothing" ;;
    2 | 4) exit $status ;;
esac
# 3: trials are left; 1, 137, ...: the program died. That may go on: after short runs, the job queues again three times.
[ $SECONDS -ge 600 ] || [ "${SLURM_RESTART_COUNT:-0}" -lt 3 ] && again "the program ended with $status"
echo "the program ended with $status within ten minutes, after $SLURM_RESTART_COUNT requeues: the job ends" >&2
exit $status
