#!/usr/bin/env bash
# Ray whose workers do not see the study folder (an empty disk lies over it in a mount namespace of theirs): what shared
# storage says, and whether copied storage gives the results. Needs root, the extra ray, and a trivet on the PATH.
#
#     bash benchmarks/ray_unshared.sh
set -euo pipefail
scratch=$(mktemp -d)
mkdir "$scratch/studies"
export RAY_ADDRESS=127.0.0.1:6390 RAY_AUTH_MODE=token RAY_AUTH_TOKEN
RAY_AUTH_TOKEN=$(python -c "import secrets; print(secrets.token_hex(32))")
unshare --mount bash -c "mount -t tmpfs none '$scratch/studies'; cd /; unset RAY_ADDRESS; exec ray start --head \
    --node-ip-address 127.0.0.1 --port 6390 --num-cpus 2 --include-dashboard=false --block" > "$scratch/ray.log" 2>&1 &
ray=$!
trap 'kill $ray; wait $ray || true; rm -rf "$scratch" /tmp/ray/ray_current_cluster' EXIT
for _ in $(seq 60); do grep -q "block forever" "$scratch/ray.log" && break; sleep 1; done
cat > "$scratch/study.yaml" << 'END'
name: unshared
base: {task: {command: "echo loss: {seed}.5", metrics: {loss: 'loss: (\S+)'}}}
seeds: 4
metric: {name: loss}
executor: ray
END
for storage in shared copied; do
    begun=$SECONDS
    trivet run "$scratch/study.yaml" --out "$scratch/studies/$storage" --set resources.storage=$storage || true
    echo "== storage: $storage: $((SECONDS - begun)) s, $(ls "$scratch/studies/$storage"/*/result.json 2> /dev/null | wc -l) of 4 runs done"
done
