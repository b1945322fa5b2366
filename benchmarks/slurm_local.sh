#!/bin/bash
# Debian's Slurm on this one machine, for as long as the study of benchmarks/executors.py takes. Needs root and
#   apt-get install slurmctld slurmd slurm-client munge
# Everything lies in a temporary folder; the daemons are ended at the end. Usage: bash benchmarks/slurm_local.sh [PYTHON]
set -u
python=${1:-python}
root=$(mktemp -d /tmp/trivet-slurm-XXXX)
chmod 755 "$root"
host=$(hostname -s)
cores=$(nproc)
memory=$(awk '/MemAvailable/ {print int($2 / 1024 * 0.8)}' /proc/meminfo)
cat > "$root/slurm.conf" <<CONF
ClusterName=one
SlurmctldHost=$host
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SlurmctldPort=6917
SlurmdPort=6918
SlurmctldPidFile=$root/slurmctld.pid
SlurmdPidFile=$root/slurmd.pid
SlurmctldLogFile=$root/slurmctld.log
SlurmdLogFile=$root/slurmd.log
StateSaveLocation=$root/state
SlurmdSpoolDir=$root/spool
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cores RealMemory=$memory State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
CONF
mkdir -p "$root/state" "$root/spool" "$root/munge" && chown munge: "$root/munge"
export SLURM_CONF="$root/slurm.conf"
own=()
finish() {
    for pid in "${own[@]}"; do kill "$pid" 2>/dev/null; done
    wait 2>/dev/null
    [ -n "${KEEP:-}" ] || rm -rf "$root"
}
trap finish EXIT
if ! munge -n >/dev/null 2>&1; then
    mkdir -p /run/munge && chown munge: /run/munge
    runuser -u munge -- munged --foreground --force >"$root/munged.log" 2>&1 &
    own+=($!)
fi
sleep 2
slurmctld -D >"$root/ctld.out" 2>&1 &
own+=($!)
sleep 3
slurmd -D >"$root/d.out" 2>&1 &
own+=($!)
for _ in $(seq 30); do
    sinfo -h -o %T 2>/dev/null | grep -qE "idle|mix" && break
    sleep 1
done
sinfo || { echo "Slurm did not start:"; tail -3 "$root"/*.log "$root"/*.out; exit 1; }
"$python" "$(dirname "$0")/executors.py" slurm
