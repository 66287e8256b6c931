"""Files of a session, through the connection or through a bucket."""

import http.server
import threading

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


def test_a_folder_goes_in_with_all_its_files_and_what_is_missing_is_named(files, server, tmp_path):
    with pytest.raises(InvalidRequest, match="'.*none' is not there"):
        files.put(tmp_path / "none", None)
    with pytest.raises(InvalidRequest, match="holds no file"):
        files.put(tmp_path, None)
    with pytest.raises(InvalidRequest, match=r"the session's file .*model\.pt is not there"):
        files.get("model.pt", tmp_path)
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "deep" / "b.csv").write_text("1\n")
    assert files.put(tmp_path / "data", "there") == "there"
    assert (server.folder / "work" / "there" / "deep" / "b.csv").read_text() == "1\n"


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

    def pages(self, client, operation, **parameters):
        return iter([self.call(client, operation, **parameters)])

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


@pytest.fixture
def slow_store():
    """A store that has taken or given nothing yet, and does both once ``may_end`` is set; ``asked`` counts."""

    class Store(http.server.BaseHTTPRequestHandler):
        asked, may_end = [], threading.Event()

        def do_GET(self):
            self.asked.append("GET")
            assert self.may_end.wait(60)
            self.send_response(200)
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"whole")

        def do_PUT(self):
            self.asked.append("PUT")
            self.rfile.read(int(self.headers["Content-Length"]))
            assert self.may_end.wait(60)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Store.port = server.server_address[1]
    yield Store
    Store.may_end.set()
    server.shutdown()
    server.server_close()


class SlowBucket(Bucket):
    """A bucket in a store that takes its time."""

    def __init__(self, folder, store):
        super().__init__(folder)
        self.store = store

    def generate_presigned_url(self, operation, Params, ExpiresIn):  # noqa: N803
        return f"http://127.0.0.1:{self.store.port}/{Params['Key']}"

    def download_file(self, bucket, key, path):
        with open(path, "wb") as file:
            file.write(b"whole")


@pytest.mark.parametrize("way", ["put", "get"])
def test_a_transfer_with_the_bucket_takes_as_long_as_it_takes_and_is_begun_once(server, tmp_path, slow_store, way):
    (tmp_path / "large.bin").write_bytes(b"x" * (DIRECT_BYTES + 1))
    (server.folder / "work" / "out.bin").write_bytes(b"x" * (DIRECT_BYTES + 1))
    asked = []
    with wired(server.port) as line:
        ask = line.wire.json

        async def counted(method, path, **how):
            asked.append(path)
            # Now it has been held back, and asked for again.
            if asked.count("/files") == 3:
                slow_store.may_end.set()
            return await ask(method, path, **how)

        line.wire.json = counted
        files = Files(line, SlowBucket(tmp_path, slow_store), "s3://bucket/sessions/digits", wait_s=0)
        if way == "put":
            files.put(tmp_path / "large.bin", "brought.bin")
            assert (server.folder / "work" / "brought.bin").read_bytes() == b"whole"
        else:
            assert files.get("out.bin", tmp_path / "here.bin").read_bytes() == b"whole"
    assert slow_store.asked == ["GET" if way == "put" else "PUT"]
