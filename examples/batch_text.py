"""Batch inference on text: each line becomes a vector, all of them one table beside the lines' numbers.

python3 examples/batch_text.py lines.txt --instances 2 --output out/vectors

The vectors count words, hashed into 256 places; an embedding model goes the same way, with a GPU for each process.
"""

import argparse
import re
import zlib

import numpy as np

import raysm

PLACES = 256


def embed(batch):
    """Unit vectors [n, 256] of the texts' words."""
    vectors = np.zeros((len(batch["text"]), PLACES), dtype=np.float32)
    for row, text in enumerate(batch["text"]):
        for word in re.findall(r"\w+", text.lower()):
            # Not hash(): that of a text is another one in every process.
            vectors[row, zlib.crc32(word.encode()) % PLACES] += 1
    return {"vector": vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", help="a file or folder of .txt or .txt.gz, or s3://…")
    parser.add_argument("--instances", type=int, default=2)
    parser.add_argument("--output", default="out/vectors")
    asked = parser.parse_args()
    batch = raysm.Batch(embed, batch_size=512, read="text")
    job = raysm.submit(batch, inputs={"texts": asked.texts}, cluster=raysm.Cluster(count=asked.instances))
    result = job.result(to=asked.output)
    print(result)
    print(result.table().schema)


if __name__ == "__main__":
    main()
