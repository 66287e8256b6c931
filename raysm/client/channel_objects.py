"""The objects that a channel brings: those below its prefix, or those that its manifest lists.

What flows in is an input that the service can read, what flows out is each object with its size and version.
"""

import os.path
from collections.abc import Iterator
from dataclasses import replace

from raysm.client.storage import Storage, Stored, file_path
from raysm.contract.job_api import InputManifest
from raysm.errors import InvalidInput
from raysm.request import Input

__all__ = ["manifest_at", "objects_of"]


def objects_of(source: Input, storage: Storage) -> Iterator[Stored]:
    """Yield the objects, while they are listed, in an order that is the same each time.

    Raises:
        InvalidInput: A manifest is none, or lists what is not there.
    """
    if not source.manifest:
        yield from storage.walk(source.uri)
        return
    manifest = manifest_at(source.uri, storage)
    missing = set(manifest.names)
    for stored in _listed(manifest, storage):
        missing.discard(stored.name)
        yield stored
    if missing:
        raise InvalidInput(
            f"of {len(set(manifest.names))} objects that the manifest {source.uri} lists {len(missing)} are not there, "
            f"{manifest.prefix}{min(missing)} first; write it anew"
        )


def manifest_at(uri: str, storage: Storage) -> InputManifest:
    """Return the manifest at a URI.

    Raises:
        InvalidInput: There is none.
    """
    content = storage.read(uri)
    if content is None:
        raise InvalidInput(f"there is no manifest at {uri}; check the address")
    return InputManifest.of(content, uri)


def _listed(manifest: InputManifest, storage: Storage) -> Iterator[Stored]:
    prefix, names = manifest.prefix, sorted(set(manifest.names), key=str.encode)
    if not prefix.startswith("s3://"):
        for name in names:
            for stored in storage.walk(str(file_path(prefix) / name)):
                yield replace(stored, name=name)
        return
    uris = {prefix + name: name for name in names}
    # A listing has a thousand in one call, and most manifests are neighbours: Head would be a call for each.
    for stored in storage.walk_from(os.path.commonprefix(list(uris)), next(iter(uris))):
        if stored.uri in uris:
            yield replace(stored, name=uris.pop(stored.uri))
        if not uris:
            return
