"""
Selecting the numbers of components and factors by BIC
======================================================

BIC balances the likelihood against the number of free parameters; the model with the lowest BIC is selected.
On the wine data it selects three components, one for each cultivar, and a subspace of a few dimensions.
"""

from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from latently.mixture import MCFA
from latently.selection import select

X = StandardScaler().fit_transform(load_wine().data)
grid = {"n_components": [1, 2, 3, 4, 5], "n_factors": [2, 3, 4, 5]}
search = select(MCFA(n_init=4, tol=1e-5), X, grid, random_state=0, n_jobs=1)
print(search.best_params_)

display = search.plot()

# %%
# The five best combinations of the grid:

columns = ["n_components", "n_factors", "n_parameters", "log_likelihood", "bic"]
search.table_.sort_values("rank").head()[columns].round(2)
