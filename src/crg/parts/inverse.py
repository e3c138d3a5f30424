"""Inverses of symmetric positive definite matrices, by elimination and from the small side."""

from __future__ import annotations

from crg.types import Array, namespace

_BLOCK = 64  # rows below which a matrix is factorised directly


def inverse(matrix: Array) -> Array | None:
    """The symmetric inverse of a positive definite matrix; None if it is not one.

    Block elimination: with A, B, C the blocks of the matrix and X = B A^-1, the inverse has the
    blocks A^-1 + X^T Q X, -Q X and Q, where Q = (C - X B^T)^-1. The blocks on the diagonal are
    factorised by Cholesky, which fails exactly where the matrix is not positive definite.
    """
    xp = namespace(matrix)
    try:
        found = _eliminated(matrix)
    except (ValueError, RuntimeError):  # NumPy's and torch's LinAlgError
        return None
    return 0.5 * (found + found.T) if bool(xp.all(xp.isfinite(found))) else None


def _eliminated(matrix: Array) -> Array:
    xp, n = namespace(matrix), matrix.shape[0]
    if n <= _BLOCK:
        factor = xp.linalg.inv(xp.linalg.cholesky(matrix))
        return factor.T @ factor
    half = n // 2
    first = _eliminated(matrix[:half, :half])
    x = matrix[half:, :half] @ first
    last = _eliminated(matrix[half:, half:] - x @ matrix[:half, half:])
    y = last @ x
    found = xp.empty_like(matrix)
    found[:half, :half] = first + x.T @ y
    found[half:, :half], found[:half, half:], found[half:, half:] = -y, -y.T, last
    return found


def inverse_from_rows(rows: Array, weights: Array, ridge: float) -> Array | None:
    """(ridge I + rows^T diag(weights) rows)^-1 for few rows (J, D); None if it has none.

    Woodbury: it is (I - rows^T (ridge diag(1/weights) + rows rows^T)^-1 rows) / ridge, whose
    inner matrix is J x J. Weights may be negative, but not zero.
    """
    xp, (j, width) = namespace(rows), rows.shape
    inner = rows @ rows.T + ridge * xp.eye(j, dtype=rows.dtype, device=rows.device) / weights
    try:
        found = -(rows.T @ xp.linalg.solve(inner, rows)) / ridge
    except (ValueError, RuntimeError):
        return None
    found = found + xp.eye(width, dtype=rows.dtype, device=rows.device) / ridge
    return 0.5 * (found + found.T) if bool(xp.all(xp.isfinite(found))) else None
