"""What holds for the result of every reproduction."""

import json
import math

import numpy as np


def check_quick_run(result, folder):
    """Save the result of a quick run, and look at its files and numbers."""
    reproduction = result.reproduction
    paths = result.save(folder)
    assert {path.suffix for path in paths} == {".md", ".json"} | ({".png"} if reproduction.figures else set())
    left_out = (
        4 if reproduction.id == "003/table-4.2" else 0
    )  # pictures of two sets that its quick run leaves out
    assert len(paths) == 2 + len(reproduction.figures) - left_out
    kept = json.loads((folder / f"{reproduction.id}.json").read_text())
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
            assert record.get("ERR picked by label", 0.0) <= record["ERR"]
