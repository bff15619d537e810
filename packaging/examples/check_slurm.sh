#!/bin/bash
# check_slurm.sh FOLDER: runs slurm.sh by Slurm on two nodes, which are both this machine. FOLDER
# contains cubeshim and libcubeshim.so. Needs root and Debian's slurmctld slurmd slurm-client munge
# python3-torchvision iproute2, which need no configuration. The daemons run in namespaces of their
# own, and end with these namespaces.
set -euo pipefail
if [ "${CHECK_SLURM_INSIDE:-}" != 1 ]; then
  CHECK_SLURM_INSIDE=1 exec unshare --mount --net --pid --fork --kill-child --mount-proc "$0" \
    "$(realpath "$1")"
fi
built=$1 examples=$(realpath "$(dirname "$0")") work=$(mktemp -d) host=$(hostname)
trap 'rm -rf "$work"' EXIT
mkdir "$work"/{munge,job,bin,data}
# Names are resolved only if there is an address other than 127.0.0.1.
ip link set lo up
ip address add 192.0.2.1 dev lo
ip address add 192.0.2.2 dev lo
printf '%s\n' '127.0.0.1 localhost' "192.0.2.1 one $host" '192.0.2.2 two' > "$work/hosts"
mount --bind "$work/hosts" /etc/hosts

export SLURM_CONF=$work/slurm.conf
cat > "$SLURM_CONF" <<END
ClusterName=check
SlurmctldHost=$host(192.0.2.1)
SlurmUser=root
AuthInfo=socket=$work/munge/socket
StateSaveLocation=$work/state
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd-%n.pid
SlurmdSpoolDir=$work/spool-%n
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
NodeName=one NodeHostname=$host NodeAddr=192.0.2.1 Port=17001 CPUs=16
NodeName=two NodeHostname=$host NodeAddr=192.0.2.2 Port=17002 CPUs=16
PartitionName=all Nodes=one,two Default=YES
END
head -c 1024 /dev/urandom > "$work/munge/key"
chmod 400 "$work/munge/key"
cd "$work/munge"
munged --foreground --force --key-file="$PWD/key" --socket="$PWD/socket" --pid-file="$PWD/pid" \
  --seed-file="$PWD/seed" --log-file="$PWD/log" &> ../munged.log &
until [ -S socket ]; do kill -0 $!; sleep 0.1; done
slurmctld -D &> ../slurmctld.log &
for node in one two; do slurmd -D -N "$node" &> "../slurmd-$node.log" & done
until [ "$(sinfo --noheader --format=%D --states=idle 2> /dev/null)" = 2 ]; do
  kill -0 $!; sleep 0.1
done

# Two processes per node instead of one per GPU. Without -r and -t, Debian's torchrun fails under
# Python 3.11.
cat > "$work/bin/torchrun" <<'END'
#!/bin/bash
exec /usr/bin/torchrun -r 1 -t 1 "${@/--nproc_per_node=gpu/--nproc_per_node=2}"
END
chmod +x "$work/bin/torchrun"
/usr/bin/python3 - "$work/data" <<'END'
import os, sys
from PIL import Image
for number in range(200):
    folder = f"{sys.argv[1]}/{number % 4}"
    os.makedirs(folder, exist_ok=True)
    Image.frombytes("RGB", (40, 40), os.urandom(4800)).save(f"{folder}/{number}.png")
END
cp "$examples/train.py" "$work/job"
cd "$work/job"
export PATH=$work/bin:$built:/usr/bin:/bin DATA=$work/data CUBESHIM_DISK_DIR=$work/disk/cubeshim
status=0
sbatch --wait --output="$work/output" "$examples/slurm.sh" || status=$?
cat "$work/output"
tail -n 100 cubeshim-*.txt
# Each of four processes reads 200 files three times. No other program reads these files, and the
# disk keeps them.
[ "$status" = 0 ] && [ "$(grep -c 'epoch 3:' "$work/output")" = 4 ] &&
  [ -n "$(find "$CUBESHIM_DISK_DIR" -size +100k)" ] &&
  [ "$(cat cubeshim-*.txt | sed -n 's/^cubeshim: served: \([0-9]*\) file opens.*/\1/p' |
    awk '$1 >= 1150' | wc -l)" = 2 ] ||
  { echo "FAILED: slurm.sh, exit status $status"; tail -n 20 "$work"/*.log; exit 1; }
echo "INFO slurm.sh passed: two nodes, four processes"
