import dataclasses

from raysm.workloads.similarity.kernels.recipes import ARM, AVX2, BASELINE, DENSE, X86, Recipe, dense, sparse


def test_a_digest_is_of_all_that_the_library_depends_on(tmp_path):
    source = tmp_path / "a.c"
    source.write_text("int a;")
    recipe = Recipe(source, BASELINE)
    first = recipe.digest(X86)
    assert recipe.digest(X86) == first
    others = [recipe.digest(ARM), recipe.digest(X86, "gcc 12"), dataclasses.replace(recipe, more=("-g",)).digest(X86)]
    (tmp_path / "a.h").write_text("int c;")
    others += [recipe.digest(X86)]
    source.write_text("int b;")
    assert len({first, recipe.digest(X86), *others}) == 6


def test_no_compiler_may_reorder_or_fuse():
    for recipe in (dense(8, AVX2), sparse(BASELINE)):
        assert "-ffp-contract=off" in recipe.options
        assert "-fno-associative-math" in recipe.options
    assert "-DKIND=8" in dense(8, AVX2).options
    assert dense(8, AVX2).source == DENSE
