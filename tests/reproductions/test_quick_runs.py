"""Every reproduction runs from its data to its files."""

import json
import math

import numpy as np
import pytest

from reproductions import available
from tests.reproductions.data_sets import skip_without

REPRODUCTIONS = available()
NEEDS = {  # data sets that do not come with scikit-learn
    "000/figures-3.2-3.6": "mnist",
    "000/figures-3.23-3.27": "mnist",
    "000/figures-3.28-3.45": "mnist",
    "000/figures-3.46-3.57": "mnist",
    "000/figures-3.7-3.22": "mnist",
    "001/section-4.2": "mnist",
    "002/discriminative-weight": "sonar",
    "002/tables-5.2-5.3": "coil20",
    "002/tables-5.2-5.3-sonar": "sonar",
    "002/tables-5.4-5.5": "umist",
    "003/figure-5.7": "mnist",
    "003/figures-3.8-3.11": "leuk72_3k",
    "003/table-3.11": "wpbc",
    "003/table-3.12": "urban_land_cover",
    "003/table-3.13": "lsvt",
    "003/table-3.14": "breast_tissue",
    "003/table-3.2": "user_knowledge",
    "003/table-3.3": "user_knowledge",
    "003/table-3.6": "seeds",
    "003/table-3.8": "user_knowledge",
    "003/tables-5.2-5.4": "leuk72_3k",
    "004/features": "mnist",
}


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_quick_run(name, tmp_path):
    if name in NEEDS:
        skip_without(NEEDS[name])
    reproduction = REPRODUCTIONS[name]
    result = reproduction.run(quick=True)
    paths = result.save(tmp_path)
    assert {path.suffix for path in paths} == {".md", ".json"} | ({".png"} if reproduction.figures else set())
    kept = json.loads((tmp_path / f"{name}.json").read_text())
    assert kept["records"] == result.records
    assert kept["quick"] is True
    assert kept["versions"]["numpy"] == np.__version__
    if reproduction.published:
        assert any(key.endswith(", published") for row in result.rows() for key in row)
    for record in result.records:
        numbers = {key: value for key, value in record.items() if isinstance(value, float)}
        assert all(math.isfinite(value) for value in numbers.values())
        assert all(0 <= value < 1 for key, value in numbers.items() if key.startswith("ERR"))
        if "ERR by majority" in record:
            assert record["ERR by majority"] <= record["ERR"] + 1e-12
            assert record["ERR picked by label"] <= record["ERR"]
