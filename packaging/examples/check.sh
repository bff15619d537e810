#!/bin/sh
# check.sh VENV: checks the examples against the schemas of Kubernetes and Compose, and the scripts
# by the shells. Makes VENV if it does not exist. Needs PyPI, systemd, and Debian's package
# docker-compose.
set -eu
cd "$(dirname "$0")"
[ -x "$1/bin/kubernetes-validate" ] ||
  { python3 -m venv "$1" && "$1/bin/pip" install -q kubernetes-validate; }
"$1/bin/kubernetes-validate" --strict kubernetes.yaml ../../doc/deploy/kubernetes.yaml
systemd-analyze verify ../../doc/deploy/memcached-cubeshim.service &&
  echo "INFO memcached-cubeshim.service passed"
docker-compose -f ../../doc/deploy/compose.yaml config --quiet &&
  echo "INFO doc/deploy/compose.yaml passed"
DATA=/mnt/data docker-compose -f compose.yaml config --quiet && echo "INFO compose.yaml passed"
# check_slurm.sh runs slurm.sh.
bash -n slurm.sh && sh -n mpirun.sh && echo "INFO shell scripts passed"
