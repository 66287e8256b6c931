"""The transport of NCCL on instances with and without EFA, and images with and without its plugin."""

from raysm.instance.transport import describe_transport

ETH0 = {"NCCL_SOCKET_IFNAME": "eth0"}
"""What raysm sets by the job's network interface."""


def image(tmp_path, *files, cache=b""):
    for name in files:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "etc").mkdir(exist_ok=True)
    (tmp_path / "etc/ld.so.cache").write_bytes(cache)
    return tmp_path


def test_instance_without_efa_takes_tcp_over_the_interface_of_the_job(tmp_path):
    assert describe_transport(ETH0, efa=False, root=tmp_path) == ("TCP over eth0", "")


def test_efa_with_the_plugin_in_the_library_path_is_used(tmp_path):
    root = image(tmp_path, "opt/amazon/ofi-nccl/lib/libnccl-net.so")
    environ = {"LD_LIBRARY_PATH": "/usr/lib:/opt/amazon/ofi-nccl/lib"}
    transport, warning = describe_transport(environ, efa=True, root=root)
    assert transport.startswith("EFA")
    assert not warning


def test_efa_with_the_plugin_in_the_cache_of_the_loader_is_used(tmp_path):
    root = image(tmp_path, cache=b"\0libnccl-net-ofi.so\0/opt/amazon/ofi-nccl/lib\0")
    transport, warning = describe_transport(ETH0, efa=True, root=root)
    assert transport.startswith("EFA")
    assert not warning


def test_efa_without_the_plugin_is_a_warning_with_the_remedy(tmp_path):
    # Beside the library path, where the loader does not look.
    root = image(tmp_path, "opt/amazon/ofi-nccl/lib/libnccl-net.so", cache=b"\0libnccl.so.2\0")
    transport, warning = describe_transport(ETH0, efa=True, root=root)
    assert transport == "TCP over eth0"
    assert "aws-ofi-nccl" in warning


def test_what_the_user_has_chosen_is_said(tmp_path):
    environ = {"NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "ens5"}
    transport, warning = describe_transport(environ, efa=True, root=tmp_path)
    assert transport == "TCP over ens5 (NCCL_NET=Socket)"
    assert not warning
