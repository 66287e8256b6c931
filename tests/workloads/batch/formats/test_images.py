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
