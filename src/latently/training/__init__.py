"""The training loop for models whose parameters are torch modules.

`generators`: random numbers; `batches`: rows as tensors; `loop`: epochs; `resume`: checkpoints; `modules`:
parameters as named arrays.
"""
