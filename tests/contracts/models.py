"""Mixtures in all their variants, as the oracles know them.

Parameters travel as plain dicts in the oracle's shapes (`weights`, `means` and either `covs` or
`loadings` and `noise`), whatever an estimator ties or leaves out. With common loadings they are `weights`,
`loadings` (D, q), `latent_means`, `latent_covs` and `noise` (D,).
"""

from dataclasses import dataclass, field

import numpy as np

from latently.mixture import MCFA, MFA, MPPCA, PPCA, FactorAnalysis, GaussianMixture
from tests.oracles import mcfa
from tests.oracles import mixtures as oracle

PER_COMPONENT = {"weights", "latent_means", "latent_covs"}  # of parameters with common loadings


@dataclass(frozen=True)
class Model:
    """How to build, start and read one kind of estimator, and what the oracle calls it."""

    name: str
    cls: type
    kind: str  # the oracle's name of it in n_parameters
    options: dict = field(default_factory=dict)  # of the constructor and of from_parameters
    isotropic: bool = False
    shared: bool = False
    one_component: bool = False
    no_factors: bool = False  # q is always zero
    common_loadings: bool = False  # one map from factors to features, and a mean only through it

    def __str__(self):
        return self.name

    @property
    def is_gaussian(self):
        return self.cls is GaussianMixture

    @property
    def noise_type(self):
        return "isotropic" if self.isotropic else "diagonal"

    @property
    def translation_invariant(self):
        """Whether rows moved by a constant are rows of the same model with other means."""
        return not self.common_loadings

    def sizes(self, K, q):
        """The K and q that this model can have, nearest to those asked for."""
        fewest, most = (1 if self.common_loadings else 0), (0 if self.no_factors else q)
        return 1 if self.one_component else K, max(fewest, most)

    # -- parameters -----------------------------------------------------------------------------

    def example(self, rng, D, K, q, spread=2.0):
        """Random parameters."""
        K, q = self.sizes(K, q)
        if self.common_loadings:
            roots = rng.normal(size=(K, q, q))
            return {
                "weights": rng.dirichlet(np.full(K, 5.0)),
                "loadings": rng.normal(size=(D, q)),
                "latent_means": rng.normal(scale=spread, size=(K, q)),
                "latent_covs": np.array([R @ R.T + 0.5 * np.eye(q) for R in roots]),
                "noise": rng.uniform(0.3, 2.0, size=D),
            }
        theta = {"weights": rng.dirichlet(np.full(K, 5.0)), "means": rng.normal(scale=spread, size=(K, D))}
        if self.is_gaussian:
            roots = rng.normal(size=(K, D, D))
            covs = np.array([A @ A.T + 0.5 * np.eye(D) for A in roots])
            return {**theta, "covs": _tied_like(covs, self.options["covariance_type"])}
        noise = rng.uniform(0.3, 2.0, size=(K, D))
        noise = np.repeat(noise[:, :1], D, axis=1) if self.isotropic else noise
        noise = np.repeat(noise[:1], K, axis=0) if self.shared else noise
        return {**theta, "loadings": rng.normal(size=(K, D, q)), "noise": noise}

    def narrower(self, theta, factor=0.7):
        """The same with all covariances multiplied by `factor`."""
        if self.is_gaussian:
            return {**theta, "covs": factor * theta["covs"]}
        if self.common_loadings:
            latent_covs, noise = factor * theta["latent_covs"], factor * theta["noise"]
            return {**theta, "latent_covs": latent_covs, "noise": noise}
        return {**theta, "loadings": np.sqrt(factor) * theta["loadings"], "noise": factor * theta["noise"]}

    def centred(self, theta, means):
        """The same with these means (K, D), or the nearest to them that the loadings can make."""
        if self.common_loadings:
            return {**theta, "latent_means": means @ np.linalg.pinv(theta["loadings"]).T}
        return {**theta, "means": means}

    def scaled(self, theta, unit):
        """The parameters of rows in other units: x * unit, unit (D,) or a number."""
        unit = unit * np.ones(self.shape(theta)[1])
        if self.common_loadings:
            return {**theta, "loadings": unit[:, None] * theta["loadings"], "noise": unit**2 * theta["noise"]}
        moved = {**theta, "means": unit * theta["means"]}
        if self.is_gaussian:
            return {**moved, "covs": theta["covs"] * unit[:, None] * unit}
        return {**moved, "loadings": unit[:, None] * theta["loadings"], "noise": unit**2 * theta["noise"]}

    def picked(self, theta, components):
        """The same with these components alone, in this order."""
        own = PER_COMPONENT if self.common_loadings else set(theta)
        return {name: array[components] if name in own else array for name, array in theta.items()}

    def normal_form(self, theta):
        """The same as `fit` leaves it: of common loadings, with orthonormal columns."""
        if not self.common_loadings:
            return theta
        return dict(zip(theta, mcfa.normal_form(*theta.values()), strict=True))

    def shape(self, theta):
        """K, D, q."""
        K, D = self.dense(theta)[1].shape
        return K, D, 0 if self.is_gaussian else theta["loadings"].shape[-1]

    def dense(self, theta):
        """(weights, means, covs): what the oracle's densities take."""
        if self.common_loadings:
            return mcfa.dense(*theta.values())
        covs = theta["covs"] if self.is_gaussian else oracle.covariances(theta["loadings"], theta["noise"])
        return theta["weights"], theta["means"], covs

    def step(self, X, theta, sample_weight=None, floor=None):
        """One EM step of the oracle; with a floor (D,), the maximiser under that bound."""
        if self.is_gaussian:
            kind = self.options["covariance_type"]
            weights, means, covs = oracle.gmm_step(X, *self.dense(theta), kind, sample_weight=sample_weight)
            if floor is not None:
                covs = np.array([_floored(cov, floor, kind) for cov in covs])
            return {"weights": weights, "means": means, "covs": covs}
        if self.common_loadings:
            *others, noise = mcfa.step(X, *theta.values(), sample_weight)
            noise = noise if floor is None else oracle.floor_diagonal(noise, floor)
            return dict(zip(theta, (*others, noise), strict=True))
        weights, means, loadings, noise = oracle.mfa_step(
            X, *theta.values(), self.noise_type, self.shared, sample_weight=sample_weight
        )
        if floor is not None:
            noise = np.array([oracle.floor_diagonal(psi, floor) for psi in noise])
        return {"weights": weights, "means": means, "loadings": loadings, "noise": noise}

    def factor_posterior(self, X, theta):
        """The oracle's E[z | x, k] and Cov[z | x, k]."""
        of = mcfa if self.common_loadings else oracle
        return of.factor_posterior(X, *list(theta.values())[1:])

    def transform(self, X, theta):
        """The oracle's E[z | x]."""
        return (mcfa if self.common_loadings else oracle).transform(X, *theta.values())

    def reconstruct(self, X, theta):
        """The oracle's rows without their noise."""
        return (mcfa if self.common_loadings else oracle).reconstruct(X, *theta.values())

    def rows_of_factors(self, Z, theta):
        """(N, K, D) what factors mean in each component."""
        if self.common_loadings:
            return np.array([[theta["loadings"] @ z] * len(theta["weights"]) for z in Z])
        own = list(zip(theta["means"], theta["loadings"], strict=True))
        return np.array([[mu + L @ z for mu, L in own] for z in Z])

    def floor(self, X, noise_floor, sample_weight=None):
        """(D,) smallest variances: a fraction of the data's, or of their mean if isotropic."""
        mean = np.average(X, axis=0, weights=sample_weight)
        variance = np.average((X - mean) ** 2, axis=0, weights=sample_weight)
        return noise_floor * (np.full(X.shape[1], variance.mean()) if self.isotropic else variance)

    def n_parameters(self, D, K, q):
        K, q = self.sizes(K, q)
        if self.common_loadings:
            return mcfa.n_parameters(D, K, q)
        return oracle.n_parameters(self.kind, D, K, q, self.shared)

    def jacobian_rank(self, D, K, q):
        K, q = self.sizes(K, q)
        if self.common_loadings:
            return mcfa.jacobian_rank(D, K, q)
        return oracle.jacobian_rank(self.kind, D, K, q, self.shared)

    # -- estimators -----------------------------------------------------------------------------

    def unfitted(self, K=2, q=1, **settings):
        """An estimator before `fit`; of few starts, to save time."""
        K, q = self.sizes(K, q)
        settings = {"n_init": 3, **settings}
        if self.is_gaussian:
            return self.cls(K, **self.options, **settings)
        sizes = (q,) if self.one_component else (K, q)
        return self.cls(*sizes, **self.options, **settings)

    def started(self, theta, **settings):
        """An estimator before `fit`, with all starting values given.

        By plain EM and maximum likelihood, as the oracle knows them, if not told otherwise.
        """
        settings = {"accelerate": None, "prior": None, **settings}
        K, _, q = self.shape(theta)
        return self.unfitted(K, q, **self.starts(theta), **settings)

    def known(self, theta):
        """A fitted estimator that has these parameters, and goes on from them by maximum likelihood."""
        return self.cls.from_parameters(**self.attributes(theta), **self.options, prior=None)

    def kernel(self, known, floor, dtype="float64"):
        """The kernel behind an estimator, with a floor (D,) of variances, and its parameters."""
        structure = known._structure()
        return structure.kernel(structure.family(floor), dtype), known._fitted_model().params

    def attributes(self, theta):
        """The parameters by the names and in the shapes of fitted attributes."""
        if self.is_gaussian:
            covariances = oracle.sklearn_covariances(theta["covs"], self.options["covariance_type"])
            return {"weights": theta["weights"], "means": theta["means"], "covariances": covariances}
        if self.one_component:
            return {
                "mean": theta["means"][0],
                "loadings": theta["loadings"][0],
                "noise_variance": theta["noise"][0],
            }
        if self.common_loadings:
            return {
                "weights": theta["weights"],
                "loadings": theta["loadings"],
                "latent_means": theta["latent_means"],
                "latent_covariances": theta["latent_covs"],
                "noise_variance": theta["noise"],
            }
        return {
            "weights": theta["weights"],
            "means": theta["means"],
            "loadings": theta["loadings"],
            "noise_variance": theta["noise"],
        }

    def starts(self, theta):
        """The parameters as starting values."""
        names = {
            "weights": "weights_init",
            "means": "means_init",
            "mean": "means_init",
            "covariances": "covariances_init",
            "loadings": "loadings_init",
            "latent_means": "latent_means_init",
            "latent_covariances": "latent_covariances_init",
            "noise_variance": "noise_init",
        }
        return {names[name]: value for name, value in self.attributes(theta).items()}

    def theta(self, estimator):
        """The parameters of a fitted estimator."""
        if self.is_gaussian:
            means = estimator.means_
            covs = _dense_covariances(estimator.covariances_, self.options["covariance_type"], *means.shape)
            return {"weights": estimator.weights_, "means": means, "covs": covs}
        if self.one_component:
            arrays = (estimator.mean_, estimator.loadings_, estimator.noise_variance_)
            means, loadings, noise = (array[None] for array in arrays)
            return {"weights": np.ones(1), "means": means, "loadings": loadings, "noise": noise}
        if self.common_loadings:
            return {
                "weights": estimator.weights_,
                "loadings": estimator.loadings_,
                "latent_means": estimator.latent_means_,
                "latent_covs": estimator.latent_covariances_,
                "noise": estimator.noise_variance_,
            }
        return {
            "weights": estimator.weights_,
            "means": estimator.means_,
            "loadings": estimator.loadings_,
            "noise": estimator.noise_variance_,
        }


def _tied_like(covs, kind):
    if kind == "tied":
        return np.array([covs[0]] * len(covs))
    if kind == "diag":
        return np.array([np.diag(np.diag(cov)) for cov in covs])
    if kind == "spherical":
        return np.array([cov[0, 0] * np.eye(len(cov)) for cov in covs])
    return covs


def _dense_covariances(covariances, kind, K, D):
    if kind == "full":
        return covariances
    if kind == "tied":
        return np.array([covariances] * K)
    if kind == "diag":
        return np.array([np.diag(variances) for variances in covariances])
    return np.array([variance * np.eye(D) for variance in covariances])


def _floored(cov, floor, kind):
    if kind in ("full", "tied"):
        return oracle.floor_full(cov, floor)
    if kind == "diag":
        return np.diag(oracle.floor_diagonal(np.diag(cov), floor))
    return oracle.floor_spherical(cov[0, 0], floor) * np.eye(len(cov))


def _gaussian(kind):
    options = {"covariance_type": kind}
    return Model(f"GMM-{kind}", GaussianMixture, kind, options, isotropic=kind == "spherical")


def _mixed(cls, kind, shared, isotropic=False, no_factors=False, **options):
    name = cls.__name__ + "".join(f"-{value}" for value in options.values())
    name += ("-shared" if shared else "") + ("-q0" if no_factors else "")
    options = {**options, "shared_noise": shared}
    return Model(name, cls, kind, options, isotropic, shared, no_factors=no_factors)


GAUSSIAN = [_gaussian(kind) for kind in ("full", "tied", "diag", "spherical")]
FA = Model("FactorAnalysis", FactorAnalysis, "fa", one_component=True)
PRINCIPAL = Model("PPCA", PPCA, "ppca", one_component=True, isotropic=True)
MIXED = [_mixed(MFA, "mfa", shared, noise="diagonal") for shared in (False, True)]
MIXED += [_mixed(MPPCA, "mppca", shared, isotropic=True) for shared in (False, True)]
# Models of this list under other names (isotropic MFA is MPPCA, a mixture without factors is one of diagonal
# or spherical Gaussians): held against the oracle and their twins, and not to every contract once more.
TWINS = [_mixed(MFA, "mppca", shared, isotropic=True, noise="isotropic") for shared in (False, True)]
TWINS += [_mixed(MFA, "mfa", shared, no_factors=True, noise="diagonal") for shared in (False, True)]
TWINS += [_mixed(MPPCA, "mppca", shared, isotropic=True, no_factors=True) for shared in (False, True)]

COMMON = Model("MCFA", MCFA, "mcfa", shared=True, common_loadings=True)

FACTOR = [FA, PRINCIPAL, *MIXED, COMMON]
ALL = [*GAUSSIAN, *FACTOR]
BY_EM = [model for model in ALL if model is not PRINCIPAL]
BY_NAME = {model.name: model for model in ALL}


# -- data and comparisons ---------------------------------------------------------------------------


def rows(rng, N, D, spread=2.0, width=1.0):
    """(N, D) rows in three clusters of different shapes."""
    centres = rng.normal(scale=spread, size=(3, D))
    shapes = width * rng.normal(size=(3, D, D))
    labels = rng.integers(3, size=N)
    noise = rng.normal(size=(N, D))
    return np.array([centres[k] + shapes[k] @ e for k, e in zip(labels, noise, strict=True)])


def instance(model, seed, n_rows=25):
    """Random sizes (D from 1 to 8, K to 4, q from 0 to D), parameters and rows: theta, X."""
    rng = np.random.default_rng(seed)
    D, K = int(rng.integers(1, 9)), int(rng.integers(1, 5))
    q = int(rng.integers(0, D + 1))
    return model.example(rng, D, K, q), rows(rng, n_rows, D)


def assert_same(actual, expected, rtol=1e-8, atol=1e-9):
    """Two dicts of parameters agree."""
    assert actual.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(actual[name], expected[name], rtol=rtol, atol=atol, err_msg=name)
