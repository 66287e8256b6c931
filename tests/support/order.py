"""In which order the files of the tests are run: those that take longest first, so that no process waits at the end."""

from pathlib import Path

TESTS = Path(__file__).parents[1]

LONGEST = (
    "jobs/test_training.py",
    "jobs/test_similarity.py",
    "jobs/test_submit.py",
    "jobs/test_sharded_similarity.py",
    "test_examples.py",
    "cli/test_main.py",
    "workloads/training/test_parallel_modes.py",
    "jobs/test_life_cycle.py",
    "sdk/test_model_trainer.py",
    "jobs/test_training_interrupted.py",
    "client/test_on_this_machine.py",
    "workloads/training/checkpoint/test_interrupted.py",
    "workloads/training/parallel/test_drawn_models.py",
    "bootstrap/test_life_cycle.py",
    "local/server/test_life_cycle.py",
    "jobs/test_parallel_modes.py",
    "bootstrap/test_real_ray.py",
)
"""The longest first, as ``--durations`` shows them; all others come behind in their usual order."""

RANKS = {TESTS / name: rank for rank, name in enumerate(LONGEST)}


def longest_first(items):
    """Sort tests by their files; those of one file stay together, and in their order."""
    items.sort(key=lambda item: RANKS.get(item.path, len(RANKS)))
