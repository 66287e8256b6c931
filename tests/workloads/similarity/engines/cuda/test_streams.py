"""Rows come to a device whole, whatever the buffer that they go through."""

import numpy as np
import pytest
import torch

from raysm.workloads.similarity.engines.cuda.streams import CudaStreams, InTurn, streams_of


def test_a_device_without_queues_does_everything_in_turn():
    streams = streams_of(torch.device("cpu"))
    assert isinstance(streams, InTurn)
    with streams.copying(), streams.multiplying(), streams.filtering():
        streams.after(streams.mark())


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rows_are_uploaded_with_every_bit(dtype):
    rows = np.random.default_rng(0).standard_normal((70, 33)).astype(dtype)
    target = torch.empty(rows.shape, dtype=torch.from_numpy(rows).dtype)
    InTurn().upload(rows[::2], target[::2])
    InTurn().upload(rows[1::2], target[1::2])
    assert np.array_equal(target.numpy(), rows)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_rows_come_whole_through_buffers_that_are_smaller_than_they_are():
    rows = np.random.default_rng(0).standard_normal((300_000, 100)).astype(np.float32)
    device = torch.device("cuda")
    target, streams = torch.empty(rows.shape, device=device), CudaStreams(device)
    with streams.copying():
        streams.upload(rows, target)
    torch.cuda.synchronize()
    assert np.array_equal(target.cpu().numpy(), rows)
