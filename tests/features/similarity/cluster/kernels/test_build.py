"""How C files become libraries: from a wheel, or compiled; if neither works, the reason is one phrase."""

import ctypes
import dataclasses
import shutil

import pytest

from raysm.features.similarity.cluster.kernels import build
from raysm.features.similarity.cluster.kernels.build import (
    ARM,
    AVX2,
    BASELINE,
    DENSE,
    X86,
    Recipe,
    Unavailable,
    check_sizes,
    dense,
    library,
    sparse,
    this_machine,
)

SOURCE = (
    '#include "number.h"\n__attribute__((visibility("default"))) int one(void) { return NUMBER; }\n'
)


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "number.h").write_text("#define NUMBER 1\n")
    (folder / "one.c").write_text(SOURCE)
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


def library_files(folder):
    return sorted(folder.glob("*.so"))


def recompiled(source, folder):
    """Return what a process that has loaded nothing yet gets."""
    return library.__wrapped__(Recipe(source, BASELINE), folder=folder)


def test_a_library_is_compiled_once_and_anew_where_a_header_differs(source, tmp_path):
    assert recompiled(source, tmp_path).one() == 1
    (kept,) = library_files(tmp_path)
    made_ns = kept.stat().st_mtime_ns
    assert recompiled(source, tmp_path).one() == 1
    assert (library_files(tmp_path), kept.stat().st_mtime_ns) == ([kept], made_ns)
    (source.parent / "number.h").write_text("#define NUMBER 2\n")
    assert recompiled(source, tmp_path).one() == 2
    assert len(library_files(tmp_path)) == 2


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
    assert len(library_files(folder)) == 1


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


ONE = sparse(BASELINE)
"""The library that takes least to compile."""


@pytest.fixture(scope="module")
def carried(tmp_path_factory):
    """One library of this machine, as a wheel has them."""
    if build.compiler_for(this_machine()) is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("libraries")
    assert build.make(folder, [this_machine()], lambda machine: [ONE]) == {this_machine(): 1}
    return folder


@pytest.fixture
def libraries(carried, tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(carried, tmp_path / "libraries")


@pytest.fixture
def no_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))


def the_one(folder, recipe):
    return folder / f"{this_machine()}-{recipe.digest(this_machine())}.so"


def loaded(folder, recipe, tmp_path):
    """Return what a process that has loaded nothing yet gets."""
    return library.__wrapped__(recipe, folder=tmp_path, carried=folder)


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_the_carried_one_is_loaded(libraries, tmp_path):
    assert isinstance(loaded(libraries, ONE, tmp_path), ctypes.CDLL)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["libraries"]


def test_one_of_another_source_is_not_taken(libraries, tmp_path):
    source = tmp_path / "sparse.c"
    source.write_text(ONE.source.read_text() + "/* mended */\n")
    recipe = Recipe(source, BASELINE)
    assert build.find(recipe, libraries) is None


def test_one_that_cannot_be_loaded_here_is_compiled(libraries, tmp_path):
    """As where the C library is another one: the loader refuses it."""
    the_one(libraries, ONE).write_bytes(b"no library")
    kept = tmp_path / "kept"
    assert isinstance(loaded(libraries, ONE, kept), ctypes.CDLL)
    assert len(list(kept.glob("*.so"))) == 1
