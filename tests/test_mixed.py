"""MixedMixture: densities, steps, draws and tables of columns of several kinds."""

import json

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import latently
from latently.mixture import MixedMixture
from latently.selection import select
from latently.selection.hidden_entries import errors_of_imputed
from tests.oracles import mixed as oracle

pandas = pytest.importorskip("pandas")

KINDS = {"town": "category", "grade": ["low", "mid", "high"], "visits": "count"}
LEVELS = {"town": ["Bonn", "Graz", "Oslo"], "grade": ["low", "mid", "high"]}


def table(n=300, seed=0, empty=0.0):
    """Rows of three groups in columns of four kinds, and their groups."""
    rng = np.random.default_rng(seed)
    z = rng.integers(3, size=n)
    frame = pandas.DataFrame(
        {
            "size": rng.normal([0.0, 3.0, 6.0], 1.0, size=(n, 3))[np.arange(n), z],
            "mass": rng.normal([100.0, 120.0, 90.0], 5.0, size=(n, 3))[np.arange(n), z],
            "town": np.array(LEVELS["town"], dtype=object)[(z + (rng.random(n) < 0.2)) % 3],
            "grade": np.array(LEVELS["grade"], dtype=object)[np.clip(z + rng.integers(-1, 2, size=n), 0, 2)],
            "visits": rng.negative_binomial(3, 3 / (3 + np.array([1.0, 3.0, 8.0]))[z]).astype(float),
        }
    )
    hidden = rng.random(frame.shape) < empty
    hidden[:, 0] &= ~hidden.all(axis=1)  # rows without any cell tell nothing
    return frame.mask(hidden), z, hidden


def model(**options):
    return MixedMixture(**{"n_components": 3, "columns": KINDS, "random_state": 0, **options})


@pytest.fixture(scope="module")
def fitted():
    frame, _z, _ = table()
    return model().fit(frame)


def as_oracle(found):
    """Weights and columns of a fitted model, in the oracle's form."""
    cuts = found._layout.cuts[0][1:-1]
    columns = [
        {"kind": "number", "mean": found.means_[:, j], "variance": found.noise_variance_[:, j]}
        for j in (0, 1)
    ]
    columns.append({"kind": "category", "probabilities": found.probabilities_})
    ordinal = {"location": found.locations_[:, 0], "scale": found.scales_[:, 0]}
    columns.append({"kind": "ordinal", "cuts": cuts, **ordinal})
    columns.append({"kind": "count", "rate": found.rates_[:, 0], "dispersion": found.dispersions_[:, 0]})
    return found.weights_, columns


def coded(frame):
    """Rows of the oracle: levels as 0, 1, ..., None where a cell is empty."""
    rows = []
    for row in frame.itertuples(index=False):
        cells = [
            LEVELS[name].index(cell) if isinstance(cell, str) else cell
            for name, cell in zip(frame, row, strict=True)
        ]
        rows.append([None if cell is None or cell != cell else cell for cell in cells])
    return rows


@pytest.mark.parametrize("empty", [0.0, 0.3])
def test_density_equals_the_oracle(fitted, empty):
    frame, *_ = table(40, seed=1, empty=empty)
    expected = oracle.log_density(coded(frame), *as_oracle(fitted))
    np.testing.assert_allclose(fitted.score_samples(frame), expected, rtol=1e-10)


@pytest.mark.parametrize("empty", [0.0, 0.3])
@pytest.mark.parametrize("prior", [None, "auto"])
@pytest.mark.parametrize(
    "options", [{"n_factors": 1}, {"count_model": "poisson"}, {"accelerate": None}], ids=str
)
def test_the_objective_never_falls(options, prior, empty):
    frame, *_ = table(120, seed=2, empty=empty)
    found = model(prior=prior, n_init=2, max_iter=60, tol=0.0, **options).fit(frame)
    assert np.diff(found.history_).min() > -1e-10
    if prior is None:
        assert found.history_[-1] == pytest.approx(found.score(frame), abs=1e-10)


def test_a_step_maximises_q_over_every_parameter(fitted):
    frame, *_ = table(40, seed=3)
    rows = coded(frame)
    names = (
        "weights",
        "means",
        "loadings",
        "noise",
        "probabilities",
        "locations",
        "scales",
        "rates",
        "dispersions",
    )
    attributes = {"noise": "noise_variance"}
    start = {f"{name}_init": getattr(fitted, f"{attributes.get(name, name)}_") for name in names}
    # the cut points are those of the rows of a fit, so the same rows are given here
    one = model(prior=None, noise_floor=0, accelerate=None, tol=0, max_iter=1, **start).fit(frame)
    weights, columns = as_oracle(one)
    resp = resp_of(fitted, one, frame)
    best = oracle.q_function(rows, resp, weights, columns)
    for column in columns:
        for name in set(column) - {
            "kind",
            "cuts",
            "dispersion",
        }:  # the dispersion has a latent variable of its own
            for factor in (0.99, 1.01):
                moved = {**column, name: np.array(column[name]) * factor}
                if name == "probabilities":
                    moved[name] = column[name] ** factor
                    moved[name] /= moved[name].sum(axis=1, keepdims=True)
                others = [moved if column is each else each for each in columns]
                assert oracle.q_function(rows, resp, weights, others) <= best + 1e-9


def resp_of(start, stepped, frame):
    """Posterior probabilities at the start of a step, with the cut points of its rows."""
    weights, columns = as_oracle(start)
    columns[3] = {**columns[3], "cuts": stepped._layout.cuts[0][1:-1]}
    joint = oracle.log_joint(coded(frame), weights, columns)
    return np.exp(joint - np.logaddexp.reduce(joint, axis=1)[:, None])


def test_draws_agree_with_the_density(fitted):
    rows, components = fitted.sample(20_000, random_state=0)
    other, *_ = table(300, seed=9)
    q = model(n_components=2, max_iter=20).fit(other)
    q._layout = type(fitted._layout)(**{**vars(q._layout), "cuts": fitted._layout.cuts})
    ratio = np.exp(np.clip(q.score_samples(rows) - fitted.score_samples(rows), -50, 8))
    assert abs(ratio.mean() - 1) < 5 * ratio.std() / np.sqrt(len(ratio)) + 0.02
    shares = np.bincount(components, minlength=3) / len(components)
    np.testing.assert_allclose(shares, fitted.weights_, atol=0.02)
    for column in ("town", "grade"):
        counts = [np.mean(rows[column][components == 0] == level) for level in LEVELS[column]]
        expected = fitted.level_probabilities(column).loc[0, LEVELS[column]]
        np.testing.assert_allclose(counts, expected, atol=0.03)
    mine = rows["visits"][components == 1].astype(float)
    rate, dispersion = fitted.rates_[1, 0], fitted.dispersions_[1, 0]
    assert mine.mean() == pytest.approx(rate, rel=0.08)
    assert mine.var() == pytest.approx(rate + dispersion * rate**2, rel=0.2)


def test_groups_and_empty_cells_are_found():
    frame, z, hidden = table(500, seed=4, empty=0.2)
    complete = table(500, seed=4)[0]
    found = model().fit(frame)
    from sklearn.metrics import adjusted_rand_score

    assert adjusted_rand_score(z, found.predict(frame)) > 0.7
    imputed = found.impute(frame)
    assert not imputed.isna().any().any()
    for j, name in enumerate(frame):
        own = hidden[:, j]
        assert (imputed[name][~own] == complete[name][~own]).all()
    assert (imputed["town"] == complete["town"])[hidden[:, 2]].mean() > 0.65
    error = (imputed["mass"] - complete["mass"])[hidden[:, 1]].std()
    assert error < 0.75 * complete["mass"].std()
    drawn = found.impute(frame, n_draws=2, random_state=0)
    assert len(drawn) == 2 and not drawn[0].isna().any().any() and not drawn[0].equals(drawn[1])
    _, errors = found.impute(frame, return_std=True)
    assert (errors[hidden] > 0).all() and (errors[~hidden] == 0).all()


def test_a_saved_file_knows_columns_and_levels(tmp_path, fitted):
    frame, *_ = table(60, seed=5, empty=0.1)
    fitted.save(tmp_path / "m.latently")
    loaded = latently.load(tmp_path / "m.latently")
    np.testing.assert_array_equal(loaded.score_samples(frame), fitted.score_samples(frame))
    assert loaded.columns == KINDS and loaded.columns_ == fitted.columns_
    assert loaded.impute(frame).equals(fitted.impute(frame))


def test_tables_of_pyarrow_say_the_same(fitted):
    pyarrow = pytest.importorskip("pyarrow")
    frame, *_ = table(60, seed=6)
    other = pyarrow.Table.from_pandas(frame)
    np.testing.assert_array_equal(fitted.score_samples(other), fitted.score_samples(frame))
    assert isinstance(fitted.impute(other), pyarrow.Table)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_files_are_read_in_parts(tmp_path, ending):
    frame, *_ = table(200, seed=7, empty=0.05)
    path = tmp_path / f"rows.{ending}"
    frame.to_parquet(path) if ending == "parquet" else frame.to_csv(path, index=False)
    quick = {"max_iter": 3, "n_init": 1, "tol": 0.0}
    here, there = model(**quick).fit(frame), model(**quick).fit(path)
    assert here.columns_ == [
        type(one)(one.name, one.kind, one.levels, mine.dtype)
        for one, mine in zip(there.columns_, here.columns_, strict=True)
    ]
    np.testing.assert_allclose(there.score_samples(path), here.score_samples(frame), rtol=1e-9)


def test_dask_tables_give_the_same_model():
    dask = pytest.importorskip("dask.dataframe")
    frame, *_ = table(200, seed=7)
    quick = {"max_iter": 3, "n_init": 1, "tol": 0.0}
    here, there = model(**quick).fit(frame), model(**quick).fit(dask.from_pandas(frame, npartitions=3))
    np.testing.assert_allclose(there.score_samples(frame), here.score_samples(frame), rtol=1e-9)


def test_weights_count_rows():
    frame, *_ = table(100, seed=8)
    weight = np.arange(100) % 3
    copies = frame.loc[np.repeat(np.arange(100), weight)].reset_index(drop=True)
    quick = {"max_iter": 5, "n_init": 2, "tol": 0.0}
    weighted, repeated = model(**quick).fit(frame, sample_weight=weight), model(**quick).fit(copies)
    np.testing.assert_allclose(weighted.score_samples(frame), repeated.score_samples(frame), rtol=1e-6)


def test_known_components_are_kept():
    frame, z, _ = table(200, seed=3)
    known = np.where(np.arange(200) % 4 == 0, (z + 1) % 3, -1)  # numbered in another way
    found = model().fit(frame, known)
    assert np.mean(found.predict(frame) == (z + 1) % 3) > 0.9


def test_kinds_follow_the_content():
    n = 60
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(
        {
            "flag": rng.random(n) < 0.5,
            "dummy": rng.integers(2, size=n),
            "children": rng.integers(5, size=n),
            "year": rng.integers(1990, 2020, size=n),
            "text": rng.choice(["a", "b"], n),
            "size": pandas.Categorical(rng.choice(["S", "M", "L"], n), ["S", "M", "L"], ordered=True),
            "day": pandas.Timestamp("2024-01-01") + pandas.to_timedelta(rng.integers(0, 99, n), unit="D"),
            "length": rng.normal(size=n),
        }
    )
    found = MixedMixture(1).fit(frame)
    kinds = "category category count number category ordinal date number".split()
    assert [one.kind for one in found.columns_] == kinds
    assert found.columns_[5].levels == ("S", "M", "L")
    back, _ = found.sample(5, random_state=0)
    assert list(back.dtypes.astype(str))[:3] == ["bool", "int64", "int64"] and back["size"].cat.ordered


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"town": [f"t{i}" for i in range(300)]}, "'town' has 300 different texts"),
        ({"town": ["Bonn", 3.5] * 150}, "'town' holds cells of the types float and str"),
        ({"town": [*range(299), "n/a?"]}, "such as 'n/a[?]'"),
        ({"town": [f"2020-{1 + i % 12:02}-{1 + i // 12:02}" for i in range(300)]}, "pandas.to_datetime"),
        ({"visits": [-1.0, 2.0] * 150}, "'visits' must hold whole numbers"),
        ({"visits": [0.5, 2.0] * 150}, "'visits' must hold whole numbers"),
        ({"grade": ["low", "top", "mid"] * 100}, "'grade' holds 'top', which is not among its levels"),
        ({"town": [None] * 300}, "'town' is missing .empty. in every row"),
    ],
)
def test_bad_columns_are_named(change, message):
    frame, *_ = table()
    kinds = {name: kind for name, kind in KINDS.items() if name != "town"}
    with pytest.raises(ValueError, match=message):
        model(columns=kinds).fit(frame.assign(**change))


@pytest.mark.parametrize("values", [["Bonn"] * 300, [True] * 300, [1.0] * 300])
def test_columns_of_one_value_are_told_and_change_nothing(values):
    frame, *_ = table()
    kinds = {name: kind for name, kind in KINDS.items() if name != "town"}
    without = model(columns=kinds).fit(frame.drop(columns="town"))
    with pytest.warns(UserWarning, match="'town'"):
        found = model(columns=kinds).fit(frame.assign(town=values))
    groups = found.predict(frame.assign(town=values)), without.predict(frame.drop(columns="town"))
    assert adjusted_rand_score(*groups) > 0.97


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("all", "columns must be 'auto' or a dict"),
        ({"town": "text"}, r"columns\['town'\] must be one of"),
        ({"city": "category"}, "columns names 'city'"),
        ({"town": "ordinal"}, "'town' has text for levels, whose order is not known"),
        ({"town": "number"}, "'town' holds text"),
        ({"grade": ["low"]}, "at least two levels"),
        ({"grade": ["low", "mid", "low"]}, "each once"),
    ],
)
def test_bad_options_are_named(columns, message):
    with pytest.raises(ValueError, match=message):
        model(columns=columns).fit(table()[0])


def test_new_levels_are_an_error_or_missing(fitted):
    frame, *_ = table(5, seed=1)
    frame.loc[2, "town"] = "Rome"
    with pytest.raises(ValueError, match="'town' holds 'Rome', which it did not in the fit"):
        fitted.score_samples(frame)
    lenient = latently.mixture.MixedMixture(**{**fitted.get_params(), "unseen": "missing"})
    lenient.fit(table()[0])
    frame_missing = frame.copy()
    frame_missing.loc[2, "town"] = None
    np.testing.assert_array_equal(lenient.score_samples(frame), lenient.score_samples(frame_missing))


def test_tables_without_numbers_are_fine():
    frame = table(200)[0][["town", "grade", "visits"]]
    found = model().fit(frame)
    assert np.isfinite(found.score(frame)) and not hasattr(found, "means_")


def test_a_forged_layout_is_refused(tmp_path, fitted):
    from latently.core import io

    fitted.save(tmp_path / "m.latently")
    header, arrays = io.read(tmp_path / "m.latently")
    for change in (
        {"columns": header["layout"]["columns"][:-1]},
        {"cuts": [[1.0, 0.0]]},
        {"columns": [["a", "huge", [], ""]] * 5},
        {"cuts": []},
    ):
        forged = json.loads(json.dumps(header))
        forged["layout"] |= change
        io.write(tmp_path / "forged.latently", forged, arrays)
        with pytest.raises(io.ModelFileError):
            latently.load(tmp_path / "forged.latently")


def test_partial_fit_goes_on():
    frame, *_ = table(300, seed=4)
    found = model(max_iter=5)
    for part in np.array_split(np.arange(300), 3):
        found.partial_fit(frame.iloc[part])
    assert np.isfinite(found.score(frame)) and found.n_iter_ == 3


@pytest.mark.parametrize("as_array", [False, True])
def test_sizes_can_be_chosen_by_hidden_cells(as_array):
    """Cells of all kinds are hidden; errors of levels and numbers are added in units that can be."""
    frame, _z, _ = table(240, empty=0.1)
    rows, columns = frame, KINDS
    if as_array:
        rows, columns = np.array(coded(frame), dtype=float), {2: "category", 3: "ordinal", 4: "count"}
    quick = MixedMixture(columns=columns, n_init=2, max_iter=30, random_state=0)
    found = select(quick, rows, {"n_components": [1, 3]}, criterion="entries", cv=3, random_state=0)
    assert found.best_params_ == {"n_components": 3}
    one, three = found.table_["held_out_error"]
    assert 0.7 < one < 1.3 and three < 0.8 * one  # of one component every number is the mean: about one


def test_errors_of_hidden_cells_are_counted_by_kind():
    frame, _z, _ = table(60)
    model = MixedMixture(2, columns=KINDS, n_init=1, random_state=0).fit(frame)
    hidden = np.zeros(frame.shape, dtype=bool)
    hidden[:3] = True
    made = frame.copy()
    made.loc[0, "size"] += 2.0
    made.loc[1, "town"] = next(town for town in LEVELS["town"] if town != frame.loc[1, "town"])
    made.loc[2, "grade"] = next(grade for grade in LEVELS["grade"] if grade != frame.loc[2, "grade"])
    expected = np.zeros((3, 5))
    expected[0, 0], expected[1, 2], expected[2, 3] = 4.0 / frame["size"].var(ddof=0), 1.0, 1.0
    np.testing.assert_allclose(errors_of_imputed(model, frame, made, hidden), expected.ravel())


@pytest.mark.parametrize("zone", [None, "Europe/Oslo"])
def test_times_that_were_observed_stay_as_they_are(zone):
    """To the microsecond, also in the hour that an autumn night has twice; all have their zone."""
    rng = np.random.default_rng(0)
    micro = np.concatenate([rng.integers(0, 2 * 10**15, 100), 1.5722e15 + 1e9 * np.arange(100)])
    times = pandas.Series(pandas.to_datetime(micro.astype("datetime64[us]")).tz_localize(zone and "UTC"))
    times = times if zone is None else times.dt.tz_convert(zone)
    frame = pandas.DataFrame({"size": rng.normal(size=200), "when": times})
    frame.loc[3, "when"] = pandas.NaT
    back = MixedMixture(1, max_iter=3, tol=0.0).fit(frame).impute(frame)["when"]
    assert back.dt.tz == times.dt.tz and back.notna().all()
    assert (back.drop(3) == times.drop(3)).all()


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        (pandas.Categorical(["mid", "low", "high"] * 20), "ordinal", "whose order is not known"),
        (pandas.to_datetime(["2020-01-01", "2020-02-01"] * 30), "category", "holds dates"),
        ([True, False] * 30, "number", "holds truth values"),
        (["2020-01-01", "2020-02-01"] * 30, "date", "pandas.to_datetime"),
    ],
)
def test_kinds_that_do_not_suit_their_cells_are_named(values, kind, message):
    frame = pandas.DataFrame({"size": np.arange(60.0), "own": values})
    with pytest.raises(ValueError, match=message):
        MixedMixture(1, columns={"own": kind}).fit(frame)
