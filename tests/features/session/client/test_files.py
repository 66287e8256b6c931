"""Files of a session, through the connection or through a bucket."""

import contextlib
import http.server
import socket
import socketserver
import threading

import pytest

from raysm.errors import InvalidRequest, RaysmError, ServiceError
from raysm.features.session.client.files import DIRECT_BYTES, Files
from tests.support.sessions import wired
from tests.support.stub_job import StubService


@pytest.fixture
def files(session):
    return session._connection.files


def test_a_file_goes_in_under_its_own_name_and_comes_out_whole(files, server, tmp_path):
    (tmp_path / "a.bin").write_bytes(b"x" * 3_000_000)
    assert files.put(tmp_path / "a.bin", None) == str(server.folder / "work" / "a.bin")
    (tmp_path / "out").mkdir()
    brought = files.get("a.bin", tmp_path / "out")
    assert brought == tmp_path / "out" / "a.bin"
    assert brought.read_bytes() == b"x" * 3_000_000


def test_a_folder_goes_in_with_all_its_files_and_what_is_missing_is_named(files, server, tmp_path):
    with pytest.raises(InvalidRequest, match="none' does not exist"):
        files.put(tmp_path / "none", None)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidRequest, match="empty' holds no file"):
        files.put(tmp_path / "empty", None)
    with pytest.raises(InvalidRequest, match=r"session's file .*model\.pt"):
        files.get("model.pt", tmp_path)
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "deep" / "b.csv").write_text("1\n")
    assert files.put(tmp_path / "data", "there") == "there"
    assert (server.folder / "work" / "there" / "deep" / "b.csv").read_text() == "1\n"


class BreakingTunnel(socketserver.BaseRequestHandler):
    """A connection to the server that breaks once the client has received this many bytes over it."""

    port, limit_bytes = 0, 2_000_000

    def handle(self):
        with socket.create_connection(("127.0.0.1", self.port)) as server:
            sending = threading.Thread(target=self.send, args=(server,), daemon=True)
            sending.start()
            received = 0
            with contextlib.suppress(OSError):
                while received < self.limit_bytes and (part := server.recv(1 << 16)):
                    self.request.sendall(part)
                    received += len(part)
            for each in (self.request, server):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            sending.join()

    def send(self, server):
        with contextlib.suppress(OSError):
            while part := self.request.recv(1 << 16):
                server.sendall(part)


def test_a_fetch_that_breaks_in_the_middle_is_an_error_that_leaves_the_old_file(server, tmp_path):
    (server.folder / "work" / "broken.bin").write_bytes(b"x" * 4_000_000)
    (tmp_path / "broken.bin").write_text("old")
    handler = type("Tunnel", (BreakingTunnel,), {"port": server.port})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as tunnel:
        threading.Thread(target=tunnel.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{tunnel.server_address[1]}"
        try:
            with wired(lambda: address, server_port=server.port) as line:
                files = Files(line, StubService(tmp_path), "", lambda *_: None)
                with pytest.raises(ServiceError, match=r"broken\.bin") as caught:
                    files.get("broken.bin", tmp_path / "broken.bin")
        finally:
            tunnel.shutdown()
    assert caught.value.is_transient
    assert [path.name for path in tmp_path.iterdir()] == ["broken.bin"]
    assert (tmp_path / "broken.bin").read_text() == "old"


class Bucket(StubService):
    """A service whose files go through a bucket: it remembers what was asked of it."""

    def __init__(self, folder, port):
        super().__init__(folder, takes_files=False)
        self.signed, self.objects, self.port = [], {}, port

    def client(self, name):
        return self

    def generate_presigned_url(self, operation, Params, ExpiresIn):  # noqa: N803
        self.signed.append((operation, Params["Bucket"], ExpiresIn))
        return f"http://127.0.0.1:{self.port}/{Params['Key']}"

    def call(self, client, operation, **parameters):
        if operation == "list_objects_v2":
            return {}
        self.objects[operation] = parameters
        return {}

    def pages(self, client, operation, **parameters):
        return iter([self.call(client, operation, **parameters)])

    def download_file(self, bucket, key, path, **_):
        with open(path, "wb") as file:
            file.write(b"brought")


class Store(http.server.BaseHTTPRequestHandler):
    """A store that keeps one object."""

    content, asked = b"", []

    def answer(self, content):
        self.asked.append(self.command)
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self):
        self.answer(Store.content)

    def do_PUT(self):
        Store.content = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(b"")

    def log_message(self, *_):
        pass


def test_elsewhere_a_large_file_takes_the_way_of_the_bucket_by_signed_addresses(
    files, server, tmp_path
):
    store = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store)
    threading.Thread(target=store.serve_forever, daemon=True).start()
    files._service = bucket = Bucket(tmp_path, store.server_address[1])
    (tmp_path / "small.bin").write_bytes(b"x")
    (tmp_path / "large.bin").write_bytes(b"x" * (DIRECT_BYTES + 1))
    try:
        files.put(tmp_path / "small.bin", None)
        assert bucket.signed == []
        Store.content = b"whole"
        assert files.put(tmp_path / "large.bin", None) == str(server.folder / "work" / "large.bin")
        assert (server.folder / "work" / "large.bin").read_bytes() == b"whole"
        (server.folder / "work" / "out.bin").write_bytes(b"y" * (DIRECT_BYTES + 1))
        files.get("out.bin", tmp_path)
        assert Store.content == b"y" * (DIRECT_BYTES + 1)
    finally:
        store.shutdown()
        store.server_close()
    with pytest.raises(RaysmError, match=r"large\.bin"):
        files.put(tmp_path / "large.bin", None)
    assert Store.asked == ["GET", "PUT"]
    assert bucket.signed[:2] == [("get_object", "bucket", 3600), ("put_object", "bucket", 3600)]
    assert bucket.objects["put_object"]["Key"].startswith(f"{tmp_path.name}/sessions/")
