"""What a picture's palette, alpha and bits become."""

import numpy as np
import pytest
from PIL import Image

from raysm.workloads.batch.formats.images import Images


@pytest.mark.parametrize(
    ("mode", "shape"), [("1", (3, 2)), ("L", (3, 2)), ("P", (3, 2, 3)), ("RGBA", (3, 2, 3)), ("CMYK", (3, 2, 3))]
)
def test_a_picture_comes_as_one_sees_it(tmp_path, mode, shape):
    path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    Image.new("RGB", (2, 3), (255, 255, 255)).convert(mode).save(path)
    pixels = Images().decode(path)
    assert (pixels.shape, pixels.dtype, int(pixels.max())) == (shape, np.uint8, 255)


@pytest.mark.parametrize(
    ("name", "pixels"),
    [
        ("a.png", np.array([[0, 255], [256, 65_535]], np.uint16)),
        ("a.tif", np.array([[-1, 256], [70_000, 2**31 - 1]], np.int32)),
        ("a.tif", np.array([[-0.5, 0.25], [1.0, 1e6]], np.float32)),
    ],
)
def test_a_grey_picture_of_more_than_eight_bits_keeps_them(tmp_path, name, pixels):
    Image.fromarray(pixels).save(tmp_path / name)
    decoded = Images().decode(tmp_path / name)
    assert (decoded.dtype, decoded.tolist()) == (pixels.dtype, pixels.tolist())


def test_big_endian_pixels_come_in_this_machines_order(tmp_path):
    pixels = np.array([[1, 256], [4096, 65_535]], np.uint16)
    Image.frombytes("I;16B", (2, 2), pixels.astype(">u2").tobytes()).save(tmp_path / "a.tif")
    decoded = Images().decode(tmp_path / "a.tif")
    assert (decoded.dtype, decoded.tolist()) == (np.dtype(np.uint16), pixels.tolist())


def test_pictures_of_one_size_and_several_types_stay_as_they_are():
    values = [np.ones((2, 2), np.uint8), np.full((2, 2), 256, np.uint16)]
    column = Images().joined(values)
    assert [image.dtype for image in column] == [np.uint8, np.uint16]
    assert Images().joined(values[:1] * 3).shape == (3, 2, 2)
