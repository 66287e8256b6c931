"""Payloads of tests."""

from raysm.core.protocol.payload import contents_of


def pack_payload(request, folder, **parts):
    """Write the payload of ``request`` into ``folder``; ``parts`` are those of ``contents_of``."""
    contents_of(request, **parts).write(folder)
