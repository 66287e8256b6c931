"""Where the files of rows lie: no two in one place."""

from raysm.grid.row_folders import pack_uri, row_uri, rows_uri, state_uri


def test_each_row_and_each_pack_has_a_folder_of_its_own():
    assert state_uri("s3://b/raysm", "g-abc-", "hash") == "s3://b/raysm/grids/g-abc-hash"
    assert pack_uri("s3://b/raysm", "g-abc-", "hash-a1") == "s3://b/raysm/grids/g-abc-pack-hash-a1"
    assert rows_uri("s3://b/raysm", "g-abc-", "p") == pack_uri("s3://b/raysm", "g-abc-", "p") + "/raysm/rows"
    assert row_uri("s3://b/raysm", "g-abc-", "p", "hash") == "s3://b/raysm/grids/g-abc-pack-p/raysm/rows/hash"
