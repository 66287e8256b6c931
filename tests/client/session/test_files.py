"""Files of a session, through the connection or through a bucket."""

import pytest

from raysm.client.session.files import DIRECT_BYTES, Files
from raysm.errors import InvalidRequest, RaysmError
from tests.support.sessions import StubService, served, wired


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("session")) as running:
        yield running


@pytest.fixture
def files(server, tmp_path):
    with wired(server.port) as line:
        yield Files(line, StubService(tmp_path), "s3://bucket/sessions/digits")


def test_a_file_goes_in_under_its_own_name_and_comes_out_whole(files, server, tmp_path):
    (tmp_path / "a.bin").write_bytes(b"x" * 3_000_000)
    assert files.put(tmp_path / "a.bin", None) == str(server.folder / "work" / "a.bin")
    (tmp_path / "out").mkdir()
    brought = files.get("a.bin", tmp_path / "out")
    assert brought == tmp_path / "out" / "a.bin"
    assert brought.read_bytes() == b"x" * 3_000_000


def test_a_folder_goes_in_with_all_that_is_in_it(files, server, tmp_path):
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "deep" / "b.csv").write_text("1\n")
    assert files.put(tmp_path / "data", "there") == "there"
    assert (server.folder / "work" / "there" / "deep" / "b.csv").read_text() == "1\n"


def test_what_is_not_there_is_said_at_either_end(files, tmp_path):
    with pytest.raises(InvalidRequest, match="'.*none' is not there"):
        files.put(tmp_path / "none", None)
    with pytest.raises(InvalidRequest, match="holds no file"):
        files.put(tmp_path, None)
    with pytest.raises(InvalidRequest, match=r"the session's file .*model\.pt is not there"):
        files.get("model.pt", tmp_path)


class Bucket(StubService):
    """A service whose files go through a bucket: it remembers what was asked of it."""

    def __init__(self, folder):
        super().__init__(folder, takes_files=False)
        self.signed, self.objects = [], {}

    def client(self, name):
        return self

    def generate_presigned_url(self, operation, Params, ExpiresIn):  # noqa: N803
        self.signed.append((operation, Params["Bucket"], ExpiresIn))
        return f"http://127.0.0.1:1/{Params['Key']}"

    def call(self, client, operation, **parameters):
        if operation == "list_objects_v2":
            return {}
        self.objects[operation] = parameters
        return {}

    def upload_file(self, path, bucket, key, **_):
        self.objects["upload"] = key


def test_elsewhere_a_large_file_takes_the_way_of_the_bucket_by_signed_addresses(server, tmp_path):
    bucket = Bucket(tmp_path)
    (tmp_path / "small.bin").write_bytes(b"x")
    (tmp_path / "large.bin").write_bytes(b"x" * (DIRECT_BYTES + 1))
    with wired(server.port) as line:
        files = Files(line, bucket, "s3://bucket/sessions/digits")
        files.put(tmp_path / "small.bin", None)
        assert bucket.signed == []
        # Nobody listens at that address: that the head goes there is what can be seen.
        with pytest.raises(RaysmError, match="127.0.0.1:1"):
            files.put(tmp_path / "large.bin", None)
        (server.folder / "work" / "out.bin").write_bytes(b"x" * (DIRECT_BYTES + 1))
        with pytest.raises(RaysmError, match="127.0.0.1:1"):
            files.get("out.bin", tmp_path)
    assert bucket.signed == [("get_object", "bucket", 3600), ("put_object", "bucket", 3600)]
    assert bucket.objects["put_object"]["Key"].startswith("sessions/digits/")
