"""Files of every class, kept in the repository, load and answer as on the day they were written."""

import json
from pathlib import Path

import numpy as np
import pytest

import latently
from latently.saved import KNOWN_CLASSES
from tests.saved_files.make import answers, models

HERE = Path(__file__).parent


def test_every_class_has_a_file():
    assert {name.partition("-")[0] for name in models()} == set(KNOWN_CLASSES)


@pytest.mark.parametrize("name", sorted(models()))
def test_a_file_of_every_class_loads(name):
    model = latently.load(HERE / f"{name}.latently")
    assert type(model).__name__ == name.partition("-")[0]
    expected = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
    found = answers(model)
    assert expected and set(expected) <= set(found)  # a later version may answer more
    for method, values in expected.items():
        np.testing.assert_allclose(found[method], values, rtol=1e-9, atol=1e-9, err_msg=method)
