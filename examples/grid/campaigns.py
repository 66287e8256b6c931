"""Thirteen measurement campaigns in four regions: their images as files, their metadata in a SQLite database.

The first campaign of each region is also a line of array.txt, as an array job of AWS Batch has one for each child.

python3 examples/grid/campaigns.py FOLDER
"""

import sqlite3
import sys
from pathlib import Path

import numpy as np

DIGITS = Path(__file__).parents[1] / "data"
REGIONS = ("us-east-1", "us-west-2", "eu-west-1", "eu-central-1")
TABLES = """
CREATE TABLE drives (campaign TEXT PRIMARY KEY, region TEXT, day TEXT, uri TEXT, gb REAL, seconds REAL, lr TEXT);
CREATE TABLE prices (region TEXT PRIMARY KEY, usd_per_hour REAL);
"""


def make(folder):
    """Write the campaigns and array.txt below ``folder``; return the path of the database."""
    folder.mkdir(parents=True, exist_ok=True)
    images = np.loadtxt(DIGITS / "digits.csv.gz", delimiter=",", skiprows=1, dtype=np.float32) / 16
    labels = np.loadtxt(DIGITS / "digits-labels.csv.gz", skiprows=1, dtype=np.int64)
    rows = []
    for number in range(13):
        data = folder / f"campaign-{number:02}"
        data.mkdir(exist_ok=True)
        np.savez(data / "digits.npz", images=images[number::13], labels=labels[number::13])
        # Of the fifth somebody has written a comma; the last is older than what the query asks for.
        lr = "0,5" if number == 4 else f"{0.3 + 0.05 * number:.2f}"
        day = "2026-09-30" if number == 12 else f"2026-10-{number + 1:02}"
        # What is dear to move stays at home; of the region without capacity there is little, and it may go elsewhere.
        region, gb = REGIONS[number % 4], 0.01 if number % 4 == 3 else 100.0
        rows.append((f"campaign-{number:02}", region, day, str(data.absolute()), gb, 30.0, lr))
    path = folder / "campaigns.db"
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as connection:
        connection.executescript(TABLES)
        connection.executemany("INSERT INTO drives VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        connection.executemany("INSERT INTO prices VALUES (?, ?)", zip(REGIONS, (2.0, 2.2, 2.1, 1.9), strict=True))
    connection.close()
    lines = [
        f"{name},{region},{uri},{gb:g},{seconds:g},{lr}\n"
        for name, region, _, uri, gb, seconds, lr in rows[: len(REGIONS)]
    ]
    (folder / "array.txt").write_text("".join(lines))
    return path


if __name__ == "__main__":
    print(make(Path(sys.argv[1])))
