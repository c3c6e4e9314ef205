"""Document 004: lecture notes on mixtures of factor analysers and on matrix factorisation."""
