import pytest

from raysm.contract.paths import Paths
from raysm.errors import InvalidRequest
from raysm.request import Input, JobRequest, Script
from raysm.workloads.blocks import file_blocks, map_blocks
from tests.support.payloads import pack_payload


def read_text(block):
    return block.path.read_text()


@pytest.fixture
def channel(base, tmp_path):
    (tmp_path / "job.py").write_text("")

    def make(distribution):
        paths = Paths(base)
        folder = paths.channel("texts")
        (folder / "deep").mkdir(parents=True)
        (folder / "b.txt").write_text("bee")
        (folder / "deep" / "a.txt").write_text("ay")
        inputs = {"texts": Input("/texts", distribution=distribution)}
        request = JobRequest(name="job", workload=Script(str(tmp_path / "job.py")), inputs=inputs)
        pack_payload(request, paths.payload)

    return make


@pytest.mark.parametrize(("distribution", "host"), [("FullyReplicated", None), ("ShardedByS3Key", "algo-1")])
def test_each_file_is_a_block_on_an_instance_that_has_it(channel, distribution, host):
    channel(distribution)
    blocks = file_blocks("texts")
    assert [(block.name, block.size_bytes, block.host) for block in blocks] == [
        ("b.txt", 3, host),
        ("deep/a.txt", 2, host),
    ]
    assert {block.name: text for block, text in map_blocks(read_text, blocks)} == {"b.txt": "bee", "deep/a.txt": "ay"}


def test_a_channel_that_the_job_has_not_is_refused(channel):
    channel("FullyReplicated")
    with pytest.raises(InvalidRequest, match=r"no channel 'images'; it has texts"):
        file_blocks("images")
