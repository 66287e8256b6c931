#!/usr/bin/env bash
# Checks and measures on this machine's GPU what raysm does on GPUs; and prints a table; --out FOLDER also writes gpu.json.
#
#     bash tests/gpu/run.sh [--out FOLDER] [--device cpu] [--rows 200000] [--large-rows 1000000]
#
# It needs Python >= 3.11 with NumPy and PyTorch, nothing else, and takes less than eight minutes on one GPU.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec "${PYTHON:-python3}" -m tests.gpu "$@"
