"""C files become libraries where a compiler is; where none can be had, the reason is one phrase."""

import ctypes
import dataclasses

import pytest

from raysm.features.similarity.cluster.kernels.build import Unavailable, check_sizes, library
from raysm.features.similarity.cluster.kernels.recipes import (
    ARM,
    AVX2,
    BASELINE,
    DENSE,
    X86,
    Recipe,
    dense,
    sparse,
)

ONE = (
    '#include "number.h"\n__attribute__((visibility("default"))) int one(void) { return NUMBER; }\n'
)


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "number.h").write_text("#define NUMBER 1\n")
    (folder / "one.c").write_text(ONE)
    return folder / "one.c"


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """A function that writes the one compiler that is found: a shell script."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    monkeypatch.setenv("PATH", str(bin_folder))

    def write(text):
        (bin_folder / "cc").write_text(text)
        (bin_folder / "cc").chmod(0o755)
        return bin_folder / "cc"

    return write


def libraries(folder):
    return sorted(folder.glob("*.so"))


def recompiled(source, folder):
    """Return what a process that has loaded nothing yet gets."""
    return library.__wrapped__(Recipe(source, BASELINE), folder=folder)


def test_a_library_is_compiled_once_and_anew_where_a_header_differs(source, tmp_path):
    assert recompiled(source, tmp_path).one() == 1
    (kept,) = libraries(tmp_path)
    made_ns = kept.stat().st_mtime_ns
    assert recompiled(source, tmp_path).one() == 1
    assert (libraries(tmp_path), kept.stat().st_mtime_ns) == ([kept], made_ns)
    (source.parent / "number.h").write_text("#define NUMBER 2\n")
    assert recompiled(source, tmp_path).one() == 2
    assert len(libraries(tmp_path)) == 2


def test_a_compiler_that_cannot_be_run_is_a_reason_and_no_error(source, tmp_path, compiler):
    path = compiler("#!/no/such/interpreter\n")
    with pytest.raises(Unavailable, match=f"^{path} .*No such file"):
        recompiled(source, tmp_path)


def test_a_folder_that_others_can_write_is_not_used(source, tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(Unavailable, match="not this user's alone"):
        recompiled(source, tmp_path)
    tmp_path.chmod(0o700)
    assert recompiled(source, tmp_path).one() == 1


def test_a_link_to_a_folder_is_not_used(source, tmp_path):
    (tmp_path / "kept").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    with pytest.raises(Unavailable, match="not this user's alone"):
        recompiled(source, tmp_path / "link")


def test_instances_of_one_machine_share_the_folder_that_they_are_told(
    source, tmp_path, monkeypatch
):
    folder = tmp_path / "shared"
    monkeypatch.setenv("RAYSM_KERNELS", str(folder))
    assert library.__wrapped__(Recipe(source, BASELINE)).one() == 1
    assert len(libraries(folder)) == 1


def test_a_digest_is_of_all_that_the_library_depends_on(tmp_path):
    source = tmp_path / "a.c"
    source.write_text("int a;")
    recipe = Recipe(source, BASELINE)
    first = recipe.digest(X86)
    assert recipe.digest(X86) == first
    others = [
        recipe.digest(ARM),
        recipe.digest(X86, "gcc 12"),
        dataclasses.replace(recipe, more=("-g",)).digest(X86),
    ]
    (tmp_path / "a.h").write_text("int c;")
    others += [recipe.digest(X86)]
    source.write_text("int b;")
    assert len({first, recipe.digest(X86), *others}) == 6


SIZES = """#include <stdint.h>
__attribute__((visibility("default"))) void struct_bytes(int64_t *bytes) { bytes[0] = 8, bytes[1] = 16; }
"""


class Short(ctypes.Structure):
    _fields_ = [("number", ctypes.c_int64)]


class Long(ctypes.Structure):
    _fields_ = [("number", ctypes.c_int64), ("one_more", ctypes.c_int32)]


def test_structures_of_other_sizes_than_those_of_the_c_files_are_a_bug(source, tmp_path):
    source.write_text(SIZES)
    functions = recompiled(source, tmp_path)
    check_sizes(functions, Short, Long)
    with pytest.raises(AssertionError, match="Long .* 16 bytes.* 8"):
        check_sizes(functions, Long, Short)


def test_no_compiler_may_reorder_or_fuse():
    for recipe in (dense(8, AVX2), sparse(BASELINE)):
        assert "-ffp-contract=off" in recipe.options
        assert "-fno-associative-math" in recipe.options
    assert "-DKIND=8" in dense(8, AVX2).options
    assert dense(8, AVX2).source == DENSE
