"""Panels: what a device has of a side, made anew where it had to make room, and never a bound that is too small."""

import gc

import numpy as np
import pytest
import torch

from raysm.workloads.similarity.engines import Frame
from raysm.workloads.similarity.engines.cuda.panels import Cut, Panels, panel_bytes, rounded_down, rounded_up
from raysm.workloads.similarity.engines.cuda.streams import InTurn
from tests.support.dense_rows import centred, kinds_of_rows, tiles

ROWS = kinds_of_rows(rows=170, columns=25)["float32"]


def panels(room_bytes=1 << 24):
    return Panels(torch.device("cpu"), InTurn(), room_bytes)


def cut_of(rows, panel_rows=32, frame=None):
    return Cut(tiles(rows)[0], frame or Frame.plain(rows.shape[1]), panel_rows)


def test_a_side_is_cut_into_panels_of_one_size_that_hold_its_rows():
    held, cut = panels(), cut_of(ROWS)
    assert [len(part) for part in cut.parts] == [32] * 5 + [10]
    for at, part in enumerate(cut.parts):
        panel = held.get(cut, at)
        assert (panel.start, len(panel)) == (part.start, len(part))
        assert np.array_equal(panel.rows.numpy(), part.rows)
        assert np.array_equal(panel.norms.numpy(), part.norms)


def test_a_panel_that_is_there_is_not_made_again_and_one_that_made_room_is():
    rows = ROWS[:96]
    held, cut = panels(room_bytes=2 * panel_bytes(32, rows)), cut_of(rows)
    for at in (0, 1, 0, 1):
        held.get(cut, at)
    assert held.made == 2
    held.get(cut, 2)
    # The one that was used longest ago had to go.
    assert [held.get(cut, at).start for at in (1, 2, 0)] == [32, 64, 0]
    assert held.made == 4


def test_two_panels_are_held_whatever_the_room_is_and_they_go_with_their_side():
    held, cut = panels(room_bytes=0), cut_of(ROWS)
    held.follow(cut)
    for at in range(6):
        held.get(cut, at)
    assert held.held_bytes == sum(held.get(cut, at).nbytes for at in (4, 5))
    del cut
    gc.collect()
    assert held.held_bytes == 0


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, np.float16, ">f4"])
def test_rows_of_every_type_lie_on_the_device_with_their_values(dtype):
    rows = np.arange(1, 41).reshape(8, 5).astype(dtype)
    panel = panels().get(cut_of(rows), 0)
    assert np.array_equal(panel.rows.double().numpy(), rows.astype(np.float64))
    assert panel.nbytes <= panel_bytes(8, rows) + 40 * 8


@pytest.mark.parametrize("noise", [1.0, 0.01, 1e-3])
def test_the_product_says_the_most_that_a_score_can_be_and_hardly_more(noise):
    rng = np.random.default_rng(1)
    rows = (rng.standard_normal((120, 200)) * noise + (noise < 1)).astype(np.float32)
    frame = centred(rows)
    panel = panels().get(cut_of(rows, 120, frame), 0)
    near = panel.cheap.double() @ panel.right().double().T / panel.scale**2
    unit = rows.astype(np.float64) / np.linalg.norm(rows.astype(np.float64), axis=1)[:, None]
    excess = near.numpy() - (unit @ unit.T - frame.centre @ frame.centre)
    spread = np.std((unit - frame.centre) @ (unit - frame.centre).T)
    assert 0 <= excess.min()
    assert excess.max() < 0.05 * spread


def test_numbers_are_rounded_up_and_down_to_float16():
    values = torch.from_numpy(np.random.default_rng(0).standard_normal(1000) * 10.0 ** np.arange(-9, 1).repeat(100))
    up, down = rounded_up(values).double(), rounded_down(values).double()
    assert (down <= values).all()
    assert (values <= up).all()
    assert (up - down <= values.abs() * 2.0**-8 + 2.0**-22).all()
