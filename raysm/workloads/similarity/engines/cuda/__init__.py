"""The engine of GPUs. Its modules import torch: only ``choose`` and ``gpus`` import them, and only on demand."""
