"""The similarity of all rows: made ready while the cluster forms, then run to its one result.

It reads the channels ``matrix`` and, if there is one, ``queries``, and leaves the result in the
model folder. Finished tasks are kept beside the checkpoints, so that a job that is stopped
continues later.
"""

import shutil
from dataclasses import replace

import ray

from raysm.core.protocol.store import remove_unfinished
from raysm.features.similarity.cluster.engines.choice import compile_ahead
from raysm.features.similarity.cluster.reading import files
from raysm.features.similarity.cluster.reading.columns import Selection
from raysm.features.similarity.cluster.reading.matrix import Source
from raysm.features.similarity.cluster.run import run
from raysm.features.similarity.cluster.runs import Folders
from raysm.features.similarity.request import MATRIX, QUERIES, Similarity
from raysm.instance import environment as environments
from raysm.instance.environment import Environment
from raysm.instance.log import emit_event
from raysm.instance.ray_internals import spare_pydantic
from raysm.instance.work.runner import Runner, leave, leave_on_sigterm

__all__ = ["SimilarityRunner", "folders_here"]


def folders_here() -> Folders:
    """Return where this instance writes, if it owns rows of the result."""
    return _folders_of(environments.read())


def _folders_of(environment: Environment) -> Folders:
    lasting = environment.has_checkpoints
    return Folders(
        result=environment.paths.model,
        records=environment.paths.records(lasting=lasting),
        lasting=lasting,
    )


class SimilarityRunner(Runner[Similarity]):
    def prepare(self) -> None:
        """Compile, and begin to digest what lies here whole: it takes seconds, and none needs the cluster."""
        for name in {MATRIX, QUERIES} & set(self.request.inputs) - self._spread():
            files.begin_digest(Source(channel=name).here().channel)
        compile_ahead()

    def run(self, address: str) -> None:
        spare_pydantic()
        source, queries = self._sources()
        # What is finished is on disk already, so SIGTERM may end the work anywhere.
        leave_on_sigterm(self._clean)
        # RAY_ADDRESS names the cluster, and RAY_AUTH_TOKEN_PATH the token: "auto" takes no other
        # one.
        ray.init(address=address, log_to_driver=False, configure_logging=False)
        leave_on_sigterm(self._clean)
        folders = replace(_folders_of(self.environment), on_instance=folders_here)
        try:
            run(
                self.workload,
                job=self.request.name,
                source=source,
                folders=folders,
                emit_event=emit_event,
                queries=queries,
            )
        except BaseException:
            ray.shutdown()
            raise
        finally:
            self._clean()
        leave()

    def _spread(self) -> set[str]:
        """Return the channels of which each instance has but a share."""
        inputs = self.request.inputs
        return {
            name for name, channel in inputs.items() if channel.distribution != "FullyReplicated"
        }

    def _sources(self) -> tuple[Source, Source | None]:
        # One instance has all that there is, however it was shared out.
        shares = self._spread() & {MATRIX, QUERIES} if len(self.environment.hosts) > 1 else set()

        def source(channel: str) -> Source:
            return Source(
                channel=channel,
                selection=Selection.of(self.workload, channel),
                sharded=channel in shares,
            )

        return source(MATRIX), source(QUERIES) if QUERIES in self.request.inputs else None

    def _clean(self) -> None:
        # What was growing there when SIGTERM came: a job that is stopped has its model folder
        # uploaded too.
        remove_unfinished(self.environment.paths.model)
        if not self.environment.has_checkpoints:
            shutil.rmtree(self.environment.paths.records(lasting=False), ignore_errors=True)
