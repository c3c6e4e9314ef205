"""The floor that every estimator stands on: options, validation, fitting, methods of rows, criteria, saving.

An estimator is a dataclass of its options (`options`), checks what it is given (`checks`, `data`, `labels`),
describes its fitted arrays in a table (`parameters`), and calls one function to fit (`fitting`, and `em` for
models with a kernel). Methods that give one result per row go through `rows`.
"""
