import platform
import sys

import pytest

from raysm.workloads.similarity.kernels.instructions import (
    AMX,
    ARM,
    AVX2,
    BASELINE,
    X86,
    InstructionSet,
    cpu_flags,
    this_machine,
)


def test_options_of_instructions_are_written_as_compilers_do():
    assert InstructionSet("some", ("amx_tile", "avx512_vnni")).options == ("-mamx-tile", "-mavx512vnni")


def test_instructions_are_one_machines_and_the_baseline_every_ones():
    assert AVX2.runs_on(X86)
    assert not AVX2.runs_on(ARM)
    assert BASELINE.runs_on(ARM)
    assert BASELINE.runs_on("riscv64")


def test_this_machine_is_named_as_linux_does():
    assert this_machine() in (X86, ARM) or this_machine() == platform.machine()
    assert all(" " not in flag for flag in cpu_flags())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells them")
@pytest.mark.skipif(this_machine() not in (X86, ARM), reason="there are kernels for two machines")
def test_linux_tells_what_the_processor_has():
    assert cpu_flags() & {"sse2", "asimd"}


def test_tiles_do_not_pay_for_short_rows():
    assert AMX.least_columns > AVX2.least_columns == 1
