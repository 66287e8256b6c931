import os
import tempfile

from raysm.contract.kernels_folder import kernels_folder


def test_each_user_has_a_folder_of_his_own():
    assert str(kernels_folder()) == f"{tempfile.gettempdir()}/raysm-kernels-{os.getuid()}"
