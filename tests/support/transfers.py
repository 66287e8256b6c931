"""Ranks of several instances that fetch a checkpoint's files, as the ranks of ``standing_ranks`` run them."""

import torch.distributed as dist

from raysm.errors import InvalidConfig
from raysm.features.training.cluster.checkpoint.transfer import CheckpointTransfer


def fetched(hosts, folders, needs, has, files):
    """Fetch what this rank needs; return the bytes moved, or a refusal's message in a list."""
    rank = dist.get_rank()
    transfer = CheckpointTransfer(rank, hosts, dist.group.WORLD)
    try:
        return transfer.fetch(folders[hosts[rank]], needs[rank], has, files)
    except InvalidConfig as error:
        transfer.gather(None)  # the other ranks wait for it
        return [str(error)]
