"""Brings the channels of a job to this machine: their URIs flow in, the places of their data flow out."""

from collections.abc import Sequence
from pathlib import Path

from raysm.errors import InvalidRequest
from raysm.local.server.definitions import Source
from raysm.local.server.objects import Objects, is_file

__all__ = ["bring"]


def bring(objects: Objects, sources: Sequence[Source], folder: Path) -> dict[str, tuple[Path, bool]]:
    """Download the channels that are in S3; return by channel where its data lies, and whether it is the job's.

    Args:
        objects: Where from.
        sources: The channels.
        folder: Downloads go below it.

    Raises:
        InvalidRequest: There is no such data; the message names the channel.
    """
    places: dict[str, tuple[Path, bool]] = {}
    for number, source in enumerate(sources):
        if is_file(source.uri):
            places[source.name] = (objects.local(source.uri), False)
            continue
        # Not by its name: Processing's may be any text, as ``/home/me`` or ``../..``.
        place = folder / str(number)
        try:
            objects.download(source.uri, place, manifest=source.manifest)
        except InvalidRequest as error:
            raise InvalidRequest(f"Data download failed: channel {source.name!r}: {error}") from error
        places[source.name] = (place, True)
    return places
