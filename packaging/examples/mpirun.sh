#!/bin/sh
# mpirun.sh HOSTS DATA PROGRAM [ARGUMENTS]: one process a slot; the processes of a node share one
# cache. `cubeshim run` comes after mpirun, so that it sets up each node's processes, and mpirun
# itself stays as it is.
set -eu
hosts=$1 data=$2
shift 2
exec mpirun --host "$hosts" cubeshim run --prefix "$data" -- "$@"
