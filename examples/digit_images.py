"""Write the digits of examples/data as images, in the folders of ImageNet: FOLDER/train/DIGIT and FOLDER/val/DIGIT.

python3 examples/digit_images.py out/digits
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

DATA = Path(__file__).parent / "data"
TRAINED_ON = 1500


def write_digits(folder, data=DATA):
    """Write 1,500 images to train with, and the other 297 to validate with."""
    pixels = np.loadtxt(Path(data) / "digits.csv.gz", delimiter=",", skiprows=1).reshape(-1, 8, 8) * 255 / 16
    for row, digit in enumerate(np.loadtxt(Path(data) / "digits-labels.csv.gz", skiprows=1, dtype=int)):
        path = Path(folder) / ("train" if row < TRAINED_ON else "val") / str(digit) / f"{row:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[row].astype(np.uint8)).save(path)


if __name__ == "__main__":
    write_digits(*sys.argv[1:])
