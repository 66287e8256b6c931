"""The package ``requests``, executed when something is first requested.

Every process of Ray imports it, to ask a TPU's machine what it is (``ray/_private/accelerators/tpu.py``), which is done
on TPUs alone. It takes 50 ms of the 320 of ``import ray``.
"""

from raysm.bootstrap.later import bring_later

__all__ = ["NAME"]

NAME = "requests"

bring_later(NAME, __file__)
