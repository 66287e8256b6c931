import subprocess
import sys

from raysm.bootstrap.packages import NEEDS, missing
from raysm.request import Similarity

PROGRAM = """
import sys
import raysm.workloads.similarity.run
print(*({name.split(".")[0] for name in sys.modules} & {"scipy", "torch"}))
"""


def test_the_similarity_needs_no_more_than_it_imports():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []
    assert NEEDS.keys() == {"ray", "cloudpickle", "numpy", "pyarrow", "safetensors", "torch"}
    assert missing(Similarity(top_k=3)) == []
