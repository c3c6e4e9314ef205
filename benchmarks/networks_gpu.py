"""Hinton's 784-500-500-2000+10 deep belief net and a 784-200-200-50 VAE on MNIST, on a GPU.

    python benchmarks/networks_gpu.py --only rate            about 2 minutes
    python benchmarks/networks_gpu.py --only dbn --minutes 6
    python benchmarks/networks_gpu.py --only vae --minutes 5
        [--data shared/data/mnist.npz] [--out FOLDER] [--device cuda] [--plain] [--quick]

rate: seconds of an epoch with replayed steps (CUDA graphs), with plain ones and on two CPU threads of the
same machine, and whether replayed and plain training agree. dbn: as many epochs as fit the time, with
learning rates that fall and more Gibbs steps towards the end, their scale and the weight decay chosen by rows
held out; test errors and bounds of ln p on the way, and the share of generated digits that a support vector
machine takes for what they were asked to be. vae: ln p by importance sampling, with a normal and a mixture
prior. Without --only all three, in this order.

Results are printed as JSON after every part of a measurement, and written to FOLDER/networks_gpu_<part>.json;
generated digits and samples are written as .npz. A part that fails is noted, and the next one follows.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
import warnings
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

import torch  # noqa: E402
from sklearn.exceptions import ConvergenceWarning  # noqa: E402
from sklearn.svm import SVC  # noqa: E402

from latently.deep import DBN, VAE  # noqa: E402
from latently.mixture import GaussianMixture  # noqa: E402
from latently.training import graphs  # noqa: E402
from latently.training.modules import module_arrays  # noqa: E402

SIZES = [500, 500, 2000]
QUICK_SIZES = [30, 30, 50]
PUBLISHED = {"test error after up-down": 0.0125, "ln p of the VAE, 5000 draws": -86.76}
CPU_ROWS = 3000
FINE_TUNING = (  # Gibbs steps (those of Hinton, Osindero and Teh), learning rate, share of the time
    (3, 0.02, 0.30),
    (6, 0.01, 0.25),
    (10, 0.005, 0.20),
    (10, 0.002, 0.15),
    (10, 0.0005, 0.10),
)
UP_DOWN = (  # weight decay of up-down training, and a factor of the learning rates above
    (2e-4, 1.0),
    (0.0, 1.0),
    (0.0, 3.0),
)


def seconds(call):
    began = time.perf_counter()
    result = call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began, result


def on_host(array):
    return array.cpu().numpy() if torch.is_tensor(array) else np.asarray(array)


@contextmanager
def plain_steps():
    """Steps are not replayed."""
    recorder, graphs.recorder = graphs.recorder, lambda generator, optimizer: None
    try:
        yield
    finally:
        graphs.recorder = recorder


@contextmanager
def cpu_threads(n):
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def net(**options):
    settings = {"batch_size": 100, "random_state": 0, "learning_rate": 0.1, "weight_decay": 2e-4}
    return DBN(SIZES, **settings | options)


def autoencoder(**options):
    settings = {
        "hidden_layer_sizes": (200, 200),
        "likelihood": "bernoulli",
        "binarize": True,
        "batch_size": 100,
        "random_state": 0,
        "block_size": 500,
    }
    return VAE(50, **settings | options)


# -- rates --------------------------------------------------------------------------------------------


def net_epochs(X, y, n_rows):
    """Seconds of an epoch of all layers, and of one of up-down, over n_rows rows.

    They are differences of fits with more and fewer epochs on the rows of X, so that what is done once does
    not count.
    """
    fit = lambda layers, tuning: seconds(lambda: net(max_iter=layers, fine_tune=tuning).fit(X, y))[0]
    few = fit(1, 1)
    scale = n_rows / len(X)
    layers, tuning = scale * (fit(3, 1) - few) / 2, scale * (fit(1, 3) - few) / 2
    return {"layers": layers, "up-down": tuning, "both": layers + tuning}


def autoencoder_epoch(X, n_rows):
    fit = lambda n: seconds(lambda: autoencoder(max_iter=n).fit(X))[0]
    few = fit(1)
    return n_rows / len(X) * (fit(6) - few) / 5


def difference(one, other):
    """Largest differences of the histories and parameters of two fits, relative to the largest entry."""
    ours, theirs = module_arrays(one.module_), module_arrays(other.module_)
    largest = lambda a, b: float(np.max(np.abs(a - b)) / np.max(np.abs(b)))
    return {
        "history": largest(one.history_, other.history_),
        "parameters": max(largest(ours[name], theirs[name]) for name in ours if np.any(theirs[name])),
    }


def rate(data, told, note, minutes):
    X, y, n = data.X, data.y, len(data.X)
    on_cpu, few = (data.X_cpu[:CPU_ROWS], y[:CPU_ROWS]), min(n, 20000)

    def measure(name, call):
        """What a measurement gives, or why it failed; the others follow."""
        try:
            told[name] = call()
        except Exception:
            told[name] = None
            told.setdefault("failed", {})[name] = traceback.format_exc()
            print(told["failed"][name], flush=True)
        note()

    def agreement(fit):
        replayed = fit()
        with plain_steps():
            return difference(replayed, fit())

    def epochs(way, X, y):
        measure(f"DBN, seconds of an epoch, {way}", lambda: net_epochs(X, y, n))
        measure(f"VAE, seconds of an epoch, {way}", lambda: autoencoder_epoch(X, n))

    small = X[:5000], y[:5000]
    differ = "replayed and plain differ by"
    measure(f"DBN, {differ}", lambda: agreement(lambda: net(max_iter=2, fine_tune=2).fit(*small)))
    measure(f"VAE, {differ}", lambda: agreement(lambda: autoencoder(max_iter=3).fit(small[0])))
    epochs("replayed", X, y)
    with plain_steps():
        epochs("plain", X[:few], y[:few])
    for n_threads, name in (
        (1, "one CPU thread"),
        (2, "two CPU threads"),
    ):  # two are slower where cores are busy
        with cpu_threads(n_threads):
            epochs(name, *on_cpu)

    def ratio(model, way):
        of = lambda name: told[f"{model}, seconds of an epoch, {name}"]
        total = lambda found: found["both"] if model == "DBN" else found
        cpu, device = min(of("one CPU thread"), of("two CPU threads"), key=total), of(way)
        return {part: cpu[part] / device[part] for part in cpu} if model == "DBN" else cpu / device

    for model, way in product(("DBN", "VAE"), ("replayed", "plain")):
        measure(f"{model}, one or two CPU threads, whatever is faster / {way}", partial(ratio, model, way))
    if data.device == "cuda":
        measure(
            "DBN, ms and numbers of kernels, an epoch of 5000 rows of each layer and of up-down",
            lambda: kernels(lambda: net(max_iter=1, fine_tune=1).fit(*small)),
        )
    for name in ("DBN", "VAE"):
        assert told[f"{name}, {differ}"]["history"] < 1e-2, "replayed and plain training differ"
    return {}


def kernels(call):
    """Names of the kernels that take most time, with milliseconds and numbers of launches."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        seconds(call)
    entries = sorted(seen.key_averages(), key=lambda one: -one.self_device_time_total)
    total = {
        "all": [sum(one.self_device_time_total for one in entries) / 1000, sum(e.count for e in entries)]
    }
    return total | {one.key[:100]: [one.self_device_time_total / 1000, one.count] for one in entries[:25]}


# -- the deep belief net ------------------------------------------------------------------------------


def dbn(data, told, note, minutes):
    """The layers, then up-down training in phases; each goes on from the parameters of the one before.

    How up-down learns is chosen by rows held out of the training rows.
    """
    X, y, budget = (
        data.X,
        data.y,
        max(60.0 * minutes - 40.0, 5.0),
    )  # what follows the training takes its time too
    seconds(lambda: net(max_iter=1, fine_tune=1).fit(X[:1000], y[:1000]))  # warms up
    few = min(len(X), 10000)
    epoch = max(seconds(lambda: net(max_iter=1, fine_tune=1).fit(X[:few], y[:few]))[0], 1e-3) * len(X) / few
    told["choices"], decay, factor = chosen(data, 0.2 * budget, epoch)
    note()
    n_greedy = int(np.clip(0.25 * budget / epoch, 1, 50))
    model = net(max_iter=n_greedy, fine_tune=1)
    spent, _ = seconds(lambda: model.fit(X, y))
    told["phases"] = [measured(model, data, spent, {"epochs of each layer": n_greedy, "of up-down": 1})]
    note()
    for number, (n_gibbs, learning_rate, share) in enumerate(FINE_TUNING):
        share *= (budget - data.elapsed()) / sum(others for _, _, others in FINE_TUNING[number:])
        options = {
            "n_gibbs": n_gibbs,
            "fine_tune_learning_rate": factor * learning_rate,
            "weight_decay": decay,
        }
        model.set_params(max_iter=0, fine_tune=1, warm_start=True, **options)
        one, _ = seconds(lambda: model.fit(X, y))
        n = max(int(share / one) - 1, 1)
        model.set_params(fine_tune=n)
        spent, _ = seconds(lambda: model.fit(X, y))
        told["phases"].append(measured(model, data, one + spent, options | {"epochs of up-down": n + 1}))
        note()
    told["training error"] = 1 - model.score(X[:10000], y[:10000])
    told["test error"] = 1 - model.score(data.test, data.test_y)
    told["epochs"] = {
        "each layer": n_greedy,
        "up-down": 1 + sum(phase["epochs of up-down"] for phase in told["phases"][1:]),
    }
    partition = model.layers_[-1].estimate_log_partition(random_state=0)
    told["ln Z of the last layer"] = [partition.value, partition.standard_error]
    note()
    wanted = np.repeat(np.arange(10), 20)
    made = model.generate(wanted, n_steps=1000, random_state=0)
    judge = SVC(C=5.0).fit(data.X_cpu[:5000].astype(np.float64), y[:5000])
    told["generated digits taken for what was asked"] = float(np.mean(judge.predict(made) == wanted))
    note()
    return {"generated": made.astype(np.float32), "labels": wanted}


def chosen(data, budget, epoch):
    """Errors of short trainings on five sixths of the rows; the weight decay and factor of the best."""
    n_rows = 5 * len(data.X) // 6
    X, y = data.X[:n_rows], data.y[:n_rows]
    held_out, its_y = data.X[n_rows:], data.y[n_rows:]
    n = max(int(1.2 * budget / epoch / (1 + 0.5 * len(UP_DOWN))), 5)  # up-down is about half of an epoch
    layers = net(max_iter=n, fine_tune=1).fit(X, y)
    found = []
    for decay, factor in UP_DOWN:
        model = deepcopy(layers).set_params(max_iter=0, warm_start=True, n_gibbs=3, weight_decay=decay)
        for rate, n_epochs in ((0.02 * factor, n - n // 5), (0.002 * factor, n // 5)):
            model.set_params(fine_tune=n_epochs, fine_tune_learning_rate=rate).fit(X, y)
        errors = 1 - model.score(held_out, its_y), 1 - model.score(X[:10000], y[:10000])
        names = ("weight decay", "factor", "epochs", "error of held-out rows", "of training rows")
        found.append(dict(zip(names, (decay, factor, n, *errors), strict=True)))
        print(found[-1], flush=True)
    best = min(found, key=lambda one: one["error of held-out rows"])
    return found, best["weight decay"], best["factor"]


def measured(model, data, spent, options):
    bound = model.bound(data.test[:1000], n_samples=20).mean()
    error = 1 - model.score(data.test, data.test_y)
    return options | {"seconds": spent, "test error": error, "bound of 1000 test rows": float(bound)}


# -- the variational autoencoder ----------------------------------------------------------------------


def vae(data, told, note, minutes):
    """Dynamically binarised rows; the test rows are binarised once."""
    X, device = data.X, data.X.device
    n_test, n_draws = len(data.test), 5000 if len(data.test) > 1000 else 100
    fractions = data.test.cpu().numpy()
    test = torch.from_numpy((np.random.default_rng(0).random(fractions.shape) < fractions).astype(np.float32))
    test = test.to(device)
    seconds(lambda: autoencoder(max_iter=1).fit(X[:1000]))
    epoch = told["seconds of an epoch"] = seconds(lambda: autoencoder(max_iter=10).fit(X))[0] / 10
    n = told["epochs"] = int(np.clip(0.6 * 60.0 * minutes / epoch, 1, 3000))
    rate = told["learning rate, to zero by a cosine"] = 1e-3 if n >= 600 else 2e-3
    model = autoencoder(max_iter=n, learning_rate=rate, learning_rate_schedule="cosine")
    told["seconds of the fit"], _ = seconds(lambda: model.fit(X))
    history = model.history_
    told["ELBO of training rows in the last epoch"] = float(history[-1])
    note()

    def evaluate(name, n_rows, n_draws):
        rows = test[:n_rows]
        told[f"ELBO of {len(rows)} test rows, {name}"] = float(model.bound(rows, n_samples=20).mean())
        spent, found = seconds(lambda: model.estimate_log_density(rows, n_samples=n_draws))
        value, error = on_host(found.value), on_host(found.standard_error)
        told[f"ln p of {len(rows)} test rows, {n_draws} draws, {name}"] = {
            "mean": float(value.mean()),
            "standard error of the draws": float(np.sqrt(np.mean(error**2) / len(value))),
            "standard error over rows": float(value.std() / np.sqrt(len(value))),
            "seconds": spent,
        }
        note()
        return spent

    evaluate("normal prior", min(n_test, 2000), n_draws // 10)
    spent = evaluate("normal prior", 1000, n_draws)
    K = 50 if len(X) > 5000 else 2
    prior = GaussianMixture(K, max_iter=50, tol=1e-4, n_init=1, random_state=0)
    model.set_params(prior=prior, warm_start=True, max_iter=0)  # the networks stay as they are
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fifty iterations are meant
        told["seconds of fitting the mixture prior"], _ = seconds(lambda: model.fit(X))
    note()
    evaluate("mixture prior", min(n_test, 2000), n_draws // 10)
    samples = model.sample(100, random_state=0)[0]
    evaluate("mixture prior", 1000, n_draws)
    model.prior_ = None
    if 1.5 * spent * n_test / 1000 < 60.0 * (minutes + 1.0) - data.elapsed():
        evaluate("normal prior", n_test, n_draws)
    reconstructed = model.reconstruct(test[:100])
    return {
        "samples": on_host(samples).astype(np.float32),
        "reconstructed": on_host(reconstructed).astype(np.float32),
        "history": history,
    }


# -- all ----------------------------------------------------------------------------------------------


class Digits:
    """Rows in main memory and on the device."""

    def __init__(self, path, device, n):
        rows = np.load(path)
        scaled = lambda name: (rows[name][:n].reshape(len(rows[name][:n]), -1) / np.float32(255)).astype("f4")
        self.device = device
        self.X_cpu, self.y, self.test_y = scaled("X_train"), rows["y_train"][:n], rows["y_test"][:n]
        self.X = torch.from_numpy(self.X_cpu).to(device)
        self.test = torch.from_numpy(scaled("X_test")).to(device)
        self.began = time.perf_counter()

    def elapsed(self):
        return time.perf_counter() - self.began


PARTS = {"rate": rate, "dbn": dbn, "vae": vae}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=str(ROOT / "shared" / "data" / "mnist.npz"))
    parser.add_argument("--out", default=os.environ.get("OUT", "."))
    parser.add_argument("--minutes", type=float, default=5.0, help="for the training of dbn or vae")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", choices=tuple(PARTS), action="append", help="one of the parts")
    parser.add_argument("--plain", action="store_true", help="dbn and vae without CUDA graphs")
    parser.add_argument("--quick", action="store_true", help="few rows and units, to see that it runs")
    given = parser.parse_args()
    if given.quick:
        SIZES[:] = QUICK_SIZES
    out = Path(given.out)
    out.mkdir(parents=True, exist_ok=True)
    failed = False
    for part in given.only or PARTS:
        data = Digits(given.data, given.device, 500 if given.quick else None)
        told = {
            "part": part,
            "device": torch.cuda.get_device_name() if given.device == "cuda" else given.device,
            "torch": torch.__version__,
            "rows": len(data.X),
            "published": PUBLISHED,
        }

        def note(told=told, data=data, part=part):
            told["seconds in all"] = data.elapsed()
            text = json.dumps(told, indent=1)
            (out / f"networks_gpu_{part}.json").write_text(text + "\n", encoding="utf-8")
            print(json.dumps(told), flush=True)

        try:
            with plain_steps() if given.plain else nullcontext():
                arrays = PARTS[part](data, told, note, 0.2 if given.quick else given.minutes)
            if arrays:
                np.savez_compressed(out / f"networks_gpu_{part}.npz", **arrays)
        except Exception:
            told["ended by"], failed = traceback.format_exc(), True
            print(told["ended by"], flush=True)
        note()
    sys.exit(failed)


if __name__ == "__main__":
    main()
