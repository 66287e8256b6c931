"""Images: a record is a file, decoded by Pillow into its pixels."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from raysm.workloads.batch.formats.whole_files import WholeFiles, objects

__all__ = ["Images"]


class Images(WholeFiles):
    """Reads images: columns ``file`` and ``image``, of uint8[height, width, 3], of grey ones [height, width].

    Grey images are uint8, those of more bits uint16, int32 or float32, as the file has them. Images of one size and
    type are one array[n, height, width, …], else an array of n arrays.
    """

    column = "image"

    def decode(self, path: Path) -> Any:
        """Return the pixels."""
        with Image.open(path) as image:
            # Of more than eight bits (I, I;16, F): to Pillow all that is brighter than 255 would be white.
            if image.mode.startswith(("I", "F")):
                pixels = np.asarray(image)
                return pixels.astype(pixels.dtype.newbyteorder("="), copy=False)
            # Palettes, alpha and the like come as the colours that one sees; 1 and L stay grey.
            return np.asarray(image.convert("L") if image.mode in ("1", "L") else image.convert("RGB"))

    def joined(self, values: list[Any]) -> np.ndarray[Any, Any]:
        """Return the images as one column."""
        return np.stack(values) if len({(value.shape, value.dtype) for value in values}) == 1 else objects(values)
