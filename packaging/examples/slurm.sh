#!/bin/bash
# sbatch slurm.sh: torchrun on each node. The processes of a node share one cache.
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=24:00:00
set -euo pipefail

export CUBESHIM_PREFIXES=${DATA:-/mnt/data}
export CUBESHIM_RAM=64G
# A local disk of the node, outside the job directories that Slurm empties: the next job finds the
# files there.
export CUBESHIM_DISK_DIR=${CUBESHIM_DISK_DIR:-/local/scratch/$USER/cubeshim} CUBESHIM_DISK=500G
# One report per node, beside the job's output.
export CUBESHIM_STATS=$PWD/cubeshim-$SLURM_JOB_ID-%p.txt

# Makes the folder on each node, because the library makes only the last folder of the path.
srun mkdir -p "$CUBESHIM_DISK_DIR"
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
# The library is preloaded after srun: neither Slurm's own programs nor torchrun's start need it.
# srun does not inherit the job's --cpus-per-task. The options have underscores, because torch 1
# does not accept hyphens.
srun --export=ALL --cpus-per-task="$SLURM_CPUS_PER_TASK" cubeshim run -- \
  torchrun --nnodes="$SLURM_NNODES" --nproc_per_node=gpu --rdzv_backend=c10d \
  --rdzv_endpoint="$head:29500" --rdzv_id="$SLURM_JOB_ID" train.py "$CUBESHIM_PREFIXES"
