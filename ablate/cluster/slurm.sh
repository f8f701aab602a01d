#!/bin/bash
# sbatch ablate/cluster/slurm.sh SPEC OUT [options of ablate run]
#
# One Ray on all nodes of the job, the sweep on the first of them. OUT lies where all nodes see it.
# Started again, before or after its time is over, it goes on: what the ledger has is not done again.
# What to change: the lines below, and ABLATE_ENV, the environment that `ablate` is installed in.
#SBATCH --job-name=ablate
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --gpus-per-node=4
#SBATCH --time=24:00:00
# No other Ray on these nodes: the end of this one is `ray stop`, which ends every Ray of a node.
#SBATCH --exclusive
# Two minutes before the end: trials are broken off at a checkpoint, the ledger says so.
#SBATCH --signal=B:TERM@120
set -euo pipefail

if [[ $# -lt 2 ]]; then
  echo "usage: sbatch slurm.sh SPEC OUT [options of ablate run]" >&2
  exit 2
fi
spec=$1 out=$2
shift 2
if [[ -n ${ABLATE_ENV:-} ]]; then
  export PATH="$ABLATE_ENV/bin:$PATH"
fi

# A token of this job's own, which only this user can read, in the place that all nodes see.
mkdir -p "$out"
token=$(mktemp "$(cd "$out" && pwd)/.token-XXXXXXXX")
trap 'rm -f "$token"' EXIT
(umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$token")
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$token

hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${hosts%%$'\n'*}
# The first address that is none of IPv6.
read -ra addresses <<<"$(srun --nodes=1 --ntasks=1 --nodelist="$head" hostname --ip-address)"
ip=
for each in "${addresses[@]}"; do
  if [[ $each != *:* ]]; then
    ip=$each
    break
  fi
done
if [[ -z $ip ]]; then
  echo "slurm.sh: $head has no IPv4 address: ${addresses[*]}" >&2
  exit 1
fi
address=$ip:${RAY_PORT:-6379}

# From Slurm 22.05 on a step does not have the cores of sbatch's --cpus-per-task unless it asks.
srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" \
  --cpus-per-task="$SLURM_CPUS_PER_TASK" \
  ray symmetric-run --address "$address" --min-nodes "$SLURM_JOB_NUM_NODES" \
  --num-cpus="$SLURM_CPUS_PER_TASK" --num-gpus="${SLURM_GPUS_ON_NODE:-0}" -- \
  ablate run "$spec" --address "$address" --out "$out" "$@" &
step=$!
# Slurm's word of the end reaches this script alone: it asks the run to stop, and waits for it.
trap 'ablate stop --out "$out" --wait 100s || true' TERM INT
code=0
wait "$step" || code=$?
if kill -0 "$step" 2>/dev/null; then # the wait was ended by the signal, not the step
  code=0
  wait "$step" || code=$?
fi
exit "$code"
