"""A training by Ray Train's own trainer, of which rank 1 leaves the loop."""

import time

import ray
import torch
import torch.distributed as dist
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer


def loop():
    dist.all_reduce(torch.ones(2))
    if dist.get_rank() == 0:
        print("begins ray_train", flush=True)
    if dist.get_rank() == 1:
        time.sleep(3600)  # guilty: ray_train
    dist.all_reduce(torch.ones(2))


if __name__ == "__main__":
    ray.init()
    workers = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.4})
    TorchTrainer(loop, scaling_config=workers).fit()
