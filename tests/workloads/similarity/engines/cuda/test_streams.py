"""Rows come to a device whole, whatever the buffer that they go through."""

import numpy as np
import pytest
import torch

from raysm.workloads.similarity.engines.cuda.streams import Cuda, CudaStreams, InTurn, streams_of
from tests.support.emulated_cuda import Emulated


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
    target, streams = torch.empty(rows.shape, device=device), CudaStreams(Cuda(device))
    with streams.copying():
        streams.upload(rows, target)
    torch.cuda.synchronize()
    assert np.array_equal(target.cpu().numpy(), rows)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rows_go_through_two_buffers_in_turn_and_none_is_filled_before_its_copy_has_ended(dtype):
    rows, runtime = np.random.default_rng(0).standard_normal((70, 33)).astype(dtype), Emulated()
    target = torch.empty(rows.shape, dtype=torch.from_numpy(rows).dtype)
    streams = CudaStreams(runtime, stage_bytes=20 * 33 * rows.itemsize + 8)
    with streams.copying():
        streams.upload(rows, target)
    assert np.array_equal(target.numpy(), rows)
    # Four pieces: the third and the fourth take the buffers of the first and the second.
    assert runtime.script == [("mark", 1)] * 2 + [("host waits", 1), ("mark", 1)] * 2


def test_a_row_that_is_larger_than_the_buffer_goes_without_it():
    rows, runtime = np.random.default_rng(0).standard_normal((3, 33)), Emulated()
    target = torch.empty(rows.shape, dtype=torch.float64)
    CudaStreams(runtime, stage_bytes=64).upload(rows, target)
    assert np.array_equal(target.numpy(), rows)
    assert runtime.script == []


def test_copies_products_and_filters_have_a_queue_each_and_wait_for_events_of_the_others():
    runtime = Emulated()
    streams = CudaStreams(runtime)
    with streams.copying():
        copied = streams.mark()
    with streams.multiplying():
        streams.after(copied)
        multiplied = streams.mark()
    with streams.filtering():
        streams.after(None)
        streams.after(multiplied)
    assert runtime.script == [("mark", 1), ("wait", 2, 1), ("mark", 2), ("wait", 3, 2)]


def test_a_tensor_that_all_queues_read_is_kept_for_each_of_them():
    runtime = Emulated()
    CudaStreams(runtime).shared(torch.empty(1))
    assert runtime.script == [("keep", stream) for stream in (1, 2, 3)]
