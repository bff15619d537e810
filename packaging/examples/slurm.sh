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
# A local disk of the node. Slurm's cleaning of job directories would empty it: a place that stays serves the next job, too.
export CUBESHIM_DISK_DIR=${CUBESHIM_DISK_DIR:-/local/scratch/$USER/cubeshim} CUBESHIM_DISK=500G
# One report a process and node, beside the job's output.
export CUBESHIM_STATS=$PWD/cubeshim-$SLURM_JOB_ID-%p.txt

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
# The library is preloaded behind srun: neither Slurm's own programs nor torchrun's start need it.
srun --export=ALL cubeshim run -- torchrun --nnodes="$SLURM_NNODES" --nproc-per-node=gpu \
  --rdzv-backend=c10d --rdzv-endpoint="$head:29500" --rdzv-id="$SLURM_JOB_ID" train.py "$CUBESHIM_PREFIXES"
