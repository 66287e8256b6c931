"""Names that raysm defines clash neither with each other nor with anybody else's."""

from raysm.contract import names

VALUES = {name: getattr(names, name) for name in names.__all__}


def test_no_two_things_have_the_same_name():
    assert len(set(VALUES.values())) == len(VALUES)


def test_all_that_is_public_is_listed():
    assert sorted(names.__all__) == sorted(name for name in vars(names) if name.isupper())


def test_tags_and_labels_say_whose_they_are():
    assert all(value.startswith("raysm:") for name, value in VALUES.items() if name.endswith("_TAG"))
    assert all(value.startswith("raysm.io/") for name, value in VALUES.items() if name.startswith("LABEL_"))


def test_every_variable_but_the_toolkits_own_begins_with_raysm():
    variables = [value for value in VALUES.values() if value.isupper()]
    assert [value for value in variables if not value.startswith("RAYSM_")] == ["SAGEMAKER_BASE_DIR"]
