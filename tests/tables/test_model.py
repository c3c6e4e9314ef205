"""Models of tables: the command line's numbers in Python, tables in and out, and files that fit together."""

import io
import json

import numpy as np
import pandas as pd
import pytest

import latently as library
from latently.core.io import ModelFileError
from latently.mixture import MFA
from latently.supervised import MJFAClassifier
from latently.tables import TableModel
from tests.cli.conftest import make_table


@pytest.fixture
def holed(fitted, tmp_path):
    """A table with missing cells and other columns, as a file and as pandas reads it."""
    table = pd.read_csv(fitted[1])
    table = table.mask(np.random.default_rng(0).random(table.shape) < 0.1).assign(word="x")
    table.to_csv(tmp_path / "holed.csv", index=False)
    return tmp_path / "holed.csv", pd.read_csv(tmp_path / "holed.csv")


def answered(text):
    """Numbers as Python reads them, to the last bit."""
    frame = pd.read_csv(io.StringIO(text), dtype=str)
    numbers = [name for name in frame if name not in ("word", "row", "component", "accepted")]
    frame[numbers] = frame[numbers].map(float)
    return frame.astype({"component": int} if "component" in frame else {})


def test_a_folder_in_python_gives_the_numbers_of_the_command_line(latently, fitted, holed):
    folder, (path, table) = fitted[0], holed
    model = library.load(folder)
    predicted = answered(latently("predict", folder, path, "--probabilities").out)
    for rows in (table, path):
        np.testing.assert_array_equal(model.predict(rows), predicted["component"])
        np.testing.assert_array_equal(model.predict_proba(rows), predicted.filter(like="probability of"))
        scores = answered(latently("score", folder, path).out)["log_density"]
        np.testing.assert_array_equal(model.score_samples(rows), scores)
        factors = answered(latently("transform", folder, path).out).drop(columns="row")
        np.testing.assert_array_equal(model.transform(rows), factors)
        assert list(model.transform(rows)) == list(factors)
        filled = answered(latently("impute", folder, path).out)
        pd.testing.assert_frame_equal(model.impute(rows), filled, check_exact=True)
    drawn = answered(latently("sample", folder, "-n", 5, "--seed", 3).out)
    pd.testing.assert_frame_equal(model.sample(5, random_state=3), drawn, check_exact=True)


def test_the_file_of_a_folder_cannot_be_used_without_its_preparation(fitted):
    """It answers in the table's units too, and no estimator of prepared rows comes out by mistake."""
    folder, data = fitted
    alone, whole = library.load(folder / "model.latently"), library.load(folder)
    assert type(alone) is TableModel
    np.testing.assert_array_equal(alone.predict(data), whole.predict(data))


@pytest.mark.parametrize("entry", ["mean", "scale", "n_rows", "columns", "seed"])
def test_a_changed_description_is_an_error(fitted, tmp_path, entry):
    for path in fitted[0].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    library.load(tmp_path)
    record = json.loads((tmp_path / "description.json").read_text())
    value = record[entry]
    if entry == "columns":
        record[entry] = value[::-1]
    elif isinstance(value, list):
        value[2] = np.nextafter(value[2], 1e9)
    else:
        record[entry] = value + 1
    (tmp_path / "description.json").write_text(json.dumps(record))
    with pytest.raises(ModelFileError, match=f"'{entry}' was changed"):
        library.load(tmp_path)
    (tmp_path / "description.json").unlink()
    with pytest.raises(ModelFileError, match="missing"):
        library.load(tmp_path)


def test_tables_of_all_kinds(fitted):
    pyarrow = pytest.importorskip("pyarrow")
    frame, model = pd.read_csv(fitted[1]), library.load(fitted[0])
    frame.loc[3, "b"] = np.nan
    scores, filled = model.score_samples(frame), model.impute(frame)
    arrow = pyarrow.Table.from_pandas(frame)
    shuffled = frame[list("ecabd")].set_axis(np.arange(240)[::-1], axis=0)
    for table in (arrow, frame.to_numpy(), shuffled, frame.to_dict("list")):
        np.testing.assert_array_equal(model.score_samples(table), scores)
    assert isinstance(model.impute(arrow), pyarrow.Table)
    np.testing.assert_array_equal(model.impute(frame.to_numpy()), filled)
    assert list(model.impute(shuffled)) == list("ecabd")
    assert model.transform(shuffled).index.equals(shuffled.index)
    with pytest.raises(TypeError, match="a table is needed"):
        model.predict([1.0, 2.0])
    with pytest.raises(ValueError, match="no column 'b'"):
        model.predict(frame.drop(columns="b"))


def test_impute_keeps_types_and_other_columns(fitted):
    model, frame = library.load(fitted[0]), pd.read_csv(fitted[1])
    frame = frame.astype({"a": "float32", "c": "float32"}).assign(d=np.arange(240), word="x")
    frame.loc[[2, 5], "a"] = np.nan
    filled = model.impute(frame)
    assert [str(kind) for kind in filled.dtypes[:4]] == ["float32", "float64", "float32", "int64"]
    assert filled["a"].notna().all()
    pd.testing.assert_frame_equal(filled.drop(columns="a"), frame.drop(columns="a"))
    _, errors = model.impute(frame, return_std=True)
    np.testing.assert_array_equal(errors > 0, frame[list("abcde")].isna())
    first, second = (model.impute(frame, n_draws=2, random_state=seed)[0] for seed in (1, 1))
    pd.testing.assert_frame_equal(first, second)


def test_rows_are_accepted_as_the_command_line_does(latently, fitted):
    folder, data = fitted
    model = library.load(folder)
    for rate in (0.9, 0.99):
        scored = pd.read_csv(io.StringIO(latently("score", folder, data, "--accept", rate).out))
        np.testing.assert_array_equal(model.accepts(data, rate), scored["accepted"])
    np.testing.assert_array_equal(model.accepts(data), model.accepts(data, 0.99))
    rows = model.preparation_.to_frame(pd.read_csv(data).to_numpy())
    model.estimator_.calibrate_rejection(rows + 0.1, acceptance=0.5)
    np.testing.assert_array_equal(model.accepts(data), model.estimator_.accepts(rows))
    with pytest.raises(ValueError, match="acceptance"):
        model.accepts(data, 2)


def test_reconstructions_are_in_the_units_of_the_table():
    table, _ = make_table()
    model = TableModel(MFA(2, 3, random_state=0)).fit(table)
    again = model.reconstruct(table)
    assert list(again) == list("abcde")
    assert (((again - table) ** 2).mean() < 0.3 * table.var()).all()


def test_classes_are_the_labels_of_the_table(tmp_path):
    table, cluster = make_table()
    table["kind"] = pd.Series(np.where(cluster, "big", "small")).where(np.arange(240) % 7 > 0)
    model = TableModel(MJFAClassifier(n_factors=1, random_state=0), label="kind").fit(table)
    assert np.mean(model.predict(table) == np.where(cluster, "big", "small")) > 0.9
    model.save(tmp_path / "m.latently")
    loaded = library.load(tmp_path / "m.latently")
    np.testing.assert_array_equal(loaded.predict(table), model.predict(table))
    assert loaded.score(table, np.where(cluster, "big", "small")) > 0.9
    with pytest.raises(ValueError, match="needs classes"):
        TableModel(MJFAClassifier()).fit(make_table()[0])


def test_without_an_estimator_families_are_compared(tmp_path):
    table, _ = make_table(120, 3)
    model = TableModel().fit(table)
    assert "the best of" in model.preparation_.verdict
    assert len(model.preparation_.probability_plot[0]) == 99
    model.save(tmp_path / "m.latently")
    np.testing.assert_array_equal(
        library.load(tmp_path / "m.latently").score_samples(table), model.score_samples(table)
    )


def test_a_failed_fit_leaves_the_earlier_one():
    table, _ = make_table()
    model = TableModel(MFA(2, 1, random_state=0)).fit(table)
    scores = model.score_samples(table)
    with pytest.raises(ValueError, match="no column"):
        model.fit(table.assign(**{name: "x" for name in "abcde"}))
    np.testing.assert_array_equal(model.score_samples(table), scores)
    with pytest.raises(TypeError, match="columns must be a list"):
        TableModel(MFA(), columns="a").fit(table)
