"""Whole files, images, text and arrays as records."""

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from raysm.errors import InvalidInput
from raysm.workloads.batch.files import Images, Npy, Text, WholeFiles


def read(format, folder, files, batch_size=2):
    return [
        batch for span in format.cut(folder, files, 4) for batch in format.batches(folder, span, batch_size, threads=2)
    ]


def test_bytes_come_beside_their_files_in_order(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(name.encode() * 2)
    batches = read(WholeFiles(), tmp_path, ["a", "b", "c"])
    assert [batch["file"].tolist() for batch in batches] == [["a", "b"], ["c"]]
    assert [batch["bytes"].tolist() for batch in batches] == [[b"aa", b"bb"], [b"cc"]]


def test_an_image_that_is_broken_in_its_middle_is_named(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (300, 300, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    # The second piece of its pixels is none that there is.
    first, second, rest = (tmp_path / "a.png").read_bytes().split(b"IDAT", 2)
    (tmp_path / "broken.png").write_bytes(b"IDAT".join((first, second)) + bytes(4) + rest)
    with pytest.raises(InvalidInput, match=r"broken\.png cannot be read: broken PNG file"):
        read(Images(), tmp_path, ["a.png", "broken.png"])


def test_images_of_several_sizes_are_an_array_of_arrays_in_colour(tmp_path):
    Image.fromarray(np.zeros((4, 6, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    Image.fromarray(np.zeros((5, 6, 4), dtype=np.uint8)).save(tmp_path / "b.png")
    (batch,) = read(Images(), tmp_path, ["a.png", "b.png"])
    assert [image.shape for image in batch["image"]] == [(4, 6, 3), (5, 6, 3)]


@pytest.mark.parametrize(
    ("mode", "shape"), [("1", (3, 2)), ("L", (3, 2)), ("P", (3, 2, 3)), ("RGBA", (3, 2, 3)), ("CMYK", (3, 2, 3))]
)
def test_a_picture_comes_as_one_sees_it(tmp_path, mode, shape):
    path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    Image.new("RGB", (2, 3), (255, 255, 255)).convert(mode).save(path)
    pixels = Images().decode(path)
    assert (pixels.shape, pixels.dtype, int(pixels.max())) == (shape, np.uint8, 255)


@pytest.mark.parametrize(
    ("name", "pixels"),
    [
        ("a.png", np.array([[0, 255], [256, 65_535]], np.uint16)),
        ("a.tif", np.array([[-1, 256], [70_000, 2**31 - 1]], np.int32)),
        ("a.tif", np.array([[-0.5, 0.25], [1.0, 1e6]], np.float32)),
    ],
)
def test_a_grey_picture_of_more_than_eight_bits_keeps_them(tmp_path, name, pixels):
    Image.fromarray(pixels).save(tmp_path / name)
    decoded = Images().decode(tmp_path / name)
    assert (decoded.dtype, decoded.tolist()) == (pixels.dtype, pixels.tolist())


LINES = st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])), min_size=1, max_size=20)


def read_lines(folder, files, rows, batch_size=3):
    spans = Text().cut(folder, files, rows)
    return [batch for span in spans for batch in Text().batches(folder, span, batch_size, 1)]


@given(lines=LINES, rows=st.integers(1, 8), ends=st.sampled_from(["\n", "\r\n"]), last=st.booleans())
@settings(max_examples=60, deadline=None)
def test_every_line_comes_once_with_its_number_wherever_it_is_cut(tmp_path_factory, lines, rows, ends, last):
    folder = tmp_path_factory.mktemp("text")
    # A file that ends without a newline has a last line all the same, unless that is empty.
    text = ends.join(lines) + (ends if last or not lines[-1] else "")
    (folder / "a.txt").write_bytes(text.encode())
    batches = read_lines(folder, ["a.txt"], rows)
    assert [line for batch in batches for line in batch["text"]] == lines
    assert [row for batch in batches for row in batch["row"].tolist()] == list(range(len(lines)))
    assert {name for batch in batches for name in batch["file"]} == {"a.txt"}


def test_a_compressed_file_is_one_span(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"one\ntwo\nthree\n"))
    assert len(Text().cut(tmp_path, ["a.txt.gz"], 1)) == 1
    batches = read_lines(tmp_path, ["a.txt.gz"], 1, 2)
    assert [line for batch in batches for line in batch["text"]] == ["one", "two", "three"]


def test_a_line_that_is_no_text_is_named_by_its_rows(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\n\xff\n")
    with pytest.raises(InvalidInput, match="rows 0 to 1 is not UTF-8"):
        read_lines(tmp_path, ["a.txt"], 5)


def test_rows_of_any_shape_come_with_their_numbers(tmp_path):
    array = np.arange(5 * 2 * 3).reshape(5, 2, 3)
    np.save(tmp_path / "a.npy", array)
    spans = Npy().cut(tmp_path, ["a.npy"], 3)
    assert [(span.start, span.stop, span.rows) for span in spans] == [(0, 3, 3), (3, 5, 2)]
    batches = [batch for span in spans for batch in Npy().batches(tmp_path, span, 2, 1)]
    assert [len(batch["values"]) for batch in batches] == [2, 1, 2]
    np.testing.assert_array_equal(np.concatenate([batch["values"] for batch in batches]), array)
    assert [row for batch in batches for row in batch["row"]] == list(range(5))
    # A predictor may work in place; the file stays as it was.
    batches[0]["values"][:] = -1
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), array)


@pytest.mark.parametrize(
    ("array", "message"), [(np.array(3.0), "holds one number"), (np.array([{}]), "cannot be read")]
)
def test_what_has_no_rows_is_named(tmp_path, array, message):
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(InvalidInput, match=message):
        Npy().cut(tmp_path, ["a.npy"], 3)
