#!/bin/sh
# mpirun.sh HOSTS DATA PROGRAM [ARGUMENTS]: one process per slot; the processes of a node share one
# cache. `cubeshim run` is written after mpirun, so that it sets up the processes of each node and
# not mpirun itself.
set -eu
hosts=$1 data=$2
shift 2
exec mpirun --host "$hosts" cubeshim run --prefix "$data" -- "$@"
