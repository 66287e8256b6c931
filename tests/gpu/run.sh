#!/usr/bin/env bash
# Runs all that needs GPUs, as far as this machine has them, and prints a table: entry, GPUs, expected, seen, verdict.
#
#     bash tests/gpu/run.sh --out FOLDER        again after an interruption: what was ok, of the same commit and GPU, is not run again
#     bash tests/gpu/run.sh --list              the entries, what each has to show, and where that comes from
#     bash tests/gpu/run.sh --device cpu        the same code, in small, without a GPU
#     bash tests/gpu/run.sh --only bandwidth    some entries
#
# Most entries need Python >= 3.11 with NumPy and PyTorch; those that send jobs need raysm's extra `local` too. Entries
# that lack GPUs or packages are left out, with the reason.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec "${PYTHON:-python3}" -m tests.gpu "$@"
