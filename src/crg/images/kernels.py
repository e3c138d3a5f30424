"""Compiled resizing, affine maps and mixing, where numba is installed: Pillow's, to the last bit.

As in Pillow each direction is resized with weights in fixed point, 22 bits behind the point, and
with whole pixel values in between. What differs is the order in memory: each pass
finds its lines as rows, so that it sums a few long rows, which the compiler vectorises. A flip
only changes where a line is written.

In an affine map each pixel lies between four pixels of the source. Neighbours in a row mostly
have neighbours there too, so a row is cut into runs over which the source moves along, and a run
is a sum of long rows, which the compiler vectorises.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from crg.images import views
from crg.images.views import TOGETHER as _TOGETHER

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,arg-type"


compiled: Any = njit(cache=True, nogil=True, error_model="numpy")
_BITS = 22
_HALF = np.int32(1 << (_BITS - 1))
axis_weights = compiled(views.axis_weights)


@compiled
def resize(lines, one, other, bicubic, flip_one, flip_other, out):
    """Resize one direction, whose ``lines`` are rows, then the other, whose lines become rows.

    A direction is where it begins in the image, its length, the length it is scaled to, and
    where the square begins in that.
    """
    side = out.shape[0]
    first, weights = axis_weights(one[1], one[2], one[3], side, bicubic)
    then, more = axis_weights(other[1], other[2], other[3], side, bicubic)
    low, high = then[0], min(other[1], then[-1] + more.shape[1])  # of the other, what is needed
    made = np.empty((side, 3 * (high - low)), np.uint8)
    combine_lines(lines, one[0], one[1], 3 * (other[0] + low), first, weights, flip_one, made)
    turned = np.empty((high - low, 3 * side), np.uint8)
    transpose(made, turned)
    combine_lines(turned, 0, high - low, 0, then - low, more, flip_other, out)


@compiled
def combine_lines(source, at, length, offset, first, weights, flipped, out):
    """One direction: each row of ``out`` is a weighted sum of rows of ``source``.

    Those are ``length`` rows from ``at`` on, and of each the bytes from ``offset`` on.
    """
    lines = source[at : at + length, offset : offset + out.shape[1]]
    last, sums = out.shape[0] - 1, np.empty(out.shape[1], np.int32)
    for i in range(out.shape[0]):
        combine(lines, first[i], weights[i], sums, out[last - i if flipped else i])


@compiled
def combine(rows, first, weights, sums, out):
    """The weighted sum of the rows from ``first`` on; weights beyond the last row are zero."""
    last = rows.shape[0] - 1
    n = weights.shape[0]
    while weights[n - 1] == 0:
        n -= 1
    a, b = rows[first], rows[min(first + 1, last)]
    c, d = rows[min(first + 2, last)], rows[min(first + 3, last)]
    if n <= 2:
        return combine_two(a, b, weights, out)
    if n <= _TOGETHER:
        return combine_four(a, b, c, d, weights, out)
    for i in range(out.shape[0]):
        sums[i] = _HALF
    for j in range(0, n, _TOGETHER):
        a, b = rows[min(first + j, last)], rows[min(first + j + 1, last)]
        c, d = rows[min(first + j + 2, last)], rows[min(first + j + 3, last)]
        add_four(a, b, c, d, weights[j : j + _TOGETHER], sums)
    for i in range(out.shape[0]):
        out[i] = np.uint8(min(max(sums[i] >> _BITS, 0), 255))


@compiled
def combine_two(a, b, weights, out):
    """Two rows, which is what enlarging needs."""
    s, t = np.int32(weights[0]), np.int32(weights[1])
    for i in range(out.shape[0]):
        total = np.int32(np.int32(a[i]) * s + np.int32(b[i]) * t + _HALF)
        out[i] = np.uint8(min(max(total >> _BITS, 0), 255))


@compiled
def combine_four(a, b, c, d, weights, out):
    """Up to four rows."""
    s, t = np.int32(weights[0]), np.int32(weights[1])
    u, v = np.int32(weights[2]), np.int32(weights[3])
    for i in range(out.shape[0]):
        left = np.int32(np.int32(a[i]) * s + np.int32(b[i]) * t)
        right = np.int32(np.int32(c[i]) * u + np.int32(d[i]) * v)
        total = np.int32(left + right + _HALF)
        out[i] = np.uint8(min(max(total >> _BITS, 0), 255))


@compiled
def add_four(a, b, c, d, weights, sums):
    """Four more rows, added to the sums so far."""
    s, t = np.int32(weights[0]), np.int32(weights[1])
    u, v = np.int32(weights[2]), np.int32(weights[3])
    for i in range(sums.shape[0]):
        sums[i] += np.int32(
            np.int32(a[i]) * s + np.int32(b[i]) * t + np.int32(c[i]) * u + np.int32(d[i]) * v
        )


@compiled
def transpose(columns, rows):
    """Pixels of three bytes, (S, 3 H) to (H, 3 S)."""
    n = columns.shape[0]
    whole = n - n % _TOGETHER
    for x in range(0, whole, _TOGETHER):
        stand_four(columns[x], columns[x + 1], columns[x + 2], columns[x + 3], x, rows)
    for x in range(whole, n):
        for y in range(rows.shape[0]):
            for c in range(3):
                rows[y, 3 * x + c] = columns[x, 3 * y + c]


@compiled
def stand_four(a, b, c, d, x, rows):
    """Write four columns as the columns from x on; one at a time takes twice as long."""
    for y in range(rows.shape[0]):
        red, green, blue, out = 3 * y, 3 * y + 1, 3 * y + 2, rows[y, 3 * x : 3 * x + 12]
        out[0], out[1], out[2] = a[red], a[green], a[blue]
        out[3], out[4], out[5] = b[red], b[green], b[blue]
        out[6], out[7], out[8] = c[red], c[green], c[blue]
        out[9], out[10], out[11] = d[red], d[green], d[blue]


@compiled
def normalise(pixels, scale, shift, out):
    """out (B, 3, S, S) = scale pixels (B, S, S, 3) - shift, the channels first."""
    for i in range(pixels.shape[0]):
        normalise_one(pixels[i].reshape(-1), scale, shift, out[i].reshape(3, -1))


@compiled
def normalise_one(pixels, scale, shift, out):
    """Normalise one image in one pass over its pixels."""
    red, green, blue = out[0], out[1], out[2]
    for i in range(red.shape[0]):
        red[i] = np.float32(pixels[3 * i]) * scale[0] - shift[0]
        green[i] = np.float32(pixels[3 * i + 1]) * scale[1] - shift[1]
        blue[i] = np.float32(pixels[3 * i + 2]) * scale[2] - shift[2]


_OUTSIDE = np.int32(-9)  # in place of a column of the source


@compiled
def affine(old, matrix, new):
    """new[y, x] = old at matrix (x, y), interpolated bilinearly, black outside."""
    rows, columns = old.shape[0], old.shape[1]
    source, target = old.reshape(rows, -1), new.reshape(rows, -1)
    left, top = np.empty(columns, np.int32), np.empty(columns, np.int32)
    dx, dy = np.empty(3 * columns), np.empty(3 * columns)
    for i in range(rows):
        locate(i, matrix, rows, columns, left, top, dx, dy)
        j = 0
        while j < columns:
            end = end_of_run(left, top, j, columns)
            here = slice(3 * j, 3 * end)
            fill(source, left[j], top[j], dx[here], dy[here], target[i, here])
            j = end


@compiled
def locate(i, matrix, rows, columns, left, top, dx, dy):
    """For row i, the pixel to the upper left in the source; distances from it, per channel."""
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
        dx[3 * j] = dx[3 * j + 1] = dx[3 * j + 2] = x - floor_x
        dy[3 * j] = dy[3 * j + 1] = dy[3 * j + 2] = y - floor_y


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


@compiled
def count(pixels, counts):
    """How often each value occurs, per channel, (3, 256)."""
    for i in range(0, pixels.shape[0], 3):
        counts[0, pixels[i]] += 1
        counts[1, pixels[i + 1]] += 1
        counts[2, pixels[i + 2]] += 1


@compiled
def look_up(old, table, new):
    """Each channel by its own table."""
    for i in range(0, old.shape[0], 3):
        new[i] = table[0, old[i]]
        new[i + 1] = table[1, old[i + 1]]
        new[i + 2] = table[2, old[i + 2]]


@compiled
def add_share(pixels, share, total):
    """total += share pixels."""
    for i in range(total.shape[0]):
        total[i] += np.float32(pixels[i]) * share


@compiled
def finish(total, pixels):
    """Whole values."""
    for i in range(total.shape[0]):
        pixels[i] = np.uint8(min(total[i] + np.float32(0.5), np.float32(255)))
