"""Files as records: their bytes, and images their pixels."""

import numpy as np
import pytest
from PIL import Image

from raysm.errors import InvalidInput
from raysm.workloads.batch.formats.images import Images
from raysm.workloads.batch.formats.whole_files import WholeFiles


def read(format, folder, files, batch_size=2):
    return [
        batch for span in format.cut(folder, files, 4) for batch in format.batches(folder, span, batch_size, threads=2)
    ]


def test_bytes_come_beside_their_files_in_order(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(name.encode() * 2)
    batches = read(WholeFiles(), tmp_path, ["a", "b", "c"])
    assert [batch["file"].tolist() for batch in batches] == [["a", "b"], ["c"]]
    assert [batch["bytes"].tolist() for batch in batches] == [[b"aa", b"bb"], [b"cc"]]


def test_an_image_that_is_broken_in_its_middle_is_named(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (300, 300, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    # The second piece of its pixels is none that there is.
    first, second, rest = (tmp_path / "a.png").read_bytes().split(b"IDAT", 2)
    (tmp_path / "broken.png").write_bytes(b"IDAT".join((first, second)) + bytes(4) + rest)
    with pytest.raises(InvalidInput, match=r"broken\.png cannot be read: broken PNG file"):
        read(Images(), tmp_path, ["a.png", "broken.png"])


def test_images_of_one_size_are_one_array_grey_ones_without_channels(tmp_path):
    Image.fromarray(np.full((4, 6), 7, dtype=np.uint8)).save(tmp_path / "grey.png")
    Image.fromarray(np.full((4, 6), 9, dtype=np.uint8)).save(tmp_path / "other.png")
    (batch,) = read(Images(), tmp_path, ["grey.png", "other.png"])
    assert (batch["image"].shape, batch["image"].dtype) == ((2, 4, 6), np.uint8)
    assert batch["image"][:, 0, 0].tolist() == [7, 9]


def test_images_of_several_sizes_are_an_array_of_arrays_in_colour(tmp_path):
    Image.fromarray(np.zeros((4, 6, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    Image.fromarray(np.zeros((5, 6, 4), dtype=np.uint8)).save(tmp_path / "b.png")
    (batch,) = read(Images(), tmp_path, ["a.png", "b.png"])
    assert [image.shape for image in batch["image"]] == [(4, 6, 3), (5, 6, 3)]


def test_an_image_that_is_none_is_named(tmp_path):
    (tmp_path / "a.png").write_bytes(b"no image")
    with pytest.raises(InvalidInput, match=r"a.png cannot be read: .*; remove it, or repair it"):
        read(Images(), tmp_path, ["a.png"])
