"""Shared by all estimators: options, validation, fitting, row-wise methods, criteria and saving.

An estimator is a dataclass of its options (`options`), validates its input (`checks`, `data`, `labels`),
describes its fitted arrays in a table (`parameters`), and calls one function to fit (`fitting`, and `em` for
models with a kernel). Methods with one result per row use `rows`.
"""
