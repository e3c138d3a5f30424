"""Compiled affine maps, where numba is installed: Pillow's bilinear ones, to the last bit.

Each pixel lies between four pixels of the source. Neighbours in a row mostly have neighbours
there too, so a row is cut into runs over which the source moves along, and a run is a sum of
long rows, which the compiler vectorises.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
from __future__ import annotations

import numpy as np

from crg.pixels.kernels import compiled

_OUTSIDE = np.int32(-9)  # in place of a column of the source


@compiled
def affine(old, matrix, new):
    """new[y, x] = old at matrix (x, y), interpolated bilinearly, black outside."""
    rows, columns = old.shape[0], old.shape[1]
    source, target = old.reshape(rows, -1), new.reshape(rows, -1)
    left, top = np.empty(columns, np.int32), np.empty(columns, np.int32)
    dx, dy = np.empty(columns), np.empty(columns)
    dx3, dy3 = np.empty(3 * columns), np.empty(3 * columns)
    for i in range(rows):
        locate(i, matrix, rows, columns, left, top, dx, dy)
        triple(dx, dx3)
        triple(dy, dy3)
        j = 0
        while j < columns:
            end = end_of_run(left, top, j, columns)
            here = slice(3 * j, 3 * end)
            fill(source, left[j], top[j], dx3[here], dy3[here], target[i, here])
            j = end


@compiled
def locate(i, matrix, rows, columns, left, top, dx, dy):
    """For row i, the pixel to the upper left in the source and the distances from it."""
    a, b, c = matrix[0], matrix[1], matrix[2]
    d, e, f = matrix[3], matrix[4], matrix[5]
    for j in range(columns):
        x = a * (j + 0.5) + b * (i + 0.5) + c
        y = d * (j + 0.5) + e * (i + 0.5) + f
        inside = (x >= 0) & (x < columns) & (y >= 0) & (y < rows)
        x, y = x - 0.5, y - 0.5
        floor_x, floor_y = np.floor(x), np.floor(y)
        left[j] = np.int32(floor_x) if inside else _OUTSIDE
        top[j] = np.int32(floor_y)
        dx[j], dy[j] = x - floor_x, y - floor_y


@compiled
def triple(values, out):
    """Each value three times, once per channel."""
    for i in range(values.shape[0]):
        out[3 * i] = out[3 * i + 1] = out[3 * i + 2] = values[i]


@compiled
def end_of_run(left, top, begin, columns):
    """Where the source stops to move along; pixels at its left and right end stand alone."""
    end = begin + 1
    if left[begin] == _OUTSIDE:
        while end < columns and left[end] == _OUTSIDE:
            end += 1
    elif left[begin] >= 0:
        ahead = left[begin] - begin
        limit = min(columns, columns - 1 - ahead)
        while end < limit and left[end] - end == ahead and top[end] == top[begin]:
            end += 1
    return end


@compiled
def fill(source, left, top, dx, dy, out):
    """One run, starting from this pixel of the source; at its border the pixels repeat."""
    if left == _OUTSIDE:
        for i in range(out.shape[0]):
            out[i] = 0
        return
    n, last = out.shape[0], source.shape[1] - 3
    upper, lower = source[max(top, 0)], source[min(top + 1, source.shape[0] - 1)]
    near, far = 3 * max(left, 0), min(3 * (left + 1), last)
    blend(upper[near : near + n], upper[far : far + n],
          lower[near : near + n], lower[far : far + n], dx, dy, out)  # fmt: skip


@compiled
def blend(a, b, c, d, dx, dy, out):
    """Between four rows; cut off, not rounded."""
    for i in range(out.shape[0]):
        upper = np.float64(a[i]) + (np.float64(b[i]) - np.float64(a[i])) * dx[i]
        lower = np.float64(c[i]) + (np.float64(d[i]) - np.float64(c[i])) * dx[i]
        out[i] = np.uint8(np.int32(upper + (lower - upper) * dy[i]))
