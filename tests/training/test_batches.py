"""Rows as mini-batches: every row once, whatever it comes from and whatever belongs to it."""

import array_api_strict
import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from latently.core.data import Data
from latently.core.sources import chunks
from latently.training.batches import Rows

GENERATOR = torch.Generator()


def batches(rows, seed=0):
    return list(rows.batches(GENERATOR, 0, None if seed is None else np.random.default_rng(seed)))


def numbered(n, D=3):
    """Rows that say which they are."""
    return np.arange(n)[:, None] + np.zeros(D)


def rows_seen(found):
    return sorted(int(x) for batch in found for x in batch.X[:, 0])


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 10 * 3 * 8)  # ten rows


@pytest.mark.parametrize(
    "kind", ["numpy", "list", "read-only", "bytes", "torch", "strict", "file", "blocks", "Data"]
)
def test_every_row_comes_once_from_wherever_it_is(kind, tmp_path, small_chunks):
    X = numbered(47)
    np.save(tmp_path / "rows.npy", X)
    frozen = X.copy()
    frozen.flags.writeable = False
    given = {
        "numpy": X,
        "list": X.tolist(),
        "read-only": frozen,
        "bytes": X.astype(np.uint8),
        "torch": torch.tensor(X),
        "strict": array_api_strict.asarray(X),
        "file": tmp_path / "rows.npy",
        "blocks": [X[:20], X[20:21], X[21:]],
        "Data": Data(X),
    }[kind]
    rows = Rows(given, batch_size=8)
    found = batches(rows)
    assert len(rows) == 47
    assert rows_seen(found) == list(range(47))
    assert all(5 <= len(batch) <= 8 for batch in found)
    for batch in found:
        assert batch.X.dtype == torch.float32 and batch.X.device.type == "cpu"
        assert torch.equal(batch.X[:, 0].long(), batch.rows)


def test_order_is_drawn_anew_and_stays_within_chunks(tmp_path, small_chunks):
    np.save(tmp_path / "rows.npy", numbered(30))
    rng = np.random.default_rng(0)
    rows = Rows(tmp_path / "rows.npy", batch_size=5)
    first, second = ([b.rows.tolist() for b in rows.batches(GENERATOR, 0, rng)] for _ in range(2))
    assert first != second
    assert [sorted(a + b) for a, b in zip(first[::2], first[1::2], strict=True)] == [
        list(range(i, i + 10)) for i in (0, 10, 20)
    ]
    assert [b.rows.tolist() for b in batches(rows, seed=None)] == [
        list(range(i, i + 5)) for i in range(0, 30, 5)
    ]


def test_labels_and_weights_stay_with_their_rows():
    X, weight = numbered(20), np.linspace(0.5, 2.0, 20)
    for y in (np.arange(20) % 3, np.eye(4)[np.arange(20) % 4], np.arange(20) * 0.5):
        for batch in batches(Rows(X, y, weight, batch_size=6)):
            n = batch.rows.numpy()
            assert np.allclose(batch.y, y[n])
            assert batch.y.dtype == (torch.int64 if y.dtype.kind == "i" else torch.float32)
            assert np.allclose(batch.weight, weight[n] / weight.mean())


def test_weights_of_data_count_and_rows_without_weight_are_left_out():
    weight = np.array([0.0, 1.0, 3.0, 0.0, 2.0])
    rows = Rows(Data(numbered(5), weight=weight), batch_size=5)
    (batch,) = batches(rows, seed=None)
    assert batch.rows.tolist() == [1, 2, 4] and len(rows) == 3
    assert np.allclose(batch.weight, [0.5, 1.5, 1.0])
    assert float(batch.mean(batch.X[:, 0])) == pytest.approx(np.average(np.arange(5), weights=weight))
    assert torch.allclose(batch.mean(batch.X), batch.mean(batch.X[:, 0]).expand(3))


def test_rows_are_shared_out_evenly():
    assert sorted(map(len, batches(Rows(numbered(101), batch_size=100)))) == [50, 51]
    assert [len(batch) for batch in batches(Rows(numbered(7), batch_size=100))] == [7]


@pytest.mark.parametrize("n", range(2, 12))
@pytest.mark.parametrize("size", [2, 3, 5])
def test_no_batch_is_smaller_than_the_minimum(n, size):
    found = batches(Rows(numbered(n), batch_size=size, min_batch_size=2))
    assert rows_seen(found) == list(range(n))
    assert min(map(len, found)) >= 2 and max(map(len, found)) <= size + 1


@pytest.mark.parametrize("n", [11, 21, 31])
def test_chunk_with_one_row_is_no_batch_of_its_own(n, tmp_path, small_chunks):
    np.save(tmp_path / "rows.npy", numbered(n))
    found = batches(Rows(tmp_path / "rows.npy", batch_size=5, min_batch_size=2))
    assert rows_seen(found) == list(range(n))
    assert min(map(len, found)) >= 2


def test_first_chunk_may_have_too_few_rows(tmp_path, small_chunks):
    np.save(tmp_path / "rows.npy", numbered(30))
    rows = Rows(
        tmp_path / "rows.npy", weight=np.r_[1.0, np.zeros(9), np.ones(20)], batch_size=4, min_batch_size=2
    )
    found = batches(rows)
    assert rows_seen(found) == [0, *range(10, 30)] and min(map(len, found)) >= 2


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_drop_last_makes_all_batches_of_one_size(kind, tmp_path, small_chunks):
    np.save(tmp_path / "rows.npy", numbered(33))
    rows = Rows(numbered(33) if kind == "memory" else tmp_path / "rows.npy", batch_size=4, drop_last=True)
    found = batches(rows)
    assert [len(batch) for batch in found] == [4] * 8
    assert len(set(rows_seen(found))) == 32


def test_split_leaves_no_row_out_and_has_none_twice():
    rows = Rows(numbered(40), weight=np.r_[np.zeros(10), np.ones(30)], batch_size=8, min_batch_size=2)
    training, validation = rows.split(0.1, np.random.default_rng(0))
    assert sorted(rows_seen(batches(training)) + rows_seen(batches(validation))) == list(range(10, 40))
    assert (len(training), len(validation), len(rows)) == (27, 3, 30)
    for fraction in (0.0, 1.0, 0.001, -0.5):
        with pytest.raises(ValueError, match=f"fraction of {fraction} of 30 rows"):
            rows.split(fraction, np.random.default_rng(0))


def test_device_and_dtype():
    assert Rows(numbered(3), batch_size=3).device == torch.device("cpu")
    (batch,) = batches(Rows(torch.tensor(numbered(3)), batch_size=3, dtype="float64", device="cpu"))
    assert batch.X.dtype == torch.float64
    with pytest.raises(ValueError, match=r"dtype must be one of .*, not 'float16'"):
        Rows(numbered(3), batch_size=3, dtype="float16")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_gpu_that_is_not_there():
    with pytest.raises(ValueError, match="device='cuda' needs a GPU, and torch finds none; use device='cpu'"):
        Rows(numbered(3), batch_size=3, device="cuda")


def test_bad_rows_are_named():
    X = numbered(3)
    with pytest.raises(ValueError, match=r"y has shape \(2,\), but X has 3 rows"):
        Rows(X, [0, 1], batch_size=2)
    with pytest.raises(ValueError, match="y must hold numbers"):
        Rows(X, ["a", "b", "c"], batch_size=2)
    with pytest.raises(ValueError, match="batch_size=1 must be at least min_batch_size=2"):
        Rows(X, batch_size=1, min_batch_size=2)
    with pytest.raises(ValueError, match=r"X has shape \(3,\)"):
        Rows(X[:, 0], batch_size=2)
    with pytest.raises(TypeError, match="sparse"):
        Rows(csr_array(X), batch_size=2)
    with pytest.raises(ValueError, match="3 rows are too few for one batch with batch_size=4"):
        batches(Rows(X, batch_size=4, drop_last=True))
