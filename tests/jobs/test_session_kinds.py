"""A session on namespaces, reached by the job's tunnel while AWS does all that it does now and then."""

import socket

import pytest

import raysm
from raysm.core.protocol.home import scenario_file
from raysm.features.session.client.start import await_server
from tests.support import docker
from tests.support.homes import serving
from tests.support.hostile import soon_over

pytestmark = [pytest.mark.usefixtures("by_value"), pytest.mark.long, pytest.mark.timeout(900)]

TWO = raysm.Cluster(count=2)


def doubled(x):
    print("doubling", x)
    return 2 * x


def namespaces(home):
    scenario_file(home).write_text(soon_over().replace(', "sagemaker:EnableRemoteDebug"', ""))
    return raysm.Local(home=str(home), instance_kind="namespace")


def containers(home):
    reason = docker.why_no_base()
    if reason:
        pytest.skip(reason)
    return raysm.Local(
        home=str(home), instances=2, instance_kind="docker", image=docker.built_image()
    )


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(namespaces, marks=pytest.mark.namespace, id="namespace"),
        pytest.param(containers, marks=pytest.mark.docker, id="docker"),
    ],
)
def session(request, tmp_path_factory):
    with serving(tmp_path_factory.mktemp("kind") / "home") as home:
        home.mkdir(exist_ok=True)
        with raysm.Session(cluster=TWO, on=request.param(home), name="kinds") as open_one:
            yield open_one


def test_its_server_is_not_on_this_machines_loopback_and_calls_it_all_the_same(session, capsys):
    _, port = await_server(session.job)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=60)
    assert session.run(doubled, 21) == 42
    assert "doubling 21" in capsys.readouterr().out.splitlines()


def test_a_map_and_a_large_value_come_through(session):
    assert list(session.map(abs, range(-300, 0))) == list(range(300, 0, -1))
    assert session.run(bytes, 3_000_000) == bytes(3_000_000)


def test_files_and_cells_come_through(session, tmp_path):
    (tmp_path / "data.csv").write_text("1,2\n")
    session.put(tmp_path / "data.csv")
    assert repr(session.exec("open('data.csv').read()")) == "'1,2\\n'"
