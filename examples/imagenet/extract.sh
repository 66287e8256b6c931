#!/bin/bash
# Extract the archive that the job before has left.
set -euo pipefail
tar -xzf "$SM_CHANNEL_ARCHIVE/images.tar.gz" -C "$SM_MODEL_DIR"
